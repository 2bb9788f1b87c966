"""What reports with Gaussian noise tell together, by the curve of one normal distribution.

A total of rho bounds every mechanism of zCDP. If all reports are sums with Gaussian noise, the
normal distribution itself bounds them, at a smaller epsilon for the same delta
(docs/guides/accounting.md, Theorem 6).
"""

import math
from fractions import Fraction

from tern.sums import Sum
from ternhost.privacy.base import MICRO
from ternhost.privacy.losses import bisect_least
from ternhost.privacy.sums import L2

# Of the noise's variance this part, in grid steps squared, is used up: it turns the values of a
# normal distribution on the real line into grid points. Only the rest hides records.
_SMOOTHED = 4
_LEAST_VARIANCE = 64 * _SMOOTHED  # so that the rest is nearly all of it
_MARGIN = 1e-12  # added to an epsilon: far above what the theorem's factor of 1 + 1e-28 takes
_ROUNDING = 1e-9  # the share by which floats may be wrong in a delta


def rho_of_card(card: Sum) -> int:
    """Return the micro-rho of normal noise that discloses at least as much as a report of `card`.

    The card's noise is on a grid, and normal noise on the real line is easier to account for. For
    sums of neighbouring data sets that are d apart and noise of variance v, rho is
    d**2 / (2 (v - 4)), in grid steps (docs/guides/accounting.md, Theorem 6). Returns 0 if no such
    rho is known: for Laplace noise, and for noise that is too small.

    card: the card of a noisy sum of vectors, each clipped to a radius, and of a tally, a counter.
    """
    if card.norm != L2:
        return 0
    variance = Fraction(card.c * card.t, card.m)
    if variance < _LEAST_VARIANCE:
        return 0
    # Neighbours differ by one or two vectors, each with its part of the tally: d**2 in grid steps.
    squared_distance = _vectors(card) ** 2 * (int(card.radius) ** 2 + int(card.tally) ** 2)
    return math.ceil(Fraction(MICRO * squared_distance, 2) / (variance - _SMOOTHED))


def _vectors(card: Sum) -> int:
    """Return by how many vectors, each within the radius, the sums of two neighbours may differ.

    A run of records is there or not, which is one vector. A whole device may hold other records,
    which takes one vector out and puts one in. (The same is in `Sum.keeps`.)
    """
    return 1 if card.unit else 2


def rho_of_cards(micro_rho: int, card: Sum) -> int:
    """Return an upper bound of the sum of `rho_of_card` over many cards.

    micro_rho: what the cards cost together. card: one of them; the others have its radius or a
    larger one, and protect the same. Returns 0 if no bound is known.
    """
    # The cards' own rho is d**2 / (2 v), for the distance d of neighbouring sums and the variance v
    # of the noise. So each has at least the variance of a single card that costs all of micro_rho.
    vectors = _vectors(card)
    least_variance = Fraction(MICRO * (vectors * card.radius) ** 2, 2 * max(1, micro_rho))
    if card.norm != L2 or least_variance < _LEAST_VARIANCE:
        return 0
    # `rho_of_card` is larger than a card's own rho by the factor v / (v - 4), which falls with v.
    return math.ceil(micro_rho * least_variance / (least_variance - _SMOOTHED))


def delta_of(micro_rho: int, epsilon: float) -> float:
    """Return an upper bound of the delta at `epsilon` of normal noise with this total of rho.

    Two normal distributions whose means are s standard deviations apart have

        delta = Phi(s/2 - epsilon/s) - e**epsilon Phi(-s/2 - epsilon/s),

    where Phi is the normal distribution function and rho = s**2 / 2 (Balle and Wang 2018, Theorem
    8). Logarithms keep small values exact.
    """
    from scipy.special import log_ndtr  # the logarithm of Phi; slow to load

    if not micro_rho:
        return 0.0
    shift = math.sqrt(2 * micro_rho / MICRO)  # s
    log_first = float(log_ndtr(shift / 2 - epsilon / shift))
    log_second = epsilon + float(log_ndtr(-shift / 2 - epsilon / shift))
    relative_difference = -math.expm1(min(0.0, log_second - log_first))  # 1 - second / first
    return math.exp(log_first) * (relative_difference + _ROUNDING)


def epsilon_of(micro_rho: int, delta: float) -> float:
    """Return the least epsilon that is proved at `delta`, rounded up to millionths.

    micro_rho: the sum of `rho_of_card` over all reports.
    """

    def is_proved(epsilon: float) -> bool:
        """Whether delta suffices at this epsilon."""
        return delta_of(micro_rho, epsilon) <= delta

    if is_proved(0.0):
        return 0.0
    high = 1.0
    while not is_proved(high):
        high *= 2
    least = bisect_least(0.0, high, relative_error=1e-7, holds=is_proved)
    return math.ceil((least + _MARGIN) * MICRO) / MICRO


def exceeded(micro_rho: int, epsilon: float) -> float:
    """Return an upper bound of the probability that the privacy loss exceeds `epsilon`.

    delta at t is E[max(0, 1 - exp(t - L))] over the loss L. For t < epsilon each loss above epsilon
    contributes at least 1 - exp(t - epsilon) to it. So delta(t) / (1 - exp(t - epsilon)) is a bound
    for each such t, and the least of 200 of these is returned.

    micro_rho: the sum of `rho_of_card` over all reports.
    """
    number_of_bounds = 200  # more would gain little
    bounds = [1.0]
    for i in range(number_of_bounds):
        t = epsilon * i / number_of_bounds
        bounds.append(delta_of(micro_rho, t) / -math.expm1(t - epsilon))
    return min(bounds)
