"""The read model of a store, for observers: plain values, without any key and without the report of any one device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ternhost.store.boards import BoardRow
from ternhost.store.runs import PREPARING, RUNNING

VALUE, LABEL, CATEGORY, HASH = "value", "label", "category", "hash"
PATIENCE = 300.0  # seconds beyond a deadline: rounds of simulated clients and their evaluation take time


@dataclass(frozen=True)
class RunView:
    """A run of a store. began: seconds since 1970; seconds: how long it has taken.

    options, schedule: from its start. references: the figures to compare with (`run.costs.references`).
    """

    name: str
    began: float
    status: str
    algorithm: str
    fleet: str
    options: Mapping[str, Any] = field(default_factory=dict)
    schedule: Mapping[str, Any] | None = None
    references: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 0
    reports: int = 0
    asked: int = 0
    refusals: int = 0
    seconds: float = 0.0
    epsilon_before: float = 0.0

    @property
    def unfinished(self) -> bool:
        return self.status in (PREPARING, RUNNING)

    @property
    def classes(self) -> Sequence[Mapping[str, Any]]:
        """Cost and mechanism of a report for each class of devices; empty where they are not known."""
        classes: Sequence[Mapping[str, Any]] = self.references.get("classes", ())
        return classes

    @property
    def costliest(self) -> float | None:
        """The largest epsilon of a report; None where it is not known."""
        return max((float(device_class["epsilon_per_report"]) for device_class in self.classes), default=None)

    @property
    def planned(self) -> int | None:
        """The number of rounds of the run, None without an end; for a served run as its last start set it."""
        rounds: int | None = (self.references if self.schedule is None else self.schedule).get("rounds")
        return rounds


@dataclass(frozen=True)
class OpenRound:
    """An open round of `asked` devices: it ends with `wanted` reports, and has `reports` so far.

    began: seconds since 1970, None where it is not known. deadline: seconds after that, None: never.
    """

    number: int
    run: str | None
    began: float | None
    deadline: float | None
    asked: int
    wanted: int
    reports: int


@dataclass(frozen=True)
class GatewayView:
    """A gateway with its number of devices; asked, reports, answered: of the open round."""

    name: str
    devices: int
    online: bool
    heard: float
    told: Mapping[str, Any] = field(default_factory=dict)
    asked: bool = False
    reports: int = 0
    answered: bool = False


@dataclass(frozen=True)
class TallyView:
    """The counts of a cohort in an ended round: how often each symbol was reported, over all coordinates.

    card: its card, in hex. what: the meaning of a symbol: VALUE, LABEL, CATEGORY or HASH.
    """

    card: str
    symbols: tuple[int, ...]
    what: str = VALUE


@dataclass(frozen=True)
class Snapshot:
    """A store at a moment. `serial` changes with its content.

    run: the selected one of `runs` (the oldest first). history: an entry for each ended round of that run, the oldest
    first: round, began, finished, asked, reports, refusals, reasons, figures, spent (the epsilon of all its reports).
    paid: by cost (micro-epsilon), the number of reports of ended rounds; demanded: by cost, the number of requests.
    open: open rounds. tallies: of the last round. devices: the number with a key. read: when it was read (seconds since
    1970, 0: never). written: the last change of its file or log. note: why it is not up to date.
    """

    store: str
    serial: int = 0
    read: float = 0.0
    written: float = 0.0
    note: str | None = None
    run: RunView | None = None
    runs: tuple[RunView, ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()
    open: tuple[OpenRound, ...] = ()
    boards: tuple[BoardRow, ...] = ()
    gateways: tuple[GatewayView, ...] = ()
    tallies: tuple[TallyView, ...] = ()
    paid: Mapping[int, int] = field(default_factory=dict)
    demanded: Mapping[int, int] = field(default_factory=dict)
    devices: int = 0

    @property
    def coming(self) -> int:
        """Reports of open rounds so far."""
        return sum(round_.reports for round_ in self.open)

    @property
    def accepted(self) -> int:
        """Reports of the run, open rounds included."""
        return (self.run.reports if self.run else 0) + self.coming

    def silent(self, now: float) -> float | None:
        """Seconds since an unfinished run that is overdue has written anything; else None. now: seconds since 1970.

        It is overdue when a round is past its deadline, or the next one is late by more than the --interval.
        """
        if self.run is None or not self.run.unfinished:
            return None
        schedule = self.run.schedule or {}
        due = [float(schedule.get("interval") or 0.0)]
        due += [round_.deadline for round_ in self.open if round_.deadline is not None]
        if any(round_.deadline is None for round_ in self.open):
            return None  # such a round may last for ever
        times = [self.run.began, self.written, *(round_.began for round_ in self.open)]
        times += [entry.get("finished") for entry in self.history[-1:]]
        times += [board.heard for board in self.boards] + [gateway.heard for gateway in self.gateways]
        since = now - max(time or 0.0 for time in times)
        return since if since > max(due) + PATIENCE else None
