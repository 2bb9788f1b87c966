"""The progress of a run for people: one line that is redrawn on a terminal, and a line every few
seconds elsewhere.
"""

import time
from typing import TextIO

from ternhost.learn.base import settings_in_words
from ternhost.learn.models.judging import WORDS
from ternhost.run.status import END, Status, Watcher
from ternhost.terminal import EVERY, Progress
from ternhost.text import visible

_REDRAW_EVERY = 0.1  # seconds between two redraws of the line
_LINE_EVERY = 2.0  # seconds between two lines about ended rounds, where a line cannot be redrawn
_BAR = 20  # characters


class ProgressPrinter(Progress):
    """Shows the progress of a run on standard error."""

    _keeps_step = True

    def __init__(
        self, stream: TextIO | None = None, quiet: bool = False, every: float = EVERY
    ) -> None:
        """Show nothing yet.

        stream: where to write, by default standard error. quiet: print only warnings. every: where
        a line cannot be redrawn, the latest step is printed after about this many seconds.
        """
        super().__init__(quiet=quiet, stream=stream, every=every)
        self._head = ""
        self._status_at = -_LINE_EVERY  # time.monotonic() of the last status that was shown

    def watcher(self) -> Watcher:
        """Return the functions that a run calls with its statuses, warnings and notes."""
        return Watcher(status=self.status, warn=self.warn, note=self.say)

    def status(self, status: Status) -> None:
        """Show how far the run is, unless that was shown just before.

        A terminal gets a line that is redrawn. Elsewhere a line is printed when a round ends, at
        most one every few seconds. The end of the last round is always shown.
        """
        now = time.monotonic()
        seconds_since_last = now - self._status_at
        round_has_ended = status.event == END
        run_has_ended = round_has_ended and status.round == status.rounds
        line = _line(status, with_bar=self._redraws)
        if self._redraws:
            if run_has_ended or seconds_since_last >= _REDRAW_EVERY:
                self._status_at = now
                self.step(line)
            return

        line_is_due = round_has_ended and seconds_since_last >= _LINE_EVERY
        if run_has_ended or line_is_due:
            self._status_at = now
            self.say(line)
        else:
            self.step(line)  # it is printed if no other line comes for some time

    def warn(self, message: str) -> None:
        """Print a warning in a line that stays."""
        with self._lock:
            self._write_line(f"tern: {visible(message, lines=True)}")


def _line(status: Status, with_bar: bool) -> str:
    """Describe in one line how far a run is.

    An example is "round 3/9  ######..............  300/900 reports  20/s  accuracy 0.7100".
    with_bar: whether the line has the bar.
    """
    round_words = f"round {status.round}"
    if status.rounds:
        round_words += f"/{status.rounds}"
    parts = [round_words]

    reports = status.total_reports
    wanted_reports = status.wanted_reports
    if with_bar and wanted_reports:
        filled_share = min(1.0, reports / wanted_reports)
        filled_length = round(filled_share * _BAR)
        parts.append("#" * filled_length + "." * (_BAR - filled_length))

    report_words = f"{reports:,}"
    if wanted_reports:
        report_words += f"/{wanted_reports:,}"
    parts.append(f"{report_words} reports")
    reports_per_second = reports / max(status.seconds, 1e-9)  # no division by 0 at the start
    parts.append(f"{reports_per_second:,.0f}/s")

    if status.figures:  # only the first one: all of them together are wider than a terminal
        name, value = next(iter(status.figures.items()))
        parts.append(f"{WORDS.get(name, name)} {value:.4f}")
    parts += settings_in_words(status.chosen)
    return "  ".join(parts)
