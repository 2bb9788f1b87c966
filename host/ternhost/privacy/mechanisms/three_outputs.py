"""Three outputs, -C, 0 and C: Three-Outputs (Zhao et al., IEEE IoT J. 8, 2021, arXiv 2004.08856, as
corrected in shared_specs/errata.md), rr3 (randomised response over {-1, 0, 1} after random
rounding) and 3R, the best one.
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
    """a = P(0 | 0) of Three-Outputs: the one that minimises the worst-case variance."""
    e = math.exp(epsilon)
    if e <= 2:
        return 0.0
    most = rr3_zero_probability(epsilon)
    if e >= _RR3_FROM:
        return most

    def cubic(a: float) -> float:
        return (
            2 * a**3
            - (e * e + 4 * e + 5) * a * a
            - (e**3 + 4 * e * e - 7 * e) * a
            + 2 * e**3
            - 4 * e * e
        )

    low, high = 0.0, most
    while low < (middle := (low + high) / 2) < high:  # until no float is left between them
        low, high = (middle, high) if cubic(middle) > 0 else (low, middle)
    return middle


def constant(epsilon: float, a: float) -> float:
    """C, the magnitude of the outer outputs, when P(0 | 0) = a."""
    e = math.exp(epsilon)
    return e * (e + 1) / ((e - 1) * (e - a))


def variance(epsilon: float, x: float, a: float | None = None) -> float:
    """Variance of the continuous mechanism at x; `a` is P(0 | 0) (that of Three-Outputs if None)."""
    e = math.exp(epsilon)
    a = zero_probability(epsilon) if a is None else a
    c2 = constant(epsilon, a) ** 2
    return c2 * (1 - a) + c2 * a * (e - 1) / e * abs(x) - x * x


def worst_variance(epsilon: float, a: float | None = None) -> float:
    e = math.exp(epsilon)
    a = zero_probability(epsilon) if a is None else a
    slope = constant(epsilon, a) ** 2 * a * (e - 1) / e
    return variance(epsilon, min(1.0, slope / 2), a)


def rr3_zero_probability(epsilon: float) -> float:
    """P(0 | 0) of rr3: the largest that keeps epsilon."""
    e = math.exp(epsilon)
    return e / (e + 2)


def card(epsilon: int) -> bytes:
    """The card of Three-Outputs: three knots, exact in |x|.

    With a = 0 it has two outputs, and is Duchi's.
    """
    a = zero_probability(epsilon / MICRO)
    if a == 0:
        return duchi.card(epsilon)
    e = exp_bound(epsilon)
    if math.exp(epsilon / MICRO) >= _RR3_FROM:
        return rr3_card(epsilon)
    zero = _even(math.ceil(a * T / e))  # at x = 1
    least = math.ceil((T - zero) / (1 + e))
    outer = max(math.ceil((T - math.floor(e * zero)) / 2), least)  # at x = 0
    return _three_knots(least, zero, outer)


def rr3_card(epsilon: int) -> bytes:
    """The card of 3-ary randomised response: the two wrong outputs have the same count."""
    wrong = _even(math.ceil(T / (exp_bound(epsilon) + 2)))
    return _three_knots(wrong, wrong, wrong)


def _even(n: int) -> int:
    return n + n % 2  # so that the mean at x = 1 is an even number of counts (cards.md: B is whole)


def _three_knots(least: int, zero: int, outer: int) -> bytes:
    most = T - zero - least
    return table(_LEVELS, ((most, zero, least), (outer, T - 2 * outer, outer), (least, zero, most)))


def better_constant(epsilon: float) -> float:
    """C of 3R (above epsilon 0.6475325)."""
    e = math.exp(epsilon)
    c = ((e + 1) + math.sqrt((e + 1) ** 2 + 4 * (e - 1))) / (2 * (e - 1))
    return c if c >= 2 else 4 * (e + 2) / (4 * e - 3)


def better_zero(epsilon: float, x: float) -> float:
    """P(0 | x) of 3R (above epsilon 0.6475325)."""
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
    if epsilon <= _BETTER_FROM:
        return duchi.worst_variance(epsilon)
    return max(
        better_variance(epsilon, x) for x in (0.0, min(1.0, better_constant(epsilon) / 2), 1.0)
    )


def better_card(epsilon: int) -> bytes:
    """The card of 3R. P(0 | x) has a corner between knots, so it takes 33 of them."""
    if epsilon <= _BETTER_FROM * MICRO:
        return duchi.card(epsilon)

    def rows(target: float) -> list[list[float]]:
        knots, c = 1 << MAX_KNOT_BITS, better_constant(target)
        xs = [2 * i / knots - 1 for i in range(knots + 1)]
        zeros = [(x, better_zero(target, x)) for x in xs]
        return [[(1 - zero - x / c) / 2, zero, (1 - zero + x / c) / 2] for x, zero in zeros]

    return integers.certified_table(_LEVELS, rows, epsilon)


def _notes(epsilon: int) -> list[str]:
    never_zero = zero_probability(epsilon / MICRO) == 0
    return [
        "up to epsilon ln 2 Three-Outputs never reports 0: it is Duchi's mechanism"
    ] * never_zero


def _better_notes(epsilon: int) -> list[str]:
    return ["up to epsilon 0.6475325 Duchi's mechanism is better"] * (
        epsilon <= _BETTER_FROM * MICRO
    )


THREE_OUTPUTS = fixed(
    "three-outputs", 3, card, _notes, variance=variance, worst_variance=worst_variance
)
RR3 = fixed("rr3", 3, rr3_card)
_STATED = {"variance": better_variance, "worst_variance": better_worst_variance}
BETTER = fixed("3r", 3, better_card, _better_notes, **_STATED)
