"""How far the commands of the tools are: a bar while a board is written, and lines that a log keeps as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

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
        """Say what is being done, above the bar."""
        self._progress.say(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.close(keep=True)


@contextmanager
def telling(log: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """A function that says what is being done, to `log` and on standard error."""
    with Progress() as progress:

        def say(line: str) -> None:
            log(line)
            progress.say(line)

        yield say
