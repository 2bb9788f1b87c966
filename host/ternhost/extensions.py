"""What a package beside the core adds to runs, to stores, and to what is shown of them.

An extension is one object: an entry point of the group `tern.extensions`. The core calls its hooks
and knows no extension by name. Devices that such a package reaches are a fleet of `tern.fleets`,
its commands are entry points of `tern.commands`. docs/guides/extend.md shows how to write one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ternhost.registry import Registry

if TYPE_CHECKING:
    from ternhost.learn.base import Learner
    from ternhost.privacy.guarantee import Guarantee
    from ternhost.reach.broker.guests import Guest
    from ternhost.reach.driver import BoardBudget, Driver
    from ternhost.reach.fleet import Fleet
    from ternhost.run.observer import Observer
    from ternhost.run.options import RunOptions
    from ternhost.run.run import Run
    from ternhost.statement.evidence import Evidence
    from ternhost.statement.sentences import Sentence
    from ternhost.store.snapshot import OpenRound
    from ternhost.store.store import Store

Row = tuple[str, str, str]
"""A name, a value, and what it means."""

Query = Callable[..., Sequence[Sequence[Any]]]
"""Takes an SQL statement and its values, and returns the rows."""


@dataclass(frozen=True)
class Tables:
    """Tables of an extension in a store. A store has them once the extension has written to it.

    version: a number that changes with every change of `sql`. sql: the statements that create the
    tables, each of which ends at the end of a line. readable: for each table, the columns that
    observers may read; they may also count its rows.
    """

    version: int
    sql: str
    readable: Mapping[str, Collection[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Gauges:
    """Figures for Prometheus under one name.

    name, text: the name of the metric and its help. label: the name of the label. values: a figure
    for each value of the label.
    """

    name: str
    text: str
    label: str
    values: Mapping[str, float]


@dataclass(frozen=True)
class Cells:
    """A table for people: a head and rows of plain values."""

    head: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Line:
    """A line for a terminal: a heading, a text, and whether the text needs attention."""

    heading: str
    text: str
    warns: bool = False


@dataclass(frozen=True)
class Export:
    """A file for another program, which `tern watch --NAME FILE` writes.

    name: of its option, in small letters. about: the help text of the option. example: a name of
    such a file. text: returns what the file contains.
    """

    name: str
    about: str
    example: str
    text: Callable[[], str]


class View:
    """What observers see of an extension's tables at a moment. This one shows nothing."""

    @property
    def heard(self) -> float:
        """When there was news last, in seconds since 1970; 0 for never."""
        return 0.0

    def reports(self, number: int) -> int:
        """Return how many reports of an open round the store's own tables do not have.

        number: that of the round.
        """
        return 0

    def tile(self, when: str) -> Row | None:
        """Return a figure for the top of the page; None for none.

        when: a text to append to the name of the figure if it may be out of date.
        """
        return None

    def table(self, is_open: bool) -> Cells | None:
        """Return the table under the extension's `title` on the page; None for none.

        is_open: whether a round is under way.
        """
        return None

    def gauges(self) -> Sequence[Gauges]:
        """Return figures for Prometheus."""
        return ()

    def lines(self) -> Sequence[Line]:
        """Return lines for the terminal, to be shown above those about boards."""
        return ()

    def summary(self) -> Mapping[str, Any]:
        """Return members of the summary in JSON, by name."""
        return {}


@dataclass(frozen=True)
class StatementPart:
    """What an extension says in a privacy statement.

    against: sentences about who sees which reports; they replace those about a host that sees all.
    guarantees: what the statement promises in addition. not_real: why no person's data is in it.
    """

    against: Sequence[Sentence] = ()
    guarantees: Sequence[Guarantee] = ()
    not_real: str = ""


class Extension:
    """The base of all extensions: each hook of it does nothing."""

    name: ClassVar[str]  # of its entry point; stores and runs keep it
    package: ClassVar[str]  # what to install where a store needs it
    title: ClassVar[str] = ""  # of its table on the page; empty: it has none
    intermediary: ClassVar[str] = ""  # a word for who adds up reports between devices and host
    Options: ClassVar[Any] = None  # a dataclass of options that each run may have
    tables: ClassVar[Tables | None] = None

    # A run

    def options_from(self, named: Mapping[str, Any], own: Mapping[str, Any]) -> Any:
        """Return the `Options` of a run.

        named: all options that the user has named, with their values. own: those of them that
        belong to `Options`. Raises UsageError.
        """
        return self.Options(**own)

    def check(self, options: RunOptions) -> None:
        """Raise UsageError if its options do not go together with the others of a run."""

    def fitted(
        self, options: RunOptions, learner: Learner, fleet: Fleet, store: Store
    ) -> RunOptions:
        """Return the options with which a run shall begin, before anything of it is stored.

        Returns `options` itself if nothing changes. Raises TernError to refuse the run.
        """
        return options

    def before_first_round(self, run: Run, driver: Driver) -> list[str]:
        """Return lines to print before a run asks its first device.

        Raises TernError to refuse the run.
        """
        return []

    def result(self, run: Run) -> Mapping[str, Any]:
        """Return members of a run's result, by name, as values for JSON."""
        return {}

    def sentences(self, result: Mapping[str, Any]) -> list[str]:
        """Return sentences about privacy to print with a result."""
        return []

    def rows(self, result: Mapping[str, Any]) -> list[Row]:
        """Return rows for the table of results in a run's report."""
        return []

    # A store that has its tables

    def may_have_reported(self, store: Store, number: int) -> bool | None:
        """Return whether devices may have reported in a round whose reports are not in the store.

        number: that of the round. None means that this extension has not collected the round, so
        that the store has its reports.
        """
        return None

    def is_numbered_elsewhere(self, store: Store) -> bool:
        """Return whether another host gives the rounds of a store their numbers.

        When such a store was restored from a copy, that host knows which numbers were used.
        """
        return False

    def budgets(self, store: Store) -> Sequence[BoardBudget]:
        """Return the budgets of boards that are not in the store's own tables."""
        return ()

    # What is shown

    def view(self, query: Query | None, open_rounds: Sequence[OpenRound]) -> View:
        """Return what observers see of this extension.

        query: reads the store; None if it has none of the tables of this extension.
        """
        return View()

    def statement_part(
        self, store: Store, fleet: Fleet, options: RunOptions, learner: Learner | None = None
    ) -> StatementPart:
        """Return what this extension says in a privacy statement of a run.

        options: those of the run, or of the last run if the statement is about the whole store.
        learner: that of a run that has not begun, if the statement is about one; else None.
        """
        return StatementPart()

    @property
    def evidence(self) -> Mapping[str, Evidence]:
        """What stands behind its sentences in a privacy statement, by the key that they name."""
        return {}

    # Other programs that show a fleet

    @property
    def guests(self) -> Sequence[Guest]:
        """Programs that may see a fleet on its broker: values of `tern broker config --guest`."""
        return ()

    @property
    def observers(self) -> Sequence[type[Observer]]:
        """Classes that show a served run elsewhere: `tern serve` has an option for each."""
        return ()

    @property
    def exports(self) -> Sequence[Export]:
        """Files for other programs: `tern watch` has an option for each, which writes it."""
        return ()


EXTENSIONS: Registry[Extension] = Registry("extension", "tern.extensions", {})


def option_classes() -> list[Any]:
    """Return the classes of options that extensions add to runs."""
    classes = []
    for extension in EXTENSIONS.available():
        if extension.Options is not None:
            classes.append(extension.Options)
    return classes


def intermediaries() -> list[str]:
    """Return the words of extensions for those who may add up reports between devices and host."""
    words = []
    for extension in EXTENSIONS.available():
        if extension.intermediary:
            words.append(extension.intermediary)
    return words
