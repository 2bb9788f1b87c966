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
        """Return the mean second moment of a value if inputs are spread evenly over [-1, 1]."""
        # The integral of a function that is linear between knots: a trapezium for each segment.
        doubled_integral = Fraction(0)
        segments = zip(pairwise(self.knots), pairwise(self.seconds), strict=True)
        for (left, right), (second_at_left, second_at_right) in segments:
            doubled_integral += (right - left) * (second_at_left + second_at_right)
        length_of_inputs = 2
        return float(doubled_integral / 2 / length_of_inputs)

    def mean_second_moment(self, inputs: npt.NDArray[np.float64]) -> float:
        """The mean second moment of a value of the card over these inputs."""
        knots = np.array([float(x) for x in self.knots])
        seconds = np.array([float(second) for second in self.seconds])
        return float(np.interp(inputs, knots, seconds).mean())

    def worst_variance(self, share: Fraction = Fraction(1)) -> tuple[Fraction, Fraction]:
        """Return the largest variance over all inputs x in [-1, 1], and an x that has it.

        The mean must be x. share: d/k for an estimate from reports of k of d coordinates, whose
        variance is share E[y**2] - x**2 for outputs y.
        """
        return max(self._segment_tops(share))

    def _segment_tops(self, share: Fraction) -> Iterator[tuple[Fraction, Fraction]]:
        """Yield the largest variance between each two neighbouring knots, and an x that has it."""
        points = zip(self.knots, self.seconds, strict=True)
        for (left, second_at_left), (right, second_at_right) in pairwise(points):
            if left == right:  # a jump
                continue
            # The second moment is linear here, so the variance is a parabola that opens downwards:
            # share second_at_left + slope (x - left) - x**2, whose top is at slope / 2.
            slope = share * (second_at_right - second_at_left) / (right - left)
            x = min(max(slope / 2, left), right)
            yield share * second_at_left + slope * (x - left) - x * x, x


def _interpolate(knots: list[Fraction], values: list[Fraction], x: Fraction) -> Fraction:
    """Return the value at x of the function that is linear between knots.

    values: the function's at each knot. Where a knot comes twice, its second value holds.
    """
    i = min(max(bisect_right(knots, x) - 1, 0), len(knots) - 2)
    weight_of_right = (x - knots[i]) / (knots[i + 1] - knots[i])
    return values[i] * (1 - weight_of_right) + values[i + 1] * weight_of_right


# Privacy loss


def epsilon_certified(card: Card) -> int | None:
    """Return the smallest epsilon at which the device certifies `card`; None if none up to 20.

    The unit is micro-epsilon, or micro-rho for a sum with Gaussian noise.
    """
    if not cards.certify(card, MAX_EPSILON):
        return None
    return bisected(0, MAX_EPSILON, lambda epsilon: bool(cards.certify(card, epsilon)))


def bisected(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the smallest integer above `low` for which a condition holds, by bisection.

    holds: a condition that is true at `high`, and at every integer above one at which it is true.
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
    """Return `card`, after checking that its symbols stand for values of one input.

    Raises UsageError for a sum or a projection.
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
    """Return the factor that turns the levels of a card into unbiased values.

    A card that consists of others has several: see `scales`. Raises Biased where no factor makes
    the mean equal to the input.
    """
    if valued(card).shape == TABLE:
        return _scale_of_table(card)
    if card.shape == WINDOW:
        # By so many levels the mean exceeds that of a uniform draw, at the last window.
        gain = Fraction(card.threshold * card.symbols, T) - card.window
        if gain <= 0:
            raise Biased("the window is less likely than the rest")
        return 2 / gain
    if card.shape == LAPLACE:
        return Fraction(1, 1 << card.grid_bits)
    raise ValueError("a card that consists of others has several scales: see scales()")


def _scale_of_table(card: Card) -> Fraction:
    """Return the scale of a table card.

    With n intervals between knots, the mean levels at the knots must be -n, -n + 2, ..., n times
    one positive step. Raises Biased if they are not.
    """
    last = 1 << card.knot_bits
    means = []  # in counts: T times the mean level
    for i in range(last + 1):
        total = 0
        for count, level in zip(_row(card, i), card.levels, strict=True):
            total += count * level
        means.append(total)
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
    """Return the level of each symbol: its value before the scale.

    The first and last symbol of a laplace card stand for the mean of all that they clamp.
    """
    if card.shape == TABLE:
        return [Fraction(level) for level in card.levels]
    if card.shape == WINDOW:
        return [Fraction(2 * j - (card.symbols - 1), 2) for j in range(card.symbols)]
    if card.shape == LAPLACE:
        g = _geometric(card.s, card.t)
        mean_of_tail = g / (1 - g)
        grid_levels = [Fraction(y) for y in range(card.lowest, card.lowest + card.symbols)]
        grid_levels[0] -= mean_of_tail
        grid_levels[-1] += mean_of_tail
        return grid_levels

    # A mixture or a hierarchy has the symbols of its parts, one part after the other.
    all_levels: list[Fraction] = []
    for part in _parts(card):
        all_levels += levels(part)
    return all_levels


def values(card: Card) -> list[Fraction]:
    """The value that each symbol stands for: unbiased for the input. Raises Biased."""
    all_values: list[Fraction] = []
    for part, factor in zip(_parts(card), scales(card), strict=True):
        all_values += [factor * level for level in levels(part)]
    return all_values


def knots(card: Card) -> list[Fraction]:
    """Return the knots of a card: the inputs between which it rounds at random, ascending.

    A hierarchy has both ends of each of LHP's equal ranges, so inner bounds come twice. Raises
    CardError for a hierarchy whose ranges are not equal.
    """
    if valued(card).shape == MIXTURE:
        return sorted({*knots(card.first), *knots(card.second)})
    even = _even_knots(card)
    if card.shape != HIERARCHY:
        return even

    inner = even[-2:0:-1]  # without the two ends, descending as the card's bounds
    if [math.ceil(x * ONE) for x in inner] != list(hierarchy(card).bounds):
        raise CardError("not a card of LHP: its ranges are not equal")
    ends_of_ranges = []
    for low, high in pairwise(even):
        ends_of_ranges += [low, high]
    return ends_of_ranges


def _even_knots(card: Card) -> list[Fraction]:
    """Return the ends of the equal pieces of [-1, 1] into which the card's shape divides it."""
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
    """Return the mean and the second moment of the card's value at each knot.

    Raises Biased where the card has no unbiased values, and CardError as `knots` does.
    """
    return _moments(bytes(card.data))


@lru_cache(maxsize=256)
def _moments(data: bytes) -> Moments:
    """Compute `moments` for the bytes of a card, which can be cached by them."""
    card = cards.decode(data)
    inputs = knots(card)
    # Shapes with shortcuts: these cards can have many outputs.
    if card.shape == MIXTURE:
        return _moments_of_mixture(card, inputs)
    if card.shape == LAPLACE:  # unbiased by construction: the means are the inputs
        return Moments(inputs, inputs, _laplace_seconds(card))
    if card.shape == WINDOW:
        factor = scale(card)
        return Moments(inputs, _window_sums(card, factor, 1), _window_sums(card, factor, 2))

    outputs = values(card)
    squares = [y**2 for y in outputs]
    means = []
    seconds = []
    for i in range(len(inputs)):
        probabilities = at_knot(card, i)
        means.append(mean(probabilities, outputs))
        seconds.append(mean(probabilities, squares))
    return Moments(inputs, means, seconds)


def _moments_of_mixture(card: Card, inputs: list[Fraction]) -> Moments:
    """Return the moments of a mixture: those of its two cards, weighted by how likely each is."""
    share = Fraction(card.threshold, T)  # the probability of the first card
    first, second = moments(card.first), moments(card.second)
    means, seconds = [], []
    for x in inputs:
        mean_of_first = _interpolate(first.knots, first.means, x)
        mean_of_second = _interpolate(second.knots, second.means, x)
        means.append(share * mean_of_first + (1 - share) * mean_of_second)
        seconds.append(share * first.second_moment(x) + (1 - share) * second.second_moment(x))
    return Moments(inputs, means, seconds)


def mean(row: Row, values: Row) -> Fraction:
    """Return the mean of the outputs' `values`, where `row` has the outputs' probabilities."""
    total = Fraction(0)
    for probability, value in zip(row, values, strict=True):
        total += probability * value
    return total


def _window_sums(card: Card, factor: Fraction, power: int) -> list[Fraction]:
    """Return the expectation of value**power at each window start of a window card.

    factor: the card's scale. Prefix sums of (2 level)**power, which are whole, make it linear in
    the number of outputs.
    """
    doubled = [(2 * j - (card.symbols - 1)) ** power for j in range(card.symbols)]
    prefix_sums = [0, *accumulate(doubled)]
    total = prefix_sums[-1]
    outputs_outside = card.symbols - card.window
    probability_inside = Fraction(card.threshold, T * card.window)
    probability_outside = Fraction(T - card.threshold, T * outputs_outside)

    expectations = []
    for start in range(outputs_outside + 1):
        inside = prefix_sums[start + card.window] - prefix_sums[start]
        outside = total - inside
        doubled_mean = probability_inside * inside + probability_outside * outside
        expectations.append((factor / 2) ** power * doubled_mean)
    return expectations


def _laplace_seconds(card: Card) -> list[Fraction]:
    """Return the second moment of a laplace card's value at each knot, which is a grid point.

    The noise is two-sided geometric with ratio g, of variance 2 g/(1-g)**2. Clamping replaces each
    tail, which is geometric, by its mean, and so removes the variance g/(1-g)**2 of that tail.
    """
    g = _geometric(card.s, card.t)
    powers = _powers(card)
    variance_of_tail = g / (1 - g) ** 2
    one = 1 << card.grid_bits
    seconds = []
    for i in range(-one, one + 1):
        steps_to_lowest = i - card.lowest
        steps_to_highest = card.symbols - 1 - steps_to_lowest
        weight_of_ends = powers[steps_to_highest] + powers[steps_to_lowest]
        removed = variance_of_tail * weight_of_ends / (1 + g)
        second_in_steps = i * i + 2 * variance_of_tail - removed
        seconds.append(second_in_steps / one**2)
    return seconds


def bias(card: Card) -> Fraction:
    """Return the largest |mean - input| over the card's knots; 0 means that it is unbiased.

    A laplace card is unbiased by its memoryless tails (cards.md). Raises Biased.
    """
    card_moments = moments(card)
    pairs = zip(card_moments.means, card_moments.knots, strict=True)
    return max(abs(mean - x) for mean, x in pairs)


# The distribution of the outputs


def distribution(card: Card, v: int) -> Row:
    """The probability of every symbol for the Q1.14 input `v`, as cards.md defines it."""
    if not -ONE <= v <= ONE:
        raise ValueError("input outside [-16384, 16384]")
    return _at(card, Fraction(v, ONE))


def _at(card: Card, x: Fraction) -> Row:
    """Return the probability of each symbol for an input x from -1 to 1."""
    if card.shape == MIXTURE:
        # Its symbols are those of the first card, and then those of the second.
        share = Fraction(card.threshold, T)
        row_of_first = [share * p for p in _at(card.first, x)]
        row_of_second = [(1 - share) * p for p in _at(card.second, x)]
        return row_of_first + row_of_second
    if card.shape == HIERARCHY:
        return _level_and_value(card, hierarchy(card).level(x * ONE), x)

    # Other cards round the input to one of its two neighbouring knots, which are evenly spaced.
    last_knot = len(knots(card)) - 1
    low, probability_of_higher = divmod((x + 1) / 2 * last_knot, 1)
    if probability_of_higher == 0:
        return at_knot(card, low)
    row = []
    for p, q in zip(at_knot(card, low), at_knot(card, low + 1), strict=True):
        row.append((1 - probability_of_higher) * p + probability_of_higher * q)
    return row


def _level_and_value(card: Card, level: int, x: Fraction) -> Row:
    """Return the probability of each reported level and value, for an input x of a hierarchy.

    level: whose range x lies in, ends included. The reported level may be another one; its value
    card then draws the value.
    """
    level_probabilities = at_knot(hierarchy(card).level_cards[level], level)
    row: Row = []
    for probability, value_card in zip(level_probabilities, _parts(card), strict=True):
        row += [probability * p for p in _at(value_card, x)]
    return row


def at_knot(card: Card, i: int) -> Row:
    """Return the probability of each symbol at knot `i`, which is a window card's start i."""
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
    """Return the probability of each symbol of a window card whose window begins at `start`."""
    inside = Fraction(card.threshold, T * card.window)
    outside = Fraction(T - card.threshold, T * (card.symbols - card.window))
    row = [outside] * card.symbols
    row[start : start + card.window] = [inside] * card.window
    return row


def _row_of_laplace(card: Card, centre: int) -> Row:
    """Return the probability of each symbol of a laplace card, rounded as `_powers`.

    centre: the input, in grid steps.
    """
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
    """Return how many of the T draws at knot `i` of a table card give each symbol."""
    # The card has cumulative counts, knot after knot, without the last of each, which is T.
    columns = card.symbols - 1
    cumulative = card.thresholds[i * columns : (i + 1) * columns]
    return [above - below for below, above in pairwise((0, *cumulative, T))]


def _rounded(value: Fraction) -> Fraction:
    """Round to the nearest multiple of 2**-200, so that denominators do not grow."""
    return Fraction(round(value * (1 << _EXP_BITS)), 1 << _EXP_BITS)


def _powers(card: Card) -> list[Fraction]:
    """Return g**n, rounded, for each distance n between two outputs of a laplace card."""
    g = _geometric(card.s, card.t)
    powers = [Fraction(1)]
    for _ in range(card.symbols - 1):
        powers.append(_rounded(powers[-1] * g))
    return powers


@lru_cache(maxsize=64)
def _geometric(s: int, t: int) -> Fraction:
    """Return g = exp(-s/t), within 2**-199, from integers.

    The argument s/t is halved until it is below 1/2. An alternating Taylor series, in fixed-point
    numbers with guard bits, gives the exponential there. It is then squared as often.
    """
    halvings = max((2 * s // t).bit_length(), 0)
    fraction_bits = _EXP_BITS + halvings + 40
    one = 1 << fraction_bits
    argument = Fraction(s, t << halvings)

    term, total, n = one, one, 1
    while term:  # term: argument**n / n!, rounded down
        term = term * argument.numerator // (argument.denominator * n)
        if n % 2:
            total -= term
        else:
            total += term
        n += 1
    for _ in range(halvings):
        total = total * total >> fraction_bits
    return _rounded(Fraction(total, one))
