"""Mechanisms with three outputs, -C, 0 and C: Three-Outputs, rr3 and 3R, the best one.

Three-Outputs is by Zhao et al., IEEE IoT J. 8, 2021 (arXiv 2004.08856), as corrected in
shared_specs/errata.md. rr3 is randomised response over {-1, 0, 1} after random rounding.
"""

import math

from tern.card import MAX_KNOT_BITS, T
from ternhost.privacy import integers
from ternhost.privacy.base import MICRO, exp_bound, table
from ternhost.privacy.mechanism import fixed
from ternhost.privacy.mechanisms import duchi

_LEVELS = (-1, 0, 1)
_RR3_FROM = (3 + math.sqrt(65)) / 2  # e**epsilon from which Three-Outputs is rr3
_BETTER_FROM = 0.6475325  # epsilon from which 3R beats Duchi's mechanism


def zero_probability(epsilon: float) -> float:
    """Return P(0 | 0) of Three-Outputs: the one that minimises the worst-case variance.

    Between two limits of epsilon it is a root of a cubic, found by bisection.
    """
    e = math.exp(epsilon)
    if e <= 2:
        return 0.0
    most = rr3_zero_probability(epsilon)
    if e >= _RR3_FROM:
        return most

    def cubic(a: float) -> float:
        """Positive where a larger a lowers the worst-case variance."""
        square, linear = e * e + 4 * e + 5, e**3 + 4 * e * e - 7 * e
        return 2 * a**3 - square * a * a - linear * a + 2 * e**3 - 4 * e * e

    low, high = 0.0, most
    while True:
        middle = (low + high) / 2
        if not low < middle < high:  # no float is left between them
            return middle
        if cubic(middle) > 0:
            low = middle
        else:
            high = middle


def constant(epsilon: float, a: float) -> float:
    """Return C, the magnitude of the outer outputs, if P(0 | 0) is a."""
    e = math.exp(epsilon)
    return e * (e + 1) / ((e - 1) * (e - a))


def variance(epsilon: float, x: float, a: float | None = None) -> float:
    """Return the variance of the continuous mechanism at x.

    a: P(0 | 0); that of Three-Outputs by default.
    """
    e = math.exp(epsilon)
    if a is None:
        a = zero_probability(epsilon)
    # E[y**2] - x**2, where P(0 | x) is a - a (1 - 1/e) |x|.
    squared_output = constant(epsilon, a) ** 2
    return squared_output * (1 - a) + squared_output * a * (e - 1) / e * abs(x) - x * x


def worst_variance(epsilon: float, a: float | None = None) -> float:
    """Return the variance at the worst x; `a` is P(0 | 0), as in `variance`."""
    e = math.exp(epsilon)
    if a is None:
        a = zero_probability(epsilon)
    slope = constant(epsilon, a) ** 2 * a * (e - 1) / e
    return variance(epsilon, min(1.0, slope / 2), a)


def rr3_zero_probability(epsilon: float) -> float:
    """P(0 | 0) of rr3: the largest that keeps epsilon."""
    e = math.exp(epsilon)
    return e / (e + 2)


def card(epsilon: int) -> bytes:
    """Return the card of Three-Outputs at epsilon (micro): a table of three knots.

    Its probabilities are linear in |x|, so three knots are exact. For a small epsilon the output 0
    is never reported, and the card is Duchi's; for a large one it is that of rr3.
    """
    a = zero_probability(epsilon / MICRO)  # P(0 | 0)
    if a == 0:
        return duchi.card(epsilon)
    e = exp_bound(epsilon)  # at most e**epsilon
    if math.exp(epsilon / MICRO) >= _RR3_FROM:
        return rr3_card(epsilon)
    zero = _even(math.ceil(a * T / e))  # counts of 0 at x = 1
    least = math.ceil((T - zero) / (1 + e))  # of -C at x = 1
    outer = max(math.ceil((T - math.floor(e * zero)) / 2), least)  # of -C and of C at x = 0
    return _three_knots(least, zero, outer)


def rr3_card(epsilon: int) -> bytes:
    """The card of 3-ary randomised response: the two wrong outputs have the same count."""
    wrong = _even(math.ceil(T / (exp_bound(epsilon) + 2)))
    return _three_knots(wrong, wrong, wrong)


def _even(n: int) -> int:
    return n + n % 2  # so that the mean at x = 1 is an even number of counts (cards.md: B is whole)


def _three_knots(least: int, zero: int, outer: int) -> bytes:
    """Return the table with knots at x = -1, 0 and 1 for these counts out of T.

    least: of output -C at x = 1. zero: of output 0 at x = 1. outer: of -C and of C each, at x = 0.
    """
    most = T - zero - least  # of output C at x = 1
    middle = (outer, T - 2 * outer, outer)
    return table(_LEVELS, ((most, zero, least), middle, (least, zero, most)))


def better_constant(epsilon: float) -> float:
    """Return C, the magnitude of 3R's outer outputs, for an epsilon above 0.6475325."""
    e = math.exp(epsilon)
    # The root of (e - 1) C**2 - (e + 1) C - 1 = 0, unless it is below 2.
    c = ((e + 1) + math.sqrt((e + 1) ** 2 + 4 * (e - 1))) / (2 * (e - 1))
    if c < 2:
        return 4 * (e + 2) / (4 * e - 3)
    return c


def better_zero(epsilon: float, x: float) -> float:
    """Return P(0 | x) of 3R, for an epsilon above 0.6475325."""
    e = math.exp(epsilon)
    c = better_constant(epsilon)
    m = 1 / (c * (e - 1))
    return min(e * (1 - (e + 1) * m), 1 - 2 * m - abs(x) / c)


def better_variance(epsilon: float, x: float) -> float:
    """Variance of 3R at x."""
    if epsilon <= _BETTER_FROM:
        return duchi.variance(epsilon, x)
    return better_constant(epsilon) ** 2 * (1 - better_zero(epsilon, x)) - x * x


def better_worst_variance(epsilon: float) -> float:
    """Return the variance of 3R at the worst x, which is 0, C / 2 or 1."""
    if epsilon <= _BETTER_FROM:
        return duchi.worst_variance(epsilon)
    inputs = (0.0, min(1.0, better_constant(epsilon) / 2), 1.0)
    return max(better_variance(epsilon, x) for x in inputs)


def better_card(epsilon: int) -> bytes:
    """Return the card of 3R at epsilon (micro).

    P(0 | x) has a corner between knots, so the table has 33 of them.
    """
    if epsilon <= _BETTER_FROM * MICRO:
        return duchi.card(epsilon)

    def rows_at(target: float) -> list[list[float]]:
        """The probabilities of -C, 0 and C at each knot, for an epsilon of `target`."""
        intervals = 1 << MAX_KNOT_BITS
        c = better_constant(target)
        rows = []
        for i in range(intervals + 1):
            x = 2 * i / intervals - 1
            zero = better_zero(target, x)
            # The mean, C times the difference of the outer two, is x.
            rows.append([(1 - zero - x / c) / 2, zero, (1 - zero + x / c) / 2])
        return rows

    return integers.certified_table(_LEVELS, rows_at, epsilon)


def _notes(epsilon: int) -> list[str]:
    """Say where Three-Outputs is another mechanism. epsilon: micro."""
    if zero_probability(epsilon / MICRO) > 0:
        return []
    return ["up to epsilon ln 2 Three-Outputs never reports 0: it is Duchi's mechanism"]


def _better_notes(epsilon: int) -> list[str]:
    """Say where 3R is another mechanism. epsilon: micro."""
    if epsilon > _BETTER_FROM * MICRO:
        return []
    return ["up to epsilon 0.6475325 Duchi's mechanism is better"]


THREE_OUTPUTS = fixed(
    "three-outputs", 3, card, _notes, variance=variance, worst_variance=worst_variance
)
RR3 = fixed("rr3", 3, rr3_card)
BETTER = fixed(
    "3r",
    3,
    better_card,
    _better_notes,
    variance=better_variance,
    worst_variance=better_worst_variance,
)
