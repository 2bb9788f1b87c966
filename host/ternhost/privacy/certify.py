"""The exact properties of a card's integers, as `Fraction`s.

They are its privacy loss, bias, variance, and the distribution of its outputs.

The inequalities are the device's own (tern.card.certify). For laplace cards, whose probabilities
are irrational, g = exp(-s/t) is replaced by a rational within 2**-200.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import cast

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern.card import (
    HIERARCHY,
    LAPLACE,
    MIXTURE,
    PROJECTION,
    SUM,
    TABLE,
    WINDOW,
    Card,
    CardError,
    T,
)
from tern.fixed import MAX_EPSILON, ONE
from tern.lhp import Hierarchy
from ternhost.errors import UsageError

Row = list[Fraction]
_EXP_BITS = 200


class Biased(ValueError):
    """The card's mean is not proportional to its input, so its symbols have no unbiased values."""


@dataclass(frozen=True)
class Moments:
    """Mean and second moment of a card's value at its knots.

    They are linear in x between knots, with a jump where a knot comes twice. The second of its
    values belongs to the knot itself.
    """

    knots: list[Fraction]
    means: list[Fraction]
    seconds: list[Fraction]

    def second_moment(self, x: Fraction) -> Fraction:
        """The second moment at an input x from -1 to 1."""
        return _interpolate(self.knots, self.seconds, x)

    def variance(self, x: Fraction) -> Fraction:
        """The variance at an input x from -1 to 1."""
        return self.second_moment(x) - _interpolate(self.knots, self.means, x) ** 2

    def worst_second_moment(self) -> Fraction:
        """The largest second moment over all inputs."""
        return max(self.seconds)

    def even_second_moment(self) -> float:
        """The variance of a value of the card where the inputs are spread evenly over [-1, 1]."""
        area = Fraction(0)
        pieces = zip(pairwise(self.knots), pairwise(self.seconds), strict=True)
        for (a, b), (low, high) in pieces:
            area += (b - a) * (low + high)
        return float(area / 4)

    def mean_second_moment(self, inputs: npt.NDArray[np.float64]) -> float:
        """The mean second moment of a value of the card over these inputs."""
        knots = np.array([float(x) for x in self.knots])
        seconds = np.array([float(second) for second in self.seconds])
        return float(np.interp(inputs, knots, seconds).mean())

    def worst_variance(self, share: Fraction = Fraction(1)) -> tuple[Fraction, Fraction]:
        """The largest variance over all x in [-1, 1], and an x that has it; the mean must be x.

        With `share` = d/k, of the estimate from reports of k of d coordinates: share E[y**2] -
        x**2.
        """
        return max(self._segment_tops(share))

    def _segment_tops(self, share: Fraction) -> Iterator[tuple[Fraction, Fraction]]:
        points = zip(self.knots, self.seconds, strict=True)
        for (a, second), (b, next_second) in pairwise(points):
            if a == b:
                continue
            slope = share * (next_second - second) / (b - a)
            x = min(max(slope / 2, a), b)  # share second + slope (x - a) - x**2 is concave
            yield share * second + slope * (x - a) - x * x, x


def _interpolate(knots: list[Fraction], values: list[Fraction], x: Fraction) -> Fraction:
    i = min(max(bisect_right(knots, x) - 1, 0), len(knots) - 2)
    share = (x - knots[i]) / (knots[i + 1] - knots[i])
    return values[i] * (1 - share) + values[i + 1] * share


# Privacy loss


def epsilon_certified(card: Card) -> int | None:
    """The smallest epsilon that the device certifies `card` at; None if there is none up to 20.

    In micro-epsilon; of a sum with Gaussian noise in micro-rho.
    """
    if not cards.certify(card, MAX_EPSILON):
        return None
    return bisected(0, MAX_EPSILON, lambda epsilon: bool(cards.certify(card, epsilon)))


def bisected(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The smallest integer above `low` for which a condition holds.

    The condition holds at `high` and from some integer on.
    """
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


# Values, bias, variance


def hierarchy(card: Card) -> Hierarchy:
    """The ranges and cards of a card of shape HIERARCHY."""
    return cast(Hierarchy, card.body)


def valued(card: Card) -> Card:
    """`card`, if its symbols stand for values of one input.

    Raises UsageError for a sum's or a projection's.
    """
    if card.shape == PROJECTION:
        raise UsageError(
            "a projection's symbols stand for directions of whole vectors, which no card's values do",
            hint="'tern card show' describes it; learn.estimate.mean_of_projections averages its reports",
        )
    if card.shape == SUM:
        raise UsageError(
            "a sum's symbols stand for sums under noise, which are not averaged as a card's values are",
            hint="'tern card show' describes its noise; learn.estimate.sums_of adds its reports up",
        )
    return card


def _parts(card: Card) -> list[Card]:
    """The cards that together have the symbols of `card`, in order."""
    if valued(card).shape == MIXTURE:
        return [card.first, card.second]
    if card.shape == HIERARCHY:
        return list(hierarchy(card).value_cards)
    return [card]


def scale(card: Card) -> Fraction:
    """The rational that turns a level into a value (of a mixture or a hierarchy: `scales`).

    Raises Biased where there is none.
    """
    if valued(card).shape == TABLE:
        return _scale_of_table(card)
    if card.shape == WINDOW:
        gain = Fraction(card.threshold * card.symbols, T) - card.window
        if gain <= 0:
            raise Biased("the window is less likely than the rest")
        return 2 / gain
    if card.shape == LAPLACE:
        return Fraction(1, 1 << card.grid_bits)
    raise ValueError("a card that consists of others has several scales: see scales()")


def _scale_of_table(card: Card) -> Fraction:
    """The mean counts of the knots must be multiples of one step: -n, -n + 2, ..., n times it."""
    last = 1 << card.knot_bits
    means = []
    for i in range(last + 1):
        counts = zip(_row(card, i), card.levels, strict=True)
        means.append(sum(count * level for count, level in counts))
    step = Fraction(means[-1], last)
    expected = [step * (2 * i - last) for i in range(last + 1)]
    if step <= 0 or means != expected:
        raise Biased("the means of the knots are not proportional to them")
    return T / (step * last)


def scales(card: Card) -> list[Fraction]:
    """The scale of the card, or those of the two of a mixture or of a hierarchy's value cards.

    Raises Biased.
    """
    return [scale(part) for part in _parts(card)]


def levels(card: Card) -> list[Fraction]:
    """The level of every symbol, before any scale.

    The ends of a laplace card stand for the mean of what they clamp.
    """
    if card.shape == TABLE:
        return [Fraction(level) for level in card.levels]
    if card.shape == WINDOW:
        return [Fraction(2 * j - (card.symbols - 1), 2) for j in range(card.symbols)]
    if card.shape == LAPLACE:
        g = _geometric(card.s, card.t)
        mean_of_tail = g / (1 - g)
        of_symbols = [Fraction(y) for y in range(card.lowest, card.lowest + card.symbols)]
        of_symbols[0] -= mean_of_tail
        of_symbols[-1] += mean_of_tail
        return of_symbols
    return [level for part in _parts(card) for level in levels(part)]


def values(card: Card) -> list[Fraction]:
    """The value that each symbol stands for: unbiased for the input. Raises Biased."""
    all_values: list[Fraction] = []
    for part, factor in zip(_parts(card), scales(card), strict=True):
        all_values += [factor * level for level in levels(part)]
    return all_values


def knots(card: Card) -> list[Fraction]:
    """The inputs between which the card rounds at random, in order.

    Those of a hierarchy are both ends of each of LHP's equal ranges, so that a bound comes twice.
    Raises CardError for a hierarchy of other ranges.
    """
    if valued(card).shape == MIXTURE:
        return sorted({*knots(card.first), *knots(card.second)})
    even = _even_knots(card)
    if card.shape != HIERARCHY:
        return even
    inner = even[-2:0:-1]
    if [math.ceil(x * ONE) for x in inner] != list(hierarchy(card).bounds):
        raise CardError("not a card of LHP: its ranges are not equal")
    return [x for ends in pairwise(even) for x in ends]


def _even_knots(card: Card) -> list[Fraction]:
    """The ends of equal pieces of [-1, 1], as many as the card's shape has."""
    if card.shape == TABLE:
        pieces = 1 << card.knot_bits
    elif card.shape == WINDOW:
        pieces = card.symbols - card.window
    elif card.shape == HIERARCHY:
        pieces = len(hierarchy(card).level_cards)
    else:
        pieces = 2 << card.grid_bits
    return [Fraction(2 * i, pieces) - 1 for i in range(pieces + 1)]


def moments(card: Card) -> Moments:
    """Means and second moments at the knots.

    Raises Biased where the card has no unbiased values, and CardError as `knots` does.
    """
    return _moments(bytes(card.data))


@lru_cache(maxsize=256)
def _moments(data: bytes) -> Moments:
    card = cards.decode(data)
    inputs = knots(card)
    if card.shape == MIXTURE:
        return _moments_of_mixture(card, inputs)
    if card.shape == LAPLACE:
        return Moments(inputs, inputs, _laplace_seconds(card))
    if card.shape == WINDOW:
        factor = scale(card)
        return Moments(inputs, _window_sums(card, factor, 1), _window_sums(card, factor, 2))
    outputs = values(card)
    squares = [y**2 for y in outputs]
    rows = [at_knot(card, i) for i in range(len(inputs))]
    means = [mean(row, outputs) for row in rows]
    return Moments(inputs, means, [mean(row, squares) for row in rows])


def _moments_of_mixture(card: Card, inputs: list[Fraction]) -> Moments:
    share = Fraction(card.threshold, T)
    first, second = moments(card.first), moments(card.second)
    means, seconds = [], []
    for x in inputs:
        mean_of_first = _interpolate(first.knots, first.means, x)
        mean_of_second = _interpolate(second.knots, second.means, x)
        means.append(share * mean_of_first + (1 - share) * mean_of_second)
        seconds.append(share * first.second_moment(x) + (1 - share) * second.second_moment(x))
    return Moments(inputs, means, seconds)


def mean(row: Row, values: Row) -> Fraction:
    """The mean of the values of outputs, which have the probabilities `row`."""
    return sum((p * y for p, y in zip(row, values, strict=True)), Fraction(0))


def _window_sums(card: Card, factor: Fraction, power: int) -> list[Fraction]:
    """Expectation of value**power at every window start, from prefix sums of twice the levels."""
    doubled = [(2 * j - (card.symbols - 1)) ** power for j in range(card.symbols)]
    prefix = [0, *accumulate(doubled)]
    others = card.symbols - card.window
    inside = Fraction(card.threshold, T * card.window)
    outside = Fraction(T - card.threshold, T * others)
    within = [prefix[u + card.window] - prefix[u] for u in range(others + 1)]
    return [(factor / 2) ** power * (inside * w + outside * (prefix[-1] - w)) for w in within]


def _laplace_seconds(card: Card) -> list[Fraction]:
    """Second moments on the grid.

    Clamping replaces each tail by its mean, without its variance g/(1-g)**2.
    """
    g = _geometric(card.s, card.t)
    powers = _powers(card)
    variance_of_tail = g / (1 - g) ** 2
    one = 1 << card.grid_bits
    seconds = []
    for i in range(-one, one + 1):
        ends = powers[card.symbols - 1 + card.lowest - i] + powers[i - card.lowest]
        in_steps = i * i + 2 * variance_of_tail - variance_of_tail * ends / (1 + g)
        seconds.append(in_steps / one**2)
    return seconds


def bias(card: Card) -> Fraction:
    """The largest |mean - input|, 0 for every unbiased card. Raises Biased.

    Of a laplace card it is 0 by its memoryless tails (cards.md).
    """
    of_knots = moments(card)
    pairs = zip(of_knots.means, of_knots.knots, strict=True)
    return max(abs(mean - x) for mean, x in pairs)


# The distribution of the outputs


def distribution(card: Card, v: int) -> Row:
    """The probability of every symbol for the Q1.14 input `v`, as cards.md defines it."""
    if not -ONE <= v <= ONE:
        raise ValueError("input outside [-16384, 16384]")
    return _at(card, Fraction(v, ONE))


def _at(card: Card, x: Fraction) -> Row:
    """The probability of every symbol for an input from -1 to 1."""
    if card.shape == MIXTURE:
        share = Fraction(card.threshold, T)
        of_first = [share * p for p in _at(card.first, x)]
        of_second = [(1 - share) * p for p in _at(card.second, x)]
        return of_first + of_second
    if card.shape == HIERARCHY:
        return _level_and_value(card, hierarchy(card).level(x * ONE), x)
    low, up = divmod((x + 1) / 2 * (len(knots(card)) - 1), 1)
    if up == 0:
        return at_knot(card, low)
    neighbours = zip(at_knot(card, low), at_knot(card, low + 1), strict=True)
    return [(1 - up) * p + up * q for p, q in neighbours]


def _level_and_value(card: Card, level: int, x: Fraction) -> Row:
    """The probability of every level and value for an x in the range of `level`, its ends included."""
    reported = at_knot(hierarchy(card).level_cards[level], level)
    row: Row = []
    for p, value_card in zip(reported, _parts(card), strict=True):
        row += [p * q for q in _at(value_card, x)]
    return row


def at_knot(card: Card, i: int) -> Row:
    """The probability of every symbol at knot `i`. For a window card: at window start i."""
    if card.shape == MIXTURE:
        return _at(card, knots(card)[i])
    if card.shape == HIERARCHY:
        # Its knots are from the lowest range up, its levels from the top down.
        level = len(_parts(card)) - 1 - i // 2
        return _level_and_value(card, level, knots(card)[i])
    if card.shape == TABLE:
        return [Fraction(count, T) for count in _row(card, i)]
    if card.shape == WINDOW:
        return _row_of_window(card, i)
    return _row_of_laplace(card, i - (1 << card.grid_bits))


def _row_of_window(card: Card, start: int) -> Row:
    inside = Fraction(card.threshold, T * card.window)
    outside = Fraction(T - card.threshold, T * (card.symbols - card.window))
    row = [outside] * card.symbols
    row[start : start + card.window] = [inside] * card.window
    return row


def _row_of_laplace(card: Card, centre: int) -> Row:
    """The law around an input of so many grid steps, rounded as `_powers`."""
    g = _geometric(card.s, card.t)
    powers = _powers(card)
    outputs = range(card.lowest, card.lowest + card.symbols)
    weights = [powers[abs(y - centre)] for y in outputs]
    row = [(1 - g) / (1 + g) * weight for weight in weights]
    # The ends include everything beyond them.
    row[0] = weights[0] / (1 + g)
    row[-1] = weights[-1] / (1 + g)
    return row


def _row(card: Card, i: int) -> list[int]:
    """How many of the T draws at knot `i` of a table card give each symbol."""
    columns = card.symbols - 1
    row = card.thresholds[i * columns : (i + 1) * columns]
    return [above - below for below, above in pairwise((0, *row, T))]


def _rounded(value: Fraction) -> Fraction:
    return Fraction(round(value * (1 << _EXP_BITS)), 1 << _EXP_BITS)


def _powers(card: Card) -> list[Fraction]:
    """g**n for each distance n between two outputs of a laplace card."""
    g = _geometric(card.s, card.t)
    powers = [Fraction(1)]
    for _ in range(card.symbols - 1):
        powers.append(_rounded(powers[-1] * g))
    return powers


@lru_cache(maxsize=64)
def _geometric(s: int, t: int) -> Fraction:
    """g = exp(-s/t) within 2**-199.

    An alternating Taylor series, after halving the argument below 1/2.
    """
    halvings = max((2 * s // t).bit_length(), 0)
    guard = _EXP_BITS + halvings + 40
    one = 1 << guard
    argument = Fraction(s, t << halvings)
    term, total, n = one, one, 1
    while term:
        term = term * argument.numerator // (argument.denominator * n)
        if n % 2:
            total -= term
        else:
            total += term
        n += 1
    for _ in range(halvings):
        total = total * total >> guard
    return _rounded(Fraction(total, one))
