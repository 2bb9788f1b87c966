"""The mean positive part of a sum of many draws, beside the exact one of a binomial distribution."""

import math

import numpy as np
import pytest
from scipy import stats

from ternhost.privacy import few_frequencies, laws, shuffling
from ternhost.privacy.losses import Draws, TiltedDraws, range_of_sum


def centring_tilt(low, high, chance_of_high):
    """The tilt with which a draw of `low` or `high` has the mean 0."""
    weight_of_low = (1 - chance_of_high) * -low
    return math.log(weight_of_low / (chance_of_high * high)) / (high - low)


def exact_mean_positive(low, high, chance_of_high, times):
    """E[max(0, S)] for the sum S of draws that are either `low` or `high`."""
    number_of_high = np.arange(times + 1)
    sums = low * (times - number_of_high) + high * number_of_high
    probabilities = stats.binom.pmf(number_of_high, times, chance_of_high)
    return float((np.maximum(sums, 0) * probabilities).sum())


def bound_of(low, high, chance_of_high, times, tilt):
    """The bound of E[max(0, S)], or None if it takes too many frequencies."""
    draws = Draws(np.array([low, high]), np.array([1 - chance_of_high, chance_of_high]), times)
    one = TiltedDraws.of(draws, tilt)
    bound = few_frequencies.mean_positive(one, tilt, *range_of_sum([one]))
    if bound is None:
        return None
    return bound * math.exp(times * draws.log_moment(tilt))


# The sums of most of these draws are a multiple of 2, 4 or 7 apart, so that the Fourier transform
# has as many peaks.
@pytest.mark.parametrize("values", [(-1, 1), (-1, 3), (-2, 5)])
@pytest.mark.parametrize("share_of_even", [1, 0.999, 0.98])
def test_the_bound_is_just_above_the_exact_mean(values, share_of_even):
    low, high = values
    even = -low / (high - low)  # the chance of `high` with which the mean is 0
    chance = share_of_even * even
    tilt = max(0.0, centring_tilt(low, high, chance))
    exact = exact_mean_positive(low, high, chance, times=1_000_000)
    bound = bound_of(low, high, chance, times=1_000_000, tilt=tilt)
    assert exact * (1 - 1e-9) <= bound <= exact * (1 + 1e-6)


def test_a_short_sum_takes_too_many_frequencies():
    assert bound_of(-1, 1, 0.4, times=10, tilt=centring_tilt(-1, 1, 0.4)) is None


@pytest.mark.parametrize("local", [0.5, 2, 6])
@pytest.mark.parametrize("share", [0, 0.01, 0.1])
def test_delta_is_the_same_without_this_module(local, share, monkeypatch):
    worst = laws.randomised_response(local)
    fast = shuffling.delta_at(worst, local, share * local, 100_000)
    monkeypatch.setattr(few_frequencies, "mean_positive", lambda *arguments: None)
    assert fast == pytest.approx(shuffling.delta_at(worst, local, share * local, 100_000), rel=1e-6)
