"""The progress of a run for people: one line that changes on a terminal, and lines now and then elsewhere."""

from __future__ import annotations

import time
from typing import TextIO

from ternhost.learn.judging import WORDS
from ternhost.run.status import END, Status, Watcher
from ternhost.terminal import ERASE_LINE, EVERY, Progress
from ternhost.text import visible

_REDRAW_EVERY = 0.1  # seconds between two changes of the line
_LINE_EVERY = 2.0  # seconds between two lines of rounds that have ended, where no line can change
_BAR = 20


class ProgressPrinter(Progress):
    """Tells a run on standard error. `quiet` tells only warnings.

    Where no line can change, one comes at least every `every` seconds, also within a long round.
    """

    def __init__(self, stream: TextIO | None = None, quiet: bool = False, every: float = EVERY) -> None:
        super().__init__(quiet=quiet, stream=stream, every=every)
        self._status_at = -_LINE_EVERY  # when a status was printed last
        self._wrote = 0.0  # when anything was

    def watcher(self) -> Watcher:
        return Watcher(status=self.status, warn=self.warn, note=self.note)

    def status(self, status: Status) -> None:
        """Tell where the run is, if it is time to."""
        if self._quiet:
            return
        now = time.monotonic()
        ended = status.event == END
        last_round = ended and status.round == status.rounds
        with self._lock:
            due = now - self._status_at
            if self._redraws:
                if due >= _REDRAW_EVERY or last_round:
                    self.write(ERASE_LINE + self._line(status, bar=True))
                    self._drawn = True
                    self._status_at = now
                return
            self._latest = self._line(status, bar=False)
            if (ended and due >= _LINE_EVERY) or last_round:
                self.write(self._latest + "\n")
                self._status_at = now
        self._watch()

    def note(self, message: str) -> None:
        """Say what is done now, in a line that stays."""
        if self._quiet:
            return
        with self._lock:
            self._say(message)
            self._latest = message
        self._watch()

    def warn(self, message: str) -> None:
        """Say that something is wrong."""
        with self._lock:
            self._say(f"tern: {message}")

    def close(self, keep: bool = True) -> None:
        """End it, and leave the line that changes as it is."""
        super().close(keep)

    def repeat(self) -> None:
        # What takes long tells nothing of itself while it does.
        while not self._ended.wait(self._every / 4):
            with self._lock:
                if time.monotonic() - self._wrote >= 0.75 * self._every:
                    self.write(self._latest + "\n")

    def _say(self, message: str) -> None:
        self.write("\n" * self._drawn + visible(message, lines=True) + "\n")
        self._drawn = False

    def write(self, text: str) -> None:
        self._wrote = time.monotonic()
        super().write(text)

    @staticmethod
    def _line(status: Status, bar: bool) -> str:
        parts = [f"round {status.round}" + (f"/{status.rounds}" if status.rounds else "")]
        wanted = status.wanted_reports
        if bar and wanted:
            full = round(min(1.0, status.total_reports / wanted) * _BAR)
            parts.append("#" * full + "." * (_BAR - full))
        parts.append(f"{status.total_reports:,}" + (f"/{wanted:,}" if wanted else "") + " reports")
        parts.append(f"{status.total_reports / max(status.seconds, 1e-9):,.0f}/s")
        if status.figures:  # the first is the most important one; all of them are wider than a terminal
            name, value = next(iter(status.figures.items()))
            parts.append(f"{WORDS.get(name, name)} {value:.4f}")
        parts += [f"{name} {value:g}" for name, value in status.chosen.items()]
        return "  ".join(parts)
