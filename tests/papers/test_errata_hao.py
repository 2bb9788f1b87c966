"""Misprints of Hao et al.: the flip of a conversion, and the largest output of PM.

The rest of the errata of this paper is in test_levels.py and test_hao.py.
"""

import math
from fractions import Fraction

import pytest

from ternpapers.mechanisms import pm
from ternpapers.piecewise_law import PiecewiseLaw

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


# PM, as the paper describes it in Algorithm 2


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_largest_output_of_pm_has_a_difference_as_its_denominator(epsilon):
    """As printed, numerator and denominator are the same, and the largest output would be 1."""
    root = math.exp(epsilon / 2)
    assert PiecewiseLaw(epsilon, pm.t_pm(epsilon)).bound == pytest.approx((root + 1) / (root - 1))
