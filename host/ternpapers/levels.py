"""HierA: ranges of values have privacy levels of their own.

Source: Hao, Wu, Wan, Sensors 2023, 23, 1115. PLC converts reports of a level to the next `mu` - 1
more private ones, each time anew from the report. Where fewer levels are more private, step 5
counts the report itself several times, so that each report counts mu times. Every copy is unbiased,
and so is their mean. There are these differences:

- A report tells a level and a sign, and both depend on the value. Their joint loss is larger than
  the largest of the budgets, which the paper states. The card's epsilon is the true one, computed
  exactly from its integers.
- Step 6 clamps the sum of a level to the number of its reports. That biases small samples, so it is
  an option.

Conversion adds noise: whatever the values are, no mu has a smaller variance than 1 (`variance`).
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tern.card import Card
from tern.fixed import ONE
from ternhost.count.rounds import Counts
from ternhost.datasets import Fixed
from ternhost.errors import UsageError
from ternhost.learn.parameters import Floats
from ternhost.options import require
from ternhost.privacy import cards, certify
from ternpapers.mechanisms import lhp


@lru_cache(maxsize=64)
def design(epsilon: int, proportions: tuple[float, ...] = lhp.BUDGETS) -> Card:
    """LHP's card with the largest budgets whose report truly costs at most `epsilon` (micro).

    proportions: of the budgets, from the lowest range up.
    """
    return cards.decode(lhp.design(epsilon, None, proportions).card)


def proportions_of(text: str) -> tuple[float, ...]:
    """Budgets in words, from the lowest range up: `5,4,3,2,1`. Raises UsageError."""
    try:
        return tuple(float(budget) for budget in text.split(","))
    except ValueError:
        raise UsageError(f"{text!r} is not a list of budgets", hint="such as 5,4,3,2,1") from None


def convert(
    counts: Counts, source: float, target: float, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """PLC: turn reports (..., 2) of a level into those of a more private one by flipping signs.

    A level is the value of its sign (Duchi's C = 1 / (2p - 1)); target >= source. The paper's flip
    probability is (p_i - p_j) / (2 p_i - 1).
    """
    flip = (1 - source / target) / 2
    flipped = rng.binomial(counts, flip)
    return counts - flipped + flipped[..., ::-1]


def require_mu(mu: int, levels: int) -> None:
    """Raise UsageError unless reports can count mu times with this number of levels."""
    require(mu in range(1, levels + 1), "mu", f"1 to {levels}, the number of levels", mu)


def _targets(magnitudes: Floats, mu: int) -> list[list[int]]:
    """The levels that reports of each level are converted to.

    They are the next mu - 1 more private ones, or all there are.
    """
    require_mu(mu, len(magnitudes))
    order = np.argsort(magnitudes, kind="stable")
    return [order[rank + 1 : rank + mu].tolist() for rank in np.argsort(order).tolist()]


def estimate(
    card: Card, counts: Counts, mu: int = 1, *, clamp: bool = False, seed: int | Sequence[int] = 1
) -> Floats:
    """Means from counts (..., m, 2), of all the values together; nan where there are no reports.

    mu: how many times each report counts, at its own level and the next more private ones. Unbiased
    without `clamp`, which keeps each level's sum within the number of its reports. Raises
    UsageError for a mu below 1 or above m.
    """
    values, rng = lhp.magnitudes(card), np.random.default_rng(seed)
    merged = np.zeros_like(counts)  # V* of each level
    for source, targets in enumerate(_targets(values, mu)):
        merged[..., source, :] += (mu - len(targets)) * counts[..., source, :]
        for target in targets:
            merged[..., target, :] += convert(
                counts[..., source, :], values[source], values[target], rng
            )
    reports = merged.sum(axis=-1)
    sums = values * (merged[..., 1] - merged[..., 0])
    if clamp:
        sums = np.clip(sums, -reports, reports)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: Floats = sums.sum(axis=-1) / reports.sum(axis=-1)
    return mean


def variance(card: Card, values: Fixed, mu: int = 1) -> Fraction:
    """The exact variance of `estimate`, not clamped, for one report of each of these values.

    values: n numbers in Q1.14.

    A report of level i, at C_i, has mu copies of mean x and of second moments C_i**2, at C_j**2 for
    one of level j. Two of them have the product C_i**2 on average, since the conversions are
    independent. So the mean of the copies has the second moment C_i**2 + the sum over j of (C_j**2
    - C_i**2) / mu**2, which is least for mu = 1. Raises UsageError for a mu below 1 or above m.
    """
    squares = [scale**2 for scale in certify.scales(card)]
    targets = _targets(lhp.magnitudes(card), mu)
    moments = [
        square + Fraction(sum(squares[j] - square for j in of_level), mu**2)
        for square, of_level in zip(squares, targets, strict=True)
    ]
    hierarchy = certify.hierarchy(card)
    level = (values[:, None] < np.array(hierarchy.bounds)).sum(axis=1)
    total = Fraction(-int(np.square(values, dtype=np.int64).sum()), ONE**2)
    for i, n in enumerate(np.bincount(level, minlength=len(squares)).tolist()):
        reported = certify.at_knot(hierarchy.level_cards[i], i)
        total += n * sum(p * moment for p, moment in zip(reported, moments, strict=True))
    return total / len(values) ** 2


def combine(
    parts: Sequence[tuple[Card, Counts]], mu: int = 1, *, clamp: bool = False, seed: int = 1
) -> Floats:
    """Means of d coordinates from the counts (d x 2m) of classes with levels of their own.

    Each class is estimated by `estimate`.

    The weight of a class at a coordinate is its reports there over the worst variance of one: it
    depends on no report's content, so that the combination stays unbiased. nan where there are no
    reports.
    """
    total = np.zeros(len(parts[0][1]))
    weight = np.zeros_like(total)
    for i, (card, counts) in enumerate(parts):
        share = counts.sum(axis=1) / float(lhp.magnitudes(card).max()) ** 2
        by_level = counts.reshape(len(counts), card.symbols // 2, 2)
        means = estimate(card, by_level, mu, clamp=clamp, seed=[seed, i])
        total += share * np.nan_to_num(means)
        weight += share
    return np.asarray(np.divide(total, weight, out=np.full(len(total), np.nan), where=weight > 0))
