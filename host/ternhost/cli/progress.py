"""What a person sees of a run under way: one line that changes on a terminal, a line a round otherwise."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from ternhost.algorithms.judging import WORDS
from ternhost.runs.status import END, Status, Watcher

_EVERY = 0.1  # seconds between two changes of the line
_LINE_EVERY = 2.0  # seconds between two lines where there is no terminal
_BAR = 20


class ProgressPrinter:
    """Tells a run on standard error. `quiet` tells only warnings."""

    def __init__(self, stream: TextIO | None = None, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._tty = self._stream.isatty()
        self._last = 0.0
        self._drawn = False

    def watcher(self) -> Watcher:
        return Watcher(status=self.status, warn=self.warn, note=self.note)

    def status(self, status: Status) -> None:
        if self._quiet:
            return
        now = time.monotonic()
        ended = status.event == END
        last_round = ended and status.round == status.rounds
        if self._tty:
            if now - self._last < _EVERY and not last_round:
                return
            self._write("\r\x1b[K" + self._line(status, bar=True))
            self._drawn = True
        else:
            if not ended or (now - self._last < _LINE_EVERY and not last_round):
                return
            self._write(self._line(status, bar=False) + "\n")
        self._last = now

    def note(self, message: str) -> None:
        if not self._quiet:
            self._say(message)

    def warn(self, message: str) -> None:
        self._say(f"tern: {message}")

    def close(self) -> None:
        """Leave the line that changes as it is."""
        if self._drawn:
            self._write("\n")
            self._drawn = False

    def _say(self, message: str) -> None:
        self.close()
        self._write(message + "\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    @staticmethod
    def _line(status: Status, bar: bool) -> str:
        parts = [f"round {status.round}" + (f"/{status.rounds}" if status.rounds else "")]
        wanted = status.wanted_reports
        if bar and wanted:
            full = round(min(1.0, status.total_reports / wanted) * _BAR)
            parts.append("#" * full + "." * (_BAR - full))
        parts.append(f"{status.total_reports:,}" + (f"/{wanted:,}" if wanted else "") + " reports")
        parts.append(f"{status.total_reports / max(status.seconds, 1e-9):,.0f}/s")
        parts += [f"{WORDS.get(name, name)} {value:.4f}" for name, value in status.figures.items()]
        return "  ".join(parts)
