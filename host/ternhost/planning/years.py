"""What each round may cost where devices answer rounds for years.

So many reports are simulated by few, which have as much noise together.
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
_MOST_REPORTS = 2_000_000  # simulated ones of a run
MOST_OF_A_DEVICE = 100


@dataclass(frozen=True)
class Lasting:
    """Rounds for so many years, one each `every` (15m, 1h, 1d, 1w, or seconds).

    They are paid from a budget for life: epsilon `life` at `delta`. Raises UsageError for what no
    device can do.
    """

    years: float
    every: str
    life: str = "1"
    delta: str = "1e-6"

    def __post_init__(self) -> None:
        """Raise UsageError for no rounds, too many rounds, or rounds that cost too little."""
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
        """The time between two rounds, as `every` says it. Raises UsageError."""
        number = self.every
        unit = 1
        if number[-1:] in _UNITS:
            unit = _UNITS[number[-1]]
            number = number[:-1]
        try:
            seconds = float(number) * unit
        except ValueError:
            seconds = 0.0  # refused below
        must = "a second or longer, such as 15m, 1h, 1d, 1w or 900"
        require(1 <= seconds < math.inf, "every", must, self.every)
        return seconds

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return int(self.years * _YEAR / self.seconds)

    @property
    def costs(self) -> tuple[int, int]:
        """The most micro-epsilon of a report, by a ledger in rho and by a ledger in epsilon."""
        life = parse_epsilon(self.life, MAX_BUDGET, "--life")
        rho = sums.rho_of(life / MICRO, sums.parse_delta(self.delta))
        return sums.pure_of(rho // self.rounds), min(life // self.rounds, MAX_EPSILON)

    @property
    def epsilon(self) -> str:
        """The epsilon of a report, by the ledger in rho."""
        return f"{self.costs[0] / MICRO:f}"

    def cost_summary(self, data: Dataset, model: str) -> dict[str, Any]:
        """Return, for JSON, what a round may cost by each account and what all reports disclose.

        The accounts are a ledger in rho, a ledger in epsilon, and the exact one, which no ledger
        keeps. data, model: what a report is about.
        """
        life = float(self.life)
        delta = sums.parse_delta(self.delta)

        def disclosed(epsilon: int) -> float:
            """The exact epsilon at delta of all reports, each of this micro-epsilon."""
            design = _design(data, model, epsilon)
            return compose_exactly({ReportKind.of(design.card, design.k): self.rounds}, delta)

        def is_too_much(epsilon: int) -> bool:
            return epsilon > MAX_EPSILON or disclosed(epsilon) > life

        # The exact account allows at least as much as a ledger in epsilon.
        rho, pure = self.costs
        high = max(rho, pure)
        while not is_too_much(high):
            high *= 2
        exact = certify.bisected(pure, high, is_too_much) - 1
        return {
            "years": self.years,
            "every": self.every,
            "every_s": self.seconds,
            "rounds": self.rounds,
            "life": life,
            "delta": delta,
            "epsilon_rho": rho / MICRO,
            "epsilon_pure": pure / MICRO,
            "epsilon_exact": exact / MICRO,
            "told_rho": disclosed(rho),
            "told_pure": disclosed(pure),
            "told_exact": disclosed(exact),
        }

    def simulated(self, data: Dataset, model: str, devices: int) -> tuple[str, int]:
        """Return the epsilon and number of reports that stand for all reports of so many devices.

        They are fewer, each with less noise, and have as much noise together. The choice of
        coordinates counts as noise, too. data, model: what a report is about.
        """
        epsilon = self.costs[0]
        all_reports = devices * self.rounds
        precision = 1 / _variance(_design(data, model, epsilon))  # of one report
        reports = all_reports
        most = min(_MOST_REPORTS, MOST_OF_A_DEVICE * devices)
        while reports > most and 2 * epsilon <= MAX_EPSILON:
            epsilon *= 2
            variance = _variance(_design(data, model, epsilon))
            reports = math.ceil(all_reports * precision * variance)
        return f"{epsilon / MICRO:f}", reports


def _design(data: Dataset, model: str, epsilon: int) -> ReportDesign:
    """Return the design of a report of FedSGD at this micro-epsilon."""
    return sgd(data, 1, 1, group=0, model=model, epsilon=f"{epsilon / MICRO:f}").designs[0]


def _variance(design: ReportDesign) -> float:
    """The variance of an estimate from one report, by which training chooses k."""
    return certify.moments(design.card).even_second_moment() / design.k


def words(summary: dict[str, Any], simulated: Sequence[float]) -> list[str]:
    """Return the result of `Lasting.cost_summary` as lines of text.

    simulated: the epsilons of the simulated reports, ascending.
    """
    rounds = counted(summary["rounds"], "round")
    delta = summary["delta"]
    every = summary["every"]
    if every[-1] not in _UNITS:
        every += " s"
    years = "years"
    if summary["years"] == 1:
        years = "year"
    lines = [
        f"{rounds}, one every {every} for {summary['years']:g} {years}; "
        f"(epsilon {summary['life']:g}, delta {delta:g}) for life protects {protected(DEVICE)}:",
        f"  {'ledger':<12} {'epsilon a round':<16} "
        f"what all reports really tell, exactly, at delta {delta:g}",
    ]
    for name, ledger in _LEDGERS.items():
        epsilon = f"{summary[f'epsilon_{name}']:.8g}"
        disclosed = summary[f"told_{name}"]
        line = f"  {ledger:<12} {epsilon:<16} epsilon {disclosed:.4g}"
        if name == "exact":
            line += ": no ledger enforces it, so use one in rho"
        lines.append(line)
    if simulated[-1] > summary["epsilon_rho"]:
        lines.append(
            f"many reports are simulated by fewer, up to epsilon {simulated[-1]:.3g}, "
            "with the same noise together"
        )
    return lines
