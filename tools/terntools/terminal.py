"""A progress bar, and a check of options, for the commands of the tools."""

import argparse
import math

from ternhost.options import require
from ternhost.terminal import Progress

_WIDTH = 30  # characters of a whole bar


class Bar(Progress):
    """A progress bar on standard error, which stays there when it is done.

    Where standard error is not a terminal, it is a line of text now and then.
    """

    _keeps_step = True

    def update(self, done: int, total: int) -> None:
        """Show that `done` of `total` steps are done."""
        percent = 100 * done // max(total, 1)
        bar = "#" * (_WIDTH * percent // 100)
        self.step(f"[{bar:<{_WIDTH}}] {percent:3} %")


def require_positive(args: argparse.Namespace, *names: str) -> None:
    """Raise UsageError if one of these options is given and is not a finite number above 0.

    names: of the options, as attributes of `args`.
    """
    for name in names:
        value = getattr(args, name)
        if value is not None:
            require(0 < value < math.inf, name, "a number above 0", f"{value:g}")
