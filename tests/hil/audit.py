"""A statistical audit of a device's sampler: a lower bound of its privacy loss, from its draws
alone.

Symbols are drawn at two adversarial inputs. Each symbol's probability is bounded from below and
from above at both (Clopper and Pearson, Biometrika 26, 1934), so that all bounds hold together at
the given confidence (Bonferroni): the largest `ln(p / q)` is a lower bound of epsilon. A sampler
fails if this bound exceeds the card's epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy.special import betaincinv  # as scipy.stats.beta.ppf does, which takes long to import

from tern import card as cards
from tern.fixed import ONE
from ternhost.privacy.base import MICRO

CONFIDENCE = 0.99
INPUTS = (-ONE, ONE)

# Draw n symbols for an input (Q1.14), and count them.
Draw = Callable[[int, int], Sequence[int]]


@dataclass(frozen=True)
class Audit:
    """The result of an audit: a lower bound of epsilon, the card's epsilon, and the event that
    gives the bound.
    """

    epsilon_lower: float
    epsilon_card: float
    symbol: int
    inputs: tuple[int, int]
    samples: int
    confidence: float

    @property
    def passed(self) -> bool:
        return self.epsilon_lower <= self.epsilon_card


def lower(successes: int, n: int, confidence: float) -> float:
    """The Clopper-Pearson lower bound of a probability."""
    return (
        0.0 if successes == 0 else float(betaincinv(successes, n - successes + 1, 1 - confidence))
    )


def upper(successes: int, n: int, confidence: float) -> float:
    """The Clopper-Pearson upper bound of a probability."""
    return 1.0 if successes == n else float(betaincinv(successes + 1, n - successes, confidence))


def _loss(likely: int, unlikely: int, n: int, confidence: float) -> float:
    p = lower(likely, n, confidence)
    return math.log(p / upper(unlikely, n, confidence)) if p > 0 else -math.inf


def audit(
    card: bytes,
    draw: Draw,
    n: int,
    confidence: float = CONFIDENCE,
    inputs: tuple[int, int] = INPUTS,
) -> Audit:
    """Audit a sampler by n draws at each of two inputs."""
    counts = [draw(x, n) for x in inputs]
    symbols = len(counts[0])
    each = 1 - (1 - confidence) / (4 * symbols)  # two bounds of each symbol at each input
    bound, a, symbol = max(
        (_loss(counts[a][symbol], counts[1 - a][symbol], n, each), a, symbol)
        for a in (0, 1)
        for symbol in range(symbols)
    )
    claimed = cards.decode(card).epsilon / MICRO
    return Audit(max(0.0, bound), claimed, symbol, (inputs[a], inputs[1 - a]), n, confidence)
