"""The laws of a card's outputs at its extreme inputs, as integers: what an attacker can tell apart at best."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
import numpy.typing as npt

from tern.card import LAPLACE, MIXTURE, PROJECTION, SUM, WINDOW, Card, T
from ternhost.privacy import certify, projection


@dataclass(frozen=True)
class Part:
    """A share of a card's draws: the laws of its outputs at the inputs that are extreme, as integers over `whole`."""

    share: Fraction
    rows: npt.NDArray[np.object_]
    whole: int

    @classmethod
    def of(cls, share: Fraction, rows: Sequence[Sequence[Fraction]]) -> Self:
        whole = math.lcm(*(p.denominator for row in rows for p in row))
        return cls(share, np.array([[int(p * whole) for p in row] for row in rows], object), whole)


def randomised_response(epsilon: float) -> list[Part]:
    """The worst mechanism of a local epsilon: its answer between two values, in rationals that round towards more."""
    e = Fraction(math.exp(epsilon) * (1 + 1e-12))
    low = 1 / (1 + e)
    return [Part.of(Fraction(1), [[1 - low, low], [low, 1 - low]])]


def parts(card: Card, share: Fraction = Fraction(1)) -> list[Part]:
    """The laws of a card at the ends between which it is linear; a mixture has those of its two cards, in their shares.
    A window card has its first and last window: others overlap more, and a pair of laws tells more where a symbol of
    both and one of neither become one of each. So has a projection the vectors of two opposite directions; its symbols
    of one probability under each are counted as one."""
    if card.shape == PROJECTION:
        body = projection.of(card)
        a, b, rest = body.k * body.a, body.k * body.b, 2 * (body.size - body.k) * body.b
        return [Part(share, np.array([[a, b, rest], [b, a, rest]], object), body.total)]
    if card.shape == MIXTURE:
        first = Fraction(card.threshold, T)
        return [*parts(card.first, share * first), *parts(card.second, share * (1 - first))]
    last = len(certify.knots(card)) - 1
    starts = (0, last) if card.shape == WINDOW else range(last + 1)
    return [Part.of(share, [certify.at_knot(card, i) for i in starts])]


def are_known(card: Card) -> bool:
    """Whether the card's laws are rational, and those of one value: `parts` has them."""
    if card.shape == MIXTURE:
        return are_known(card.first) and are_known(card.second)
    return card.shape not in (LAPLACE, SUM)


def greatest_ratio(laws: Sequence[Part]) -> Fraction:
    """The largest factor by which an output is likelier at one input than at another."""
    ratios = (Fraction(max(column), min(column)) for part in laws for column in part.rows.T if max(column))
    return max(ratios)


def profile(laws: Sequence[Part], g: Fraction) -> Fraction:
    """The largest sum over the outputs of max(0, P - g Q) for two inputs, exactly: delta at epsilon ln g."""
    total = Fraction(0)
    for part in laws:
        best = 0
        for i, p in enumerate(part.rows):
            for j, q in enumerate(part.rows):
                if i != j:
                    best = max(best, np.maximum(p * g.denominator - g.numerator * q, 0).sum())
        total += part.share * Fraction(int(best), part.whole * g.denominator)
    return total
