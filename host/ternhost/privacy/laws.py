"""The laws of a card's outputs at its extreme inputs, as integers.

They are what an attacker can tell apart at best.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from tern.card import LAPLACE, MIXTURE, PROJECTION, SUM, WINDOW, Card, T
from tern.projection import Projection
from ternhost.privacy import certify, projection

BigIntegers = npt.NDArray[np.object_]  # integers of Python, of any size
Indices = npt.NDArray[np.intp]

_NEAR = 1e-12  # above the errors of the floats by which pairs of inputs are chosen


@dataclass(frozen=True)
class Part:
    """The probabilities of a card's outputs at its extreme inputs, for a share of its draws.

    Most cards have one part. A mixture has one for each of its cards, which makes the share of all
    draws that its card does. rows: a row for each input and a column for each output; entries are
    integers, and entry / whole is the probability.
    """

    share: Fraction
    rows: BigIntegers
    whole: int

    @classmethod
    def of(cls, share: Fraction, rows: Sequence[Sequence[Fraction]]) -> Self:
        """Return the part with these probabilities, as integers over a common denominator.

        share: the share of the card's draws. rows: one for each input, with the probability of each
        output. Outputs that have the same probability at each input are merged into one, which
        discloses as much.
        """
        columns = []
        for column, times in Counter(zip(*rows, strict=True)).items():
            columns.append([p * times for p in column])
        probabilities = np.array(columns, object)
        denominators = [p.denominator for p in probabilities.flat]
        whole = math.lcm(*denominators)
        counts = np.array([int(p * whole) for p in probabilities.flat], object)
        rows_of_counts = counts.reshape(probabilities.shape).T  # `columns` had a row an output
        return cls(share, rows_of_counts, whole)

    @cached_property
    def blanket(self) -> BigIntegers:
        """For each output its least entry over all inputs (the privacy blanket)."""
        least: BigIntegers = self.rows.min(axis=0)
        return least

    def largest(self, scale: int, e: int, weights: Sequence[int] = (0,)) -> BigIntegers:
        """Return the largest values of a privacy profile over all pairs of inputs, exactly.

        There is a value for each weight t of the privacy blanket b, which is the least entry of
        each output over all inputs. The value is the sum over outputs of
        max(0, scale P - e Q - t b). P and Q are the entries of the two inputs, which are integers.
        Floats are used only to choose the few pairs for which the sum is then computed in integers.

        scale, e: integers whose quotient e / scale is e**epsilon. weights: those of the blanket, for
        reports that are shuffled with others; 0: they are not.
        """
        place, first, second = self._best_pairs(e / scale, [t / scale for t in weights])
        weight_of_pair = np.array(weights, object)[place]
        # A row for each pair, a column for each output.
        excess: BigIntegers = (self.rows * scale)[first]
        excess -= (self.rows * e)[second]
        excess -= self.blanket * weight_of_pair[:, None]
        sums = np.maximum(excess, 0).sum(axis=1)
        first_pair_of_weight = np.searchsorted(place, np.arange(len(weights)))
        largest: BigIntegers = np.maximum.reduceat(sums, first_pair_of_weight)
        return largest

    def _best_pairs(self, g: float, weights: Sequence[float]) -> tuple[Indices, Indices, Indices]:
        """Return the pairs of inputs whose sum of max(0, P - g Q - t b) is the largest, by floats.

        P and Q are the probabilities of the outputs at two inputs, and b is the least probability
        of each output at any input. There is a pair or more for each weight t. The three results
        are the places of the weights, ascending, the inputs of P and those of Q. All pairs that may
        be the largest within the errors of floats are included. The terms are of the size 1, and
        for t < 0 up to 1 - t, so the errors are relative to that.
        """
        if len(self.rows) == 2:  # of two inputs there are only two pairs
            place = np.repeat(np.arange(len(weights)), 2)
            first = np.tile([0, 1], len(weights))
            return place, first, 1 - first
        probabilities, blanket = self._floats
        # difference[i, j, y] = P - g Q for the input i of P, the input j of Q, and output y.
        difference = probabilities[:, None, :] - g * probabilities[None, :, :]
        sums = np.empty((len(weights), *difference.shape[:2]))
        for place_of_weight, t in enumerate(weights):
            np.maximum(difference - t * blanket, 0).sum(axis=2, out=sums[place_of_weight])
        inputs = np.arange(len(self.rows))
        sums[:, inputs, inputs] = -np.inf  # an input is not compared with itself
        tolerance = _NEAR * (1 + np.maximum(0.0, -np.array(weights)))
        close_to_largest = sums.max(axis=(1, 2)) - tolerance
        place, first, second = np.nonzero(sums >= close_to_largest[:, None, None])
        return place, first, second

    @cached_property
    def _floats(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The probabilities (a row for each input) and the blanket, rounded to floats."""
        rows = (self.rows / self.whole).astype(np.float64)
        blanket = (self.blanket / self.whole).astype(np.float64)
        return rows, blanket


def randomised_response(epsilon: float) -> list[Part]:
    """Return the probabilities of the mechanism that discloses the most at a local epsilon.

    That is randomised response between two values: it reports the true one with probability
    e**epsilon / (1 + e**epsilon).
    """
    e = Fraction(math.exp(epsilon) * (1 + 1e-12))  # rounded up, which discloses more
    low = 1 / (1 + e)
    high = 1 - low
    return [Part.of(Fraction(1), [[high, low], [low, high]])]


def parts(card: Card, share: Fraction = Fraction(1)) -> list[Part]:
    """Return the probabilities of a card's outputs at those of its inputs that disclose the most.

    A mixture has a part for each of its cards, and any other card has one part. share: the share of
    all draws that this card makes, if it is itself part of a mixture.
    """
    if card.shape == MIXTURE:
        share_of_first = Fraction(card.threshold, T)
        first_parts = parts(card.first, share * share_of_first)
        second_parts = parts(card.second, share * (1 - share_of_first))
        return [*first_parts, *second_parts]
    if card.shape == PROJECTION:
        return [_part_of_projection(projection.of(card), share)]

    # Between knots the probabilities are means of those at the knots, so knots disclose the most.
    last = len(certify.knots(card)) - 1
    knots: Sequence[int] = range(last + 1)
    if card.shape == WINDOW:
        # The less two windows overlap, the more they disclose: the first and the last do least.
        knots = (0, last)
    return [Part.of(share, [certify.at_knot(card, i) for i in knots])]


def _part_of_projection(body: Projection, share: Fraction) -> Part:
    """Return the probabilities of a projection's outputs at two opposite vectors.

    A report is one of 2 N directions, for N dimensions. The k that are nearest to a device's vector
    are drawn with the weight a each, and all others with the weight b. Opposite vectors differ the
    most in this. Outputs that have the same probabilities are merged, which leaves three: those
    near the first vector, those near the second, and all others.

    body: the card's numbers, such as k, a and b. share: the share of all draws that this card
    makes.
    """
    near = body.k * body.a
    opposite = body.k * body.b  # the weight of those near the other vector
    others = 2 * (body.size - body.k) * body.b
    rows = np.array([[near, opposite, others], [opposite, near, others]], object)
    return Part(share, rows, body.total)


def are_known(card: Card) -> bool:
    """Whether `parts` can give the card's probabilities.

    They must be rational, which those of laplace cards are not, and those of one value, which a
    sum's are not.
    """
    if card.shape == MIXTURE:
        return are_known(card.first) and are_known(card.second)
    return card.shape not in (LAPLACE, SUM)


def greatest_ratio(laws: Sequence[Part]) -> Fraction:
    """Return the largest factor by which an output is likelier at one input than at another."""
    ratios = []
    for part in laws:
        for column in part.rows.T:
            is_possible = max(column) > 0
            if is_possible:
                ratios.append(Fraction(max(column), min(column)))
    return max(ratios)


def profile(laws: Sequence[Part], g: Fraction) -> Fraction:
    """Return the privacy profile at g, which is the least delta at epsilon = ln g, exactly.

    It is the largest sum over the outputs of max(0, P - g Q), for the probabilities P and Q at two
    inputs.

    laws: the probabilities of a card's outputs at its extreme inputs. A card that is a mixture has
    several parts, each with a share of the draws.
    """
    delta = Fraction(0)
    for part in laws:
        # In units of 1 / (whole * denominator of g).
        (largest,) = part.largest(scale=g.denominator, e=g.numerator)
        delta += part.share * Fraction(largest, part.whole * g.denominator)
    return delta
