"""Observers of a served run: they show it elsewhere while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, ClassVar

from ternhost.extensions import EXTENSIONS

if TYPE_CHECKING:
    from ternhost.run.run import Run
    from ternhost.run.status import Status


class Observer:
    """The base class of observers. This one shows nothing.

    `tern serve --NAME` makes an observer of each class that an extension has.
    """

    name: ClassVar[str]  # of its option, in small letters with underscores
    about: ClassVar[str]  # the help text of its option

    def __init__(self, fleet: str) -> None:
        """Prepare to show the fleet with this name. Raises UsageError if that is not possible."""

    def begin(self, run: Run, warn: Callable[[str], None]) -> None:
        """Show the run, which is about to go on. warn: is called with a sentence for people."""

    def update(self, status: Status) -> None:
        """Show how far the run is. This is called after each step."""

    def end(self) -> None:
        """Show that the run is not served now."""

    @classmethod
    def forget(cls, run: Run, warn: Callable[[str], None]) -> None:
        """Remove what an earlier start has left to be seen, since this one does not show the run."""


def registered() -> list[type[Observer]]:
    """Return the classes of observers of all extensions."""
    return [each for extension in EXTENSIONS.available() for each in extension.observers]


@contextmanager
def observed(
    run: Run, observers: Sequence[Observer], warn: Callable[[str], None]
) -> Iterator[None]:
    """Let observers show a served run while the context is open, such as on a dashboard.

    If an earlier start of the run was shown by other observers, what they have left is removed.
    warn: is called with a sentence for people if an observer fails.
    """
    classes = [type(observer) for observer in observers]
    for observer_class in registered():  # all that are installed
        if observer_class not in classes:
            observer_class.forget(run, warn)
    with ExitStack() as stack:
        for observer in observers:
            observer.begin(run, warn)
            stack.callback(observer.end)
        yield
