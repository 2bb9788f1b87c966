"""Trains by HierA (levels.py): FedSGD whose gradients are reported by LHP, as level and sign.

In the paper (Hao, Wu, Wan, Sensors 2023, 23, 1115) the level belongs to a coordinate's attribute,
which costs more. Here it belongs to the gradient, since the card is certified for level and sign of
one number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ternhost.count.rounds import CohortCounts
from ternhost.datasets import Dataset
from ternhost.learn import liar_results
from ternhost.learn.base import Population
from ternhost.learn.designs import BudgetOptions, DeviceClass, ReportDesign, in_privacy
from ternhost.learn.models.fedsgd import FedSGD, GroupOptions
from ternhost.learn.parameters import Floats
from ternhost.privacy.base import MICRO
from ternpapers import levels
from ternpapers.mechanisms import lhp


@dataclass(frozen=True)
class LevelOptions(BudgetOptions):
    """Options of reports by LHP, the local part of HierA."""

    proportions: str = in_privacy("5,4,3,2,1", metavar="B,B,...")
    mu: int = in_privacy(
        1,
        "how many times a report counts, converted to more private levels (paper: 2)",
        metavar="MU",
    )
    clamp: bool = in_privacy(
        False,
        "clamp each level's sum to its reports, as the paper does",
        shown="no",
    )

    def check(self) -> None:
        """Raise UsageError for proportions that are no numbers, or a mu that they do not allow."""
        levels.require_mu(self.mu, len(levels.proportions_of(self.proportions)))

    def level_designs(self) -> list[ReportDesign]:
        """Return the design of a report of one value, for each class of devices."""
        return [self._design(device_class) for device_class in self.classes()]

    def _design(self, device_class: DeviceClass) -> ReportDesign:
        """Return the design of a report whose true cost is at most the epsilon of this class.

        The variance of a report is largest at the most private level: it is C**2, C its magnitude.
        """
        card = levels.design(device_class.epsilon, levels.proportions_of(self.proportions))
        return ReportDesign(
            card=card,
            k=1,
            variance=float(lhp.magnitudes(card).max()) ** 2,
            mechanism="lhp",
            epsilon=device_class.epsilon,
            share=device_class.share,
        )


@dataclass(frozen=True)
class Options(LevelOptions, GroupOptions):
    """Options of HierA."""


class HierA(FedSGD):
    """FedSGD whose devices report a level and a sign of each chosen coordinate."""

    name = "hiera"
    like = "fedsgd"
    about = "a baseline of the papers: levels with budgets of their own"
    example = "--reports 20000"
    Options = Options

    def make_designs(self) -> list[ReportDesign]:
        """Return the design of a report, for each class of devices."""
        return list(self.options.level_designs())

    def __init__(self, options: Any, population: Population, data: Dataset | None = None) -> None:
        super().__init__(options, population, data)
        self.modules = ("lhp", *self.modules)

    def estimate_of(
        self, number: int, cohorts: Sequence[CohortCounts], tau: float
    ) -> tuple[Floats, Floats]:
        """Return the mean gradient (d) of a round, and the number of reports of each coordinate (d).

        tau: the range of the gradients. The conversions of reports between levels are drawn with
        the seed of the round.
        """
        counts_by_class = []
        dimension = len(cohorts[0].counts)
        reports = np.zeros(dimension)
        for cohort in cohorts:
            counts_by_class.append((cohort.card, cohort.counts))
            reports += cohort.counts.sum(axis=1)
        seed = self.options.seed + self.trainer.round
        means = levels.combine(
            counts_by_class, self.options.mu, clamp=self.options.clamp, seed=seed
        )
        if not self.options.clamp:  # clamping bounds lies further, by how much is not known
            kinds = []
            for card, counts in counts_by_class:
                kinds.append(levels.kind_of(card, counts.sum(axis=1), self.options.mu, tau))
            answers = sum(cohort.reports for cohort in cohorts)
            self._moved_by_liars = liar_results.of_kinds(kinds, tau * means, cohorts[0].k, answers)
        return tau * means, reports

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the result of training, with the epsilon that the paper states for each part."""
        stated = max(max(lhp.budgets_of(design.card)) for design in self.designs)
        return {**super().result(history), "epsilon_stated": stated / MICRO}
