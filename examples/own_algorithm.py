"""An algorithm of one's own, in one file: it asks group after group for one attribute, until its
mean is known well.

The class is the one thing that tern has to know. Here a program registers it, and `tern collect
until` would run it; an installed package does so with an entry point of the group
`tern.algorithms`. Every fleet can run it.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import ternhost
from tern import wire
from ternhost import Simulated, datasets
from ternhost.count.questions import Question
from ternhost.count.rounds import RoundResult
from ternhost.datasets import Holdings
from ternhost.learn.base import ALGORITHMS, Cohort, Learner, Population
from ternhost.learn.collecting import estimate
from ternhost.learn.designs import BudgetOptions, MechanismOptions, by_class
from ternhost.learn.devices import take
from ternhost.options import option, require

GROUP = "until"


@dataclass(frozen=True)
class Options(MechanismOptions, BudgetOptions):
    """The options of the command line, and the object that `ternhost.Run` takes.

    Those of every report, and these.
    """

    data: str = option("wine", group=GROUP, metavar="D")
    attribute: str = option("alcohol", "whose mean is wanted", group=GROUP, metavar="NAME")
    width: float = option(0.1, "of the interval, which ends the run", group=GROUP, metavar="W")
    group: int = option(100, "clients asked in a round", group=GROUP, metavar="G")
    most: int = option(100, "rounds at most", group=GROUP, metavar="N")
    seed: int = option(1, group=GROUP, metavar="S")

    def check(self) -> None:
        require(self.width > 0, "width", "above 0", self.width)
        require(self.group >= 1, "group", "1 or more", self.group)
        require(self.most >= 1, "most", "1 or more", self.most)


class Until(Learner):
    """Asks each client once. All that it learns is a row of counts."""

    name = "until"
    command = "collect"
    Options = Options
    modules = ("collect",)  # of the device library, beside what every board has

    def __init__(self, options: Any, population: Population) -> None:
        """population: the devices, which all count alike here. Raises UsageError."""
        self.options = options
        dataset = datasets.load(options.data)
        if options.attribute not in dataset.feature_names:
            names = ", ".join(dataset.feature_names)
            raise ternhost.UsageError(
                f"there is no attribute {options.attribute!r}", hint=f"one of: {names}"
            )
        self._column = dataset.feature_names.index(options.attribute)
        self._width = dataset.dimension
        # A report is one value; the device knows the card, and what it may cost.
        self.designs = [options.design(device_class, k=1) for device_class in options.classes()]
        self.rounds = options.most
        self.clients = self.reports = options.group * options.most
        rows = dataset.records(np.arange(len(dataset.labels)))
        self.holdings = Holdings(rows, np.random.default_rng(options.seed).permutation(len(rows)))
        self._counts = [np.zeros((1, design.card.symbols), np.int64) for design in self.designs]
        self._round = 0

    @property
    def done(self) -> bool:
        """Whether the interval is narrow enough, or there were enough rounds."""
        low, high = self._interval()
        return bool(self._round >= self.options.most or high - low <= self.options.width)

    def cohorts(self, devices: Sequence[int] | Any) -> list[Cohort]:
        """Return the questions of the next round, each with the devices that get it.

        All ask for the one attribute; device classes differ in the card.
        """
        start = self._round * self.options.group
        cohort = take(devices, np.arange(start, start + self.options.group))
        chosen = [int(j == self._column) for j in range(self._width)]
        cohorts: list[Cohort] = []
        for part in by_class(self.designs, cohort, self.options.seed):
            question = Question(wire.VALUES, chosen, 0, part.design.card.data, k=1)
            cohorts.append((question, part.devices))
        return cohorts

    def learn(self, result: RoundResult, devices: Sequence[int] | Any) -> None:
        """Add the counts of a round's reports to those of the same card."""
        for cohort in result.cohorts:
            data = [design.card.data for design in self.designs]
            self._counts[data.index(cohort.card.data)] += cohort.counts
        self._round += 1

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs to go on with a run."""
        return {"round": self._round, "counts": [counts.tolist() for counts in self._counts]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state` that was stored."""
        self._round = state["round"]
        self._counts = [np.array(counts, np.int64) for counts in state["counts"]]

    def _estimate(self) -> estimate.Estimate:
        """Return the estimate of the mean from all counts."""
        cards = [design.card for design in self.designs]
        return estimate.combine(list(zip(cards, self._counts, strict=True)))

    def _interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the mean; it is infinite before the first report."""
        if not any(counts.any() for counts in self._counts):
            return -np.inf, np.inf
        estimated = self._estimate()
        return float(estimated.low[0]), float(estimated.high[0])

    def figures(self) -> dict[str, float]:
        """Return the figures of the last round, for the history."""
        if not any(counts.any() for counts in self._counts):
            return {}
        low, high = self._interval()
        return {"mean": float(self._estimate().mean[0]), "width": high - low}

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the result of the run, as JSON has it."""
        design = self.designs[0]
        return {
            "attribute": self.options.attribute,
            **self.figures(),
            "interval": list(self._interval()),
            "card": design.card.data.hex(),
            "mechanism": design.mechanism,
        }

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        """Return the lines that the command line prints."""
        low, high = result["interval"]
        mean = f"{result['attribute']}: {result['mean']:+.3f}"
        interval = f"(95 % interval {low:+.3f} to {high:+.3f})"
        return [f"{mean}  {interval}, after {result['reports']:,} reports"]


if __name__ == "__main__":
    ALGORITHMS.register("until", Until)  # from here on it has a name wherever algorithms are named
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=float, default=0.1)
    args = parser.parse_args()
    run = ternhost.Run(Options(epsilon=4, width=args.width), Simulated(20_000))
    result = run.finish()
    print(result)
    print(result.history)
