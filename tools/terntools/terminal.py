"""What commands of the tools share at the terminal: a progress bar, messages that also go to a log, a confirmation."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from ternhost.errors import UsageError
from ternhost.options import require
from ternhost.terminal import Progress

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


@contextmanager
def telling(log: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """A function that prints progress messages on standard error and adds them to `log`."""
    with Progress() as progress:

        def say(line: str) -> None:
            log(line)
            progress.say(line)

        yield say


def require_positive(args: argparse.Namespace, *names: str) -> None:
    """Raise UsageError where one of these options was given and is not a finite number above 0."""
    for name in names:
        value = getattr(args, name)
        if value is not None:
            require(0 < value < math.inf, name, "a number above 0", f"{value:g}")


def confirm() -> None:
    """Ask at the terminal whether to continue. Raises UsageError unless the answer is yes."""
    if not sys.stdin.isatty():
        raise UsageError(
            "standard input is not a terminal, so nobody can confirm",
            hint="add --yes to carry out the plan above",
        )
    print("go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was changed", hint="answer y, or add --yes")
