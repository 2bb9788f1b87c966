"""MicroPython's raw REPL over a serial port or a `socket://`: run code on a board."""

import ast
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, Self

from ternhost.errors import DeviceError, RefusedError, TernError
from ternhost.guides import guide
from ternhost.reach.links import open_link
from ternhost.reach.ports.link import BAUD
from terntools.boards import room
from terntools.boards.console import Console
from terntools.boards.files import Files
from terntools.boards.prompt_errors import ExecutionError, GoneError, NoPromptError, SilenceError
from terntools.boards.raw_paste import paste

_RAW_PROMPT = b"raw REPL; CTRL-B to exit\r\n>"
ENTER_TRIES = 5
TIMEOUT = 20.0  # seconds without output after which a command is given up
LOCKED_PATIENCE = 5.0  # seconds in which a locked board shows that it reads
_ARM_WAIT = 2.0  # seconds without output in which a board runs TIMER_CODE
_MOST_ENTERING = 45.0  # seconds until a port that prints on and on without a prompt is given up
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
        self.files = Files(self)
        self._console = Console(port, baud)

        # For visits only:
        self._timer_code = TIMER_CODE if visits else b""
        self._armed = False  # whether the board's timer runs
        self._stopped = False  # whether the board's program was stopped, and not started again

        # The thread of _renew() uses the port between two commands of the host.
        self._turn = threading.RLock()  # held while the board executes something
        self._closed = threading.Event()
        if visits:
            threading.Thread(target=self._renew, name=f"renewals for {port}", daemon=True).start()

    @property
    def at_prompt(self) -> bool:
        """Whether the board is known to wait for code."""
        return self._console.at_prompt

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
                self._console.at_prompt = False  # the board may be in the middle of anything
            self.close()

    def _renew(self) -> None:
        """Keep a board that waits at its prompt from being reset by its timer, until `close`.

        Runs in a thread of its own.
        """
        while not self._closed.wait(_RENEW):
            with self._turn, contextlib.suppress(TernError):
                if self._armed and self._console.at_prompt:
                    self.execute("", _RENEW)  # whatever is executed starts the timer anew

    def close(self) -> None:
        """Close the port, with the board at its interactive prompt, or on a visit in its program."""
        self._closed.set()
        is_visit = bool(self._timer_code)
        if is_visit and self._stopped:
            with contextlib.suppress(TernError):  # a board that is gone starts by itself
                if not self._console.at_prompt:
                    self.enter(tries=2)
                self.start_main()
        if self._console.at_prompt:
            with contextlib.suppress(GoneError):
                self._console.write(b"\r\x02")  # Ctrl-B: leave the raw REPL
                self._console.flush()
            self._console.at_prompt = False
        self._console.close()

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
                answer = self._console.read_until(_RAW_PROMPT, 1.0 + attempt)
                is_ready = answer.endswith(_RAW_PROMPT)
                if is_ready and self._timer_code:
                    is_ready = self._runs_timer_code()
                if is_ready:
                    self._console.at_prompt = True
                    self._stopped = True
                    return
                printed += answer
        self._console.close()
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
            self._console.write(stop_program + enter_raw_prompt + self._timer_code)
        else:
            self._console.write(stop_program)
            self._console.drain(0.2)
            self._console.write(enter_raw_prompt)

    def soft_reset(self) -> None:
        """Soft-reset the board, which gives it a fresh heap, and return to the raw REPL.

        The board then has run boot.py, but not main.py.
        """
        with self._turn:
            reset = b"\x04"  # Ctrl-D
            if self._armed:
                reset += self._timer_code
            self._console.write(reset)
            self._console.expect(b"soft reboot\r\n", TIMEOUT, "a soft reset")
            self._console.expect(_RAW_PROMPT, TIMEOUT, "a soft reset")
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
            self._console.write(
                b"\r\x02"
            )  # Ctrl-B: the interactive prompt; from the raw one, no main.py
            self._console.read_until(b">>> ", 2.0)
            self._console.write(b"\x04")  # Ctrl-D
            self._console.at_prompt = False
            self._stopped = False
            self._console.expect(b"soft reboot\r\n", TIMEOUT, "a soft reset")

    def listen(self, seconds: float) -> str:
        """Return what a program prints after `start_main`, for some seconds or until it ends."""
        data = b""
        give_up_at = time.monotonic() + seconds
        with contextlib.suppress(GoneError):
            while time.monotonic() < give_up_at and not data.endswith(b">>> "):
                data += self._console.receive()
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
        output = self._console.expect(ending, timeout, wanted="an answer", limit=limit)
        output = output.removesuffix(ending)
        traceback = self._console.expect(ending, timeout, wanted="an answer", limit=limit)
        traceback = traceback.removesuffix(ending)
        self._console.expect(b">", timeout, wanted="an answer")
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
            self._console.write(data)
            answer = b""
            give_up_at = time.monotonic() + _MOST_TIMES * timeout
            while not answer.strip(ending):
                if time.monotonic() > give_up_at:
                    raise self._console.silence("an answer", answer)
                answer = self._console.expect(ending, timeout, "an answer")
            return answer

        with self._turn:
            self._paste(code, _MOST_SECONDS_TALKING)
            self._console.expect(ready.encode() + b"\r\n", timeout, "the program to begin")
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
        paste(self._console, code)
