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
from ternhost.privacy import certify, projection

_NEAR = 1e-12  # above the errors of floats that choose pairs of inputs


@dataclass(frozen=True)
class Part:
    """A share of a card's draws: the laws of its outputs at extreme inputs.

    rows: a row an input, a column an output, as integers over `whole`.
    """

    share: Fraction
    rows: npt.NDArray[np.object_]
    whole: int

    @classmethod
    def of(cls, share: Fraction, rows: Sequence[Sequence[Fraction]]) -> Self:
        """Return the part with these probabilities, as integers over a common denominator.

        share: of the card's draws. rows: one for each input, with a probability for each output.
        Outputs that have the same probability at each input are merged, which hides nothing.
        """
        columns = []
        for column, times in Counter(zip(*rows, strict=True)).items():
            columns.append([p * times for p in column])
        probabilities = np.array(columns, object)
        denominators = [p.denominator for p in probabilities.flat]
        whole = math.lcm(*denominators)
        counts = np.array([int(p * whole) for p in probabilities.flat], object)
        return cls(share, counts.reshape(probabilities.shape).T, whole)

    @cached_property
    def blanket(self) -> npt.NDArray[np.object_]:
        """The least of each output, at any input."""
        least: npt.NDArray[np.object_] = self.rows.min(axis=0)
        return least

    def largest(self, scale: int, e: int, t: int = 0) -> int:
        """Return the largest sum over outputs of max(0, scale P - e Q - t b), over pairs of inputs.

        P and Q are the rows of the two inputs, b is the blanket; e / scale is e**epsilon. Exact:
        floats only choose the pairs that are computed.
        """
        first, second = self._near(e / scale, t / scale)
        # A row for each pair, a column for each output.
        excess: npt.NDArray[np.object_] = (
            self.rows[first] * scale - self.rows[second] * e - self.blanket * t
        )
        return int(np.maximum(excess, 0).sum(axis=1).max())

    def _near(self, g: float, t: float) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Return the pairs of inputs whose sum of max(0, P - g Q - t b) is the largest, by floats.

        The result has the indices of P and those of Q. Pairs within the errors of floats are
        included; these errors are relative to 1 and to what t < 0 adds.
        """
        if len(self.rows) == 2:
            return np.array([0, 1]), np.array([1, 0])
        probabilities, blanket = self._floats
        # By input of P, input of Q and output; then the sum over outputs.
        excess = probabilities[:, None] - g * probabilities - t * blanket
        sums = np.maximum(excess, 0).sum(axis=2)
        np.fill_diagonal(sums, -np.inf)
        first, second = np.nonzero(sums >= sums.max() - _NEAR * (1 + max(0.0, -t)))
        return first, second

    @cached_property
    def _floats(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The probabilities (a row for each input) and the blanket, rounded to floats."""
        rows = (self.rows / self.whole).astype(np.float64)
        blanket = (self.blanket / self.whole).astype(np.float64)
        return rows, blanket


def randomised_response(epsilon: float) -> list[Part]:
    """Return the laws of the mechanism that discloses the most at a local epsilon.

    That is randomised response between two values. Rounding to rationals is towards more.
    """
    e = Fraction(math.exp(epsilon) * (1 + 1e-12))
    low = 1 / (1 + e)
    return [Part.of(Fraction(1), [[1 - low, low], [low, 1 - low]])]


def parts(card: Card, share: Fraction = Fraction(1)) -> list[Part]:
    """Return the laws of a card's outputs at its extreme inputs, which disclose the most.

    share: of the draws that this card makes, if it is part of a mixture. Returns a part for each
    card of a mixture, and one for any other card.
    """
    if card.shape == PROJECTION:
        # Two opposite vectors differ the most. Symbols that have one probability under each vector
        # are merged: those likely under the first, those likely under the second, and the rest.
        body = projection.of(card)
        likely, unlikely = body.k * body.a, body.k * body.b
        rest = 2 * (body.size - body.k) * body.b
        rows = np.array([[likely, unlikely, rest], [unlikely, likely, rest]], object)
        return [Part(share, rows, body.total)]
    if card.shape == MIXTURE:
        share_of_first = Fraction(card.threshold, T)
        first_parts = parts(card.first, share * share_of_first)
        second_parts = parts(card.second, share * (1 - share_of_first))
        return [*first_parts, *second_parts]

    # Between knots a law is a mean of two laws. Of windows the first and the last overlap the
    # least, and the less two windows overlap, the more their laws disclose.
    last = len(certify.knots(card)) - 1
    knots: Sequence[int] = range(last + 1)
    if card.shape == WINDOW:
        knots = (0, last)
    return [Part.of(share, [certify.at_knot(card, i) for i in knots])]


def are_known(card: Card) -> bool:
    """Whether the card's laws are rational, and those of one value: `parts` has them."""
    if card.shape == MIXTURE:
        return are_known(card.first) and are_known(card.second)
    return card.shape not in (LAPLACE, SUM)


def greatest_ratio(laws: Sequence[Part]) -> Fraction:
    """Return the largest factor by which an output is likelier at one input than at another."""
    ratios = []
    for part in laws:
        for column in part.rows.T:
            if max(column):
                ratios.append(Fraction(max(column), min(column)))
    return max(ratios)


def profile(laws: Sequence[Part], g: Fraction) -> Fraction:
    """Return delta at epsilon = ln g, exactly.

    It is the largest sum over the outputs of max(0, P - g Q), for the laws P and Q of two inputs.
    """
    delta = Fraction(0)
    for part in laws:
        largest = part.largest(g.denominator, g.numerator)
        delta += part.share * Fraction(largest, part.whole * g.denominator)
    return delta
