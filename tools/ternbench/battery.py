"""How long a battery lasts on a board that wakes for each round: a model of "wakes" in
shared_specs/currents.json.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from ternbench import current_model
from ternhost.errors import UsageError

_MONTH = 365.25 / 12 * 24  # hours
_YEAR = 365.25 * 24
SLEEP, SELF = "sleep", "self-discharge"


@dataclass(frozen=True)
class Phase:
    """A part of a wake: milliseconds, and milliampere out of the battery. source: where the figures
    are from.
    """

    ms: float
    ma: float
    source: str

    @property
    def charge(self) -> float:
        return self.ma * self.ms / 1000


@dataclass(frozen=True)
class Life:
    """A battery's: milliampere on average by phase, "sleep" and "self-discharge" among them, and
    how long it lasts.
    """

    milliampere: dict[str, float]
    years: float

    @property
    def average(self) -> float:
        return sum(self.milliampere.values())


@dataclass(frozen=True)
class Wakes:
    """A board that wakes for a round, and sleeps in between; sleep: mA; longest: s of one sleep,
    None: no limit.

    self_discharge: share of the battery's capacity per month.
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
        return sum(phase.charge for phase in self.phases.values())

    def with_ms(self, times: Mapping[str, float]) -> Self:
        """With other times of some phases, in milliseconds.

        Raises UsageError for a phase that there is not.
        """
        if unknown := sorted(times.keys() - self.phases.keys()):
            hint = f"it has {', '.join(self.phases)}: --awake-ms join=800"
            raise UsageError(f"a wake has no phase {unknown[0]!r}", hint)
        changed = {
            name: replace(self.phases[name], ms=ms, source="given") for name, ms in times.items()
        }
        return replace(self, phases={**self.phases, **changed})

    def life(self, capacity: float, interval: float) -> Life:
        """With a battery of `capacity` mAh and a wake every `interval` seconds. Raises UsageError.

        Self-discharge takes the same charge each month; the years end when the battery is empty."""
        if interval <= self.awake_s:
            hint = "give a longer --interval-s"
            raise UsageError(
                f"a wake takes {self.awake_s:g} s: it cannot come every {interval:g} s", hint
            )
        parts = {name: phase.charge / interval for name, phase in self.phases.items()}
        if self.longest:  # it wakes in between, to sleep again
            between = math.ceil(interval / self.longest) - 1
            parts["boot"] = parts.get("boot", 0) * (1 + between)
        parts[SLEEP] = self.sleep * (interval - self.awake_s) / interval
        parts[SELF] = capacity * self.self_discharge / _MONTH
        return Life(parts, capacity / sum(parts.values()) / _YEAR)


def figures() -> dict[str, Any]:
    return dict(json.loads(current_model.FIGURES.read_text())["wakes"])


def load(
    board: str,
    sleep: str = "deepsleep",
    *,
    volts: float | None = None,
    self_discharge: float | None = None,
) -> Wakes:
    """The wakes of "pico-w" or "esp32" with one of its `sleeps`; the table's battery by default.

    Raises UsageError.
    """
    table = figures()
    if board not in table["boards"]:
        hint = f"there are figures for {', '.join(table['boards'])}"
        raise UsageError(f"no figures are known for {board}", hint)
    of, battery = table["boards"][board], table["battery"]
    if sleep not in of["sleeps"]:
        raise UsageError(
            f"{of['name']} has no sleep {sleep!r}", hint=f"it has {', '.join(of['sleeps'])}"
        )
    volts = battery["volts"] if volts is None else volts

    def out_of_the_battery(figure: Mapping[str, Any]) -> float:
        ma: float = figure["ma"]
        return ma * figure["volts"] / volts if of["converter"] == "switching" else ma

    phases = {}
    for name, phase in of["phases"].items():
        current = of["currents"][phase["current"]]
        source = f"{_source(phase)}; current: {_source(current)}"
        phases[name] = Phase(phase["ms"], out_of_the_battery(current), source)
    asleep = of["sleeps"][sleep]
    # A timer that cuts the supply is before the converter.
    drawn = asleep["ma"] if sleep == "timer" else out_of_the_battery(asleep)
    rate = battery["self_discharge"] if self_discharge is None else self_discharge
    return Wakes(of["name"], phases, drawn, _source(asleep), asleep.get("longest_s"), volts, rate)


def _source(figure: Mapping[str, Any]) -> str:
    page = f", page {figure['page']}" if "page" in figure else ""
    parts = {
        "source": f"{figure.get('source')}{page}",
        "measured_by": f"measured by {figure.get('measured_by')}",
        "assumed": "assumed",
        "what": figure.get("what", ""),
    }
    return "; ".join(text for name, text in parts.items() if figure.get(name))
