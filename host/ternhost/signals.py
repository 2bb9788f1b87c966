"""Signals that end a command: it first ends its child processes, whatever other signals follow."""

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType

from ternhost.errors import ENDED_BY_SIGNAL

# How long a command may take to end after a signal. Until then, further signals do not disturb it:
# timeout(1), supervisors and impatient people send two of them in quick succession.
_SECONDS_TO_END = 10.0

_ending_since = float("-inf")  # time.monotonic() of the signal that ends the command


def _end(number: int, _frame: FrameType | None) -> None:
    """End the command by an exception, unless it is ending already.

    The parameters are those of every signal handler. Raises KeyboardInterrupt or SystemExit.
    """
    is_ending = time.monotonic() - _ending_since < _SECONDS_TO_END
    if is_ending:
        return
    begin_to_end()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(ENDED_BY_SIGNAL + number)


def begin_to_end() -> None:
    """Note that a signal ends the command, so that further signals do not disturb it for a while."""
    global _ending_since
    _ending_since = time.monotonic()


def ending_signals() -> list[int]:
    """Return the numbers of the signals that end a command, but for SIGHUP if nohup ignores it."""
    numbers: list[int] = [signal.SIGINT, signal.SIGTERM]
    hang_up = getattr(signal, "SIGHUP", None)  # Windows has none
    if hang_up is not None and signal.getsignal(hang_up) != signal.SIG_IGN:
        numbers.append(hang_up)
    return numbers


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM, SIGHUP and SIGINT raise exceptions, so that a command ends its children first.

    SIGINT stays ignored where it is, as in background commands of shells.
    """
    global _ending_since
    _ending_since = float("-inf")
    with contextlib.ExitStack() as stack:
        for number in ending_signals():
            if number != signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
                stack.enter_context(_handled(number))
        yield


@contextlib.contextmanager
def heeding_interrupts() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, also in a background command, where shells ignore it.

    For commands that run until they are interrupted.
    """
    with _handled(signal.SIGINT):
        yield


@contextlib.contextmanager
def _handled(number: int) -> Iterator[None]:
    """Let `_end` handle a signal while the context is open, in the main thread."""
    previous = None
    with contextlib.suppress(ValueError):  # only the main thread may set a signal handler
        previous = signal.signal(number, _end)
    try:
        yield
    finally:
        if previous is not None:
            signal.signal(number, previous)
