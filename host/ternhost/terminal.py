"""Shows the progress of commands, and asks users to confirm.

Progress is one line that is redrawn on a terminal, and a line every few seconds elsewhere.
"""

import contextlib
import os
import select
import sys
import threading
import time
from typing import TextIO

from ternhost.errors import UsageError
from ternhost.files import Closing
from ternhost.text import columns_of, fitting, visible

ERASE_LINE = "\r\x1b[K"
EVERY = 10.0  # seconds between two lines where a line cannot be redrawn


def can_redraw(stream: TextIO) -> bool:
    """Return whether a line of `stream` can be erased and redrawn.

    That is so on a terminal, unless it says that it is a dumb one.
    """
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def confirm(plan: str = "") -> None:
    """Ask at the terminal whether to carry out a plan.

    plan: what will be done, in the infinitive; empty if it has been printed above. Raises
    UsageError unless the answer is yes, or if nobody is there to answer.
    """
    if not sys.stdin.isatty():
        text = "standard input is not a terminal, so nobody can confirm"
        raise UsageError(text, hint=f"add --yes to {plan or 'carry out the plan above'}")
    question = "go on? [y/N] "
    if plan:
        question = f"{plan}: {question}"
    print(question, end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip().lower()
    if answer not in ("y", "yes"):
        raise UsageError("nothing was changed", hint="answer y, or add --yes")


def sleep_while_read(seconds: float, stream: TextIO) -> None:
    """Sleep, but stop as soon as the reader of `stream` is gone.

    A command that seldom writes would not notice that otherwise. Raises BrokenPipeError if the
    reader, such as `head`, has ended.
    """
    if not hasattr(select, "poll"):  # Windows
        time.sleep(seconds)
        return
    poller = select.poll()
    poller.register(stream, 0)  # a hang-up is always reported
    if poller.poll(seconds * 1000):
        raise BrokenPipeError


class Progress(Closing):
    """Shows on standard error which step a long command has reached, and that it is still running.

    On a terminal each step replaces the previous one. Elsewhere (a file, a pipe, a dumb terminal)
    the latest step is printed about every `every` seconds, with the time since the start.
    """

    _keeps_step = False  # whether the last step stays where something else is printed after it

    def __init__(
        self,
        name: str = "",
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        every: float = EVERY,
    ) -> None:
        """Begin to show progress.

        name: the beginning of each line, such as the name of the command; "" for none. quiet: print
        no steps. stream: where to print instead of standard error. every: seconds between two lines
        where a line cannot be redrawn.
        """
        self._head = "  "
        if name:
            self._head = f"{name}: "
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._redraws = can_redraw(self._stream)
        self._every = every
        self._start = time.monotonic()
        self._latest = ""
        self._wrote = 0.0  # time of the last output
        self._drawn = ""  # the step that is drawn, which must be erased before other output
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def step(self, text: str) -> None:
        """Show `text` as the present step, until the next one."""
        with self._lock:
            self._latest = text = visible(text)
            if self._redraws and not self._quiet:
                drawn = self._head + text
                self.write(self._erased() + drawn)
                self._drawn = drawn
        self._watch()

    def say(self, text: str) -> None:
        """Print `text` at once, in a line that stays, as the present step."""
        with self._lock:
            self._latest = text = visible(text, lines=True)
            if not self._quiet:
                self._write_line(self._head + text)
        self._watch()

    def close(self) -> None:
        """End the progress line and its thread."""
        self._ended.set()
        if self._thread:
            self._thread.join()
        if self._drawn:
            self.write(self._left())
        self._drawn = ""

    def _watch(self) -> None:
        """Have a thread print the latest step regularly, where steps are not redrawn."""
        if self._quiet or self._redraws or self._ended.is_set():
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self.repeat, daemon=True)
            self._thread.start()

    def repeat(self) -> None:
        """Print the latest step regularly until `close` is called; runs in a thread."""
        # It looks more often than it prints, so that a step is printed soon after it is due.
        while not self._ended.wait(self._every / 4):
            with self._lock:
                now = time.monotonic()
                if now - self._wrote >= 0.75 * self._every:
                    self.write(f"{self._head}{self._latest} ({duration(now - self._start)})\n")

    def _write_line(self, text: str) -> None:
        """Write a line that stays, after erasing the step that is drawn."""
        text = fitting(text, self._stream)
        if self._drawn:
            text = self._left() + text
        self.write(f"{text}\n")
        self._drawn = ""

    def _left(self) -> str:
        """Return what is written after the drawn step, before anything else."""
        return "\n" if self._keeps_step else self._erased()

    def _erased(self) -> str:
        """Return what erases the drawn step, which has several lines on a narrow terminal."""
        lines_above = max(0, len(self._drawn) - 1) // columns_of(self._stream)
        if lines_above == 0:
            return ERASE_LINE
        return f"\r\x1b[{lines_above}A\x1b[J"

    def write(self, text: str) -> None:
        """Write text. A reader that is gone does not end the command."""
        self._wrote = time.monotonic()
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


def duration(seconds: float) -> str:
    """Return a time for people, in minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes:
        return f"{minutes} min {rest} s"
    return f"{rest} s"
