"""MicroPython's raw REPL over a serial port or a `socket://`: run code on a board, and move files.

Code goes by raw paste ("Raw mode and raw-paste mode" of MicroPython's manual), which does not
overrun the board.
"""

import ast
import contextlib
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any, Self

from ternhost.errors import DeviceError, RefusedError, TernError
from ternhost.guides import guide
from ternhost.reach.links import open_link
from ternhost.reach.ports.link import BAUD, PORT_ERRORS, open_port
from terntools.boards import heard, room

OLDEST_MICROPYTHON = "1.25"  # that tern supports
_RAW_PROMPT = b"raw REPL; CTRL-B to exit\r\n>"
ENTER_TRIES = 5
_CHUNK = 1536  # bytes of a file in one command
TIMEOUT = 20.0  # seconds without output after which a command is given up
_HANDSHAKE = 10.0  # seconds that an answer of raw paste may take
LOCKED_PATIENCE = 5.0  # seconds in which a locked board shows that it reads
_ARM_WAIT = 2.0  # seconds without output in which a board runs TIMER_CODE
_MOST_ENTERING = 45.0  # seconds until a port that prints on and on without a prompt is given up
MOST_TALK = 5.0  # seconds beyond a timeout after which a port that never falls silent is given up
_MOST_TIMES = 3  # code that prints on and on is given up after so many times its timeout
_MOST_SECONDS = 3600  # that code may run
_MOST_SECONDS_TALKING = 300  # that a program may run which waits for the host
_RENEW = 3.0  # seconds between two renewals of a waiting board's timer

# Starts a timer on the board that resets it after 12 s at its prompt, unless the host has started
# the timer anew by then: so a board runs its program again after the host was killed. While code
# runs, _A() sets the timer to as long as that code may take. The timer is a software timer, number
# -1. An ESP32 has such timers from MicroPython 1.29 on; before, it uses its hardware timer 1.
# Together with what stops a program, this code fits the 260 bytes that an ESP32's port buffers.
TIMER_CODE = b"""import umachine as _M
try:_T=_M.Timer(-1)
except ValueError:_T=_M.Timer(1)
def _A(p=12):_T.init(mode=0,period=1000*p,callback=lambda t:_M.reset())
_A()
\4"""

# Defines _tell(), by which code on the board returns a value to the host: in a line with a character
# that nothing else prints. All code of the host imports the modules that are built into MicroPython
# under their names with a u (uos and so on), since a file in the board's root may be called os.py.
_VALUE = "\x1f"
_TELL = f"def _tell(value):\n print({_VALUE!r} + repr(value))\n"

# How MicroPython ends a traceback when its flash has no room, with the names of errors or without.
_FULL = ("OSError: 28", "OSError: [Errno 28]")

FileProgress = Callable[[int, int], None]  # bytes sent, bytes in all


class ExecutionError(TernError):
    """The code that was sent raised an exception on the board."""

    def __init__(self, traceback: str) -> None:
        """Quote the last line of the traceback, which has the exception, in the message."""
        last_line = "no traceback"
        lines = traceback.strip().splitlines()
        if lines:
            last_line = lines[-1]
        super().__init__(f"the board says: {last_line}")
        self.means_full = last_line.startswith(_FULL)


class SilenceError(DeviceError):
    """The board printed nothing for too long, or is gone."""

    def __init__(self, message: str, output: str) -> None:
        """output: what the code on the board had printed until then."""
        super().__init__(
            message, hint="check its cable, or press reset, and run the same command again"
        )
        self.output = output


class GoneError(SilenceError):
    """The board's port does not exist any more: the board was unplugged, or it crashed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the board on {name} is gone", "")
        self.hint = "check its cable and run the same command again: it goes on where it was"


class NoPromptError(DeviceError):
    """The board does not answer with MicroPython's prompt."""

    def __init__(self, name: str, printed: bytes) -> None:
        """name: the board's port. printed: what the board sent instead of a prompt."""
        text = f"no MicroPython prompt on {name}"
        description = heard.describe(printed)
        if description:
            text += f": {description}"
        hint = "press the board's reset button and try again; without MicroPython, flash it: `tern board flash`"
        super().__init__(text, hint)
        self.printed = printed


def _is_locked(port: str) -> bool:
    """Return whether a board that gives no prompt is locked: then it still answers its host.

    The console of a locked board is closed, so that nobody can read its files.
    """
    try:
        with contextlib.closing(open_link(port, SimpleQueue())) as link:
            link.hello(LOCKED_PATIENCE)
    except RefusedError:  # it has answered, in the protocol of another release
        return True
    except TernError:
        return False
    return True


class Repl:
    """The raw REPL of a board, a context manager that stops the board's program on entry.

    On a visit (`visits=True`) the board's program is started again at the end. Even if this process
    is killed, a timer on the board restarts the program within 30 s, where its MicroPython has one.
    """

    def __init__(self, port: str, baud: int = BAUD, visits: bool = False) -> None:
        """Open the board's port, without sending anything yet. Raises DeviceError and UsageError.

        visits: start the board's program again at the end, as the class says.
        """
        self.name = port
        self._port = open_port(port, baud)
        self.at_prompt = False  # whether the board is known to wait for code

        # For visits only:
        self._timer_code = TIMER_CODE if visits else b""
        self._armed = False  # whether the board's timer runs
        self._stopped = False  # whether the board's program was stopped, and not started again

        # The thread of _renew() uses the port between two commands of the host.
        self._turn = threading.RLock()  # held while the board executes something
        self._closed = threading.Event()
        if visits:
            threading.Thread(target=self._renew, name=f"renewals for {port}", daemon=True).start()

    def __enter__(self) -> Self:
        try:
            self.enter()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the port; on a visit, start the board's program first.

        kind: the class of the exception that ended the context. After one, close() tries to start
        the program.
        """
        has_failed = kind is not None
        is_visit = bool(self._timer_code)
        try:
            if is_visit and self._stopped and not has_failed:
                self.start_main()
        finally:
            if has_failed:
                self.at_prompt = False  # the board may be in the middle of anything
            self.close()

    def _renew(self) -> None:
        """Keep a board that waits at its prompt from being reset by its timer, until `close`.

        Runs in a thread of its own.
        """
        while not self._closed.wait(_RENEW):
            with self._turn, contextlib.suppress(TernError):
                if self._armed and self.at_prompt:
                    self.execute("", _RENEW)  # whatever is executed starts the timer anew

    def close(self) -> None:
        """Close the port, with the board at its interactive prompt, or on a visit in its program."""
        self._closed.set()
        is_visit = bool(self._timer_code)
        if is_visit and self._stopped:
            with contextlib.suppress(TernError):  # a board that is gone starts by itself
                if not self.at_prompt:
                    self.enter(tries=2)
                self.start_main()
        if self.at_prompt:
            with contextlib.suppress(*PORT_ERRORS):
                self._port.write(b"\r\x02")  # Ctrl-B: leave the raw REPL
                self._port.flush()
            self.at_prompt = False
        self._port.close()

    def enter(self, tries: int | None = None) -> None:
        """Interrupt the board's program, and enter the raw REPL.

        tries: how often to try, by default ENTER_TRIES. Raises RefusedError if the board is locked,
        and NoPromptError if it does not answer for another reason.
        """
        printed = b""
        give_up_at = time.monotonic() + _MOST_ENTERING
        with self._turn:
            for attempt in range(tries or ENTER_TRIES):
                if time.monotonic() > give_up_at:
                    break
                self._interrupt()
                answer = self._read_until(_RAW_PROMPT, 1.0 + attempt)
                is_ready = answer.endswith(_RAW_PROMPT)
                if is_ready and self._timer_code:
                    is_ready = self._runs_timer_code()
                if is_ready:
                    self.at_prompt = True
                    self._stopped = True
                    return
                printed += answer
        self._port.close()
        if _is_locked(self.name):
            text = f"the board on {self.name} is locked: it answers its host, but its console is closed"
            raise RefusedError(
                text, hint=f"erase its flash to use it again ({guide('locks.md')} says how)"
            )
        raise NoPromptError(self.name, printed)

    def _interrupt(self) -> None:
        """Stop the board's program and ask for the raw REPL.

        On a visit, also start the board's timer, which restarts the program if the host is killed.
        """
        # A program of tern takes a carriage return and Ctrl-C between two frames as the request to
        # end. Zeros end a frame that is half sent; the program reads up to 64 bytes at once.
        stop_program = bytes(65) + b"\r\x03"
        enter_raw_prompt = b"\r\x01"  # Ctrl-A
        if self._timer_code:
            # In one write, so that the host cannot be killed between the stop and the timer.
            self._write(stop_program + enter_raw_prompt + self._timer_code)
        else:
            self._write(stop_program)
            self._drain(0.2)
            self._write(enter_raw_prompt)

    def soft_reset(self) -> None:
        """Soft-reset the board, which gives it a fresh heap, and return to the raw REPL.

        The board then has run boot.py, but not main.py.
        """
        with self._turn:
            reset = b"\x04"  # Ctrl-D
            if self._armed:
                reset += self._timer_code
            self._write(reset)
            self._expect(b"soft reboot\r\n", TIMEOUT, "a soft reset")
            self._expect(_RAW_PROMPT, TIMEOUT, "a soft reset")
            if self._armed and not self._runs_timer_code():
                self.enter()

    def _runs_timer_code(self) -> bool:
        """Return whether the board has executed the code that starts its timer, after it was sent.

        Also sets `_armed`, whether the timer runs. On a board without timers the code is executed,
        too, but ends with an exception; such a board is left without a timer.
        """
        try:
            _, traceback = self._read_result(_ARM_WAIT)
            self._armed = not traceback
        except GoneError:
            raise
        except SilenceError:
            return False
        return True

    def start_main(self) -> None:
        """Leave the raw REPL and soft-reset the board, so that boot.py and main.py run.

        After this call the port may be closed: the program goes on.
        """
        with self._turn:
            self._write(b"\r\x02")  # Ctrl-B: the interactive prompt; from the raw one, no main.py
            self._read_until(b">>> ", 2.0)
            self._write(b"\x04")  # Ctrl-D
            self.at_prompt = False
            self._stopped = False
            self._expect(b"soft reboot\r\n", TIMEOUT, "a soft reset")

    def listen(self, seconds: float) -> str:
        """Return what a program prints after `start_main`, for some seconds or until it ends."""
        data = b""
        give_up_at = time.monotonic() + seconds
        with contextlib.suppress(GoneError):
            while time.monotonic() < give_up_at and not data.endswith(b">>> "):
                data += self._receive()
        return data.decode(errors="replace")

    def execute(self, code: str, timeout: float = TIMEOUT) -> tuple[str, str]:
        """Run `code` on the board, and return its output and its traceback ("" if it has none).

        timeout: seconds in which the code may print nothing; after them DeviceError is raised.
        """
        with self._turn:
            self._paste(code)
            return self._read_result(timeout)

    def _read_result(self, timeout: float) -> tuple[str, str]:
        """Wait for the end of the code that was sent, and return its output and its traceback.

        The raw REPL answers with the output, Ctrl-D, the traceback, Ctrl-D and a prompt (">").
        timeout: as in `execute`. Raises DeviceError.
        """
        ending = b"\x04"  # Ctrl-D
        limit = _MOST_TIMES * timeout
        output = self._expect(ending, timeout, wanted="an answer", limit=limit)
        output = output.removesuffix(ending)
        traceback = self._expect(ending, timeout, wanted="an answer", limit=limit)
        traceback = traceback.removesuffix(ending)
        self._expect(b">", timeout, wanted="an answer")
        return output.decode(errors="replace"), traceback.decode(errors="replace")

    def run(self, code: str, timeout: float = TIMEOUT) -> str:
        """Run `code` and return its output.

        Raises ExecutionError, StorageError if the board's flash is full, and DeviceError.
        """
        try:
            return self._run(code, timeout)
        except ExecutionError as error:
            if error.means_full:
                raise room.full_error(self) from error
            raise

    def _run(self, code: str, timeout: float = TIMEOUT) -> str:
        """Run `code` and return its output. Raises ExecutionError and DeviceError."""
        output, traceback = self.execute(code, timeout)
        if traceback:
            raise ExecutionError(traceback)
        return output

    def evaluate(self, expression: str, timeout: float = TIMEOUT) -> Any:
        """Return the value of `expression` on the board. Raises ExecutionError and DeviceError.

        The value must be one that can be written as a Python literal.
        """
        return self.value(f"_tell({expression})", timeout)

    def value(self, code: str, timeout: float = TIMEOUT) -> Any:
        """Run `code`, and return the value with which it calls _tell().

        Raises ExecutionError, and DeviceError if it calls that not just once.
        """
        values = self.values(code, timeout)
        if len(values) != 1:
            text = f"the board on {self.name} gave no answer to a question of the host"
            raise DeviceError(text, hint="press its reset button, and run the same command again")
        return values[0]

    def values(self, code: str, timeout: float = TIMEOUT) -> list[Any]:
        """Run `code`, and return the values with which it calls _tell(), in order.

        _tell(), which this method adds to the code, prints a value as a Python literal. Other
        output, such as that of a timer on the board, is ignored. Raises ExecutionError and
        DeviceError.
        """
        values = []
        output = self.run(_TELL + code, timeout)
        for line in output.split("\r\n"):
            _, is_value, text = line.partition(_VALUE)
            if not is_value:
                continue
            try:
                values.append(ast.literal_eval(text))
            except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
                raise DeviceError(
                    f"the board on {self.name} prints something else between its answers: "
                    f"{text[:60]!r}",
                    hint="stop its timers and threads, or remove its boot.py",
                ) from error
        return values

    @contextlib.contextmanager
    def program(
        self, code: str, ready: str, timeout: float = TIMEOUT
    ) -> Iterator[Callable[[bytes, bytes], bytes]]:
        """Run `code`, which prints the line `ready` and then reads its input from the port.

        The context manager yields a function with two arguments, the bytes to send and the bytes
        that end an answer. It returns the next answer with its ending, and ignores empty answers.
        The code must end before the context does. Raises ExecutionError and DeviceError.
        """

        def exchange(data: bytes, ending: bytes) -> bytes:
            """Send `data`, and return the next answer that is not empty, with its ending."""
            self._write(data)
            answer = b""
            give_up_at = time.monotonic() + _MOST_TIMES * timeout
            while not answer.strip(ending):
                if time.monotonic() > give_up_at:
                    raise self._silent("an answer", answer)
                answer = self._expect(ending, timeout, "an answer")
            return answer

        with self._turn:
            self._paste(code, _MOST_SECONDS_TALKING)
            self._expect(ready.encode() + b"\r\n", timeout, "the program to begin")
            yield exchange
            _, traceback = self._read_result(timeout)
        if traceback:
            raise ExecutionError(traceback)

    def _paste(self, code: str, most: int = _MOST_SECONDS) -> None:
        """Send code in the raw-paste mode of MicroPython's prompt, after which the board runs it.

        most: seconds that the code may run before the board's timer resets it, where it has one.
        """
        if self._armed:
            # _A, which the timer code defined, sets the timer: first to `most` seconds, and after
            # the code to its usual time again.
            code = f"_A({most})\ntry:\n exec({code!r})\nfinally:\n _A()"
        if not code:
            code = "\n"  # so that there is something to send
        window_bytes = self._begin_paste()
        if self._send_in_windows(code.encode(), window_bytes):
            self._end_paste()

    def _begin_paste(self) -> int:
        """Start raw paste, and return the size of a window: the bytes that the board takes at once.

        Raises DeviceError if the board does not answer, or has no raw paste.
        """
        self._write(b"\x05A\x01")  # the request for raw paste
        # "R" and 1: the board has raw paste. A slow board may first answer earlier attempts to get
        # its prompt, so all up to that is skipped.
        answer = self._read_until(b"R\x01", _HANDSHAKE)
        if not answer:
            raise self._silent("its prompt")
        if not answer.endswith(b"R\x01"):
            raise DeviceError(
                f"the MicroPython on {self.name} is too old: it has no raw-paste mode",
                hint=f"flash MicroPython {OLDEST_MICROPYTHON} or later: tern board flash",
            )
        header = self._read(3, _HANDSHAKE)  # the size of a window, and the sign for a second one
        window_bytes = int.from_bytes(header[:2], "little")
        if not window_bytes:
            raise self._silent("its prompt", header)
        return window_bytes

    def _send_in_windows(self, data: bytes, window: int) -> bool:
        """Send the code, and return False if the board stops it early because of a syntax error.

        The board grants room for two windows at first, and for another one whenever it has read one,
        by the byte 1. Each part is sent only when both are free, so that its size does not depend
        on timing. window: bytes.
        """
        room_bytes = 2 * window
        bytes_sent = 0
        while bytes_sent < len(data):
            while room_bytes < 2 * window:
                sign = self._read(1, _HANDSHAKE)
                if sign != b"\x01":  # Ctrl-D: the board takes no more
                    self._write(b"\x04")
                    return False
                room_bytes += window
            part = data[bytes_sent : bytes_sent + room_bytes]
            room_bytes = 0
            bytes_sent += len(part)
            if bytes_sent == len(data):
                part += b"\x04"  # Ctrl-D ends the code
            self._write(part)
        return True

    def _end_paste(self) -> None:
        """Wait until the board has read all of the code, which it says by Ctrl-D.

        Raises SilenceError if it does not.
        """
        give_up_at = time.monotonic() + _HANDSHAKE
        room_for_a_window = b"\x01"  # which the board may still offer, but nothing is left to send
        sign = room_for_a_window
        while sign == room_for_a_window and time.monotonic() < give_up_at:
            sign = self._read(1, _HANDSHAKE)
        if sign != b"\x04":
            raise self._silent("the end of the code", sign)

    def directory(self, path: str) -> dict[str, int]:
        """Return the sizes in bytes of the files under `path`, at any depth, by their whole path.

        The result is empty if there is no such directory. The name of a file may be any bytes;
        bytes that are not UTF-8 become surrogates, as in Python's os (PEP 383).
        """
        top_folder = path.rstrip("/").encode()
        code = (
            "import uos\n"
            # A list and no recursion, since folders may be nested deeper than calls.
            f"_folders = [{top_folder!r}]\n"
            "while _folders:\n"
            " _folder = _folders.pop()\n"
            " try:\n"
            # With b'/', names would be text, and would have to be UTF-8.
            "  _entries = uos.ilistdir(_folder or b'/.')\n"
            " except OSError:\n"
            "  continue\n"
            " for _name, _kind, *_rest in _entries:\n"
            "  _path = _folder + b'/' + _name\n"
            "  if _kind & 0x4000:\n"  # a folder
            "   _folders.append(_path)\n"
            # Some file systems list the size of a file, as the fourth item; stat() has it always.
            "  else:\n"
            "   _tell((_path, _rest[1] if len(_rest) > 1 else uos.stat(_path)[6]))\n"
        )
        sizes = {}
        for name, size in self.values(code):
            sizes[name.decode(errors="surrogateescape")] = size
        return sizes

    def read_file(self, path: str) -> bytes:
        """Return the content of a file on the board. Raises ExecutionError and DeviceError.

        It comes in parts, as Base64, since the raw REPL prints text.
        """
        self.run(f"from ubinascii import b2a_base64 as _b\n_f = open({path!r}, 'rb')")
        data = b""
        while True:
            part = b64decode(self.value(f"_tell(_b(_f.read({_CHUNK})))"))
            if not part:
                break
            data += part
        self.run("_f.close()")
        return data

    def hashes(self, paths: Sequence[str]) -> dict[str, str]:
        """Return a digest of each file that exists, by path, which the board computes.

        A digest is the first 8 bytes of the SHA-256, in hexadecimal digits.
        """
        code = (
            "import uhashlib\n"
            "_b = bytearray(512)\n"
            "_m = memoryview(_b)\n"
            f"for _p in {tuple(paths)!r}:\n"
            " try:\n"
            "  with open(_p, 'rb') as _f:\n"
            "   _h = uhashlib.sha256()\n"
            "   while _n := _f.readinto(_b):\n"
            "    _h.update(_m[:_n])\n"
            "   _tell((_p, _h.digest()[:8].hex()))\n"
            " except OSError:\n"
            "  pass\n"
        )
        return dict(self.values(code, timeout=60.0))

    def write_file(self, path: str, data: bytes, progress: FileProgress | None = None) -> None:
        """Write a file to the board, with the folders that it needs.

        It is written under a temporary name and then renamed, so that an interruption leaves the
        old file or the new one, never half of one. Raises StorageError if the board's flash has no
        room for it.
        """
        temporary_path = path + ".new"
        try:
            self._write_new_file(temporary_path, data, progress)
            self._run(f"import uos\nuos.rename({temporary_path!r}, {path!r})")
        except ExecutionError as error:
            if not error.means_full:
                raise
            # What was written would take the room that is left, such as for the old program.
            self._run("try:\n _f.close()\nexcept Exception:\n pass")
            self.remove(temporary_path)
            raise room.full_error(self) from error

    def _write_new_file(self, path: str, data: bytes, progress: FileProgress | None) -> None:
        """Write a file, with the folders that it needs. Raises ExecutionError."""
        folders = path.strip("/").split("/")[:-1]
        # Make the folders (errno 17: it exists already), and open the file.
        self._run(
            "import uos\n_p = ''\n"
            f"for _s in {folders!r}:\n"
            " _p += '/' + _s\n"
            " try:\n"
            "  uos.mkdir(_p)\n"
            " except OSError as _e:\n"
            "  if _e.errno != 17:\n"
            "   raise\n"
            f"from ubinascii import a2b_base64 as _b\n_f = open({path!r}, 'wb')"
        )
        for start in range(0, len(data), _CHUNK):
            part = data[start : start + _CHUNK]
            self._run(f"_f.write(_b({b64encode(part)!r}))")
            if progress:
                progress(start + len(part), len(data))
        self._run("_f.close()\ndel _f, _b")

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens where there is none."""
        self.run(f"import uos\ntry:\n uos.remove({path!r})\nexcept OSError:\n pass")

    def remove_tree(self, path: str) -> None:
        """Remove a folder with its content; nothing happens if there is none.

        The board first lists all folders, from the top down, and removes their files; then it
        removes the empty folders in the opposite order.
        """
        self.run(
            "import uos\n"
            # A list and no recursion, since folders may be nested deeper than calls.
            f"_folders = [{path.encode()!r}]\n"
            "for _folder in _folders:\n"  # the list grows meanwhile
            " try:\n"
            "  _entries = list(uos.ilistdir(_folder))\n"
            " except OSError:\n"
            "  continue\n"
            " for _name, _kind, *_rest in _entries:\n"
            "  if _kind & 0x4000:\n"
            "   _folders.append(_folder + b'/' + _name)\n"
            "  else:\n"
            "   uos.remove(_folder + b'/' + _name)\n"
            "for _folder in reversed(_folders):\n"
            " try:\n"
            "  uos.rmdir(_folder)\n"
            " except OSError:\n"
            "  pass\n"
        )

    def _silent(self, wanted: str, printed: bytes = b"") -> SilenceError:
        """Return the error for a board that did not answer, and note that its state is unknown.

        wanted: what the host waited for. printed: what came instead.
        """
        self.at_prompt = False
        text = f"the board on {self.name} gave no answer while the host waited for {wanted}"
        description = heard.describe(printed)
        if description:
            text += f": {description}"
        return SilenceError(text, printed.decode(errors="replace"))

    def _expect(
        self, ending: bytes, timeout: float, wanted: str, limit: float | None = None
    ) -> bytes:
        """Return what the board prints up to and including `ending`.

        timeout, limit: as in `_read_until`. wanted: what the host waits for, as words for the
        message. Raises SilenceError if the ending does not come in time.
        """
        data = self._read_until(ending, timeout, limit)
        if not data.endswith(ending):
            raise self._silent(wanted, data)
        return data

    @contextlib.contextmanager
    def _there(self) -> Iterator[None]:
        """Raise GoneError where code in this context meets an error of the port."""
        try:
            yield
        except PORT_ERRORS as error:
            self.at_prompt = False
            raise GoneError(self.name) from error

    def _write(self, data: bytes) -> None:
        with self._there():
            self._port.write(data)

    def _receive(self, most_bytes: int = 0) -> bytes:
        """Return the bytes that come within the timeout of the port, at most `most_bytes`.

        most_bytes: 0 for all bytes that have come already, or for the next byte if there are none.
        """
        with self._there():
            if not most_bytes:
                most_bytes = self._port.in_waiting or 1
            return bytes(self._port.read(most_bytes))

    def _read(self, count: int, timeout: float) -> bytes:
        """Read exactly `count` bytes. Raises SilenceError if they do not come in time."""
        data = b""
        give_up_at = time.monotonic() + timeout
        while len(data) < count:
            is_late = time.monotonic() > give_up_at
            part = self._receive(count - len(data))
            data += part
            # On a busy host the time may be over before the first read: bytes that have come by
            # then still count.
            if is_late and not part:
                raise self._silent("an answer")
        return data

    def _read_until(self, ending: bytes, timeout: float, limit: float | None = None) -> bytes:
        """Return what the board prints up to and including `ending`, or until it takes too long.

        timeout: seconds without a byte after which it takes too long. limit: seconds in all, for a
        port that never falls silent (default: `timeout` and `MOST_TALK`). Raises GoneError, with
        what was printed until then.
        """
        if limit is None:
            limit = timeout + MOST_TALK
        data = bytearray()
        start = time.monotonic()
        last_byte_at = start
        while not data.endswith(ending):
            # The clock is read before the port: on a busy host the time may be over before the
            # first read, and bytes that have come by then still count.
            now = time.monotonic()
            is_silent = now - last_byte_at > timeout
            is_late = now - start > limit
            try:
                part = self._receive(1)
            except GoneError as gone:
                gone.output = data.decode(errors="replace")
                raise
            if part:
                data += part
                last_byte_at = time.monotonic()
            if is_late or (is_silent and not part):
                break
        return bytes(data)

    def _drain(self, quiet_seconds: float) -> None:
        """Discard what the board prints, until it has been silent for some seconds.

        With a board that never falls silent, this returns `MOST_TALK` seconds later all the same.
        """
        start = time.monotonic()
        last_byte_at = start
        while True:
            now = time.monotonic()
            is_quiet = now - last_byte_at >= quiet_seconds
            is_late = now - start >= quiet_seconds + MOST_TALK
            if is_quiet or is_late:
                return
            if self._receive():
                last_byte_at = time.monotonic()
