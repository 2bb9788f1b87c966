"""See whether a board's new program starts, answers, and goes on."""

import contextlib
from queue import SimpleQueue

from tern import host_frames
from ternhost.errors import DeviceError, RefusedError, TernError
from ternhost.reach.links import open_link
from ternhost.reach.patience import patience_for
from terntools.boards import devices, modules
from terntools.boards.program import Program
from terntools.boards.repl import Repl

HELLO_WAIT = 20.0  # seconds until a board that was started says hello, if it has no slot
_SECONDS_TO_ANSWER = 10.0  # in which a user's program that was started says hello, if it does
_SECONDS_TO_FAIL = 10.0  # in which a program that does not answer shows an exception
# A program that imports one of these modules answers the host.
_SERVING = {"tern.app", "tern.supervisor"}


def wait_for_hello(
    port: str, slot: float = 0.0, patience: float | None = None
) -> host_frames.Hello:
    """Wait until a board that was just started answers, and return its HELLO frame.

    slot: that of the board, in seconds. patience: seconds that a board without a slot gets for a
    first sign that it reads, by default HELLO_WAIT. Raises DeviceError if the board does not answer
    in time, and RefusedError if it uses another version of the protocol.
    """
    try:
        with contextlib.closing(open_link(port, SimpleQueue())) as link:
            return link.hello(patience_for(slot, patience or HELLO_WAIT))
    except DeviceError as error:
        reason = _reason_of_silence(port)
        text = f"the files are on the board, but no tern answers on {port}{reason}"
        raise DeviceError(text, hint="press its reset button, and see 'tern board list'") from error


def _reason_of_silence(port: str) -> str:
    """Return why a board's program does not answer, as the end of a message.

    For that the board is started once more. The result is "" if the program does not end by an
    exception then, or if the board has no prompt.
    """
    try:
        lines = traceback_in(_output_at_start(port))
    except TernError:
        return ""
    if not lines:
        return ""
    return f": main.py ends with {lines[-1]}"


def _output_at_start(port: str) -> str:
    """Start the program of a board once more, and return what it prints until it ends.

    A program that goes on is given up after _SECONDS_TO_FAIL. Raises TernError.
    """
    with Repl(port, visits=True) as repl:
        repl.start_main()
        return repl.listen(_SECONDS_TO_FAIL)


def traceback_in(output: str) -> list[str]:
    """Return the lines of the traceback with which a program has ended; none if there is none.

    output: what a board has printed since it was started.
    """
    _, _, after_head = output.partition("Traceback (most recent call last):")
    traceback, _, _ = after_head.partition("\nMicroPython v")  # which greets at the prompt
    return traceback.strip("\r\n").splitlines()


def require_started(program: Program, port: str, slot: float, output: str) -> None:
    """Raise TernError if a program was started and stopped by an exception.

    slot: that of the board, in seconds. output: what the program has printed so far.
    """
    _require_running(program, port, output)
    if _has_ended(program, port, slot):
        _require_running(program, port, _output_at_start(port))


def _has_ended(program: Program, port: str, slot: float) -> bool:
    """Return whether a program that was started is known to have ended.

    A program that answers the host at its port is waited for. slot: that of the board, in seconds.
    """
    imported = modules.imports(program.texts[0])
    if imported.isdisjoint(_SERVING):
        return False
    try:
        with contextlib.closing(open_link(port, SimpleQueue())) as link:
            link.hello(patience_for(slot, _SECONDS_TO_ANSWER))
    except RefusedError:  # it has answered, in the protocol of another release
        return False
    except DeviceError:
        with contextlib.suppress(DeviceError):  # the board may sleep
            return devices.find_prompt(port) is not None
    return False


def _require_running(program: Program, port: str, output: str) -> None:
    """Raise TernError if a program's first output has a traceback: then it has stopped.

    The message quotes the last four lines of the traceback.
    """
    traceback_lines = traceback_in(output)
    if not traceback_lines:
        return
    last_lines = "\n  ".join(traceback_lines[-4:])
    raise TernError(
        f"{program.name} is main.py on {port}, but stopped as soon as it was started:\n"
        f"  {last_lines}",
        hint=f"correct it and deploy it again: tern board deploy {port} --main {program.name}",
    )
