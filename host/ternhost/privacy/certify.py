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

Row = list[Fraction]  # an entry for each output of a card, such as its probability
_EXP_BITS = 200  # binary digits after the point of the rationals that replace exp(-s/t)


class Biased(ValueError):
    """The card's mean is not proportional to its input, so its symbols have no unbiased values."""


@dataclass(frozen=True)
class Moments:
    """The mean and the second moment of a card's value, for inputs x from -1 to 1.

    They are given at the knots, in ascending order, and are linear in x between knots. Where a knot
    comes twice they jump; then the second of its values belongs to the knot itself.
    """

    knots: list[Fraction]
    means: list[Fraction]
    second_moments: list[Fraction]

    def second_moment(self, x: Fraction) -> Fraction:
        """The second moment at an input x from -1 to 1."""
        return _interpolate(self.knots, self.second_moments, x)

    def variance(self, x: Fraction) -> Fraction:
        """The variance at an input x from -1 to 1."""
        return self.second_moment(x) - _interpolate(self.knots, self.means, x) ** 2

    def worst_second_moment(self) -> Fraction:
        """The largest second moment over all inputs."""
        return max(self.second_moments)

    def even_second_moment(self) -> float:
        """Return the mean second moment of a value if inputs are spread evenly over [-1, 1].

        That is the integral of the second moment over [-1, 1], divided by the length 2.
        """
        # The function is linear between knots, so each segment is a trapezium.
        doubled_integral = Fraction(0)
        segments = zip(pairwise(self.knots), pairwise(self.second_moments), strict=True)
        for (left, right), (moment_at_left, moment_at_right) in segments:
            doubled_integral += (right - left) * (moment_at_left + moment_at_right)
        length_of_inputs = 2
        return float(doubled_integral / 2 / length_of_inputs)

    def mean_second_moment(
        self, inputs: npt.NDArray[np.float64], weights: npt.NDArray[np.float64] | None = None
    ) -> float:
        """Return the mean second moment of a value of the card over these inputs.

        weights: the probability of each input; None: all are equally likely.
        """
        knots = np.array([float(x) for x in self.knots])
        second_moments = np.array([float(moment) for moment in self.second_moments])
        at_inputs = np.interp(inputs, knots, second_moments)
        if weights is None:
            return float(at_inputs.mean())
        return float(weights @ at_inputs)

    def worst_variance(self, share: Fraction = Fraction(1)) -> tuple[Fraction, Fraction]:
        """Return the largest variance over all inputs x in [-1, 1], and an x that has it.

        The card must be unbiased: its mean is x. share: d/k for an estimate from reports of k of d
        coordinates, whose variance is share E[y**2] - x**2 for outputs y.
        """
        return max(self._largest_of_each_segment(share))

    def _largest_of_each_segment(self, share: Fraction) -> Iterator[tuple[Fraction, Fraction]]:
        """Yield the largest variance between each two neighbouring knots, and an x that has it."""
        points = zip(self.knots, self.second_moments, strict=True)
        for (left, moment_at_left), (right, moment_at_right) in pairwise(points):
            if left == right:  # a jump
                continue
            # The second moment is linear here, so the variance is a parabola that opens downwards:
            # share moment_at_left + slope (x - left) - x**2. Its top is at x = slope / 2.
            slope = share * (moment_at_right - moment_at_left) / (right - left)
            x = min(max(slope / 2, left), right)
            yield share * moment_at_left + slope * (x - left) - x * x, x


def _interpolate(knots: list[Fraction], values: list[Fraction], x: Fraction) -> Fraction:
    """Return the value at x of the function that is linear between knots.

    values: the function's at each knot. Where a knot comes twice, its second value holds.
    """
    i = bisect_right(knots, x) - 1  # the last knot that is at most x
    i = min(max(i, 0), len(knots) - 2)  # x = 1 belongs to the last segment
    weight_of_right = (x - knots[i]) / (knots[i + 1] - knots[i])
    return values[i] * (1 - weight_of_right) + values[i + 1] * weight_of_right


# Privacy loss


def epsilon_certified(card: Card) -> int | None:
    """Return the smallest epsilon at which a device certifies `card`; None if none up to 20.

    To certify is to prove, from the card's integers, that it keeps an epsilon. The unit is
    micro-epsilon, or micro-rho for a sum with Gaussian noise.
    """

    def is_certified(epsilon: int) -> bool:
        """Whether the device's own code certifies the card at this epsilon."""
        return bool(cards.certify(card, epsilon))

    if not is_certified(MAX_EPSILON):
        return None
    return bisected(0, MAX_EPSILON, is_certified)


def bisected(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the smallest integer above `low` for which a condition holds, by bisection.

    holds: the condition, a function of an integer. It must be true at `high`, and at every integer
    above one at which it is true.
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
    """Return the ranges and the inner cards of a card of the shape HIERARCHY."""
    return cast(Hierarchy, card.body)


def valued(card: Card) -> Card:
    """Return `card`, after checking that each of its outputs stands for a value of one number.

    Raises UsageError for a sum or a projection, which are about a whole vector.
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
    """Return the cards whose symbols, one card after the other, are the symbols of `card`.

    A mixture has its two cards, a hierarchy its value cards, and any other card only itself.
    """
    if valued(card).shape == MIXTURE:
        return [card.first, card.second]
    if card.shape == HIERARCHY:
        return list(hierarchy(card).value_cards)
    return [card]


def scale(card: Card) -> Fraction:
    """Return the factor that turns the levels of a card into unbiased values.

    A level is the number that an output stands for before this factor. A card that consists of
    others has several factors: see `scales`. Raises Biased where no factor makes the mean equal to
    the input.
    """
    if valued(card).shape == TABLE:
        return _scale_of_table(card)
    if card.shape == WINDOW:
        # At the input 1 the mean level is half of this. (It is 0 at every input if outputs in the
        # window are as likely as others.)
        doubled_gain = Fraction(card.threshold * card.symbols, T) - card.window
        if doubled_gain <= 0:
            raise Biased("the window is less likely than the rest")
        return 2 / doubled_gain
    if card.shape == LAPLACE:
        return Fraction(1, 1 << card.grid_bits)
    raise ValueError("a card that consists of others has several scales: see scales()")


def _scale_of_table(card: Card) -> Fraction:
    """Return the scale of a table card.

    The mean level must be proportional to the input. With n intervals between the knots, which are
    evenly spaced from -1 to 1, the mean levels must be -n, -n + 2, ..., n times one positive step.
    Raises Biased if they are not.
    """
    intervals = 1 << card.knot_bits  # n
    means = []  # the mean level at each knot, times T
    for knot in range(intervals + 1):
        total = 0
        for count, level in zip(_row(card, knot), card.levels, strict=True):
            total += count * level
        means.append(total)
    step = Fraction(means[-1], intervals)
    expected = [step * (2 * knot - intervals) for knot in range(intervals + 1)]
    if step <= 0 or means != expected:
        raise Biased("the means of the knots are not proportional to them")
    return T / (step * intervals)


def scales(card: Card) -> list[Fraction]:
    """Return the scales of the cards that `card` consists of; of most cards, just its own.

    A mixture has two, and a hierarchy one for each of its value cards. Raises Biased.
    """
    return [scale(part) for part in _parts(card)]


def levels(card: Card) -> list[Fraction]:
    """Return the level of each symbol: the number that it stands for, before the scale.

    A card is the table of probabilities from which a device draws its report. A symbol is the
    number of an output, from 0 on, and its value is its level times the card's scale. The first and
    last symbol of a laplace card stand for the mean of all that is clamped to them.
    """
    if card.shape == TABLE:
        return [Fraction(level) for level in card.levels]
    if card.shape == WINDOW:
        # Evenly spaced about 0.
        last = card.symbols - 1
        return [Fraction(2 * j - last, 2) for j in range(card.symbols)]
    if card.shape == LAPLACE:
        g = _geometric(card.s, card.t)
        mean_of_tail = g / (1 - g)  # how far a clamped value lies beyond the end, on average
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
    """Return the value that each symbol stands for, so that the mean is the input.

    Raises Biased if there are no such values.
    """
    all_values: list[Fraction] = []
    for part, factor in zip(_parts(card), scales(card), strict=True):
        all_values += [factor * level for level in levels(part)]
    return all_values


def knots(card: Card) -> list[Fraction]:
    """Return the knots of a card in ascending order: the inputs for which it has probabilities.

    A card is the table from which a device draws its report. Inputs are from -1 to 1, and one
    between two knots is rounded at random to one of them. A hierarchy divides [-1, 1] into equal
    ranges and has both ends of each, so inner bounds come twice. Raises CardError for a hierarchy
    whose ranges are not equal.
    """
    if valued(card).shape == MIXTURE:
        return sorted({*knots(card.first), *knots(card.second)})
    evenly_spaced = _even_knots(card)
    if card.shape != HIERARCHY:
        return evenly_spaced

    inner = evenly_spaced[-2:0:-1]  # without the two ends, descending as the card's bounds
    if [math.ceil(x * ONE) for x in inner] != list(hierarchy(card).bounds):
        raise CardError("not a card of LHP: its ranges are not equal")
    ends_of_ranges = []
    for low, high in pairwise(evenly_spaced):
        ends_of_ranges += [low, high]
    return ends_of_ranges


def _even_knots(card: Card) -> list[Fraction]:
    """Return the ends of the equal pieces of [-1, 1] into which the card's shape divides it."""
    if card.shape == TABLE:
        pieces = 1 << card.knot_bits
    elif card.shape == WINDOW:
        pieces = card.symbols - card.window  # one less than the places at which a window can begin
    elif card.shape == HIERARCHY:
        pieces = len(hierarchy(card).level_cards)
    else:  # a laplace card, whose grid has the step 2**-grid_bits
        pieces = 2 << card.grid_bits
    return [Fraction(2 * i, pieces) - 1 for i in range(pieces + 1)]


def moments(card: Card) -> Moments:
    """Return the mean and the second moment of the value that a card reports, at each of its knots.

    Raises Biased where the card has no unbiased values, and CardError as `knots` does.
    """
    return _moments(bytes(card.data))


@lru_cache(maxsize=256)
def _moments(data: bytes) -> Moments:
    """Return the mean and the second moment of a card's value at each knot.

    data: the bytes of the card, by which the result is cached. Raises Biased and CardError.
    """
    card = cards.decode(data)
    inputs = knots(card)
    # The first three shapes can have very many outputs, so there are shortcuts for them.
    if card.shape == MIXTURE:
        return _moments_of_mixture(card, inputs)
    if card.shape == LAPLACE:  # unbiased by construction: the means are the inputs
        second_moments = _second_moments_of_laplace(card)
        return Moments(knots=inputs, means=inputs, second_moments=second_moments)
    if card.shape == WINDOW:
        factor = scale(card)
        means = _expectations_of_window(card, factor, power=1)
        second_moments = _expectations_of_window(card, factor, power=2)
        return Moments(inputs, means, second_moments)

    outputs = values(card)
    squares = [y**2 for y in outputs]
    means = []
    second_moments = []
    for i in range(len(inputs)):
        probabilities = at_knot(card, i)
        means.append(mean(probabilities, outputs))
        second_moments.append(mean(probabilities, squares))
    return Moments(inputs, means, second_moments)


def _moments_of_mixture(card: Card, inputs: list[Fraction]) -> Moments:
    """Return the moments of a mixture: those of its two cards, weighted by how likely each is.

    inputs: the knots of the mixture.
    """
    share = Fraction(card.threshold, T)  # the probability of the first card
    first = moments(card.first)
    second = moments(card.second)
    means = []
    second_moments = []
    for x in inputs:
        mean_of_first = _interpolate(first.knots, first.means, x)
        mean_of_second = _interpolate(second.knots, second.means, x)
        means.append(share * mean_of_first + (1 - share) * mean_of_second)
        moment_of_first = first.second_moment(x)
        moment_of_second = second.second_moment(x)
        second_moments.append(share * moment_of_first + (1 - share) * moment_of_second)
    return Moments(inputs, means, second_moments)


def mean(row: Row, values: Row) -> Fraction:
    """Return the mean of an output's value. row: the outputs' probabilities. values: their values."""
    total = Fraction(0)
    for probability, value in zip(row, values, strict=True):
        total += probability * value
    return total


def _expectations_of_window(card: Card, factor: Fraction, power: int) -> list[Fraction]:
    """Return the expectation of value**power of a window card, for each place of its window.

    The value of output j is factor times its level (2 j - (n - 1)) / 2, for n outputs. Its powers
    are added up once, as integers; a difference of two such prefix sums is then the sum over a
    window, so that the work grows only linearly with n.
    """
    last = card.symbols - 1
    doubled_levels_to_power = [(2 * j - last) ** power for j in range(card.symbols)]
    prefix_sums = [0, *accumulate(doubled_levels_to_power)]
    total = prefix_sums[-1]
    outputs_outside = card.symbols - card.window
    probability_inside = Fraction(card.threshold, T * card.window)  # of each output
    probability_outside = Fraction(T - card.threshold, T * outputs_outside)

    expectations = []
    for start in range(outputs_outside + 1):
        inside = prefix_sums[start + card.window] - prefix_sums[start]
        outside = total - inside
        expectation = probability_inside * inside + probability_outside * outside
        expectations.append((factor / 2) ** power * expectation)
    return expectations


def _second_moments_of_laplace(card: Card) -> list[Fraction]:
    """Return the second moment of a laplace card's value at each knot, which is a grid point.

    The noise is two-sided geometric with ratio g, of variance 2 g/(1-g)**2. Clamping replaces each
    tail, which is geometric, by its mean, and so removes the tail's variance g/(1-g)**2. At a
    distance of n steps a tail has the probability g**n / (1+g).
    """
    g = _geometric(card.s, card.t)
    powers = _powers(card)
    variance_of_tail = g / (1 - g) ** 2
    one = 1 << card.grid_bits  # the input 1, in grid steps
    second_moments = []
    for i in range(-one, one + 1):
        steps_to_lowest = i - card.lowest
        steps_to_highest = card.symbols - 1 - steps_to_lowest
        probability_of_tails = (powers[steps_to_highest] + powers[steps_to_lowest]) / (1 + g)
        removed = variance_of_tail * probability_of_tails
        moment_in_steps = i * i + 2 * variance_of_tail - removed
        second_moments.append(moment_in_steps / one**2)
    return second_moments


def bias(card: Card) -> Fraction:
    """Return the largest |mean - input| over the card's knots; 0 means that it is unbiased.

    A laplace card is unbiased by its memoryless tails (cards.md). Raises Biased.
    """
    card_moments = moments(card)
    biases = []
    for mean_at_knot, x in zip(card_moments.means, card_moments.knots, strict=True):
        biases.append(abs(mean_at_knot - x))
    return max(biases)


# The distribution of the outputs


def distribution(card: Card, v: int) -> Row:
    """Return the probability of every symbol for the input v / 2**14, as cards.md defines it."""
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
    position = (x + 1) / 2 * last_knot  # in knots from the first one, which is at -1
    lower = math.floor(position)
    probability_of_upper = position - lower
    if probability_of_upper == 0:
        return at_knot(card, lower)
    row = []
    for p, q in zip(at_knot(card, lower), at_knot(card, lower + 1), strict=True):
        row.append((1 - probability_of_upper) * p + probability_of_upper * q)
    return row


def _level_and_value(card: Card, level: int, x: Fraction) -> Row:
    """Return the probability of each reported level and value, for an input x of a hierarchy.

    A hierarchy reports a level, which is a range of inputs, drawn by the true level's card; and a
    value, drawn by the reported level's value card. level: the true one, in whose range x lies,
    ends included.
    """
    level_probabilities = at_knot(hierarchy(card).level_cards[level], level)
    row: Row = []
    for probability, value_card in zip(level_probabilities, _parts(card), strict=True):
        row += [probability * p for p in _at(value_card, x)]
    return row


def at_knot(card: Card, i: int) -> Row:
    """Return the probability of each symbol if the input is the knot with the index i.

    The window of a window card begins at output i there.
    """
    if card.shape == MIXTURE:
        return _at(card, knots(card)[i])
    if card.shape == HIERARCHY:
        # Its knots are in pairs, from the lowest range up; its levels are from the top down.
        level = len(_parts(card)) - 1 - i // 2
        return _level_and_value(card, level, knots(card)[i])
    if card.shape == TABLE:
        return [Fraction(count, T) for count in _row(card, i)]
    if card.shape == WINDOW:
        return _row_of_window(card, i)
    input_in_grid_steps = i - (1 << card.grid_bits)
    return _row_of_laplace(card, input_in_grid_steps)


def _row_of_window(card: Card, start: int) -> Row:
    """Return the probability of each symbol of a window card whose window begins at `start`."""
    inside = Fraction(card.threshold, T * card.window)
    outside = Fraction(T - card.threshold, T * (card.symbols - card.window))
    row = [outside] * card.symbols
    row[start : start + card.window] = [inside] * card.window
    return row


def _row_of_laplace(card: Card, centre: int) -> Row:
    """Return the probability of each symbol of a laplace card, rounded as in `_powers`.

    At a distance of n steps from the input it is (1 - g) / (1 + g) g**n. At the two ends it is
    g**n / (1 + g), since everything beyond them is clamped to them. centre: the input, in grid
    steps.
    """
    g = _geometric(card.s, card.t)
    powers = _powers(card)
    outputs = range(card.lowest, card.lowest + card.symbols)
    weights = [powers[abs(y - centre)] for y in outputs]
    row = [(1 - g) / (1 + g) * weight for weight in weights]
    row[0] = weights[0] / (1 + g)
    row[-1] = weights[-1] / (1 + g)
    return row


def _row(card: Card, i: int) -> list[int]:
    """Return the probability of each symbol of a table card at knot i, as counts out of T."""
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
    """Return g = exp(-s/t), with an error below 2**-199, computed with integers only.

    The argument s/t is halved until it is below 1/2. There the Taylor series 1 - a + a**2/2 - ...
    is added up in fixed-point numbers. The result is then squared as often as the argument was
    halved.
    """
    halvings = max((2 * s // t).bit_length(), 0)
    # Each squaring can double the error; 40 more bits are far more than all other errors take.
    fraction_bits = _EXP_BITS + halvings + 40
    one = 1 << fraction_bits
    argument = Fraction(s, t << halvings)

    total = one
    term = one  # argument**n / n!, rounded down
    n = 1
    while term:
        term = term * argument.numerator // (argument.denominator * n)
        if n % 2:
            total -= term
        else:
            total += term
        n += 1
    for _ in range(halvings):
        total = total * total >> fraction_bits
    return _rounded(Fraction(total, one))
