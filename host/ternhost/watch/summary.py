"""A summary of a store for people and programs, as `tern watch` shows it."""

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ternhost.api import arguments
from ternhost.extensions import View
from ternhost.store.boards import BoardRow
from ternhost.store.reader import Reader
from ternhost.store.snapshot import OpenRound, RunView, Snapshot
from ternhost.text import counted
from ternhost.watch import curves, stores, words
from ternhost.watch.curves import Curve
from ternhost.watch.fleet_view import FleetView, fleet_of, worst

_MOST_BOARDS = 20  # in `FleetSummary.worst`
_MOST_POINTS = 200  # in `FleetSummary.curve`
# The fields of a run that its summary has as JSON.
_OF_RUN = (
    "name",
    "began",
    "status",
    "algorithm",
    "fleet",
    "rounds",
    "reports",
    "asked",
    "refusals",
)


@dataclass(frozen=True, repr=False)
class FleetSummary:
    """A run, its fleet and its cost, at a moment."""

    at: float  # seconds since 1970
    store: str  # its path
    # What the user should know: why the summary is not up to date, that the run is overdue, or
    # that all devices refuse.
    note: str | None

    # The run.
    run: RunView | None = None
    rounds: int | None = None  # how many are planned; None: it has no end
    round: OpenRound | None = None
    last: Mapping[str, Any] = field(default_factory=dict)  # what its history says of the last round

    # What it has learned.
    figures: Mapping[str, float] = field(default_factory=dict)  # of the model, such as accuracy
    interval: tuple[float, float] | None = None  # the 95 % interval of the last value of `curve`
    curve: Curve | None = None  # the main figure over the rounds
    estimates: tuple[Mapping[str, Any], ...] = ()  # of each attribute, of a run that collects

    # The fleet.
    reasons: Mapping[str, int] = field(default_factory=dict)  # the number of refusals by reason
    fleet: FleetView | None = None
    worst: tuple[BoardRow, ...] = ()  # the boards that need attention first

    # Amounts of epsilon, None if not known: "report" is the largest cost of a report, "spent" the
    # mean that devices have spent in this run by accepted reports, "before" the most that one had
    # spent before it, and "left" the least that is left on a board.
    epsilon: Mapping[str, float | None] = field(default_factory=dict)
    views: tuple[View, ...] = ()  # what extensions show

    def __repr__(self) -> str:
        parts = [f"<FleetSummary of {self.store}"]
        if self.run is not None:
            parts.append(f"{self.run.name}: {self.run.algorithm}, {self.run.status}")
            parts.append(counted(self.run.rounds, "round"))
            parts.append(counted(self.run.reports, "report"))
        parts += [f"{name} {value:.4f}" for name, value in self.figures.items()]
        if self.fleet is not None:
            parts.append(counted(self.fleet.boards, "board"))
        if self.note:
            parts.append(self.note)
        return ", ".join(parts) + ">"

    def as_json(self) -> dict[str, Any]:
        """Return the summary as an object for JSON, with only the main fields of the run."""
        members: dict[str, Any] = {}
        for member in fields(self):
            members[member.name] = getattr(self, member.name)

        # Dataclasses become objects.
        for name in ("round", "curve", "fleet"):
            if members[name] is not None:
                members[name] = asdict(members[name])
        if self.run is not None:
            members["run"] = {name: getattr(self.run, name) for name in _OF_RUN}
        boards = []
        for board in self.worst:
            board_as_json = asdict(board)
            board_as_json["hello"] = dict(board.hello)
            boards.append(board_as_json)
        members["worst"] = boards

        # Extensions add members of their own.
        del members["views"]
        for view in self.views:
            members |= view.summary()
        return members


def fleet_summary(place: str | os.PathLike[str] | None = None) -> FleetSummary:
    """Summarise a run and its fleet as they are now, as `tern watch --once` does.

    place: the name or the directory of a run, or a store; None: the newest run. Raises UsageError
    or StorageError if there is none.
    """
    name = None if place is None else arguments.path(place, "place")
    path, run_name = stores.find(name)
    with closing(Reader(path, run_name)) as reader:
        return summary_of(reader.snapshot())


def summary_of(snapshot: Snapshot) -> FleetSummary:
    """Summarise a snapshot of a store: its run, its fleet and what devices have spent."""
    now = time.time()
    run = snapshot.run
    if run is None:
        return FleetSummary(at=now, store=snapshot.store, note=snapshot.note)

    # The figures of the model after the last round; the first one is the main one.
    last_entry = snapshot.history[-1] if snapshot.history else {}
    figures = {}
    for name in curves.measures(run, snapshot.history):
        if name in last_entry:
            figures[name] = float(last_entry[name])
    curve = None
    if figures:
        main_figure = next(iter(figures))
        curve = curves.curve(
            run, snapshot.history, main_figure, registered=snapshot.devices, most=_MOST_POINTS
        )

    fleet = None
    least_budget = None
    if snapshot.boards:
        fleet = fleet_of(snapshot.boards, now)
        least_budget = fleet.least_budget

    refusals = curves.refusals_by_reason(snapshot.history)
    return FleetSummary(
        at=now,
        store=snapshot.store,
        note=snapshot.note or words.problem(snapshot),
        # The run.
        run=run,
        rounds=run.planned,
        round=snapshot.open[-1] if snapshot.open else None,
        last=last_entry,
        reasons=dict(refusals.most_common()),
        # What it has learned.
        figures=figures,
        interval=_last_interval(curve),
        curve=curve,
        estimates=snapshot.estimates,
        # The fleet.
        fleet=fleet,
        worst=tuple(worst(snapshot.boards, now, _MOST_BOARDS)),
        views=tuple(snapshot.views.values()),
        epsilon={
            "report": run.costliest,
            "spent": curves.spent(snapshot),
            "before": run.epsilon_before,
            "left": least_budget,
        },
    )


def _last_interval(curve: Curve | None) -> tuple[float, float] | None:
    """Return both ends of the interval of the last point of a curve, or None if it has none."""
    if curve is None or not curve.low or not curve.high:
        return None
    _, low = curve.low[-1]
    _, high = curve.high[-1]
    return low, high


def describe_round(
    entry: Mapping[str, Any], label: str, figures: Iterable[str], fleet: str = ""
) -> str:
    """Describe an ended round in one line of text, such as "round 3 of 9: 20 of 20 reports".

    entry: what the run's history says of the round. label: the beginning of the line, such as
    "round 3 of 9". figures: the names of the figures of the model to print. fleet: text about the
    fleet, which is put before the figures.
    """
    line = f"{label}: {entry.get('reports', 0)} of {counted(entry.get('asked', 0), 'report')}"
    line += f", {counted(entry.get('refusals', 0), 'refusal')}"
    if entry.get("reasons"):
        line += f" ({breakdown(entry['reasons'])})"
    if entry.get("ended"):
        line += f", {entry['ended']}"
    line += fleet
    for name in figures:
        if name in entry:
            line += f"; {curves.word(name)} {entry[name]:.4f}"
    return line


def breakdown(counts: Mapping[str, int]) -> str:
    """Return counts in words, such as "online 3, offline 1"; counts of 0 are left out."""
    parts = []
    for name, count in counts.items():
        if count:
            parts.append(f"{name} {count:,}")
    return ", ".join(parts)
