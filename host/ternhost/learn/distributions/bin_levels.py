"""Which levels of bins devices are asked about, by epsilon and by the number of devices.

The bins of the first level are few, and each is divided into four at every further level. A smaller
epsilon needs a coarser first level. More devices are worth finer bins.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from ternhost.learn.collecting.estimate import QUANTILE
from ternhost.learn.distributions.bin_tree import LEVEL_BITS, normal_matrix

LEAST_BITS, MOST_BITS = 4, 10  # of the finest bins: 16 to 1,024
_USUAL_BITS = 6  # of the finest bins: 64
# Times the length of an interval. More than the usual number of bins make p99 of a tail less accurate.
_CLEARLY_SHORTER = 0.85
_A_LITTLE_LONGER = 1.15
_BITS_COMPARED = 6  # of the finest bins, up to which first levels are compared: this is quick

VarianceOf = Callable[[int], float]
"""The variance of the share of a bin, estimated from one report about a level of 2**bits bins."""


def levels_of(bits: int, variance_of: VarianceOf) -> tuple[int, ...]:
    """Return the levels for 2**bits finest bins whose cumulative shares have the least variance.

    A level is given by the bits of its number of bins; all have bins of equal size, and every level
    gets an equal part of the reports.
    """
    finest = min(bits, _BITS_COMPARED)
    candidates = [_levels(first, finest) for first in range(LEVEL_BITS, finest + 1, LEVEL_BITS)]
    best = min(candidates, key=lambda levels: cumulative_variance(levels, variance_of))
    return _levels(best[0], bits)


def bits_for(devices: int | None, variance_of: VarianceOf) -> int:
    """Return the bits of the number of finest bins that suits so many devices.

    Finer bins make the noise larger, but an interval, which ends at edges of bins, less coarse. More
    than the usual number are chosen where this makes the interval of a quantile clearly shorter, if
    all numbers of the range are equally frequent; fewer, where it makes it clearly longer.

    devices: those that answer about the number; None: nobody knows how many, so that the usual
        number of bins is taken.
    """
    if devices is None:
        return _USUAL_BITS

    def half_interval(bits: int) -> float:
        variance = cumulative_variance(levels_of(bits, variance_of), variance_of) / devices
        return QUANTILE * math.sqrt(variance) + 2.0**-bits / 2

    bits = LEAST_BITS
    half = half_interval(bits)
    while bits < MOST_BITS:
        finer_half = half_interval(bits + LEVEL_BITS)
        # Narrow peaks need fine bins: up to the usual number, an interval may be a little longer.
        is_usual = bits + LEVEL_BITS <= _USUAL_BITS
        accepted = _A_LITTLE_LONGER if is_usual else _CLEARLY_SHORTER
        if finer_half > accepted * half:
            break
        bits += LEVEL_BITS
        half = finer_half
    return bits


def cumulative_variance(levels: Sequence[int], variance_of: VarianceOf) -> float:
    """Return the mean variance of the cumulative shares of the finest bins, times the reports.

    levels: the bits of each level, from coarse to fine.
    """
    noise_of_levels = [(2**bits, variance_of(bits) * len(levels)) for bits in levels]
    covariance = np.linalg.inv(normal_matrix(noise_of_levels))
    # All shares add up to 1.
    of_sum = covariance.sum(axis=1)
    covariance -= np.outer(of_sum, of_sum) / of_sum.sum()
    return float(np.diag(covariance.cumsum(axis=0).cumsum(axis=1))[:-1].mean())


def _levels(first: int, last: int) -> tuple[int, ...]:
    """Return the bits of the levels from the first to the last."""
    return tuple(range(first, last + 1, LEVEL_BITS))
