"""PDPM, the mechanism of Shen et al., beside others, and the bound of its variance.

A safe range is scaled to [-1, 1], so that its length L is 2.
"""

import math

import numpy as np
import pytest
from designing import worst

from ternhost.privacy.mechanisms import duchi
from ternpapers.mechanisms import pdpm

INPUTS = np.linspace(-1, 1, 41).tolist()
OF_THE_PAPER = [round(0.1 * i, 1) for i in range(1, 11)]  # the epsilons of a weight


@pytest.mark.parametrize(
    ("epsilon", "ratio"), [(0.1, 2.64), (1.0, 2.15), (2.0, 1.80), (4.0, 1.597), (8.0, 1.563)]
)
def test_the_worst_variance_of_pdpm_is_so_many_times_that_of_duchi_s_mechanism(epsilon, ratio):
    stated = pdpm.worst_variance(epsilon) / duchi.worst_variance(epsilon)
    assert stated == pytest.approx(ratio, abs=5e-4 if ratio < 1.7 else 5e-3)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0, 7.0, 8.0])
def test_the_card_of_pdpm_is_close_to_the_paper_s_mechanism(epsilon):
    assert worst("pdpm", str(epsilon)) == pytest.approx(pdpm.worst_variance(epsilon), rel=4e-3)


def test_pdpm_has_more_variance_than_laplace_noise_at_every_value_up_to_epsilon_1():
    """Laplace noise that keeps epsilon on [-1, 1] has the scale 2 / epsilon."""
    ratios = []
    for epsilon in OF_THE_PAPER:
        of_laplace = 2 * (2 / epsilon) ** 2
        ratios += [pdpm.variance(epsilon, x) / of_laplace for x in INPUTS]
    assert min(ratios) == pytest.approx(1.09, abs=5e-3)
    assert max(ratios) == pytest.approx(1.32, abs=5e-3)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0])
def test_the_bound_of_theorem_1_with_the_square_of_the_length_is_far_above_the_variance(epsilon):
    e, length = math.exp(epsilon), 2
    bound = (e + 1) * (e + 3) * length**2 / (e - 1) ** 2
    assert 2.5 < bound / pdpm.worst_variance(epsilon) < 3


def test_the_bound_of_theorem_1_as_printed_fails_in_a_larger_unit():
    """The variance of a report is that on [-1, 1] times (L / 2)**2, but the bound grows with L."""
    epsilon, length = 1.0, 20.0
    e = math.exp(epsilon)
    printed = (e + 1) * (e + 3) * length / (e - 1) ** 2
    assert pdpm.worst_variance(epsilon) * (length / 2) ** 2 > printed
