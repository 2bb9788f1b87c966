"""What reports with Gaussian noise tell together, by the curve of one normal distribution.

A total of rho bounds every mechanism of zCDP. If all reports are sums with Gaussian noise, the
normal distribution itself bounds them, at a smaller epsilon for the same delta
(docs/guides/accounting.md, Theorem 6).
"""

import math
from fractions import Fraction

from tern.sums import Sum
from ternhost.privacy.base import MICRO
from ternhost.privacy.sums import L2

# grid steps squared: the part of the noise that turns values of the real line into grid points
_SMOOTHED = 4
_FINEST = 64 * _SMOOTHED  # the least variance, so that the rest is nearly all of it
_LOST = 1e-12  # of an epsilon: far above what the theorem's factor of 1 + 1e-28 takes
_ROUNDING = 1e-9  # the share by which floats may be wrong in a delta


def rho_of_card(card: Sum) -> int:
    """Return the micro-rho of normal noise that discloses at least as much as a report of `card`.

    Normal noise is continuous, the card's is on a grid (docs/guides/accounting.md, Theorem 6).
    Returns 0 if no such rho is known: for Laplace noise, and for noise that is too small.
    """
    if card.norm != L2:
        return 0
    variance = Fraction(card.c * card.t, card.m)
    if variance < _FINEST:
        return 0
    # By how many vectors of one unit two neighbours may differ, as in Sum.keeps.
    vectors = 1 if card.unit else 2
    squared_distance = vectors**2 * (int(card.radius) ** 2 + int(card.tally) ** 2)
    return math.ceil(Fraction(MICRO * squared_distance, 2) / (variance - _SMOOTHED))


def rho_of_cards(micro_rho: int, card: Sum) -> int:
    """Return an upper bound of the sum of `rho_of_card` over cards that cost `micro_rho` together.

    card: one of them; the others have its radius or a larger one, and its kind of unit. Returns 0
    if no bound is known.
    """
    vectors = 1 if card.unit else 2  # as in `rho_of_card`
    # The least variance is that of a single card that costs all of it.
    variance = Fraction(MICRO * (vectors * card.radius) ** 2, 2 * max(1, micro_rho))
    if card.norm != L2 or variance < _FINEST:
        return 0
    return math.ceil(micro_rho * variance / (variance - _SMOOTHED))


def delta_of(micro_rho: int, epsilon: float) -> float:
    """Return an upper bound of the delta at `epsilon` of normal noise with this total of rho.

    Source: Balle and Wang 2018, Theorem 8: with means that are s standard deviations apart, it is
    Phi(s/2 - epsilon/s) - e**epsilon Phi(-s/2 - epsilon/s).
    """
    from scipy.special import log_ndtr  # slow to load

    if not micro_rho:
        return 0.0
    shift = math.sqrt(2 * micro_rho / MICRO)  # between the two means, in standard deviations
    log_first = float(log_ndtr(shift / 2 - epsilon / shift))
    log_second = epsilon + float(log_ndtr(-shift / 2 - epsilon / shift))
    relative_difference = -math.expm1(min(0.0, log_second - log_first))  # 1 - second / first
    return math.exp(log_first) * (relative_difference + _ROUNDING)


def epsilon_of(micro_rho: int, delta: float) -> float:
    """Return the least epsilon that is proved at `delta`, rounded up to millionths.

    micro_rho: the sum of `rho_of_card` over all reports.
    """
    if delta_of(micro_rho, 0.0) <= delta:
        return 0.0

    # Double until `high` is enough, then bisect.
    high = 1.0
    while delta_of(micro_rho, high) > delta:
        high *= 2
    low = 0.0
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        if delta_of(micro_rho, middle) > delta:
            low = middle
        else:
            high = middle
    return math.ceil((high + _LOST) * MICRO) / MICRO


def exceeded(micro_rho: int, epsilon: float) -> float:
    """Return an upper bound of the probability that the privacy loss exceeds `epsilon`.

    micro_rho: the sum of `rho_of_card` over all reports. A loss above epsilon counts with at least
    1 - exp(t - epsilon) in the delta at every t < epsilon, so delta(t) / (1 - exp(t - epsilon)) is
    a bound for each t. The least of 200 of them is taken.
    """
    steps = 200  # each t gives a valid bound; more of them would gain little
    bounds = [1.0]
    for i in range(steps):
        t = epsilon * i / steps
        bounds.append(delta_of(micro_rho, t) / -math.expm1(t - epsilon))
    return min(bounds)
