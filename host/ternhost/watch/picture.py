"""A store at a glance, in figures for people and machines: what `tern watch` shows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ternhost.store.boards import BoardRow
from ternhost.store.snapshot import OpenRound, RunView, Snapshot
from ternhost.watch import curves, words
from ternhost.watch.curves import Curve
from ternhost.watch.fleet_view import FleetView, fleet_of, states, worst

_MOST_BOARDS = 20
_MOST_POINTS = 200


@dataclass(frozen=True)
class Picture:
    """A run at a time (seconds since 1970), its fleet, and what it has cost.

    rounds: how many it has, None without an end. round: the one under way; last: what the history says of the last one
    that ended. curve: of the figure that tells most. interval: of its last value, 95 %. reasons: of all refusals.
    epsilon: what a report costs at most (`report`), what a device has spent in the mean in this run by accepted reports
    (`spent`) and before it at most (`before`), and the least that is left on a board (`left`); None
    where it is not known. waiting: the gateways that the round under way waits for; offline: those that are.
    """

    at: float
    store: str
    note: str | None  # why it is not the newest, or that the run should have written by now
    run: RunView | None = None
    rounds: int | None = None
    round: OpenRound | None = None
    last: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    interval: tuple[float, float] | None = None
    curve: Curve | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)
    fleet: FleetView | None = None
    worst: tuple[BoardRow, ...] = ()
    gateways: Mapping[str, int] = field(default_factory=dict)
    epsilon: Mapping[str, float | None] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    offline: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For JSON; of the run what tells it from others."""
        run = self.run
        own = (
            None
            if run is None
            else {
                name: getattr(run, name)
                for name in (
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
            }
        )
        boards = [{**asdict(board), "told": dict(board.told)} for board in self.worst]
        return {**asdict(self), "run": own, "worst": boards}


def picture(shown: Snapshot, boards: int = _MOST_BOARDS) -> Picture:
    """What a snapshot shows now. boards: how many of the worst."""
    now = time.time()
    run, history = shown.run, shown.history
    if run is None:
        return Picture(now, shown.store, shown.note)
    silent = shown.silent(now)
    note = shown.note or (None if silent is None else words.quiet(silent))
    last = history[-1] if history else {}
    measures = [name for name in curves.measures(run, history) if name in last]
    curve = None
    interval = None
    if measures:
        curve = curves.curve(run, history, measures[0], registered=shown.devices, most=_MOST_POINTS)
        if curve.low and curve.high:
            interval = curve.low[-1][1], curve.high[-1][1]
    fleet = fleet_of(shown.boards, now) if shown.boards else None
    gateways = {}
    if shown.gateways:
        answered = sum(gateway.answered for gateway in shown.gateways)
        gateways = {**states(shown.gateways), "answered": answered}
    return Picture(
        now,
        shown.store,
        note,
        run,
        run.planned,
        shown.open[-1] if shown.open else None,
        last,
        {name: float(last[name]) for name in measures},
        interval,
        curve,
        dict(curves.reasons(history).most_common()),
        fleet,
        tuple(worst(shown.boards, now, boards)),
        gateways,
        _epsilon(shown, run, fleet),
        tuple(own.name for own in shown.gateways if own.asked and not own.answered),
        tuple(own.name for own in shown.gateways if not own.online),
    )


def _epsilon(shown: Snapshot, run: RunView, fleet: FleetView | None) -> dict[str, float | None]:
    spent = curves.spent(shown)
    left = fleet.least_budget if fleet else None
    return {"report": run.costliest, "spent": spent, "before": run.epsilon_before, "left": left}


def said(entry: Mapping[str, Any], figures: Iterable[str], fleet: str = "") -> str:
    """A round that has ended, in one line. figures: the names of those that it tells. fleet: what is said of that."""
    reasons = entry.get("reasons") or {}
    line = f"round {entry['round']}: {entry.get('reports', 0)} of {entry.get('asked', 0)} reports"
    line += f", {entry.get('refusals', 0)} refusals" + (f" ({counted(reasons)})" if reasons else "")
    line += (f", {entry['ended']}" if entry.get("ended") else "") + fleet
    return line + "".join(f"; {curves.word(name)} {entry[name]:.4f}" for name in figures if name in entry)


def counted(counts: Mapping[str, int]) -> str:
    """What there is, and how often: "online 3, offline 1"."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
