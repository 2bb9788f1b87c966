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
        """Outputs that have the same probability at each input count as one."""
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
        """The largest sum over the outputs of max(0, scale P - e Q - t b) for two inputs.

        b is the blanket.
        """
        i, j = self._near(e / scale, t / scale)
        gained: npt.NDArray[np.object_] = self.rows[i] * scale - self.rows[j] * e - self.blanket * t
        return int(np.maximum(gained, 0).sum(axis=1).max())

    def _near(self, g: float, t: float) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The pairs of inputs that may be the largest, by floats.

        Their errors are relative to 1 and to what t < 0 adds.
        """
        if len(self.rows) == 2:
            return np.array([0, 1]), np.array([1, 0])
        p, b = self._floats
        gained = np.maximum(p[:, None] - g * p - t * b, 0).sum(axis=2)
        np.fill_diagonal(gained, -np.inf)
        i, j = np.nonzero(gained >= gained.max() - _NEAR * (1 + max(0.0, -t)))
        return i, j

    @cached_property
    def _floats(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        rows = (self.rows / self.whole).astype(np.float64)
        blanket = (self.blanket / self.whole).astype(np.float64)
        return rows, blanket


def randomised_response(epsilon: float) -> list[Part]:
    """The worst mechanism of a local epsilon: its answer between two values.

    In rationals that round towards more.
    """
    e = Fraction(math.exp(epsilon) * (1 + 1e-12))
    low = 1 / (1 + e)
    return [Part.of(Fraction(1), [[1 - low, low], [low, 1 - low]])]


def parts(card: Card, share: Fraction = Fraction(1)) -> list[Part]:
    """The laws of a card at the ends between which it is linear.

    A mixture has those of its two cards, in their shares. A window card has its first and last
    window: others overlap more, and a pair of laws tells more where a symbol of both and one of
    neither become one of each. So has a projection the vectors of two opposite directions; its
    symbols of one probability under each are counted as one.
    """
    if card.shape == PROJECTION:
        body = projection.of(card)
        likely, unlikely = body.k * body.a, body.k * body.b
        rest = 2 * (body.size - body.k) * body.b
        rows = np.array([[likely, unlikely, rest], [unlikely, likely, rest]], object)
        return [Part(share, rows, body.total)]
    if card.shape == MIXTURE:
        first = Fraction(card.threshold, T)
        return [*parts(card.first, share * first), *parts(card.second, share * (1 - first))]
    last = len(certify.knots(card)) - 1
    knots = (0, last) if card.shape == WINDOW else range(last + 1)
    return [Part.of(share, [certify.at_knot(card, i) for i in knots])]


def are_known(card: Card) -> bool:
    """Whether the card's laws are rational, and those of one value: `parts` has them."""
    if card.shape == MIXTURE:
        return are_known(card.first) and are_known(card.second)
    return card.shape not in (LAPLACE, SUM)


def greatest_ratio(laws: Sequence[Part]) -> Fraction:
    """The largest factor by which an output is likelier at one input than at another."""
    ratios = []
    for part in laws:
        for column in part.rows.T:
            if max(column):
                ratios.append(Fraction(max(column), min(column)))
    return max(ratios)


def profile(laws: Sequence[Part], g: Fraction) -> Fraction:
    """The largest sum over the outputs of max(0, P - g Q) for two inputs, exactly.

    That is delta at epsilon ln g.
    """
    delta = Fraction(0)
    for part in laws:
        largest = part.largest(g.denominator, g.numerator)
        delta += part.share * Fraction(largest, part.whole * g.denominator)
    return delta
