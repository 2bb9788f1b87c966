"""Duchi's mechanism for one value (Duchi, Jordan and Wainwright, JASA 2018)."""

import math

from tern.card import T
from ternhost.privacy.base import exp_bound, table
from ternhost.privacy.mechanism import fixed


def constant(epsilon: float) -> float:
    """C, the magnitude of both outputs."""
    return 1 / math.tanh(epsilon / 2)


def variance(epsilon: float, x: float) -> float:
    """Variance of the continuous mechanism at x."""
    return constant(epsilon) ** 2 - x * x


def worst_variance(epsilon: float) -> float:
    """The variance at the worst x, 0."""
    return constant(epsilon) ** 2


def card(epsilon: int) -> bytes:
    """The card of two knots and two levels: at x = 1, level -1 has ceil(T / (1 + E)) counts."""
    least = math.ceil(T / (1 + exp_bound(epsilon)))
    return table((-1, 1), ((T - least, least), (least, T - least)))


DUCHI = fixed("duchi", 2, card, variance=variance, worst_variance=worst_variance)
