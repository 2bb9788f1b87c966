"""Duchi's mechanism (Duchi et al., JASA 2018) and Harmony (Nguyen et al., arXiv 1606.05053): one
distribution.
"""

import math

from tern.card import T
from ternhost.privacy.base import exp_bound, table
from ternhost.privacy.mechanism import fixed, untried


def constant(epsilon: float) -> float:
    """C, the magnitude of both outputs."""
    return 1 / math.tanh(epsilon / 2)


def variance(epsilon: float, x: float) -> float:
    """Variance of the continuous mechanism at x."""
    return constant(epsilon) ** 2 - x * x


def worst_variance(epsilon: float) -> float:
    return constant(epsilon) ** 2


def card(epsilon: int) -> bytes:
    """The card of two knots and two levels: at x = 1, level -1 has ceil(T / (1 + E)) counts."""
    least = math.ceil(T / (1 + exp_bound(epsilon)))
    return table((-1, 1), ((T - least, least), (least, T - least)))


DUCHI = fixed("duchi", 2, card, variance=variance, worst_variance=worst_variance)
_SAME = "the same distribution as Duchi's mechanism, so its card"
HARMONY = fixed("harmony", 2, card, lambda _: (_SAME,), tries=untried)
