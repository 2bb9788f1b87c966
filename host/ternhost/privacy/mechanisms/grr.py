"""Generalised randomised response over k categories (Kairouz, Bonawitz and Ramage, ICML 2016).

Its card is a window of width 1, whose start is the category. On numbers a category is a level.
"""

import math

from tern.card import MAX_SYMBOLS
from ternhost.privacy.base import MICRO, Design, check_levels, checked
from ternhost.privacy.mechanism import Mechanism, untried
from ternhost.privacy.mechanisms import piecewise

CATEGORIES = 4


def frequency_variance(epsilon: float, categories: int, frequency: float = 0.0) -> float:
    """Return the variance of one report's estimate of a category's frequency.

    frequency: the true one. With e = e**epsilon and k categories it is (k - 2 + e) / (e - 1)**2 +
    frequency (k - 2) / (e - 1).
    """
    e = math.exp(epsilon)
    return (categories - 2 + e) / (e - 1) ** 2 + frequency * (categories - 2) / (e - 1)


def card(epsilon: int, categories: int) -> bytes:
    """The card of so many categories that keeps epsilon (micro)."""
    return piecewise.card(epsilon, categories, 1)


def design(epsilon: int, levels: int | None = None) -> Design:
    """The card of so many categories (`levels`). Raises UsageError."""
    categories = check_levels(levels, CATEGORIES, 2, MAX_SYMBOLS)
    variance = frequency_variance(epsilon / MICRO, categories)
    note = f"{categories} categories (--levels); a frequency near 0 has variance {variance:.6g} a report"
    return checked("grr", epsilon, card(epsilon, categories), note)


GRR = Mechanism("grr", design, levels=CATEGORIES, tries=untried)
