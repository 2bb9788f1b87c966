"""A summary of a store for people and programs, as `tern watch` shows it."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ternhost.extensions import View
from ternhost.store.boards import BoardRow
from ternhost.store.snapshot import OpenRound, RunView, Snapshot
from ternhost.text import counted
from ternhost.watch import curves, words
from ternhost.watch.curves import Curve
from ternhost.watch.fleet_view import FleetView, fleet_of, worst

_MOST_BOARDS = 20  # in `worst`
_MOST_POINTS = 200
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


@dataclass(frozen=True)
class Summary:
    """A run, its fleet and its cost, at a time."""

    at: float  # seconds since 1970
    store: str
    # Why it is not up to date, that the run is overdue, or that all devices refuse.
    note: str | None
    run: RunView | None = None
    rounds: int | None = None  # planned
    round: OpenRound | None = None
    last: Mapping[str, Any] = field(default_factory=dict)  # the entry of the last ended round
    figures: Mapping[str, float] = field(default_factory=dict)
    interval: tuple[float, float] | None = None  # 95 %, of the last value of `curve`
    curve: Curve | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)
    fleet: FleetView | None = None
    worst: tuple[BoardRow, ...] = ()
    # None where unknown: the largest cost of a report (`report`), the mean spent per device in this
    # run by accepted reports (`spent`), the most spent before it (`before`), and the least left on
    # a board (`left`).
    epsilon: Mapping[str, float | None] = field(default_factory=dict)
    views: tuple[View, ...] = ()  # of extensions

    def as_json(self) -> dict[str, Any]:
        """Return the summary as an object for JSON, with only the main fields of the run."""
        members = {member.name: getattr(self, member.name) for member in fields(self)}
        del members["views"]
        for name in ("round", "curve", "fleet"):
            if members[name] is not None:
                members[name] = asdict(members[name])
        for view in self.views:
            members |= view.summary()
        if self.run is not None:
            members["run"] = {name: getattr(self.run, name) for name in _OF_RUN}
        boards = []
        for board in self.worst:
            boards.append({**asdict(board), "hello": dict(board.hello)})
        members["worst"] = boards
        return members


def summary_of(snapshot: Snapshot) -> Summary:
    """Summarise a snapshot of a store: its run, its fleet and what devices have spent."""
    now = time.time()
    run = snapshot.run
    if run is None:
        return Summary(now, snapshot.store, snapshot.note)
    last_entry = snapshot.history[-1] if snapshot.history else {}
    measures = [name for name in curves.measures(run, snapshot.history) if name in last_entry]
    curve = None
    if measures:
        curve = curves.curve(
            run, snapshot.history, measures[0], registered=snapshot.devices, most=_MOST_POINTS
        )
    fleet = None
    least_budget = None
    if snapshot.boards:
        fleet = fleet_of(snapshot.boards, now)
        least_budget = fleet.least_budget
    return Summary(
        at=now,
        store=snapshot.store,
        note=snapshot.note or words.old(snapshot),
        run=run,
        rounds=run.planned,
        round=snapshot.open[-1] if snapshot.open else None,
        last=last_entry,
        figures={name: float(last_entry[name]) for name in measures},
        interval=_last_interval(curve),
        curve=curve,
        reasons=dict(curves.reasons(snapshot.history).most_common()),
        fleet=fleet,
        worst=tuple(worst(snapshot.boards, now, _MOST_BOARDS)),
        epsilon={
            "report": run.costliest,
            "spent": curves.spent(snapshot),
            "before": run.epsilon_before,
            "left": least_budget,
        },
        views=tuple(snapshot.views.values()),
    )


def _last_interval(curve: Curve | None) -> tuple[float, float] | None:
    if curve is None or not curve.low or not curve.high:
        return None
    return curve.low[-1][1], curve.high[-1][1]


def said(entry: Mapping[str, Any], label: str, figures: Iterable[str], fleet: str = "") -> str:
    """Describe an ended round in one line of text, such as "round 3 of 9: 20 of 20 reports".

    entry: the round in the run's history. label: the beginning of the line. figures: the names of
    the figures to print. fleet: text about the fleet, put before the figures.
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
    """Counts in words: "online 3, offline 1"."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
