"""Hao et al.: the flip of a conversion, and what a report of level and sign costs, by the formulas.

test_levels.py has the same from the integers of cards.
"""

import math
from fractions import Fraction
from itertools import product

import pytest

# The probabilities with which a sign is kept, at a level and at a more private one.
KEPT, KEPT_BY_MORE_PRIVATE = Fraction(5, 6), Fraction(2, 3)


def kept_after(flip):
    """The probability that a sign is the true one after it was flipped with this probability."""
    return KEPT * (1 - flip) + (1 - KEPT) * flip


def test_a_flip_as_in_line_3_of_algorithm_4_makes_a_report_of_the_other_level():
    flip = (KEPT - KEPT_BY_MORE_PRIVATE) / (2 * KEPT - 1)
    assert kept_after(flip) == KEPT_BY_MORE_PRIVATE


def test_a_flip_as_in_the_sentence_before_algorithm_4_makes_the_opposite_sign_likelier():
    flip = (KEPT + KEPT_BY_MORE_PRIVATE - 1) / (2 * KEPT - 1)
    assert kept_after(flip) == 1 - KEPT_BY_MORE_PRIVATE


# The loss of LHP, for five equal ranges of [-1, 1], of which the lowest has the largest budget

LEVELS = range(5)
BOUNDS = (-1.0, -0.6, -0.2, 0.2, 0.6, 1.0)


def budgets_of(unit):
    return [unit * factor for factor in (5, 4, 3, 2, 1)]


def level_law(budgets, true):
    """The probability of each reported level, if this is the true one."""
    weight = math.exp(budgets[true])
    unlikely = 1 / (weight + len(budgets) - 1)
    return [weight * unlikely if level == true else unlikely for level in LEVELS]


def sign_law(budget, value):
    """The probabilities of the reported signs 1 and -1, at the budget of the reported level."""
    plus = 0.5 + value / 2 * math.tanh(budget / 2)
    return plus, 1 - plus


def largest_loss(likelihoods):
    """The largest logarithm of a ratio between probabilities of the same report."""
    return math.log(max(likelihoods) / min(likelihoods))


@pytest.mark.parametrize("unit", [0.1, 0.5, 1.0])
def test_the_level_alone_costs_at_most_the_larger_budget_as_theorem_2_says(unit):
    budgets = budgets_of(unit)
    for true, other, reported in product(LEVELS, repeat=3):
        pair = level_law(budgets, true)[reported], level_law(budgets, other)[reported]
        assert largest_loss(pair) <= max(budgets[true], budgets[other]) + 1e-12


@pytest.mark.parametrize("unit", [0.1, 0.5, 1.0])
def test_the_sign_alone_costs_at_most_the_larger_budget_as_theorem_2_says(unit):
    """Here the two values may be reported at different levels."""
    for budget, other in product(budgets_of(unit), repeat=2):
        plus = [sign_law(budget, 1.0)[0], sign_law(other, -1.0)[0]]
        assert largest_loss(plus) <= max(budget, other) + 1e-12


@pytest.mark.parametrize(("unit", "joint_loss"), [(0.1, 0.8988), (0.5, 3.9475), (1.0, 8.0667)])
def test_level_and_sign_together_cost_more_than_the_largest_budget(unit, joint_loss):
    """Probabilities are monotone in the value within a range, so its bounds are enough."""
    budgets = budgets_of(unit)
    losses = []
    for reported, sign in product(LEVELS, (0, 1)):
        likelihoods = []
        for true in LEVELS:
            of_level = level_law(budgets, true)[reported]
            for value in BOUNDS[true : true + 2]:
                likelihoods.append(of_level * sign_law(budgets[reported], value)[sign])
        losses.append(largest_loss(likelihoods))
    assert max(losses) == pytest.approx(joint_loss, abs=5e-5)
    assert max(losses) > max(budgets)
