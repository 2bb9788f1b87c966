"""The read model of a store, for observers: plain values, without any key and without the report of
any one device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ternhost.extensions import View
from ternhost.store.boards import BoardRow
from ternhost.store.runs import STOPPED, UNFINISHED

VALUE, LABEL, CATEGORY, HASH, DIRECTION = "value", "label", "category", "hash", "direction"
# Seconds beyond a deadline: rounds of simulated clients and their evaluation take time.
PATIENCE = 300.0


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
    # To compare with (`run.costs.references`).
    references: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 0
    reports: int = 0
    asked: int = 0
    refusals: int = 0
    seconds: float = 0.0  # that it has taken
    epsilon_before: float = 0.0
    guarantees: Sequence[Mapping[str, Any]] = ()  # of each class of devices (`run.guarantees`)
    replanned: int | None = None  # the number of rounds that it plans by now

    @property
    def unfinished(self) -> bool:
        return self.status in UNFINISHED

    @property
    def classes(self) -> Sequence[Mapping[str, Any]]:
        """Cost and mechanism of a report for each class of devices; empty where they are not known."""
        classes: Sequence[Mapping[str, Any]] = self.references.get("classes", ())
        return classes

    @property
    def costliest(self) -> float | None:
        """The largest epsilon of a report; None where it is not known."""
        epsilons = [float(device_class["epsilon_per_report"]) for device_class in self.classes]
        return max(epsilons, default=None)

    @property
    def planned(self) -> int | None:
        """The number of rounds of the run; None if it has no end.

        For a served run it is what its last start set.
        """
        if self.schedule is None:
            return self.replanned or self.references.get("rounds")
        return self.schedule.get("rounds")


@dataclass(frozen=True)
class OpenRound:
    """An open round."""

    number: int
    run: str | None
    began: float | None  # seconds since 1970; None where it is not known
    deadline: float | None  # seconds after that; None: never
    asked: int
    wanted: int  # reports that end it
    reports: int  # so far


@dataclass(frozen=True)
class TallyView:
    """How often each symbol was reported in a cohort of an ended round, over all coordinates."""

    card: str  # in hex
    symbols: tuple[int, ...]
    what: str = VALUE  # the meaning of a symbol: one of the words above


@dataclass(frozen=True)
class Snapshot:
    """A store at a moment.

    An entry of `history` is an ended round of `run`: round, began, finished, asked, reports,
    refusals, reasons, figures, and spent (the epsilon of all its reports).
    """

    store: str
    serial: int = 0  # changes with the content
    read: float = 0.0  # seconds since 1970; 0: never
    written: float = 0.0  # the last change of its file or log, seconds since 1970
    note: str | None = None  # why it is not up to date
    run: RunView | None = None  # the selected one
    runs: tuple[RunView, ...] = ()  # the oldest first
    history: tuple[Mapping[str, Any], ...] = ()  # the oldest first
    open: tuple[OpenRound, ...] = ()
    boards: tuple[BoardRow, ...] = ()
    views: Mapping[str, View] = field(default_factory=dict)  # of extensions, by name
    tallies: tuple[TallyView, ...] = ()  # of the last round
    # Reports of ended rounds, by their cost in micro-epsilon.
    paid: Mapping[int, int] = field(default_factory=dict)
    demanded: Mapping[int, int] = field(default_factory=dict)  # requests, by cost in micro-epsilon
    devices: int = 0  # with a key

    @property
    def coming(self) -> int:
        """Reports of open rounds so far."""
        return sum(round_.reports for round_ in self.open)

    @property
    def accepted(self) -> int:
        """Reports of the run, open rounds included."""
        ended_reports = self.run.reports if self.run else 0
        return ended_reports + self.coming

    def silent(self, now: float) -> float | None:
        """Return the seconds since an overdue run has written anything; None if it is on time.

        An unfinished run is overdue if a round is past its deadline, or if the next round is late
        by more than the --interval. now: seconds since 1970.
        """
        if self.run is None or not self.run.unfinished or self.run.status == STOPPED:
            return None
        longest_wait = 0.0
        if self.run.schedule is not None:
            longest_wait = float(self.run.schedule.get("interval") or 0.0)
        for round_ in self.open:
            if round_.deadline is None:
                return None  # such a round may last for ever
            longest_wait = max(longest_wait, round_.deadline)

        silence = now - self._last_news(self.run)
        if silence <= longest_wait + PATIENCE:
            return None
        return silence

    def _last_news(self, run: RunView) -> float:
        """Return when anything was last written or heard, in seconds since 1970."""
        times = [run.began, self.written]
        times += [round_.began or 0.0 for round_ in self.open]
        times += [board.heard for board in self.boards]
        times += [view.heard for view in self.views.values()]
        if self.history:
            times.append(self.history[-1].get("finished") or 0.0)
        return max(times)
