"""Computes what each round may cost where devices answer rounds for years.

A device keeps an account of the privacy loss of all its reports, its ledger, and has a budget for
life. So many reports are simulated by fewer ones that are more precise, and have as much noise
together.
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
from ternhost.learn.models.fedsgd import FedSGD
from ternhost.options import Number, Option, require, seconds_of
from ternhost.planning.simulation import sgd
from ternhost.privacy import certify, sums
from ternhost.privacy.base import MICRO, parse_epsilon
from ternhost.privacy.composing import ReportKind, compose_exactly
from ternhost.privacy.units import DEVICE, protected
from ternhost.text import counted

LADDER = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
# The ways of accounting for privacy loss, by the end of their keys in a result, in words.
_LEDGERS = {"rho": "in rho", "pure": "in epsilon", "exact": "none"}
_YEAR = 365.25 * 86_400  # seconds
_OPTIONS = (
    Option("years", "", type=float, default=1.0),
    Option("every", "", default=""),
    Option("run_epsilon", "", default=""),
    Option("delta", "", default=""),
)
# A run simulates at most so many reports, in all and of each device.
_MOST_REPORTS = 2_000_000
MOST_OF_A_DEVICE = 100


@dataclass(frozen=True)
class EquivalentReports:
    """So many reports at this epsilon, which have as much noise together as other reports.

    epsilon: that of each report, as text. count: how many reports there are, of all devices.
    """

    epsilon: str
    count: int

    def learner(self, data: Dataset, model: str, devices: int, seed: int) -> FedSGD:
        """Return FedSGD with these reports, before its first round.

        data, model: what is learned. devices: how many share the reports. seed: of the run.
        """
        return sgd(
            data,
            self.count,
            seed,
            clients=devices,
            group=0,
            model=model,
            epsilon=self.epsilon,
        )


@dataclass(frozen=True)
class RoundsForYears:
    """Rounds for years, which every device answers and pays for from its budget for life.

    - years: how long devices report
    - every: the time from one round to the next: 15m, 1h, 1d, 1w or a number of seconds
    - run_epsilon, delta: all reports of a device together keep this (epsilon, delta)

    Raises UsageError for what no device can do.
    """

    years: float
    every: Number
    run_epsilon: Number = "1"
    delta: Number = "1e-6"

    def __post_init__(self) -> None:
        """Raise UsageError for no rounds, too many rounds, or rounds that cost too little."""
        for option in _OPTIONS:
            value = option.normalised(getattr(self, option.name))
            object.__setattr__(self, option.name, value)
        require(0 < self.years < math.inf, "years", "above 0", self.years)
        rounds = self.years * _YEAR / self.seconds
        require(rounds >= 1, "every", "no longer than --years", self.every)
        if rounds > MAX_ROUND:
            text = f"{rounds:,.0f} rounds are more than the {MAX_ROUND:,} that a device counts"
            raise UsageError(text, "use a longer --every, or fewer --years")
        if not min(self.costs):
            text = f"--run-epsilon {self.run_epsilon} leaves {counted(self.rounds, 'round')} less than a millionth each"
            raise UsageError(text, "use a longer --every, fewer --years, or a larger --run-epsilon")

    @property
    def seconds(self) -> float:
        """The number of seconds between two rounds, from the text `every`. Raises UsageError."""
        seconds = seconds_of(self.every, "every")
        require(seconds >= 1, "every", "a second or longer", self.every)
        return seconds

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return int(self.years * _YEAR / self.seconds)

    @property
    def costs(self) -> tuple[int, int]:
        """The most micro-epsilon that a report may cost, by each of the two ledgers of devices.

        The first is by a ledger in rho (zero-concentrated privacy), in which the budget is
        converted to rho once and divided by the number of rounds. The second is by a ledger in
        epsilon, which simply adds up the epsilons of reports.
        """
        run_epsilon = parse_epsilon(self.run_epsilon, MAX_BUDGET, "--run-epsilon")
        rho = sums.rho_of(run_epsilon / MICRO, sums.parse_delta(self.delta))
        by_rho = sums.pure_of(rho // self.rounds)
        by_epsilon = min(run_epsilon // self.rounds, MAX_EPSILON)
        return by_rho, by_epsilon

    @property
    def epsilon(self) -> str:
        """The epsilon of a report, by the ledger in rho, as text."""
        by_rho, _ = self.costs
        return f"{by_rho / MICRO:f}"

    def cost_summary(self, data: Dataset, model: str) -> dict[str, Any]:
        """Return, for JSON, what a round may cost, and what all reports disclose together.

        Both are stated for three ways of accounting: a ledger in rho, a ledger in epsilon, and the
        exact composition, which no ledger keeps. data, model: what a report is about.
        """
        run_epsilon = float(self.run_epsilon)
        delta = sums.parse_delta(self.delta)

        def disclosed(epsilon: int) -> float:
            """Return the exact epsilon of all reports at delta, each of this micro-epsilon."""
            design = _design(data, model, epsilon)
            kind = ReportKind.of(design.card, design.k)
            return compose_exactly({kind: self.rounds}, delta)

        def is_too_much(epsilon: int) -> bool:
            """Return whether reports of this micro-epsilon exceed the budget, or cannot be made."""
            return epsilon > MAX_EPSILON or disclosed(epsilon) > run_epsilon

        # The exact account allows at least as much as a ledger in epsilon. From there on the
        # largest epsilon that is not too much is searched for, first by doubling.
        rho, pure = self.costs
        high = max(rho, pure)
        while not is_too_much(high):
            high *= 2
        least_that_is_too_much = certify.bisected(pure, high, is_too_much)
        exact = least_that_is_too_much - 1
        return {
            "years": self.years,
            "every": self.every,
            "every_s": self.seconds,
            "rounds": self.rounds,
            "run_epsilon": run_epsilon,
            "delta": delta,
            "epsilon_rho": rho / MICRO,
            "epsilon_pure": pure / MICRO,
            "epsilon_exact": exact / MICRO,
            "told_rho": disclosed(rho),
            "told_pure": disclosed(pure),
            "told_exact": disclosed(exact),
        }

    def fewer_equivalent_reports(
        self, data: Dataset, model: str, devices: int
    ) -> EquivalentReports:
        """Return fewer, more precise reports to simulate instead of all reports of the devices.

        Together they have as much noise as all reports, so that a model trained from them is as
        good, and a simulation is fast. A device also chooses at random which coordinates of its
        gradient it reports; that counts as noise, too. data, model: what a report is about.
        """
        epsilon, _ = self.costs
        all_reports = devices * self.rounds
        precision = 1 / _variance(_design(data, model, epsilon))  # of one report
        reports = all_reports
        most = min(_MOST_REPORTS, MOST_OF_A_DEVICE * devices)
        # Double epsilon until the reports are few enough, or a report can have no larger epsilon.
        while reports > most and 2 * epsilon <= MAX_EPSILON:
            epsilon *= 2
            variance = _variance(_design(data, model, epsilon))
            # Precisions of reports add up. In all they are as precise as all reports were.
            reports = math.ceil(all_reports * precision * variance)
        return EquivalentReports(epsilon=f"{epsilon / MICRO:f}", count=reports)


def _design(data: Dataset, model: str, epsilon: int) -> ReportDesign:
    """Return how FedSGD designs a report at this micro-epsilon: its mechanism and its k."""
    epsilon_option = f"{epsilon / MICRO:f}"
    learner = sgd(data, reports=1, seed=1, group=0, model=model, epsilon=epsilon_option)
    return learner.designs[0]  # all devices are of one class


def _variance(design: ReportDesign) -> float:
    """Return the variance of an estimate of the gradient from one report, up to a factor.

    It is the second moment of one reported value, divided by the number k of values in a report.
    """
    return certify.moments(design.card).even_second_moment() / design.k


def text_lines(summary: dict[str, Any], simulated: Sequence[float]) -> list[str]:
    """Return the result of `RoundsForYears.cost_summary` as lines of text.

    simulated: the epsilons of the simulated reports, ascending.
    """
    rounds = counted(summary["rounds"], "round")
    delta = summary["delta"]
    every = summary["every"]
    if every[-1].isdigit():
        every += " s"
    years = "years"
    if summary["years"] == 1:
        years = "year"
    lines = [
        f"{rounds}, one every {every} for {summary['years']:g} {years}; "
        f"(epsilon {summary['run_epsilon']:g}, delta {delta:g}) for life protects {protected(DEVICE)}:",
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
