"""Generalised randomised response over k categories (Kairouz, Bonawitz and Ramage, ICML 2016).

Its card is a window of width 1, whose start is the category. On numbers a category is a level.
"""

import math

from tern.card import MAX_SYMBOLS
from ternhost.privacy.base import MICRO, Design, check_levels, checked
from ternhost.privacy.mechanism import Mechanism, untried
from ternhost.privacy.mechanisms import piecewise

CATEGORIES = 4  # the default number of categories


def frequency_variance(epsilon: float, categories: int, frequency: float = 0.0) -> float:
    """Return the variance of an estimate of a category's frequency from one report.

    With e = e**epsilon, k categories and the true frequency f it is

        (k - 2 + e) / (e - 1)**2 + f (k - 2) / (e - 1)
    """
    e = math.exp(epsilon)
    return (categories - 2 + e) / (e - 1) ** 2 + frequency * (categories - 2) / (e - 1)


def card(epsilon: int, categories: int) -> bytes:
    """Return the card for this many categories that keeps epsilon (in millionths)."""
    return piecewise.card(epsilon, categories, width=1)


def design(epsilon: int, levels: int | None = None) -> Design:
    """Return the card at epsilon (in millionths). Raises UsageError.

    levels: the number of categories.
    """
    categories = check_levels(levels, default=CATEGORIES, least=2, most=MAX_SYMBOLS)
    variance = frequency_variance(epsilon / MICRO, categories)
    note = f"{categories} categories (--levels); a frequency near 0 has variance {variance:.6g} a report"
    return checked("grr", epsilon, card(epsilon, categories), note)


GRR = Mechanism(
    "grr",
    design,
    levels=CATEGORIES,
    tries=untried,
    about="generalised randomised response: the true category, or any other one",
)
