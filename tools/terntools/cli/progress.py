"""Progress on a terminal, and nothing where there is none."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

_WIDTH = 30


class Bar:
    """A progress bar on stderr, if that is a terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = -1
        self._tty = sys.stderr.isatty()

    def update(self, done: int, total: int) -> None:
        """Show that `done` of `total` is done."""
        percent = 100 * done // max(total, 1)
        if self._tty and percent != self._shown:
            self._shown = percent
            bar = "#" * (_WIDTH * percent // 100)
            print(f"\r{self._what} [{bar:<{_WIDTH}}] {percent:3} %", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown >= 0:
            print(file=sys.stderr)


def tell(line: str) -> None:
    """Say on stderr what is being done, if that is a terminal."""
    if sys.stderr.isatty():
        print(f"  {line}", file=sys.stderr, flush=True)
