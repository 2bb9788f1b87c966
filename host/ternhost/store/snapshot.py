"""What observers see of a store: plain values, without any key or any single device's report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ternhost.extensions import View
from ternhost.options import seconds_of
from ternhost.store.boards import BoardRow
from ternhost.store.runs import STOPPED, UNFINISHED

# What a symbol of a report can stand for.
VALUE, LABEL, DIRECTION = "value", "label", "direction"
CATEGORY, BIN, HASH = "category", "bin", "hash"  # of an attribute
# A run is called silent only this many seconds after it should have written something: rounds of
# simulated clients and their evaluation take time.
PATIENCE = 300.0


def is_endless(
    schedule: Mapping[str, Any] | None, references: Mapping[str, Any], rounds: int
) -> bool:
    """Return whether a run serves a fleet for more rounds than it planned at its start, if any.

    schedule, references: those of the run, as in a `RunView`. rounds: how many have ended.
    """
    if schedule is None:
        return False
    planned_at_start = references.get("rounds")
    return planned_at_start is None or rounds > planned_at_start


@dataclass(frozen=True)
class RunView:
    """A run of a store, with the options and the schedule of its start."""

    name: str
    began: float  # seconds since 1970
    status: str
    algorithm: str
    fleet: str
    options: Mapping[str, Any] = field(default_factory=dict)
    schedule: Mapping[str, Any] | None = None
    # What was known at its start: costs, planned rounds, figures to compare with, and more
    # (`run.costs.references`).
    references: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 0  # that have ended
    reports: int = 0  # accepted in these rounds
    asked: int = 0  # requests of these rounds: how often a device was asked
    refusals: int = 0  # of these requests
    seconds: float = 0.0  # how long it has taken
    epsilon_before: float = 0.0  # the most that a device had spent before the run
    guarantees: Sequence[Mapping[str, Any]] = ()  # for each class of devices (`run.guarantees`)
    class_names: tuple[str, ...] = ()  # of the labels, as of `Dataset`; empty if they have none
    replanned: int | None = None  # how many rounds it plans by now; None: as at its start

    @property
    def unfinished(self) -> bool:
        return self.status in UNFINISHED

    @property
    def classes(self) -> Sequence[Mapping[str, Any]]:
        """The cost and the mechanism of a report, for each class of devices.

        Devices of a class have the same epsilon. The result is empty if the costs are not known.
        """
        classes: Sequence[Mapping[str, Any]] = self.references.get("classes", ())
        return classes

    @property
    def costliest(self) -> float | None:
        """The largest epsilon of a report of any class; None if it is not known."""
        epsilons = [float(device_class["epsilon_per_report"]) for device_class in self.classes]
        return max(epsilons, default=None)

    @property
    def planned(self) -> int | None:
        """How many rounds the run will have; None if it has no end.

        A run of `tern serve` has a schedule, in which its last start set the number.
        """
        if self.schedule is not None:
            return self.schedule.get("rounds")
        if self.replanned:
            return self.replanned
        return self.references.get("rounds")

    @property
    def is_endless(self) -> bool:
        """Whether nobody knows how many rounds there will be, as of a fleet that is served.

        The guarantees of such a run are about fewer rounds, as they were computed at its start.
        """
        return is_endless(self.schedule, self.references, self.rounds)


@dataclass(frozen=True)
class OpenRound:
    """A round that still waits for reports."""

    number: int
    run: str | None  # the name of its run
    began: float | None  # seconds since 1970; None if it is not known
    deadline: float | None  # it ends this many seconds after it began; None: never
    asked: int  # how many devices were asked
    wanted: int  # how many reports end it
    reports: int  # how many have arrived so far


@dataclass(frozen=True)
class TallyView:
    """How often each symbol was reported in an ended round, by devices with the same question."""

    # The table from which the devices sampled their symbols (shared_specs, cards.md), in hex digits.
    card: str
    symbols: tuple[int, ...]  # the count of each symbol, over all coordinates
    what: str = VALUE  # what a symbol stands for: one of the words at the top


@dataclass(frozen=True)
class Snapshot:
    """A store at a moment. Times are seconds since 1970."""

    # The snapshot itself.
    store: str  # the path
    serial: int = 0  # another number whenever the content has changed
    read: float = 0.0  # when the store was read; 0: never
    written: float = 0.0  # when its file or log was last changed
    note: str | None = None  # why it is not up to date; None if it is

    # The selected run and its rounds.
    run: RunView | None = None
    runs: tuple[RunView, ...] = ()  # all runs of the store, the oldest first
    # An entry for each ended round, the oldest first: round, began, finished, asked, reports,
    # refusals, reasons, figures of the model, and spent (the cost of all its reports together).
    history: tuple[Mapping[str, Any], ...] = ()
    open: tuple[OpenRound, ...] = ()
    tallies: tuple[TallyView, ...] = ()  # of the last ended round
    # What the run has collected so far: an entry for each attribute, as in the result of a run.
    estimates: tuple[Mapping[str, Any], ...] = ()
    # The reports of ended rounds, and the requests of these rounds, by the cost of a report in
    # millionths of the run's measure (epsilon or rho).
    paid: Mapping[int, int] = field(default_factory=dict)
    demanded: Mapping[int, int] = field(default_factory=dict)

    # The fleet.
    boards: tuple[BoardRow, ...] = ()
    views: Mapping[str, View] = field(default_factory=dict)  # what extensions show, by name
    devices: int = 0  # the number of devices with a key

    @property
    def coming(self) -> int:
        """The number of reports that have arrived in open rounds so far."""
        return sum(open_round.reports for open_round in self.open)

    @property
    def accepted(self) -> int:
        """The number of accepted reports of the run, those of open rounds included."""
        reports_of_ended_rounds = self.run.reports if self.run else 0
        return reports_of_ended_rounds + self.coming

    def silent(self, now: float) -> float | None:
        """Return for how many seconds an overdue run has written nothing; None if it is on time.

        A run that has not finished is overdue if a round is past its deadline, or if the next round
        is late by more than the time of --every, each with some patience. now: seconds since 1970.
        """
        if self.run is None or not self.run.unfinished or self.run.status == STOPPED:
            return None
        longest_wait = 0.0  # the longest time without news that is no cause for concern
        if self.run.schedule is not None:
            longest_wait = seconds_of(self.run.schedule.get("every") or 0, "every")
        for open_round in self.open:
            if open_round.deadline is None:
                return None  # such a round may last for ever
            longest_wait = max(longest_wait, open_round.deadline)

        silence = now - self._last_news(self.run)
        is_overdue = silence > longest_wait + PATIENCE
        return silence if is_overdue else None

    def _last_news(self, run: RunView) -> float:
        """Return when the run last wrote anything, or any board was heard, in seconds since 1970."""
        times = [run.began, self.written]
        times += [open_round.began or 0.0 for open_round in self.open]
        times += [board.heard for board in self.boards]
        times += [view.heard for view in self.views.values()]
        if self.history:
            times.append(self.history[-1].get("finished") or 0.0)
        return max(times)
