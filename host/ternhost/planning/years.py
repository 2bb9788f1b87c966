"""What each round may cost where devices answer all rounds of years, and few reports with the noise
of so many.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tern.fixed import MAX_EPSILON
from tern.ledger import MAX_BUDGET
from tern.wire import MAX_ROUND
from ternhost.datasets import Dataset
from ternhost.errors import UsageError
from ternhost.learn.designs import ReportDesign
from ternhost.options import require
from ternhost.planning.simulation import sgd
from ternhost.privacy import certify, sums
from ternhost.privacy.base import MICRO, parse_epsilon
from ternhost.privacy.composing import ReportKind, compose_exactly
from ternhost.privacy.units import DEVICE, protected
from ternhost.text import counted

LADDER = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
_LEDGERS = {"rho": "in rho", "pure": "in epsilon", "exact": "none"}
_YEAR = 365.25 * 86_400
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_MOST, _OF_A_DEVICE = 2_000_000, 100  # simulated reports of a run


@dataclass(frozen=True)
class Lasting:
    """Rounds for so many years, one each `every` (15m, 1h, 1d, 1w, or seconds), which (life, delta)
    pays for. Raises UsageError for what no device can do.
    """

    years: float
    every: str
    life: str = "1"
    delta: str = "1e-6"

    def __post_init__(self) -> None:
        require(0 < self.years < math.inf, "years", "above 0", self.years)
        rounds = self.years * _YEAR / self.seconds
        require(rounds >= 1, "every", "no longer than --years", self.every)
        if rounds > MAX_ROUND:
            text = f"{rounds:,.0f} rounds are more than the {MAX_ROUND:,} that a device counts"
            raise UsageError(text, "a longer --every, or fewer --years")
        if not min(self.costs):
            text = f"--life {self.life} leaves {self.rounds:,} rounds less than a millionth each"
            raise UsageError(text, "a longer --every, fewer --years, or a larger --life")

    @property
    def seconds(self) -> float:
        """Between two rounds."""
        number, unit = (
            (self.every[:-1], self.every[-1:]) if self.every[-1:] in _UNITS else (self.every, "")
        )
        try:
            seconds = float(number) * _UNITS.get(unit, 1)
        except ValueError:
            seconds = 0.0
        require(
            1 <= seconds < math.inf,
            "every",
            "a second or longer, such as 15m, 1h, 1d, 1w or 900",
            self.every,
        )
        return seconds

    @property
    def rounds(self) -> int:
        return int(self.years * _YEAR / self.seconds)

    @property
    def costs(self) -> tuple[int, int]:
        """The most that a report may cost, in micro-epsilon: by a ledger in rho, and by one in
        epsilon.
        """
        life = parse_epsilon(self.life, MAX_BUDGET, "--life")
        rho = sums.rho_of(life / MICRO, sums.parse_delta(self.delta))
        return sums.pure_of(rho // self.rounds), min(life // self.rounds, MAX_EPSILON)

    @property
    def epsilon(self) -> str:
        """Of a report, by the ledger in rho."""
        return f"{self.costs[0] / MICRO:f}"

    def reckoned(self, data: Dataset, model: str) -> dict[str, Any]:
        """For JSON: what a round may cost by each account, and what the reports of each ledger
        tell, exactly.
        """
        life, delta = float(self.life), sums.parse_delta(self.delta)

        def tell(epsilon: int) -> float:
            design = _design(data, model, epsilon)
            return compose_exactly({ReportKind.of(design.card, design.k): self.rounds}, delta)

        def too_much(epsilon: int) -> bool:
            return epsilon > MAX_EPSILON or tell(epsilon) > life

        rho, pure = self.costs
        high = max(rho, pure)
        while not too_much(high):
            high *= 2
        costs = {"rho": rho, "pure": pure, "exact": certify.bisected(pure, high, too_much) - 1}
        schedule = {
            "years": self.years,
            "every": self.every,
            "every_s": self.seconds,
            "rounds": self.rounds,
        }
        told = {f"told_{name}": tell(cost) for name, cost in costs.items()}
        epsilons = {f"epsilon_{name}": cost / MICRO for name, cost in costs.items()}
        return {**schedule, "life": life, "delta": delta, **epsilons, **told}

    def simulated(self, data: Dataset, model: str, devices: int) -> tuple[str, int]:
        """(epsilon, number) of the reports that are simulated in place of all those of so many
        devices: few, with as much noise together. The choice of coordinates counts as noise, too.
        """
        epsilon, all_reports = self.costs[0], devices * self.rounds
        told = 1 / _spread(_design(data, model, epsilon))
        reports, most = all_reports, min(_MOST, _OF_A_DEVICE * devices)
        while reports > most and 2 * epsilon <= MAX_EPSILON:
            epsilon *= 2
            reports = math.ceil(all_reports * told * _spread(_design(data, model, epsilon)))
        return f"{epsilon / MICRO:f}", reports


def _design(data: Dataset, model: str, epsilon: int) -> ReportDesign:
    return sgd(data, 1, 1, group=0, model=model, epsilon=f"{epsilon / MICRO:f}").designs[0]


def _spread(design: ReportDesign) -> float:
    """The variance of an estimate from one report, by which training chooses k."""
    return certify.moments(design.card).even_second_moment() / design.k


def words(reckoned: dict[str, Any], simulated: Sequence[float]) -> list[str]:
    """`Lasting.reckoned` as lines of text. simulated: the epsilons of the simulated reports, in
    order.
    """
    every, delta, rounds = (
        reckoned["every"],
        reckoned["delta"],
        counted(reckoned["rounds"], "round"),
    )
    every += "" if every[-1] in _UNITS else " s"
    years = "year" if reckoned["years"] == 1 else "years"
    row = "  {:<12} {:<16} {}".format
    lines = [
        f"{rounds}, one every {every} for {reckoned['years']:g} {years}; (epsilon {reckoned['life']:g}, delta "
        f"{delta:g}) for life protects {protected(DEVICE)}:",
        row(
            "ledger",
            "epsilon a round",
            f"what all reports really tell, exactly, at delta {delta:g}",
        ),
    ]
    for name, ledger in _LEDGERS.items():
        advice = ": no ledger enforces it, so use one in rho" if name == "exact" else ""
        each, told = reckoned[f"epsilon_{name}"], reckoned[f"told_{name}"]
        lines.append(row(ledger, f"{each:.8g}", f"epsilon {told:.4g}{advice}"))
    if simulated[-1] > reckoned["epsilon_rho"]:
        lines.append(
            f"many reports are simulated by fewer, up to epsilon {simulated[-1]:.3g}, with the same noise together"
        )
    return lines
