"""LHP, the local part of HierA: the privacy level of a value is perturbed first, then the value at the level drawn.

Source: Hao, Wu and Wan, Sensors 2023, 23, 1115. [-1, 1] is cut into m equal ranges; level t, the range of x, has its
own budget epsilon_t. Generalised randomised response at epsilon_t draws the level t*, Duchi's mechanism at epsilon_t*
the sign v*; both are released. The paper states max(epsilon_t) as the price; the true one is more, since both tell
of x. The 2 m cards (a level card for each level, then a value card for each) are one card of shape 5 (cards.md) with
the epsilon of both. Budgets are named from the lowest range up, as in the paper; a card has them from the top down.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern.card import Card, CardError
from tern.fixed import ONE
from ternhost.errors import UsageError
from ternhost.options import Option
from ternhost.privacy import certify
from ternhost.privacy.base import MICRO, Design, finish
from ternhost.privacy.mechanism import Mechanism, untried
from ternhost.privacy.mechanisms import duchi, grr

# The paper's budgets, in units of the smallest: the highest values are the most private.
BUDGETS = (5.0, 4.0, 3.0, 2.0, 1.0)
MAX_RANGES = 16


@dataclass(frozen=True)
class Composite:
    """The cards of LHP: `level_cards[t]` draws t* from t (as a category), `value_cards[t*]` the sign."""

    level_cards: tuple[Card, ...]
    value_cards: tuple[Card, ...]
    data: bytes = b""  # of the card that it was decoded from

    @cached_property
    def card(self) -> Card:
        """The one card of them all, which a device obeys. Raises CardError if it keeps no epsilon up to 20."""
        card: Card = cards.decode(self.to_bytes())
        return card

    @property
    def epsilon(self) -> int:
        """The true loss of level and sign together, in micro-epsilon, for Q1.14 inputs: the least that the card keeps.
        That of all real inputs is a little more. Raises CardError."""
        claimed: int = self.card.epsilon
        return claimed

    @property
    def budgets(self) -> tuple[int, ...]:
        """The budget of each level, in micro-epsilon. The paper states the largest as the price of a report."""
        return tuple(card.epsilon for card in self.value_cards)

    @property
    def ranges(self) -> int:
        return len(self.level_cards)

    def bounds(self, level: int) -> tuple[Fraction, Fraction]:
        """The range of x of a level."""
        return 1 - Fraction(2 * (level + 1), self.ranges), 1 - Fraction(2 * level, self.ranges)

    def level(self, x: Fraction) -> int:
        """The level of the range that x lies in; a bound belongs to the range above it."""
        return next((t for t in range(self.ranges) if x >= self.bounds(t)[0]), self.ranges - 1)

    def distribution(self, level: int, x: Fraction) -> list[Fraction]:
        """The probabilities of the outputs (t*, v*) for an x of that level: t* by t*, the negative sign first."""
        result = []
        for drawn, p in enumerate(certify.at_knot(self.level_cards[level], level)):
            card = self.value_cards[drawn]
            ends = zip(certify.distribution(card, -ONE), certify.distribution(card, ONE), strict=True)
            result += [p * ((1 - x) / 2 * low + (1 + x) / 2 * high) for low, high in ends]
        return result

    def extremes(self) -> list[list[Fraction]]:
        """The distributions at both ends of every range, the extreme inputs: their ratio is e**epsilon of both."""
        return [self.distribution(level, x) for level in range(self.ranges) for x in self.bounds(level)]

    def values(self) -> list[Fraction]:
        """The unbiased value of every output: whatever level is drawn, its sign has mean x."""
        return [value for card in self.value_cards for value in certify.values(card)]

    @cached_property
    def constants(self) -> npt.NDArray[np.float64]:
        """The magnitude that a sign of each level stands for, Duchi's C."""
        return np.array([float(certify.scale(card)) for card in self.value_cards])

    def _moment(self, level: int, x: Fraction, power: int) -> Fraction:
        pairs = zip(self.distribution(level, x), self.values(), strict=True)
        return sum((p * value**power for p, value in pairs), Fraction(0))

    def variance(self, level: int, x: Fraction) -> Fraction:
        return self._moment(level, x, 2) - x * x

    def bias(self) -> Fraction:
        ends = [(level, x) for level in range(self.ranges) for x in self.bounds(level)]
        return max(abs(self._moment(level, x, 1) - x) for level, x in ends)

    def worst_variance(self) -> tuple[Fraction, Fraction]:
        """The second moment does not depend on x within a range, so the variance is largest where |x| is least."""
        nearest = [max(low, min(high, Fraction(0))) for low, high in map(self.bounds, range(self.ranges))]
        return max((self.variance(level, x), x) for level, x in enumerate(nearest))

    def to_bytes(self) -> bytes:
        """The card of shape 5. Raises CardError if it keeps no epsilon up to 20."""
        if self.data:
            return self.data
        bounds = [math.ceil(self.bounds(level)[0] * ONE) for level in range(self.ranges - 1)]
        body = struct.pack(f"<B{self.ranges - 1}h", self.ranges, *bounds)
        return finish(
            cards.HIERARCHY, body + b"".join(card.data for card in self.level_cards + self.value_cards)
        )


def composite(budgets: Sequence[int]) -> Composite:
    """The cards of LHP at budgets in micro-epsilon, from the top range down, as a card has them."""
    return Composite(
        tuple(cards.decode(grr.card(budget, len(budgets))) for budget in budgets),
        tuple(cards.decode(duchi.card(budget)) for budget in budgets),
    )


def from_bytes(data: bytes) -> Composite:
    """The reverse of `Composite.to_bytes`. Raises CardError, also for a card of another shape or of other ranges."""
    card = cards.decode(data)
    if card.shape != cards.HIERARCHY:
        raise CardError("not a card of LHP")
    result = Composite(tuple(card.hierarchy.level_cards), tuple(card.hierarchy.value_cards), data)
    equal = [math.ceil(result.bounds(level)[0] * ONE) for level in range(result.ranges - 1)]
    try:
        result.values()
    except certify.Biased:
        raise CardError("not a card of LHP: biased") from None
    if list(card.hierarchy.bounds) != equal:
        raise CardError("not a card of LHP: its ranges are not equal")
    return result


def design(epsilon: int, levels: int | None = None, budgets: Sequence[float] = BUDGETS) -> Design:
    """LHP whose *joint* loss is at most epsilon, with the largest budgets in these proportions, lowest range first."""
    if levels is not None and levels != 2 * len(budgets):
        raise UsageError(f"LHP has two levels for each budget, here {2 * len(budgets)}, not {levels}")
    if not 2 <= len(budgets) <= MAX_RANGES or not all(0 < budget < math.inf for budget in budgets):
        raise UsageError(
            f"LHP takes 2 to {MAX_RANGES} positive budgets", hint="for example --budgets 5,4,3,2,1"
        )
    top = max(budgets)

    def at(largest: int) -> Composite:
        return composite([max(1, math.floor(largest * budget / top)) for budget in reversed(budgets)])

    def is_too_large(largest: int) -> bool:
        try:
            return at(largest).epsilon > epsilon
        except CardError:
            return True

    largest = certify.bisected(0, epsilon + 1, is_too_large) - 1
    if largest == 0:
        raise UsageError(f"LHP has no cards at epsilon {epsilon / MICRO} with these budgets")
    lhp = at(largest)
    m = lhp.ranges
    kept = [card.epsilon / MICRO for card in reversed(lhp.value_cards)]
    notes = (
        f"budgets {', '.join(f'{budget:g}' for budget in kept)} from the lowest range up",
        f"epsilon is that of the level and the sign together; the paper would state {max(kept):g}",
        f"a composite of {2 * m} cards: {m} to draw the level by category, {m} to draw the sign",
    )
    return Design("lhp", epsilon, lhp.to_bytes(), notes)


def _budgets(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


LHP = Mechanism(
    "lhp",
    design,
    (Option("budgets", "relative budgets, lowest range first", _budgets, "B,B,...", shown="5,4,3,2,1"),),
    tries=untried,
    single_valued=False,
)
