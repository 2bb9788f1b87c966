"""The privacy budgets of the figures: HierA's levels, its rivals, and what a report truly costs."""

import math
from fractions import Fraction

import numpy as np

from tern.card import Card
from tern.fixed import ONE
from ternhost.datasets import Floats, Indices
from ternhost.planning.cells import Row
from ternhost.privacy import cards, certify
from ternhost.privacy.base import MICRO
from ternpapers.figure import Axis
from ternpapers.mechanisms import lhp

BUDGETS = (5, 4, 3, 2, 1)  # of the levels in units, from the lowest range of values up
UNITS = (0.1, 0.2, 0.5, 1.0)
MU = 2  # how often a report counts in the paper's comparisons

# Curves.
HIERA = f"HierA (mu = {MU})"
LAPLACE = "graded Laplace"
# Those of mechanisms without levels, in the paper's comparison and in ours, with the names of the
# mechanisms in perturbing.py. Harmony is Duchi's mechanism for one value.
LEAST_RIVALS = {"PM at the least budget": "pm", "Harmony at the least budget": "duchi"}
TRUE_RIVALS = {"PM at HierA's true epsilon": "pm", "Harmony at HierA's true epsilon": "duchi"}

OF_UNIT = Axis("unit", "unit e of the budgets (5, 4, 3, 2, 1) e", log=True)


def card_of(unit: float) -> Card:
    """Return the card of the paper's five levels, with budgets of 5 to 1 times this unit of epsilon.

    The card is the table from which devices draw a report.
    """
    budgets = [round(budget * unit * MICRO) for budget in reversed(BUDGETS)]
    return cards.decode(lhp.card(budgets))


def rivals(unit: float, cost: float) -> dict[str, tuple[str, float]]:
    """Return the mechanisms without levels, by curve: the name in perturbing.py, and the epsilon.

    cost: the true epsilon of a report of HierA.
    """
    at_least = {curve: (name, unit) for curve, name in LEAST_RIVALS.items()}
    at_cost = {curve: (name, cost) for curve, name in TRUE_RIVALS.items()}
    return {**at_least, **at_cost}


def level_of(card: Card, x: Floats) -> Indices:
    """Return the level of each number: how many bounds it is below, from the top range down.

    x: numbers in [-1, 1]. The levels have the same shape.
    """
    bounds = np.array(certify.hierarchy(card).bounds)
    is_below = x[..., None] * ONE < bounds  # the shape of x, then bounds
    return np.asarray(is_below.sum(axis=-1))


def laplace_scales(card: Card, x: Floats) -> Floats:
    """Return the scale of graded Laplace noise for each number: 2 over the budget of its range.

    x: numbers in [-1, 1]. The scales have the same shape.
    """
    budgets = np.array(lhp.budgets_of(card))[level_of(card, x)]
    return np.asarray(2 * MICRO / budgets)


def loss_by_attribute(card: Card) -> float:
    """Return the epsilon of a report with the level of one number and the sign of another.

    The numbers are independent. So the largest ratio of the probabilities of a report, for any two
    pairs of numbers, is the largest ratio for its level, over all levels of the first number, times
    the largest for its sign, over all values of the second one. Epsilon is the logarithm of the
    largest ratio over all reports.
    """
    hierarchy = certify.hierarchy(card)
    distributions = []  # that of the reported level, for each true level
    for level, level_card in enumerate(hierarchy.level_cards):
        distributions.append(certify.at_knot(level_card, level))

    largest_ratio = Fraction(1)
    for reported_level, value_card in enumerate(hierarchy.value_cards):
        level_probabilities = [distribution[reported_level] for distribution in distributions]
        ratio_of_level = Fraction(max(level_probabilities), min(level_probabilities))
        # The signs' probabilities are furthest apart at the ends, and symmetric.
        sign_probabilities = [certify.distribution(value_card, end)[0] for end in (-ONE, ONE)]
        ratio_of_sign = Fraction(max(sign_probabilities), min(sign_probabilities))
        largest_ratio = max(largest_ratio, ratio_of_level * ratio_of_sign)
    return math.log(largest_ratio)


def costs() -> list[Row]:
    """Return the epsilon of a report at each unit: of its parts, and in all."""
    rows: list[Row] = []
    for unit in UNITS:
        card = card_of(unit)
        largest_budget = max(lhp.budgets_of(card)) / MICRO
        epsilons = {
            "of the level or the sign alone, as the paper states": largest_budget,
            "of level and sign of one number": card.epsilon / MICRO,
            "of an attribute's level and its gradient's sign": loss_by_attribute(card),
        }
        for curve, epsilon in epsilons.items():
            row = {"panel": "a report of HierA", "curve": curve, "unit": unit, "epsilon": epsilon}
            rows.append(row)
    return rows
