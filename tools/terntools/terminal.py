"""Shared by commands of the tools: a progress bar, checks of options."""

import argparse
import math

from ternhost.options import require
from ternhost.terminal import Progress

_WIDTH = 30


class Bar(Progress):
    """A bar on standard error, which stays there; where that is not a terminal, a line now and
    then.
    """

    _leave = "\n"

    def update(self, done: int, total: int) -> None:
        percent = 100 * done // max(total, 1)
        bar = "#" * (_WIDTH * percent // 100)
        self.step(f"[{bar:<{_WIDTH}}] {percent:3} %")


def require_positive(args: argparse.Namespace, *names: str) -> None:
    """Raise UsageError if one of these options is given and is not a finite number above 0."""
    for name in names:
        value = getattr(args, name)
        if value is not None:
            require(0 < value < math.inf, name, "a number above 0", f"{value:g}")
