"""What commands of the tools share: those of the host (`command`, `option`), a progress bar, checks of options."""

from __future__ import annotations

import argparse
import math
from typing import Self

from ternhost.command import command, option
from ternhost.options import require
from ternhost.terminal import Progress

__all__ = ["Bar", "command", "option", "require_positive"]

_WIDTH = 30


class Bar:
    """A bar on standard error; where that is no terminal, a line now and then. See Progress."""

    def __init__(self, what: str) -> None:
        self._progress = Progress(what)

    def update(self, done: int, total: int) -> None:
        """Show that `done` of `total` is done."""
        percent = 100 * done // max(total, 1)
        bar = "#" * (_WIDTH * percent // 100)
        self._progress.step(f"[{bar:<{_WIDTH}}] {percent:3} %")

    def say(self, line: str) -> None:
        """Print a message above the bar."""
        self._progress.say(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.close(keep=True)


def require_positive(args: argparse.Namespace, *names: str) -> None:
    """Raise UsageError where one of these options was given and is not a finite number above 0."""
    for name in names:
        value = getattr(args, name)
        if value is not None:
            require(0 < value < math.inf, name, "a number above 0", f"{value:g}")
