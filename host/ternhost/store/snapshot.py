"""What who looks on is shown of a store: plain values, without a key and without any one device's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ternhost.store.boards import BoardRow
from ternhost.store.runs import PREPARING, RUNNING

VALUE, LABEL, CATEGORY, HASH = "value", "label", "category", "hash"
PATIENCE = 300.0  # seconds beyond a deadline: a round of simulated clients may take them, and its evaluation


@dataclass(frozen=True)
class RunView:
    """A run of a store. Times are seconds since 1970, `seconds` its own.

    options, schedule: as it was begun with. references: what its figures are compared with (`run.costs.references`),
    empty in a run of an earlier version.
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
        """What a report costs, and how it is made, of each class of devices; none where it is not known."""
        found: Sequence[Mapping[str, Any]] = self.references.get("classes", ())
        return found

    @property
    def costliest(self) -> float | None:
        """The most epsilon that a report costs its sender; None where it is not known."""
        return max((float(own["epsilon_per_report"]) for own in self.classes), default=None)

    @property
    def planned(self) -> int | None:
        """How many rounds it has, None without an end; of a served one as its last start said."""
        found: int | None = (self.references if self.schedule is None else self.schedule).get("rounds")
        return found


@dataclass(frozen=True)
class OpenRound:
    """A round under way: `reports` of the `wanted` that end it have come, of `asked` devices.

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
    """A gateway with so many devices of its own; of the round under way whether it was asked, its reports so far, and
    whether it answered."""

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
    """What a cohort has told in a round that has ended: how often each symbol came, over all coordinates.

    card: the bytes of the one it was asked with, in hex. what: a symbol stands for: VALUE, LABEL, CATEGORY or HASH.
    """

    card: str
    symbols: tuple[int, ...]
    what: str = VALUE


@dataclass(frozen=True)
class Snapshot:
    """A store at a moment. `serial` changes with what is in it.

    run: the one that is shown, of `runs` (the oldest first). history: an entry for each of its rounds that have ended,
    the oldest first: round, began, finished, asked, reports, refusals, reasons, figures, spent (the epsilon of all its
    reports). paid: how many reports of rounds that have ended cost their device so much (micro-epsilon); demanded: how
    often a device was asked for one. None of that is known of rounds before schema 5. open: rounds under way. tallies:
    of the last round. devices: with a key in the store. read: when it was read (seconds since 1970, 0: never).
    written: when its file or its log was written last. note: why it is not the newest.
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
        """Reports that rounds under way have so far."""
        return sum(own.reports for own in self.open)

    @property
    def accepted(self) -> int:
        """Reports of the run, of rounds under way, too."""
        return (self.run.reports if self.run else 0) + self.coming

    def silent(self, now: float) -> float | None:
        """For how many seconds a run that has not finished has written nothing, at a time (since 1970), where it should
        have: a round is past its deadline, or the next one is late by more than the --interval. Else None."""
        if self.run is None or not self.run.unfinished:
            return None
        schedule = self.run.schedule or {}
        due = [float(schedule.get("interval") or 0.0)]
        due += [own.deadline for own in self.open if own.deadline is not None]
        if any(own.deadline is None for own in self.open):
            return None  # such a round may last for ever
        last = max(
            [
                self.run.began,
                *(own.began or 0.0 for own in self.open),
                *(board.heard for board in self.boards),
            ]
            + [entry.get("finished") or 0.0 for entry in self.history[-1:]]
            + [gateway.heard for gateway in self.gateways]
        )
        since = now - max(last, self.written)
        return since if since > max(due) + PATIENCE else None
