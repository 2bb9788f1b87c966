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
_RR3_FROM = (3 + math.sqrt(65)) / 2  # the e**epsilon from which on Three-Outputs is rr3
_BETTER_FROM = 0.6475325  # the epsilon from which on 3R beats Duchi's mechanism


def zero_probability(epsilon: float) -> float:
    """Return P(0 | 0) of Three-Outputs, the probability of the output 0 at the input 0.

    It minimises the worst-case variance: between two limits of epsilon it is a root of a cubic
    polynomial, found by bisection.
    """
    e = math.exp(epsilon)
    if e <= 2:
        return 0.0
    most = rr3_zero_probability(epsilon)
    if e >= _RR3_FROM:
        return most

    def cubic(a: float) -> float:
        """Return a number that is positive where a larger a = P(0 | 0) lowers the variance."""
        square = e * e + 4 * e + 5
        linear = e**3 + 4 * e * e - 7 * e
        return 2 * a**3 - square * a * a - linear * a + 2 * e**3 - 4 * e * e

    low = 0.0
    high = most
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

    With outputs -C, 0 and C it is E[y**2] - x**2 = C**2 (1 - P(0 | x)) - x**2, where P(0 | x) is
    a - a (1 - 1/e) |x| and e = e**epsilon. a: P(0 | 0); None: that of Three-Outputs.
    """
    e = math.exp(epsilon)
    if a is None:
        a = zero_probability(epsilon)
    squared_output = constant(epsilon, a) ** 2
    return squared_output * (1 - a) + squared_output * a * (e - 1) / e * abs(x) - x * x


def worst_variance(epsilon: float, a: float | None = None) -> float:
    """Return the variance at the worst x; `a` is P(0 | 0), as in `variance`."""
    e = math.exp(epsilon)
    if a is None:
        a = zero_probability(epsilon)
    # The variance is a parabola in |x| with this slope at 0, whose top is at slope / 2.
    slope = constant(epsilon, a) ** 2 * a * (e - 1) / e
    return variance(epsilon, min(1.0, slope / 2), a)


def rr3_zero_probability(epsilon: float) -> float:
    """Return P(0 | 0) of rr3: the largest probability that keeps epsilon."""
    e = math.exp(epsilon)
    return e / (e + 2)


def card(epsilon: int) -> bytes:
    """Return the card of Three-Outputs at epsilon (in millionths): a table of three knots.

    Its probabilities are linear in |x|, so three knots are exact. For a small epsilon the output 0
    is never reported, and the card is Duchi's; for a large one it is that of rr3.
    """
    a = zero_probability(epsilon / MICRO)  # P(0 | 0)
    if a == 0:
        return duchi.card(epsilon)
    if math.exp(epsilon / MICRO) >= _RR3_FROM:
        return rr3_card(epsilon)

    # Counts out of T, each rounded to the side that keeps epsilon.
    e = exp_bound(epsilon)  # at most e**epsilon
    zero_at_1 = _next_even(math.ceil(a * T / e))  # of the output 0 at x = 1
    wrong_at_1 = math.ceil((T - zero_at_1) / (1 + e))  # of the output -C at x = 1
    most_zero_at_0 = math.floor(e * zero_at_1)
    outer_at_0 = max(math.ceil((T - most_zero_at_0) / 2), wrong_at_1)  # of -C and of C at x = 0
    return _three_knots(wrong_at_1, zero_at_1, outer_at_0)


def rr3_card(epsilon: int) -> bytes:
    """Return the card of 3-ary randomised response at epsilon (in millionths).

    At x = 1 its two wrong outputs have the same count, and at x = 0 so have the outer two.
    """
    wrong = _next_even(math.ceil(T / (exp_bound(epsilon) + 2)))
    return _three_knots(wrong_at_1=wrong, zero_at_1=wrong, outer_at_0=wrong)


def _next_even(count: int) -> int:
    """Return a count, or the next one if it is odd.

    An even count of zeros makes the mean at x = 1 an even number of counts (cards.md: B is whole).
    """
    return count + count % 2


def _three_knots(wrong_at_1: int, zero_at_1: int, outer_at_0: int) -> bytes:
    """Return the table with knots at x = -1, 0 and 1 for these counts out of T.

    wrong_at_1: that of the output -C at x = 1. zero_at_1: that of the output 0 at x = 1.
    outer_at_0: those of -C and of C each, at x = 0.
    """
    right_at_1 = T - zero_at_1 - wrong_at_1
    row_at_minus_1 = (right_at_1, zero_at_1, wrong_at_1)
    row_at_0 = (outer_at_0, T - 2 * outer_at_0, outer_at_0)
    row_at_1 = (wrong_at_1, zero_at_1, right_at_1)
    return table(_LEVELS, (row_at_minus_1, row_at_0, row_at_1))


def better_constant(epsilon: float) -> float:
    """Return C, the magnitude of 3R's outer outputs, for an epsilon above 0.6475325.

    With e = e**epsilon it is the positive root of (e - 1) C**2 - (e + 1) C - 1 = 0, or, if that is
    below 2, 4 (e + 2) / (4 e - 3) instead.
    """
    e = math.exp(epsilon)
    c = ((e + 1) + math.sqrt((e + 1) ** 2 + 4 * (e - 1))) / (2 * (e - 1))
    if c < 2:
        return 4 * (e + 2) / (4 * e - 3)
    return c


def better_zero(epsilon: float, x: float) -> float:
    """Return P(0 | x) of 3R, for an epsilon above 0.6475325.

    With e = e**epsilon and m = 1 / (C (e - 1)) it is the lesser of e (1 - (e + 1) m) and
    1 - 2 m - |x| / C.
    """
    e = math.exp(epsilon)
    c = better_constant(epsilon)
    m = 1 / (c * (e - 1))
    return min(e * (1 - (e + 1) * m), 1 - 2 * m - abs(x) / c)


def better_variance(epsilon: float, x: float) -> float:
    """Return the variance of 3R at x: C**2 (1 - P(0 | x)) - x**2."""
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
    """Return the card of 3R at epsilon (in millionths).

    P(0 | x) has a corner between knots, so the table has 33 of them. At a small epsilon Duchi's
    mechanism of two outputs is better.
    """
    if epsilon <= _BETTER_FROM * MICRO:
        return duchi.card(epsilon)

    def rows_at(target: float) -> list[list[float]]:
        """Return the probabilities of -C, 0 and C at each knot, for an epsilon of `target`."""
        intervals = 1 << MAX_KNOT_BITS
        c = better_constant(target)
        rows = []
        for i in range(intervals + 1):
            x = 2 * i / intervals - 1
            zero = better_zero(target, x)
            # The mean, C times the difference of the outer two, is x.
            minus_c = (1 - zero - x / c) / 2
            plus_c = (1 - zero + x / c) / 2
            rows.append([minus_c, zero, plus_c])
        return rows

    return integers.certified_table(_LEVELS, rows_at, epsilon)


def _notes(epsilon: int) -> list[str]:
    """Return a remark if Three-Outputs is Duchi's mechanism at this epsilon (in millionths)."""
    if zero_probability(epsilon / MICRO) > 0:
        return []
    return ["up to epsilon ln 2 Three-Outputs never reports 0: it is Duchi's mechanism"]


def _better_notes(epsilon: int) -> list[str]:
    """Return a remark if Duchi's mechanism replaces 3R at this epsilon (in millionths)."""
    if epsilon > _BETTER_FROM * MICRO:
        return []
    return ["up to epsilon 0.6475325 Duchi's mechanism is better"]


THREE_OUTPUTS = fixed(
    "three-outputs",
    3,
    card,
    _notes,
    variance=variance,
    worst_variance=worst_variance,
    about="three outputs, one of them zero: little noise for small values",
)
RR3 = fixed("rr3", 3, rr3_card, about="randomised response over -1, 0 and 1")
BETTER = fixed(
    "3r",
    3,
    better_card,
    _better_notes,
    variance=better_variance,
    worst_variance=better_worst_variance,
    about="the three outputs with the smallest worst variance",
)
