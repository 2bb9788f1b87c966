"""Long commands show their progress: in one changing line on a terminal, and in some lines
everywhere else.
"""

import io
import os
import signal
from types import SimpleNamespace

import pytest

from ternhost.cli import progress
from ternhost.cli.progress import ProgressPrinter
from ternhost.run.status import END, PROGRESS, Status
from ternhost.signals import heeding_interrupts


@pytest.fixture(autouse=True)
def term(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")


def test_a_command_in_the_background_can_be_interrupted():
    """A shell starts "command &" with SIGINT ignored. Within heeding_interrupts(), the signal
    interrupts the command nevertheless; afterwards it is ignored again.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts "command &"
    try:
        with pytest.raises(KeyboardInterrupt), heeding_interrupts():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


# The progress of a run

ACCURACY = {"accuracy": 0.8765}


def status(number, event=END, figures=ACCURACY, rounds=4):
    return Status(event, number, rounds, number, 100, 50, 100 * number, 400, 2.0, figures=figures)


def test_without_a_terminal_progress_is_plain_lines(monkeypatch):
    """In a file, progress is a line of text for some rounds, with no cursor movements. Rounds that
    come too soon after the last line give none, but the last one of the run always does.
    """
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: 100.0))  # all at once
    out = io.StringIO()
    printer = ProgressPrinter(out)
    printer.say("8 boards")
    printer.status(status(1, PROGRESS))
    printer.status(status(1))
    printer.status(status(2))  # too soon after the last
    printer.status(status(4))  # the last round is always shown
    printer.close()
    assert out.getvalue() == (
        "8 boards\n"
        "round 1/4  100/400 reports  50/s  accuracy 0.8765\n"
        "round 4/4  400/400 reports  200/s  accuracy 0.8765\n"
    )


def test_a_closed_pipe_does_not_end_a_run():
    """With `tern train 2>&1 | head`, the reader of progress goes away. Messages are then lost, but
    the run goes on.
    """
    read, write = os.pipe()
    os.close(read)  # nobody reads
    out = os.fdopen(write, "w")
    printer = ProgressPrinter(out)
    printer.status(status(4))
    printer.warn("a board is gone")
    printer.close()
    with pytest.raises(BrokenPipeError):  # the text is still in the buffer
        out.close()
