"""The progress of commands: a line that changes on a terminal, and lines now and then everywhere else."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self, TextIO

from ternhost.text import visible

ERASE_LINE = "\r\x1b[K"
EVERY = 10.0  # seconds between two lines where a line cannot change


def can_redraw(stream: TextIO) -> bool:
    """Whether a line of `stream` can be erased and written again: it is a terminal, and not a dumb one."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def sleep_while_read(seconds: float, stream: TextIO) -> None:
    """Sleep, for a command that may have nothing to write for long. Raises BrokenPipeError once nobody reads."""
    poll = select.poll()
    poll.register(stream, 0)  # a hang-up is told always
    if poll.poll(seconds * 1000):
        raise BrokenPipeError


class Progress:
    """Tells on standard error what a long command is doing, and that it is still doing it.

    On a terminal each step replaces the one before. Elsewhere (a file, a pipe, a dumb terminal) the latest step is
    told every `every` seconds, with the time since the beginning, however long the step takes.
    """

    _leave = ERASE_LINE  # what follows the step that is drawn before anything else is; "\n" keeps it

    def __init__(
        self, name: str = "", *, quiet: bool = False, stream: TextIO | None = None, every: float = EVERY
    ) -> None:
        """name: begins each line; "" for none. quiet: tell nothing. stream: instead of standard error."""
        self._head = f"{name}: " if name else "  "
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._redraws = can_redraw(self._stream)
        self._every = every
        self._start = time.monotonic()
        self._latest = ""
        self._wrote = 0.0  # when anything was
        self._drawn = False
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def step(self, text: str) -> None:
        """What is being done now, until the next step."""
        with self._lock:
            self._latest = text = visible(text)
            if self._redraws and not self._quiet:
                self.write(ERASE_LINE + self._head + text)
                self._drawn = True
        self._watch()

    def say(self, text: str) -> None:
        """The same, in a line that stays and is told at once."""
        with self._lock:
            self._latest = text = visible(text, lines=True)
            if not self._quiet:
                self._write_line(self._head + text)
        self._watch()

    def close(self) -> None:
        """End it."""
        self._ended.set()
        if self._thread:
            self._thread.join()
        self.write(self._leave * self._drawn)
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _watch(self) -> None:
        if self._thread is None and not self._quiet and not self._redraws and not self._ended.is_set():
            self._thread = threading.Thread(target=self.repeat, daemon=True)
            self._thread.start()

    def repeat(self) -> None:
        """Write the latest line again every so often, until the end: in a thread of its own."""
        while not self._ended.wait(self._every / 4):
            with self._lock:
                now = time.monotonic()
                if now - self._wrote >= 0.75 * self._every:
                    self.write(f"{self._head}{self._latest} ({duration(now - self._start)})\n")

    def _write_line(self, text: str) -> None:
        self.write(f"{self._leave * self._drawn}{text}\n")
        self._drawn = False

    def write(self, text: str) -> None:
        """Write text; a reader that has gone must not end the command."""
        self._wrote = time.monotonic()
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextlib.contextmanager
def heeding_interrupts() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt even where a shell that starts a command in the background ignores it.

    For commands that run until they are interrupted. SIGTERM ends every command in order, see ternhost.cli.
    """
    try:
        previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    except ValueError:  # not the main thread, which is the one that is interrupted
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
