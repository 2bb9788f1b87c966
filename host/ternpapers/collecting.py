"""Collects means by HierA: clients report the level and the sign of a number by LHP.

Source: Hao, Wu, Wan, Sensors 2023, 23, 1115. Each client reports one attribute. See levels.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tern.card import Card
from ternhost.count.rounds import Counts
from ternhost.datasets import Floats, Table
from ternhost.learn import liars
from ternhost.learn.base import Population
from ternhost.learn.collecting import attributes
from ternhost.learn.collecting.attributes import Part
from ternhost.learn.collecting.collect import ClientOptions, Interval, Values
from ternhost.privacy.base import MICRO
from ternpapers import levels
from ternpapers.hiera import LevelOptions
from ternpapers.mechanisms import lhp


@dataclass(frozen=True)
class Options(LevelOptions, ClientOptions):
    """Options of collecting by HierA."""


class CollectLevels(Values):
    """Asks every client once, for the level and the sign of one number."""

    name = "levels"
    like = "values"
    about = "a baseline of the papers: levels with budgets of their own"
    example = "--clients 1000"
    Options = Options

    def __init__(self, options: Any, population: Population, data: Table | None = None) -> None:
        super().__init__(options, population, data)
        self.modules = ("collect", "lhp")

    def make_plan(self, table: Table) -> list[list[Part]]:
        """Return, for each class of devices, the one part of its reports: a number of the table."""
        designs = self.options.level_designs()
        return [[attributes.numeric_part(table, design)] for design in designs]

    def means(
        self, counts: Sequence[tuple[Card, Counts]], taus: Sequence[float]
    ) -> tuple[Floats, Sequence[Interval | None]]:
        """Return the mean of each attribute, without intervals, since the paper has none.

        counts: of each class of devices, with its card. taus: not used, since levels have no range.
        """
        options = self.options
        means = levels.combine(counts, options.mu, clamp=options.clamp, seed=options.seed)
        return means, [None] * len(means)

    def kinds_of_numbers(
        self, counts: Sequence[tuple[Card, Counts]], taus: Sequence[float]
    ) -> list[liars.Kind] | None:
        """Return the kinds of reports in the means; None if these are clamped, and so no means.

        Arguments as of `means`.
        """
        if self.options.clamp:
            return None
        return [
            levels.kind_of(card, of_card.sum(axis=1), self.options.mu) for card, of_card in counts
        ]

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the result of collecting, with the epsilon that the paper states for each part."""
        stated = max(max(lhp.budgets_of(design.card)) for design in self.designs)
        return {**super().result(history), "epsilon_stated": stated / MICRO}

    def categorical_entries(self) -> list[dict[str, Any]]:
        """Return no attributes: HierA is about numbers alone."""
        return []
