"""Duchi's mechanism for one value (Duchi, Jordan and Wainwright, JASA 2018)."""

import math

from tern.card import T
from ternhost.privacy.base import exp_bound, table
from ternhost.privacy.mechanism import fixed


def constant(epsilon: float) -> float:
    """Return C, the magnitude of both outputs: (e**epsilon + 1) / (e**epsilon - 1)."""
    return 1 / math.tanh(epsilon / 2)


def variance(epsilon: float, x: float) -> float:
    """Return the variance of the continuous mechanism at x: C**2 - x**2."""
    return constant(epsilon) ** 2 - x * x


def worst_variance(epsilon: float) -> float:
    """Return the variance at the worst x, which is 0."""
    return constant(epsilon) ** 2


def card(epsilon: int) -> bytes:
    """Return the card of two knots and two levels at epsilon (in millionths).

    At x = 1 the level -1 has ceil(T / (1 + e**epsilon)) counts out of T, and at x = -1 the level 1.
    """
    wrong = math.ceil(T / (1 + exp_bound(epsilon)))
    right = T - wrong
    row_at_minus_1 = (right, wrong)
    row_at_1 = (wrong, right)
    return table((-1, 1), (row_at_minus_1, row_at_1))


DUCHI = fixed(
    "duchi",
    2,
    card,
    variance=variance,
    worst_variance=worst_variance,
    about="two outputs, one for each sign: best where most values are near -1 or 1",
)
