"""How long a battery lasts on a board that wakes for each round.

A model of the table "wakes" in shared_specs/currents.json.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from ternbench import current_model
from ternhost.errors import UsageError

_HOURS_A_YEAR = 365.25 * 24
_HOURS_A_MONTH = _HOURS_A_YEAR / 12
SLEEP, SELF_DISCHARGE = "sleep", "self-discharge"


@dataclass(frozen=True)
class Phase:
    """A part of a wake: milliseconds, milliampere out of the battery, and where both are from."""

    ms: float
    ma: float
    source: str

    @property
    def charge(self) -> float:
        """Milliampere seconds."""
        return self.ma * self.ms / 1000


@dataclass(frozen=True)
class Life:
    """The life of a battery: its average current in milliampere by phase, and its years.

    SLEEP and SELF_DISCHARGE are among the phases.
    """

    milliampere: dict[str, float]
    years: float

    @property
    def average(self) -> float:
        return sum(self.milliampere.values())


@dataclass(frozen=True)
class Wakes:
    """A board that wakes for a round, and sleeps in between.

    sleep: milliampere asleep. longest: seconds of one sleep at most; None: no limit. volts: of the
    battery. self_discharge: share of its capacity in a month.
    """

    name: str
    phases: dict[str, Phase]
    sleep: float
    sleep_source: str
    longest: float | None
    volts: float
    self_discharge: float

    @property
    def awake_s(self) -> float:
        return sum(phase.ms for phase in self.phases.values()) / 1000

    @property
    def charge(self) -> float:
        """Milliampere seconds of a wake."""
        return sum(phase.charge for phase in self.phases.values())

    def with_ms(self, milliseconds_by_phase: Mapping[str, float]) -> Self:
        """Return the same wakes with other durations of some phases, in milliseconds.

        Raises UsageError for a phase that a wake does not have.
        """
        unknown_phases = sorted(milliseconds_by_phase.keys() - self.phases.keys())
        if unknown_phases:
            hint = f"it has {', '.join(self.phases)}: --awake-ms join=800"
            raise UsageError(f"a wake has no phase {unknown_phases[0]!r}", hint)
        phases = dict(self.phases)
        for name, ms in milliseconds_by_phase.items():
            phases[name] = replace(phases[name], ms=ms, source="given")
        return replace(self, phases=phases)

    def life(self, capacity: float, interval: float) -> Life:
        """Return the life of a battery of `capacity` mAh with a wake every `interval` seconds.

        Self-discharge takes the same charge each month. The life ends when the battery is empty.
        Raises UsageError if a wake takes longer than the interval.
        """
        if interval <= self.awake_s:
            text = f"a wake takes {self.awake_s:g} s: it cannot come every {interval:g} s"
            raise UsageError(text, "give a longer --interval-s")

        milliampere = {name: phase.charge / interval for name, phase in self.phases.items()}
        if self.longest:  # it boots also in between, to sleep again
            boots = math.ceil(interval / self.longest)
            milliampere["boot"] = milliampere.get("boot", 0) * boots
        milliampere[SLEEP] = self.sleep * (interval - self.awake_s) / interval
        milliampere[SELF_DISCHARGE] = capacity * self.self_discharge / _HOURS_A_MONTH
        hours_of_life = capacity / sum(milliampere.values())
        return Life(milliampere, hours_of_life / _HOURS_A_YEAR)


def figures() -> dict[str, Any]:
    """The table "wakes": "boards" by name, and the usual "battery"."""
    return dict(json.loads(current_model.FIGURES.read_text())["wakes"])


def load(
    board: str,
    sleep: str = "deepsleep",
    *,
    volts: float | None = None,
    self_discharge: float | None = None,
) -> Wakes:
    """Load the wakes of a board, "pico-w" or "esp32", from the table.

    sleep: one of the board's "sleeps". volts, self_discharge: of the battery, by default the
    table's. Raises UsageError for a board or a sleep that the table lacks.
    """
    table = figures()
    if board not in table["boards"]:
        hint = f"there are figures for {', '.join(table['boards'])}"
        raise UsageError(f"no figures are known for {board}", hint)
    board_figures = table["boards"][board]
    if sleep not in board_figures["sleeps"]:
        hint = f"it has {', '.join(board_figures['sleeps'])}"
        raise UsageError(f"{board_figures['name']} has no sleep {sleep!r}", hint)
    if volts is None:
        volts = table["battery"]["volts"]
    if self_discharge is None:
        self_discharge = table["battery"]["self_discharge"]

    is_switching = board_figures["converter"] == "switching"
    phases = {}
    for name, phase in board_figures["phases"].items():
        current = board_figures["currents"][phase["current"]]
        ma = _out_of_battery(current, volts, is_switching)
        source = f"{_source(phase)}; current: {_source(current)}"
        phases[name] = Phase(phase["ms"], ma, source)

    sleep_figure = board_figures["sleeps"][sleep]
    # A timer that cuts the supply is before the converter.
    is_converted = is_switching and sleep != "timer"
    return Wakes(
        name=board_figures["name"],
        phases=phases,
        sleep=_out_of_battery(sleep_figure, volts, is_converted),
        sleep_source=_source(sleep_figure),
        longest=sleep_figure.get("longest_s"),
        volts=volts,
        self_discharge=self_discharge,
    )


def _out_of_battery(current: Mapping[str, Any], volts: float, is_converted: bool) -> float:
    """Convert a current of the board into the milliampere that the battery gives.

    A switching converter preserves the power, a linear regulator the current.
    """
    if is_converted:
        return float(current["ma"] * current["volts"] / volts)
    return float(current["ma"])


def _source(figure: Mapping[str, Any]) -> str:
    """Describe for people where a figure of the table is from."""
    parts = []
    if figure.get("source"):
        page = f", page {figure['page']}" if "page" in figure else ""
        parts.append(f"{figure['source']}{page}")
    if figure.get("measured_by"):
        parts.append(f"measured by {figure['measured_by']}")
    if figure.get("assumed"):
        parts.append("assumed")
    if figure.get("what"):
        parts.append(figure["what"])
    return "; ".join(parts)
