"""HierA: ranges of values have privacy levels of their own.

Source: Hao, Wu, Wan, Sensors 2023, 23, 1115, with these corrections:

- A report tells a level and a sign, and both depend on the value. Their joint loss is larger than the largest of the
  budgets, which the paper states. The card's epsilon is the true one, computed exactly from its integers.
- Step 5 counts reports that were converted to several levels several times, which biases the mean towards the less
  private ranges. Here every report has the same weight (`estimate`).
- Nothing is clamped, since that biases small samples.

Converting a report to a more private level (PLC) adds noise, so that the variance is least for `mu` = 0, the share of
reports that are reused that way."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tern.card import Card
from ternhost.count.rounds import Counts
from ternhost.errors import UsageError
from ternhost.learn.parameters import Floats
from ternhost.privacy import cards
from ternhost.privacy.mechanisms import lhp


@lru_cache(maxsize=64)
def design(epsilon: int, proportions: tuple[float, ...] = lhp.BUDGETS) -> Card:
    """LHP's card with budgets in these proportions, from the lowest range up: the largest whose report truly costs at
    most `epsilon` (micro)."""
    return cards.decode(lhp.design(epsilon, None, proportions).card)


def proportions_of(text: str) -> tuple[float, ...]:
    """Budgets in words, from the lowest range up: `5,4,3,2,1`. Raises UsageError."""
    try:
        return tuple(float(budget) for budget in text.split(","))
    except ValueError:
        raise UsageError(f"{text!r} is not a list of budgets", hint="such as 5,4,3,2,1") from None


def convert(counts: Counts, source: float, target: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """PLC: turn reports (..., 2) of a level into those of a more private one by flipping signs. A level is the value of
    its sign (Duchi's C = 1 / (2p - 1)); target >= source. The paper's flip probability is (p_i - p_j) / (2 p_i - 1)."""
    flip = (1 - source / target) / 2
    flipped = rng.binomial(counts, flip)
    return counts - flipped + flipped[..., ::-1]


def estimate(card: Card, counts: Counts, mu: float = 0.0, *, seed: int = 1) -> Floats:
    """Unbiased means from counts (..., m, 2), of all the values together.

    Each report is used at its own level and, with probability `mu` each, at every more private one; it then weighs
    1 / (1 + mu * such levels), so that every value has the same weight. nan where there are no reports."""
    if not 0 <= mu <= 1:
        raise UsageError(f"the share mu must be 0 to 1, not {mu}")
    values = lhp.magnitudes(card)
    rng = np.random.default_rng(seed)
    total = np.zeros(counts.shape[:-2])
    for source, value in enumerate(values):
        of_level = counts[..., source, :]
        targets = [i for i in range(len(values)) if i != source and values[i] >= value] if mu else []
        weight = 1 / (1 + mu * len(targets))
        total += weight * value * (of_level[..., 1] - of_level[..., 0])
        for target in targets:
            moved = convert(rng.binomial(of_level, mu), value, values[target], rng)
            total += weight * values[target] * (moved[..., 1] - moved[..., 0])
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: Floats = total / counts.sum(axis=(-1, -2))
    return mean


def combine(parts: Sequence[tuple[Card, Counts]], mu: float = 0.0, *, seed: int = 1) -> Floats:
    """Unbiased means of d coordinates from the counts (d x 2m) of classes of devices with levels of their own.

    The weight of a class at a coordinate is its reports there over the worst variance of one: it depends on no
    report's content, so that the combination stays unbiased. nan where there are no reports."""
    total = np.zeros(len(parts[0][1]))
    weight = np.zeros_like(total)
    for card, counts in parts:
        share = counts.sum(axis=1) / float(lhp.magnitudes(card).max()) ** 2
        means = estimate(card, counts.reshape(len(counts), card.symbols // 2, 2), mu, seed=seed)
        total += share * np.nan_to_num(means)
        weight += share
    return np.asarray(np.divide(total, weight, out=np.full(len(total), np.nan), where=weight > 0))
