"""Models how long a battery lasts on a board that sleeps, and wakes for each round of reports.

The currents and durations are in the table "wakes" of shared_specs/currents.json.
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
# What drains a battery beside the phases of a wake, in `Life.milliampere`.
SLEEP, SELF_DISCHARGE = "sleep", "self-discharge"
DEEP_SLEEP = "deepsleep"  # the usual kind of sleep


@dataclass(frozen=True)
class Phase:
    """A part of the time that a board is awake, such as joining a network.

    ms: how long it takes. ma: the current out of the battery meanwhile, in milliampere. source: where
    both numbers are from.
    """

    ms: float
    ma: float
    source: str

    @property
    def charge(self) -> float:
        """The charge that the phase takes out of the battery, in milliampere seconds."""
        return self.ma * self.ms / 1000


@dataclass(frozen=True)
class Life:
    """How long a battery lasts, and what drains it.

    milliampere: the average current of each phase of a wake, of SLEEP, and of SELF_DISCHARGE. years:
    until the battery is empty. every: seconds from one wake to the next.
    """

    milliampere: dict[str, float]
    years: float
    every: float

    @property
    def average(self) -> float:
        """The average current out of the battery, in milliampere."""
        return sum(self.milliampere.values())


@dataclass(frozen=True)
class Wakes:
    """A board that sleeps, and wakes again and again to take part in a round of reports.

    name: the board, for people. phases: what it does in a wake, by name. sleep: the current asleep, in
    milliampere. sleep_source: where that number is from. longest: seconds that the board can sleep
    without waking in between; None: no limit. volts: of the battery. self_discharge: fraction of its
    capacity that the battery loses in a month by itself.
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
        """The seconds that the board is awake for a round."""
        return sum(phase.ms for phase in self.phases.values()) / 1000

    @property
    def charge(self) -> float:
        """The charge that a wake takes out of the battery, in milliampere seconds."""
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
        for name, milliseconds in milliseconds_by_phase.items():
            phases[name] = replace(phases[name], ms=milliseconds, source="given")
        return replace(self, phases=phases)

    def life(self, capacity: float, interval: float) -> Life:
        """Return how long a battery lasts on this board.

        The life is the capacity divided by the average current. That is the sum of the currents of
        all phases of a wake, spread over the interval, of the current asleep, and of the
        self-discharge, which is modelled as a constant current: a fraction of the full capacity each
        month.

        capacity: of the battery, in mAh. interval: seconds from one wake to the next. Raises
        UsageError if a wake takes longer than the interval.
        """
        if interval <= self.awake_s:
            text = f"a wake takes {self.awake_s:g} s: it cannot come every {interval:g} s"
            raise UsageError(text, "give a longer --every")

        # By phase, the average current: the charge of a wake (mA s) over the seconds of an interval.
        milliampere = {name: phase.charge / interval for name, phase in self.phases.items()}
        if self.longest:
            # A board that cannot sleep for the whole interval boots in between, to sleep again.
            boots = math.ceil(interval / self.longest)
            milliampere["boot"] = milliampere.get("boot", 0) * boots
        share_asleep = (interval - self.awake_s) / interval
        milliampere[SLEEP] = self.sleep * share_asleep
        milliampere[SELF_DISCHARGE] = capacity * self.self_discharge / _HOURS_A_MONTH
        hours_of_life = capacity / sum(milliampere.values())
        return Life(milliampere, hours_of_life / _HOURS_A_YEAR, interval)


def figures() -> dict[str, Any]:
    """Return the table "wakes": "boards" by name, "changes", and "battery", the usual one."""
    return dict(json.loads(current_model.FIGURES.read_text())["wakes"])


def load(
    board: str,
    sleep: str = DEEP_SLEEP,
    *,
    volts: float | None = None,
    self_discharge: float | None = None,
) -> Wakes:
    """Load what is known about a board's wakes and sleep from the table.

    board: such as "pico-w" or "esp32". sleep: a kind of sleep that the board has. volts, self_discharge: of
    the battery (see Wakes); None: those of the usual battery. Raises UsageError for a board or a
    sleep that the table lacks.
    """
    table = figures()  # shared_specs/currents.json
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
    sleep_figure = board_figures["sleeps"][sleep]
    # A timer that cuts the supply lies between battery and converter: its current is the battery's.
    is_sleep_converted = is_switching and sleep != "timer"
    return Wakes(
        name=board_figures["name"],
        phases=_phases(board_figures, volts, is_switching),
        sleep=_out_of_battery(sleep_figure, volts, is_sleep_converted),
        sleep_source=_source(sleep_figure),
        longest=sleep_figure.get("longest_s"),
        volts=volts,
        self_discharge=self_discharge,
    )


def current_of(board: str, current: Mapping[str, Any], volts: float) -> float:
    """Return how much a current of a board draws out of its battery, in milliampere.

    current: an entry of the table, with "ma" and "volts" of the board. volts: of the battery.
    """
    is_switching = figures()["boards"][board]["converter"] == "switching"
    return _out_of_battery(current, volts, is_switching)


def _phases(board_figures: Mapping[str, Any], volts: float, is_switching: bool) -> dict[str, Phase]:
    """Return the phases of a board's wake by name.

    board_figures: the board's entry in the table. volts: of the battery. is_switching: whether
    the board's voltage converter is a switching one.
    """
    phases = {}
    for name, phase in board_figures["phases"].items():
        current = board_figures["currents"][phase["current"]]
        phases[name] = Phase(
            ms=phase["ms"],
            ma=_out_of_battery(current, volts, is_switching),
            source=f"{_source(phase)}; current: {_source(current)}",
        )
    return phases


def _out_of_battery(current: Mapping[str, Any], volts: float, is_converted: bool) -> float:
    """Convert a current of the board into the current out of the battery, in milliampere.

    current: an entry of the table, with "ma" and, if it is converted, "volts" of the board. volts:
    of the battery. is_converted: a switching converter lies between them, which preserves the
    power. Without one the current is the same on both sides, as with a linear regulator.
    """
    milliampere = float(current["ma"])
    if is_converted:
        return milliampere * float(current["volts"]) / volts
    return milliampere


def _source(figure: Mapping[str, Any]) -> str:
    """Describe for people where a number of the table is from.

    figure: the number's entry in the table, with some of "source", "page", "measured_by", "assumed"
    and "what".
    """
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
