"""What reports with Gaussian noise tell together, by the curve of one normal distribution.

A total of rho bounds every mechanism of zCDP. If all reports are sums with Gaussian noise, the
normal distribution itself bounds them, at a smaller epsilon for the same delta
(docs/guides/accounting.md, Theorem 6).
"""

import math
from fractions import Fraction

from tern.sums import Sum
from ternhost.privacy.base import MICRO

# grid steps squared: the part of the noise that turns values of the real line into grid points
_SMOOTHED = 4
_FINEST = 64 * _SMOOTHED  # the least variance, so that the rest is nearly all of it
_LOST = 1e-12  # of an epsilon: far above what the theorem's factor of 1 + 1e-28 takes
_ROUNDING = 1e-9  # the share by which floats may be wrong in a delta


def rho_of_card(card: Sum) -> int:
    """The micro-rho of normal noise that discloses at least as much as a report of this card.

    Normal noise is on real numbers. 0 if none is known.
    """
    if card.norm != 2:
        return 0
    variance = Fraction(card.c * card.t, card.m)
    if variance < _FINEST:
        return 0
    vectors = 1 if card.unit else 2  # as Sum.keeps
    squared_distance = vectors**2 * (int(card.radius) ** 2 + int(card.tally) ** 2)
    return math.ceil(Fraction(MICRO * squared_distance, 2) / (variance - _SMOOTHED))


def rho_of_cards(micro_rho: int, card: Sum) -> int:
    """At least the sum of `rho_of_card` over cards like this one whose costs add up to `micro_rho`.

    Like this one: of its radius or a larger one, and of its kind of unit. 0 if none is known.
    """
    vectors = 1 if card.unit else 2
    # Of one card that costs all of it.
    variance = Fraction(MICRO * (vectors * card.radius) ** 2, 2 * max(1, micro_rho))
    if card.norm != 2 or variance < _FINEST:
        return 0
    return math.ceil(micro_rho * variance / (variance - _SMOOTHED))


def delta_of(micro_rho: int, epsilon: float) -> float:
    """At least the delta, at `epsilon`, of normal noise with this total of rho.

    Source: Balle and Wang 2018, Theorem 8.
    """
    from scipy.special import log_ndtr  # slow to load

    if not micro_rho:
        return 0.0
    shift = math.sqrt(2 * micro_rho / MICRO)  # between the two means, in standard deviations
    near = float(log_ndtr(shift / 2 - epsilon / shift))
    far = epsilon + float(log_ndtr(-shift / 2 - epsilon / shift))
    difference = -math.expm1(min(0.0, far - near))  # 1 - far / near
    return math.exp(near) * (difference + _ROUNDING)


def epsilon_of(micro_rho: int, delta: float) -> float:
    """The least epsilon that is proved at `delta`, rounded up to millionths.

    micro_rho: the sum of `rho_of_card` over all reports.
    """
    if delta_of(micro_rho, 0.0) <= delta:
        return 0.0
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
    """At most the probability that such reports change somebody's odds by more than e**epsilon.

    Losses above epsilon count with at least 1 - exp(t - epsilon) in the delta of every t below it.
    """
    steps = 200
    bounds = [1.0]
    for i in range(steps):
        t = epsilon * i / steps
        bounds.append(delta_of(micro_rho, t) / -math.expm1(t - epsilon))
    return min(bounds)
