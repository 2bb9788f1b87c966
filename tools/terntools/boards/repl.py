"""MicroPython's raw REPL over a serial port, a pty or a `socket://`: run code on a board, and move files.

Code goes by raw paste ("Raw mode and raw-paste mode" of MicroPython's manual), which does not overrun the board."""

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

_RAW_BANNER = b"raw REPL; CTRL-B to exit\r\n"
_ENTER_TRIES = 5
_CHUNK = 1536  # bytes of a file in one command
TIMEOUT, _HANDSHAKE = 20.0, 10.0  # seconds that a command may take, and an answer of raw paste
_HELLO_WAIT, _ARM_WAIT = 3.0, 2.0
_MOST_TALK = 5.0  # seconds that a port may print, beyond the seconds of silence for which the host waits
_MOST_TIMES = 10  # the silent seconds of a piece of code: what its output may take
_MOST_SECONDS, _MOST_SECONDS_TALKING = 3600, 300  # that code may run, and a program that waits for the host
_RENEW = 3.0  # seconds between two renewals of a waiting board's timer

# Resets a board at its prompt, unless the host comes back. While code runs it waits for as long as any code may take.
# An ESP32 has no timer -1. Together with what stops a program it fits the 260 bytes that an ESP32's port buffers.
_ARM = b"""import machine,sys
_T=machine.Timer((sys.platform=='esp32')*2-1)
def _A(p=12):_T.init(mode=0,period=1000*p,callback=lambda t:machine.reset())
_A()
\4"""

FileProgress = Callable[[int, int], None]  # bytes sent, bytes in all


class ExecutionError(TernError):
    """The code that was sent raised an exception on the board."""

    def __init__(self, traceback: str) -> None:
        super().__init__(f"the board says: {(traceback.strip().splitlines() or ['no traceback'])[-1]}")


class SilenceError(DeviceError):
    """The board said nothing for too long, or is gone; `output` is the code's output so far."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message, hint="check its cable, or press reset, and run the same command again")
        self.output = output


class GoneError(SilenceError):
    """The board's port is no more: it was unplugged, or it crashed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the board on {name} is gone", "")
        self.hint = "check its cable and run the same command again: it goes on where it was"


def _is_locked(port: str) -> bool:
    with contextlib.suppress(TernError), contextlib.closing(open_link(port, SimpleQueue())) as link:
        link.hello(_HELLO_WAIT)
        return True
    return False


class Repl:
    """The raw REPL of the board on `port`, from entering the context until leaving it.

    visits: then the board's program starts again, also within 30 s after this process was killed, by a timer of the
    board where its MicroPython has one."""

    def __init__(self, port: str, baud: int = BAUD, visits: bool = False) -> None:
        """Open `port`. Raises DeviceError and UsageError."""
        self.name = port
        self._port = open_port(port, baud)
        self.at_prompt = False  # whether the board is known to wait for code
        self._arm = _ARM if visits else b""
        self._armed = self._stopped = False
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
        try:
            if self._stopped and self._arm and not kind:
                self.start_main()
        finally:
            self.at_prompt &= not kind  # it may be amid anything
            self.close()

    def _renew(self) -> None:
        while not self._closed.wait(_RENEW):
            with self._turn, contextlib.suppress(TernError):
                if self._armed and self.at_prompt:
                    self.execute("", _RENEW)

    def close(self) -> None:
        """Go back to the friendly REPL, or on a visit start the board's program, and give the port back."""
        self._closed.set()
        if self._arm and self._stopped:
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
        """Interrupt the program, and enter the raw prompt. Raises DeviceError; RefusedError from a locked board."""
        printed = b""
        with self._turn:
            for attempt in range(tries or _ENTER_TRIES):
                # Zeros end half a frame of tern, whose link then takes CR Ctrl-C as the wish to end. A visit's timer
                # comes in the same write: no moment to kill the host is between them.
                self._write(bytes(65) + b"\r\x03" + (self._arm and b"\r\x01" + self._arm))
                if not self._arm:
                    self._drain(0.2)
                    self._write(b"\r\x01")
                banner = self._read_until(_RAW_BANNER + b">", 1.0 + attempt)
                if banner.endswith(_RAW_BANNER + b">") and (not self._arm or self._arms()):
                    self.at_prompt = self._stopped = True
                    return
                printed += banner
        self._port.close()
        if _is_locked(self.name):
            text = f"the board on {self.name} is locked: it answers its host, but its console is closed"
            raise RefusedError(text, hint="erase its flash to use it anew (firmware/BOARDS.md says how)")
        hint = "press the board's reset button and try again; a board without MicroPython is for `tern flash`"
        said = heard.describe(printed)
        raise DeviceError(f"no MicroPython prompt on {self.name}" + (said and f": {said}"), hint)

    def soft_reset(self) -> None:
        """Soft-reset the board: a fresh heap; boot.py runs, main.py does not. Back at the raw prompt."""
        with self._turn:
            self._write(b"\x04" + self._arm * self._armed)
            self._expect(b"soft reboot\r\n", TIMEOUT, "a soft reset")
            self._expect(_RAW_BANNER + b">", TIMEOUT, "a soft reset")
            if self._armed and not self._arms():
                self.enter()

    def _arms(self) -> bool:
        # Whether the board answers _ARM.
        try:
            self._armed = not self._ended(_ARM_WAIT)[1]
        except GoneError:
            raise
        except SilenceError:
            return False
        return True

    def start_main(self) -> None:
        """Leave the raw REPL and soft-reset, so that boot.py and main.py run. The port may be closed then."""
        with self._turn:
            self._write(b"\r\x02")
            self._read_until(b">>> ", 2.0)
            self._write(b"\x04")
            self.at_prompt = self._stopped = False
            self._expect(b"soft reboot\r\n", TIMEOUT, "a soft reset")

    def listen(self, seconds: float) -> str:
        """What the program that was started prints for some seconds, or until it ends."""
        data = b""
        end = time.monotonic() + seconds
        with contextlib.suppress(GoneError):
            while time.monotonic() < end and not data.endswith(b">>> "):
                data += self._receive()
        return data.decode(errors="replace")

    def execute(self, code: str, timeout: float = TIMEOUT) -> tuple[str, str]:
        """Run `code`; return output and traceback ("" if none). Raises DeviceError after `timeout` silent seconds."""
        with self._turn:
            self._paste(code)
            return self._ended(timeout)

    def _ended(self, timeout: float) -> tuple[str, str]:
        most = _MOST_TIMES * timeout
        output, traceback = (
            self._expect(b"\x04", timeout, "an answer", most)[:-1].decode(errors="replace") for _ in range(2)
        )
        self._expect(b">", timeout, "an answer")
        return output, traceback

    def run(self, code: str, timeout: float = TIMEOUT) -> str:
        """Run `code` and return its output. Raises ExecutionError and DeviceError."""
        output, traceback = self.execute(code, timeout)
        if traceback:
            raise ExecutionError(traceback)
        return output

    def evaluate(self, expression: str, timeout: float = TIMEOUT) -> Any:
        """The value of `expression`, a Python literal. Raises ExecutionError and DeviceError."""
        return ast.literal_eval(self.run(f"print(repr({expression}))", timeout).strip())

    @contextlib.contextmanager
    def program(
        self, code: str, ready: str, timeout: float = TIMEOUT
    ) -> Iterator[Callable[[bytes, bytes], bytes]]:
        """Run `code`, which prints the line `ready` and then talks to the port. Raises ExecutionError, DeviceError.

        The block gets a function that sends bytes and returns the answer up to an ending, skipping empty answers."""

        def exchange(data: bytes, ending: bytes) -> bytes:
            self._write(data)
            answer = b""
            while not answer.strip(ending):
                answer = self._expect(ending, timeout, "an answer")
            return answer

        with self._turn:
            self._paste(code, _MOST_SECONDS_TALKING)
            self._expect(ready.encode() + b"\r\n", timeout, "the program to begin")
            yield exchange
            _, traceback = self._ended(timeout)
        if traceback:
            raise ExecutionError(traceback)

    def _paste(self, code: str, most: int = _MOST_SECONDS) -> None:
        if self._armed:
            code = f"_A({most})\ntry:\n exec({code!r})\nfinally:\n _A()"
        data = (code or "\n").encode()
        self._write(b"\x05A\x01")
        # A slow board may first answer earlier attempts to get its prompt.
        if not self._read_until(b"R\x01", _HANDSHAKE).endswith(b"R\x01"):
            hint = "flash 1.25 or later: tern flash"
            raise DeviceError(f"the MicroPython on {self.name} is too old: it has no raw-paste mode", hint)
        header = self._read(3, _HANDSHAKE)  # the size of a window, and the sign for one more
        window = int.from_bytes(header[:2], "little")
        room = 2 * window
        at = 0
        while at < len(data):
            while room < 2 * window:  # both windows: so the size of a part does not depend on timing
                if self._read(1, _HANDSHAKE) != b"\x01":  # 0x04: it has enough, because of a syntax error
                    self._write(b"\x04")
                    return
                room += window
            part = data[at : at + room]
            room = 0
            at += len(part)
            self._write(part if at < len(data) else part + b"\x04")
        while (sign := self._read(1, _HANDSHAKE)) == b"\x01":
            pass
        if sign != b"\x04":
            raise self._silent("the end of the code")

    def directory(self, path: str) -> dict[str, int]:
        """The files under `path`, with their sizes, at any depth; empty where there is no such directory.

        A board's names may be any bytes; those that are not UTF-8 have surrogates (PEP 383)."""
        code = (
            "import os\n"
            "def _walk(path):\n"
            " try:\n"
            "  entries = os.ilistdir(path or b'/.')\n"  # of b'/' the names are text, and must be UTF-8
            " except OSError:\n"
            "  return\n"
            " for name, kind, *rest in entries:\n"
            "  full = path + b'/' + name\n"
            "  if kind & 0x4000:\n"
            "   _walk(full)\n"
            "  else:\n"
            "   print(repr((full, rest[1] if len(rest) > 1 else os.stat(full)[6])))\n"
            f"_walk({path.rstrip('/').encode()!r})\n"
        )
        files = (ast.literal_eval(line) for line in self.run(code).splitlines())
        return {name.decode(errors="surrogateescape"): size for name, size in files}

    def read_file(self, path: str) -> bytes:
        """The bytes of a file. Raises ExecutionError and DeviceError."""
        self.run(f"from binascii import b2a_base64 as _b\n_f = open({path!r}, 'rb')")
        data = b""
        while part := self.run(f"_d = _f.read({_CHUNK})\nif _d: print(str(_b(_d), 'ascii'), end='')").strip():
            data += b64decode(part)
        self.run("_f.close()")
        return data

    def hashes(self, paths: Sequence[str]) -> dict[str, str]:
        """The first 8 bytes of the SHA-256 of each file that is there, as hexadecimal digits."""
        code = (
            "import hashlib\n"
            "_b = bytearray(512)\n"
            "_m = memoryview(_b)\n"
            f"for _p in {tuple(paths)!r}:\n"
            " try:\n"
            "  with open(_p, 'rb') as _f:\n"
            "   _h = hashlib.sha256()\n"
            "   while _n := _f.readinto(_b):\n"
            "    _h.update(_m[:_n])\n"
            "   print(repr((_p, _h.digest()[:8].hex())))\n"
            " except OSError:\n"
            "  pass\n"
        )
        return dict(ast.literal_eval(line) for line in self.run(code, timeout=60.0).splitlines())

    def write_file(self, path: str, data: bytes, progress: FileProgress | None = None) -> None:
        """Write a file: to a temporary name, then renamed, so that a cut leaves the old one or the new one, whole."""
        new = path + ".new"
        self.run(
            "import os\n_p = ''\n"
            f"for _s in {path.strip('/').split('/')[:-1]!r}:\n"
            " _p += '/' + _s\n"
            " try:\n"
            "  os.mkdir(_p)\n"
            " except OSError as _e:\n"
            "  if _e.errno != 17:\n"
            "   raise\n"
            f"from binascii import a2b_base64 as _b\n_f = open({new!r}, 'wb')"
        )
        for at in range(0, len(data), _CHUNK):
            self.run(f"_f.write(_b({b64encode(data[at : at + _CHUNK])!r}))")
            if progress:
                progress(min(at + _CHUNK, len(data)), len(data))
        self.run(f"import os\n_f.close()\ndel _f, _b\nos.rename({new!r}, {path!r})")

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens where there is none."""
        self.run(f"import os\ntry:\n os.remove({path!r})\nexcept OSError:\n pass")

    def remove_tree(self, path: str) -> None:
        self.run(
            "import os\n"
            "def _remove(path):\n"
            " for name, kind, *rest in list(os.ilistdir(path)):\n"
            "  full = path + b'/' + name\n"
            "  if kind & 0x4000:\n"
            "   _remove(full)\n"
            "  else:\n"
            "   os.remove(full)\n"
            " os.rmdir(path)\n"
            f"try:\n _remove({path.encode()!r})\nexcept OSError:\n pass\ndel _remove"
        )

    def _silent(self, wanted: str, output: bytes = b"") -> SilenceError:
        self.at_prompt = False
        text = f"the board on {self.name} gave no answer while the host waited for {wanted}"
        if said := heard.describe(output):
            text += f": {said}"
        return SilenceError(text, output.decode(errors="replace"))

    def _expect(self, ending: bytes, timeout: float, wanted: str, most: float | None = None) -> bytes:
        data = self._read_until(ending, timeout, most)
        if not data.endswith(ending):
            raise self._silent(wanted, data)
        return data

    @contextlib.contextmanager
    def _there(self) -> Iterator[None]:
        try:
            yield
        except PORT_ERRORS as error:
            self.at_prompt = False
            raise GoneError(self.name) from error

    def _write(self, data: bytes) -> None:
        with self._there():
            self._port.write(data)

    def _receive(self, n: int = 0) -> bytes:
        with self._there():  # 0: what has come, or the next byte
            return bytes(self._port.read(n or self._port.in_waiting or 1))

    def _read(self, n: int, timeout: float) -> bytes:
        data = b""
        end = time.monotonic() + timeout
        while len(data) < n:
            late = time.monotonic() > end
            part = self._receive(n - len(data))
            data += part
            if late and not part:  # what has come is taken, however late this host is
                raise self._silent("an answer")
        return data

    def _read_until(self, ending: bytes, timeout: float, most: float | None = None) -> bytes:
        """What the board prints up to and with `ending`, or until the host has waited long enough.

        timeout: seconds without a byte. most: seconds in all, since some ports never fall silent (default: `timeout`
        and `_MOST_TALK`)."""
        data = bytearray()
        start = time.monotonic()
        heard_at = start
        limit = timeout + _MOST_TALK if most is None else most
        while not data.endswith(ending):
            now = time.monotonic()
            silent = now - heard_at > timeout
            try:
                part = self._receive(1)
            except GoneError as gone:
                gone.output = data.decode(errors="replace")
                raise
            if part:
                data += part
                heard_at = time.monotonic()
            elif silent:
                break
            if now - start > limit:
                break
        return bytes(data)

    def _drain(self, quiet: float) -> None:
        """Take what the board prints until it is silent for `quiet` seconds, or a program prints on and on."""
        start = heard_at = time.monotonic()
        while (now := time.monotonic()) - heard_at < quiet and now - start < quiet + _MOST_TALK:
            if self._receive():
                heard_at = time.monotonic()
