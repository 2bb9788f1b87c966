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
from ternhost.reach.links import open_link
from ternhost.reach.ports.link import BAUD, PORT_ERRORS, open_port
from terntools.boards import heard

_RAW_PROMPT = b"raw REPL; CTRL-B to exit\r\n>"
ENTER_TRIES = 5
_CHUNK = 1536  # bytes of a file in one command
TIMEOUT = 20.0  # seconds without output after which a command is given up
_HANDSHAKE = 10.0  # seconds that an answer of raw paste may take
HELLO_WAIT = 3.0  # seconds in which a locked board answers its host
_ARM_WAIT = 2.0  # seconds without output in which a board runs _ARM
_MOST_ENTERING = 45.0  # seconds until a port that prints on and on without a prompt is given up
MOST_TALK = 5.0  # seconds beyond a timeout after which a port that never falls silent is given up
_MOST_TIMES = 3  # code that prints on and on is given up after so many times its timeout
_MOST_SECONDS = 3600  # that code may run
_MOST_SECONDS_TALKING = 300  # that a program may run which waits for the host
_RENEW = 3.0  # seconds between two renewals of a waiting board's timer

# Resets a board at its prompt, unless the host comes back. While code runs it waits for as long as
# any code may take. An ESP32 has no timer -1. Together with what stops a program it fits the 260
# bytes that an ESP32's port buffers.
_ARM = b"""import umachine as _M,sys
_T=_M.Timer((sys.platform=='esp32')*2-1)
def _A(p=12):_T.init(mode=0,period=1000*p,callback=lambda t:_M.reset())
_A()
\4"""

# Defines how code tells a value to the host, in a line that nothing else prints. The host's code
# takes the modules that are built into MicroPython (uos and so on), since a file in the board's
# root may have the name of one.
_VALUE = "\x1f"
_TELL = f"def _tell(value):\n print({_VALUE!r} + repr(value))\n"

FileProgress = Callable[[int, int], None]  # bytes sent, bytes in all


class ExecutionError(TernError):
    """The code that was sent raised an exception on the board."""

    def __init__(self, traceback: str) -> None:
        """Make the message of the traceback's last line."""
        super().__init__(
            f"the board says: {(traceback.strip().splitlines() or ['no traceback'])[-1]}"
        )


class SilenceError(DeviceError):
    """The board said nothing for too long, or is gone; `output` is the code's output so far."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(
            message, hint="check its cable, or press reset, and run the same command again"
        )
        self.output = output


class GoneError(SilenceError):
    """The board's port is no more: it was unplugged, or it crashed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the board on {name} is gone", "")
        self.hint = "check its cable and run the same command again: it goes on where it was"


class NoPromptError(DeviceError):
    """The board gives no prompt; `printed` is what came instead."""

    def __init__(self, name: str, printed: bytes) -> None:
        text = f"no MicroPython prompt on {name}"
        description = heard.describe(printed)
        if description:
            text += f": {description}"
        hint = "press the board's reset button and try again; if it has no MicroPython, install it with `tern flash`"
        super().__init__(text, hint)
        self.printed = printed


def _is_locked(port: str) -> bool:
    """Whether a board that gives no prompt answers its host: then it is locked."""
    try:
        with contextlib.closing(open_link(port, SimpleQueue())) as link:
            link.hello(HELLO_WAIT)
    except RefusedError:  # it speaks another release's language
        return True
    except TernError:
        return False
    return True


class Repl:
    """The raw REPL of the board on `port`, from entering the context until leaving it.

    visits: then the board's program starts again, also within 30 s after this process was killed,
    by a timer of the board where its MicroPython has one.
    """

    def __init__(self, port: str, baud: int = BAUD, visits: bool = False) -> None:
        """Open `port`. Raises DeviceError and UsageError."""
        self.name = port
        self._port = open_port(port, baud)
        self.at_prompt = False  # whether the board is known to wait for code
        self._timer_code = _ARM if visits else b""
        self._armed = False  # whether the board's timer runs
        self._stopped = False  # whether the board's program was stopped, and not started again
        self._turn = threading.RLock()  # held while the board has something to do
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
        """Leave the board: after an error at once, else with its program started again on a visit."""
        try:
            if self._stopped and self._timer_code and not kind:
                self.start_main()
        finally:
            if kind:
                self.at_prompt = False  # the board may be in the middle of anything
            self.close()

    def _renew(self) -> None:
        """Start the timer of a board that waits at its prompt anew, again and again."""
        while not self._closed.wait(_RENEW):
            with self._turn, contextlib.suppress(TernError):
                if self._armed and self.at_prompt:
                    self.execute("", _RENEW)

    def close(self) -> None:
        """Give the port back: at the friendly REPL, or on a visit with the program started."""
        self._closed.set()
        if self._timer_code and self._stopped:
            with contextlib.suppress(TernError):  # a board that is gone starts by itself
                if not self.at_prompt:
                    self.enter(tries=2)
                self.start_main()
        if self.at_prompt:
            with contextlib.suppress(*PORT_ERRORS):
                self._port.write(b"\r\x02")
                self._port.flush()
            self.at_prompt = False
        self._port.close()

    def enter(self, tries: int | None = None) -> None:
        """Interrupt the board's program, and enter the raw prompt.

        tries: how often to try, by default ENTER_TRIES. Raises NoPromptError, and RefusedError from
        a locked board.
        """
        printed = b""
        give_up_at = time.monotonic() + _MOST_ENTERING
        with self._turn:
            for attempt in range(tries or ENTER_TRIES):
                if time.monotonic() > give_up_at:
                    break
                self._interrupt()
                answer = self._read_until(_RAW_PROMPT, 1.0 + attempt)
                if answer.endswith(_RAW_PROMPT) and (
                    not self._timer_code or self._runs_timer_code()
                ):
                    self.at_prompt = True
                    self._stopped = True
                    return
                printed += answer
        self._port.close()
        if _is_locked(self.name):
            text = f"the board on {self.name} is locked: it answers its host, but its console is closed"
            raise RefusedError(
                text, hint="erase its flash to use it anew (firmware/BOARDS.md says how)"
            )
        raise NoPromptError(self.name, printed)

    def _interrupt(self) -> None:
        """Stop the board's program and ask for the raw prompt.

        On a visit, also start the timer of _ARM.
        """
        # Zeros end half a frame of tern, whose link then takes CR Ctrl-C as the wish to end.
        stop_program = bytes(65) + b"\r\x03"
        enter_raw_prompt = b"\r\x01"
        if self._timer_code:
            # In one write, so that the host cannot be killed between the stop and the timer.
            self._write(stop_program + enter_raw_prompt + self._timer_code)
        else:
            self._write(stop_program)
            self._drain(0.2)
            self._write(enter_raw_prompt)

    def soft_reset(self) -> None:
        """Soft-reset the board, which gives it a fresh heap, and return to the raw prompt.

        boot.py runs, main.py does not.
        """
        with self._turn:
            reset = b"\x04"
            if self._armed:
                reset += self._timer_code
            self._write(reset)
            self._expect(b"soft reboot\r\n", TIMEOUT, "a soft reset")
            self._expect(_RAW_PROMPT, TIMEOUT, "a soft reset")
            if self._armed and not self._runs_timer_code():
                self.enter()

    def _runs_timer_code(self) -> bool:
        """Return whether the board has run _ARM, which was sent to it.

        Notes whether the timer runs. A board without timers has run it, too: with an exception.
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
        """Leave the raw REPL and soft-reset, so that boot.py and main.py run.

        The port may be closed then.
        """
        with self._turn:
            self._write(b"\r\x02")
            self._read_until(b">>> ", 2.0)
            self._write(b"\x04")
            self.at_prompt = self._stopped = False
            self._expect(b"soft reboot\r\n", TIMEOUT, "a soft reset")

    def listen(self, seconds: float) -> str:
        """Return what the started program prints for some seconds, or until it ends."""
        data = b""
        give_up_at = time.monotonic() + seconds
        with contextlib.suppress(GoneError):
            while time.monotonic() < give_up_at and not data.endswith(b">>> "):
                data += self._receive()
        return data.decode(errors="replace")

    def execute(self, code: str, timeout: float = TIMEOUT) -> tuple[str, str]:
        """Run `code`; return output and traceback ("" if none).

        Raises DeviceError after `timeout` silent seconds.
        """
        with self._turn:
            self._paste(code)
            return self._read_result(timeout)

    def _read_result(self, timeout: float) -> tuple[str, str]:
        """Return output and traceback of the code that was sent, once the board is at its prompt.

        timeout: silent seconds. Raises DeviceError.
        """
        ending = b"\x04"
        limit = _MOST_TIMES * timeout
        output = self._expect(ending, timeout, "an answer", limit).removesuffix(ending)
        traceback = self._expect(ending, timeout, "an answer", limit).removesuffix(ending)
        self._expect(b">", timeout, "an answer")
        return output.decode(errors="replace"), traceback.decode(errors="replace")

    def run(self, code: str, timeout: float = TIMEOUT) -> str:
        """Run `code` and return its output. Raises ExecutionError and DeviceError."""
        output, traceback = self.execute(code, timeout)
        if traceback:
            raise ExecutionError(traceback)
        return output

    def evaluate(self, expression: str, timeout: float = TIMEOUT) -> Any:
        """The value of `expression`, a Python literal. Raises ExecutionError and DeviceError."""
        return self.value(f"_tell({expression})", timeout)

    def value(self, code: str, timeout: float = TIMEOUT) -> Any:
        """Run `code`, and return the one value that it gives to _tell().

        Raises ExecutionError, and DeviceError if it gives none or several.
        """
        values = self.values(code, timeout)
        if len(values) != 1:
            text = f"the board on {self.name} gave no answer to a question of the host"
            raise DeviceError(text, hint="press its reset button, and run the same command again")
        return values[0]

    def values(self, code: str, timeout: float = TIMEOUT) -> list[Any]:
        """Run `code`, and return the values (Python literals) that it gives to _tell(), in order.

        Other output, such as that of a board's timer, is passed over. Raises ExecutionError and
        DeviceError.
        """
        values = []
        for line in self.run(_TELL + code, timeout).split("\r\n"):
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
        """Run `code`, which prints the line `ready` and then talks to the port.

        While the context is open, its function sends bytes and returns the answer up to an ending,
        skipping empty answers. Raises ExecutionError and DeviceError.
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
        """Send code by raw paste. most: seconds that it may run, on a board with a timer."""
        if self._armed:
            code = f"_A({most})\ntry:\n exec({code!r})\nfinally:\n _A()"
        window = self._begin_paste()
        if self._send_in_windows((code or "\n").encode(), window):
            self._end_paste()

    def _begin_paste(self) -> int:
        """Start raw paste; return the size of a window, which is what the board can take at once."""
        self._write(b"\x05A\x01")
        # A slow board may first answer earlier attempts to get its prompt.
        answer = self._read_until(b"R\x01", _HANDSHAKE)
        if not answer:
            raise self._silent("its prompt")
        if not answer.endswith(b"R\x01"):
            raise DeviceError(
                f"the MicroPython on {self.name} is too old: it has no raw-paste mode",
                hint="flash 1.25 or later: tern flash",
            )
        header = self._read(3, _HANDSHAKE)  # the size of a window, and the sign for one more
        window_bytes = int.from_bytes(header[:2], "little")
        if not window_bytes:
            raise self._silent("its prompt", header)
        return window_bytes

    def _send_in_windows(self, data: bytes, window: int) -> bool:
        """Send the code; return False if the board stops it early, because of a syntax error.

        Each part fills both windows that the board has, so that its size does not depend on timing.
        """
        room_bytes = 2 * window
        bytes_sent = 0
        while bytes_sent < len(data):
            while room_bytes < 2 * window:
                if self._read(1, _HANDSHAKE) != b"\x01":  # b"\x04": it has enough
                    self._write(b"\x04")
                    return False
                room_bytes += window
            part = data[bytes_sent : bytes_sent + room_bytes]
            room_bytes = 0
            bytes_sent += len(part)
            is_last = bytes_sent == len(data)
            self._write(part + b"\x04" if is_last else part)
        return True

    def _end_paste(self) -> None:
        """Wait until the board has taken all of the code."""
        give_up_at = time.monotonic() + _HANDSHAKE
        sign = b"\x01"  # room for another window, which is not needed any more
        while sign == b"\x01" and time.monotonic() < give_up_at:
            sign = self._read(1, _HANDSHAKE)
        if sign != b"\x04":
            raise self._silent("the end of the code", sign)

    def directory(self, path: str) -> dict[str, int]:
        """List the files under `path` at any depth, with their sizes.

        The result is empty if there is no such directory. The name of a file may be any bytes;
        bytes that are not UTF-8 become surrogates, as in Python's os (PEP 383).
        """
        code = (
            "import uos\n"
            # a list, since folders may be deeper than calls
            f"_folders = [{path.rstrip('/').encode()!r}]\n"
            "while _folders:\n"
            " _folder = _folders.pop()\n"
            " try:\n"
            # with b'/', names would be text, and have to be UTF-8
            "  _entries = uos.ilistdir(_folder or b'/.')\n"
            " except OSError:\n"
            "  continue\n"
            " for _name, _kind, *_rest in _entries:\n"
            "  _path = _folder + b'/' + _name\n"
            "  if _kind & 0x4000:\n"
            "   _folders.append(_path)\n"
            "  else:\n"
            "   _tell((_path, _rest[1] if len(_rest) > 1 else uos.stat(_path)[6]))\n"
        )
        return {name.decode(errors="surrogateescape"): size for name, size in self.values(code)}

    def read_file(self, path: str) -> bytes:
        """Read a file of the board, in parts. Raises ExecutionError and DeviceError."""
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
        """Return the first 8 bytes of the SHA-256 of each file that exists, in hexadecimal digits."""
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
        """Write a file under a temporary name, and rename it: a cut leaves the old or the new one."""
        temporary_path = path + ".new"
        # Make its folders (errno 17: it is there), and open the file.
        self.run(
            "import uos\n_p = ''\n"
            f"for _s in {path.strip('/').split('/')[:-1]!r}:\n"
            " _p += '/' + _s\n"
            " try:\n"
            "  uos.mkdir(_p)\n"
            " except OSError as _e:\n"
            "  if _e.errno != 17:\n"
            "   raise\n"
            f"from ubinascii import a2b_base64 as _b\n_f = open({temporary_path!r}, 'wb')"
        )
        for start in range(0, len(data), _CHUNK):
            self.run(f"_f.write(_b({b64encode(data[start : start + _CHUNK])!r}))")
            if progress:
                progress(min(start + _CHUNK, len(data)), len(data))
        self.run(f"import uos\n_f.close()\ndel _f, _b\nuos.rename({temporary_path!r}, {path!r})")

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens where there is none."""
        self.run(f"import uos\ntry:\n uos.remove({path!r})\nexcept OSError:\n pass")

    def remove_tree(self, path: str) -> None:
        """Remove a folder with its content; nothing happens if there is none."""
        self.run(
            "import uos\n"
            f"_folders = [{path.encode()!r}]\n"  # a list, since folders may be deeper than calls
            "for _folder in _folders:\n"  # it grows meanwhile
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
        """Return the error for a board that did not answer.

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
        """Return what the board prints up to and with `ending`.

        timeout, limit: as in `_read_until`. wanted: what the host waits for, for the message.
        Raises SilenceError if it does not come in time.
        """
        data = self._read_until(ending, timeout, limit)
        if not data.endswith(ending):
            raise self._silent(wanted, data)
        return data

    @contextlib.contextmanager
    def _there(self) -> Iterator[None]:
        """Raise GoneError instead of the port's own errors."""
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

        most_bytes: 0 for all that have come, or the next one.
        """
        with self._there():
            return bytes(self._port.read(most_bytes or self._port.in_waiting or 1))

    def _read(self, count: int, timeout: float) -> bytes:
        """Read exactly `count` bytes. Raises SilenceError if they do not come in time."""
        data = b""
        give_up_at = time.monotonic() + timeout
        while len(data) < count:
            is_late = time.monotonic() > give_up_at
            part = self._receive(count - len(data))
            data += part
            if is_late and not part:  # what has come is taken, however late this host is
                raise self._silent("an answer")
        return data

    def _read_until(self, ending: bytes, timeout: float, limit: float | None = None) -> bytes:
        """Return what the board prints up to and with `ending`, or until it takes too long.

        timeout: seconds without a byte. limit: seconds in all, for a port that never falls silent
        (default: `timeout` and `MOST_TALK`). Raises GoneError, with what was printed.
        """
        if limit is None:
            limit = timeout + MOST_TALK
        data = bytearray()
        start = time.monotonic()
        last_byte_at = start
        while not data.endswith(ending):
            # The time before a read counts: a byte that has come is taken, however late this host
            # is.
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

        A board that never falls silent is given up after `MOST_TALK` more.
        """
        start = time.monotonic()
        last_byte_at = start
        while True:
            now = time.monotonic()
            if now - last_byte_at >= quiet_seconds or now - start >= quiet_seconds + MOST_TALK:
                return
            if self._receive():
                last_byte_at = time.monotonic()
