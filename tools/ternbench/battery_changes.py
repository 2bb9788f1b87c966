"""Ranks what one could change about a board that sleeps, by how long its battery would last.

The changes are in the table "wakes" of shared_specs/currents.json, each with its price.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ternbench import battery
from ternbench.battery import Life, Wakes
from ternhost.errors import UsageError

_BOOT = "boot"  # the phase that needs no radio


@dataclass(frozen=True)
class Change:
    """Something that a board or its fleet could do differently, and what that brings.

    what: the change. cost: what it takes in trust or effort. today: whether tern and MicroPython can do
    it; otherwise `needs` says what is missing. why: where the numbers are from; empty if they follow
    from `what`. life: that of the battery with the change. years_gained: how much longer that is; below 0,
    shorter. saved_mas: by how much less charge each wake takes, in milliampere seconds. more_ma: how
    much more the board draws on average, asleep and awake, in milliampere; below 0, less.
    """

    name: str
    what: str
    cost: str
    today: bool
    needs: str
    why: str
    life: Life
    years_gained: float
    saved_mas: float
    more_ma: float


def ranked(board: str, sleep: str, wakes: Wakes, capacity: float, interval: float) -> list[Change]:
    """Return the changes that are possible on a board, the longest life first.

    A change that makes no difference is left out. So is one with which a wake would take longer than
    the interval.

    board: as for `battery.load`. sleep: its kind of sleep, or a current. wakes: what the board does now.
    capacity: of the battery, in mAh. interval: seconds from one wake to the next.
    """
    life = wakes.life(capacity, interval)
    changes = []
    for entry in battery.figures()["changes"]:
        effect = _effect(entry, board)
        if effect is None or effect.get("sleep") == sleep:
            continue
        changed = _changed(wakes, board, effect)
        try:
            changed_life = changed.life(capacity, interval * effect.get("intervals", 1))
        except UsageError:
            continue
        if changed_life.years == life.years:
            continue
        change = Change(
            name=entry["name"],
            what=entry["what"],
            cost=entry["cost"],
            today=entry["today"],
            needs=entry.get("needs", ""),
            why=entry.get("why", ""),
            life=changed_life,
            years_gained=changed_life.years - life.years,
            saved_mas=wakes.charge - changed.charge,
            more_ma=changed_life.average - life.average,
        )
        changes.append(change)
    changes.sort(key=lambda change: change.life.years, reverse=True)
    return changes


def _effect(entry: Mapping[str, Any], board: str) -> dict[str, Any] | None:
    """Return what a change of the table does on a board; None if it is not for this board."""
    own = entry.get("boards", {}).get(board)
    if own is None and "all" not in entry:
        return None
    return {**entry.get("all", {}), **(own or {})}


def _changed(wakes: Wakes, board: str, effect: Mapping[str, Any]) -> Wakes:
    """Return what the board would do with a change.

    effect: the change, with some of "ms", "sleep" and "without_radio". It makes no phase longer.
    """
    phases = dict(wakes.phases)
    for name, milliseconds in effect.get("ms", {}).items():
        phase = phases[name]
        phases[name] = replace(phase, ms=min(phase.ms, milliseconds))
    if effect.get("without_radio"):
        for name, phase in phases.items():
            phases[name] = replace(phase, ma=phases[_BOOT].ma)
    changed = replace(wakes, phases=phases)

    sleep = effect.get("sleep")
    if sleep is None:
        return changed
    if isinstance(sleep, str):
        other = battery.load(board, sleep, volts=wakes.volts)
        return replace(changed, sleep=other.sleep, longest=other.longest)
    current = battery.current_of(board, sleep, wakes.volts)
    return replace(changed, sleep=current, longest=None)
