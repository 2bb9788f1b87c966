"""The progress of a run for people: one line that is redrawn on a terminal, and a line every few
seconds elsewhere.
"""

import time
from typing import TextIO

from ternhost.learn.base import settings_in_words
from ternhost.learn.judging import WORDS
from ternhost.run.status import END, Status, Watcher
from ternhost.terminal import EVERY, Progress
from ternhost.text import visible

_REDRAW_EVERY = 0.1  # seconds between two redraws of the line
_LINE_EVERY = 2.0  # seconds between two lines about ended rounds, where a line cannot be redrawn
_BAR = 20  # characters


class ProgressPrinter(Progress):
    """Shows the progress of a run on standard error. quiet: only warnings."""

    _leave = "\n"

    def __init__(
        self, stream: TextIO | None = None, quiet: bool = False, every: float = EVERY
    ) -> None:
        super().__init__(quiet=quiet, stream=stream, every=every)
        self._head = ""
        self._status_at = -_LINE_EVERY  # time of the last printed status

    def watcher(self) -> Watcher:
        """What a run calls."""
        return Watcher(status=self.status, warn=self.warn, note=self.say)

    def status(self, status: Status) -> None:
        """Show the state of the run, unless the last one was shown just before.

        A terminal gets a line that is redrawn. Elsewhere the ends of rounds are printed, not too
        often.
        """
        now = time.monotonic()
        seconds_since_last = now - self._status_at
        ended = status.event == END
        is_last = ended and status.round == status.rounds
        line = _line(status, with_bar=self._redraws)
        if self._redraws:
            if seconds_since_last >= _REDRAW_EVERY or is_last:
                self._status_at = now
                self.step(line)
        elif is_last or (ended and seconds_since_last >= _LINE_EVERY):
            self._status_at = now
            self.say(line)
        else:
            self.step(line)  # printed after some time without another line

    def warn(self, message: str) -> None:
        """Print a warning in a line that stays."""
        with self._lock:
            self._write_line(f"tern: {visible(message, lines=True)}")


def _line(status: Status, with_bar: bool) -> str:
    """Describe the state of a run in one line. with_bar: also draw how far it is."""
    round_words = f"round {status.round}"
    if status.rounds:
        round_words += f"/{status.rounds}"
    reports = f"{status.total_reports:,}"
    wanted_reports = status.wanted_reports
    if wanted_reports:
        reports += f"/{wanted_reports:,}"
    rate = status.total_reports / max(status.seconds, 1e-9)

    parts = [round_words]
    if with_bar and wanted_reports:
        filled_length = round(min(1.0, status.total_reports / wanted_reports) * _BAR)
        parts.append("#" * filled_length + "." * (_BAR - filled_length))
    parts += [f"{reports} reports", f"{rate:,.0f}/s"]
    if status.figures:  # only the first: all of them are wider than a terminal
        name, value = next(iter(status.figures.items()))
        parts.append(f"{WORDS.get(name, name)} {value:.4f}")
    return "  ".join(parts + settings_in_words(status.chosen))
