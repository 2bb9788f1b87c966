"""HierA (Hao, Wu, Wan, Sensors 2023, 23, 1115): ranges of values have privacy levels of their own. Corrections:

- Level and sign of a report both depend on the value, so that their joint loss exceeds the largest budget, which the
  paper states. `Levels.epsilon` is the true loss, exact from the integers of the cards.
- Step 5 counts reports that were converted to several levels several times, which biases the mean towards the less
  private ranges. Here every report has the same weight (`estimate`).
- Nothing is clamped, since that biases small samples.

Converting a report to a more private level (PLC) adds noise, so that the variance is least for `mu` = 0, the share of
reports that are reused that way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern.lhp import Hierarchy
from ternhost.count.rounds import Counts
from ternhost.errors import UsageError
from ternhost.learn.parameters import Floats
from ternhost.privacy.mechanisms import lhp


@dataclass(frozen=True)
class Levels:
    """Equal ranges of [-1, 1], from the top one down as a card has them, with a budget each (micro-epsilon)."""

    budgets: tuple[int, ...]
    composite: lhp.Composite
    card: cards.Card  # what a device of these levels obeys
    values: Floats  # m x 2: what each report stands for

    @property
    def device(self) -> Hierarchy:
        """The sampler of the reports."""
        return cast(Hierarchy, self.card.hierarchy)

    @property
    def epsilon(self) -> int:
        """The true loss of a report, micro-epsilon: what a client is charged."""
        claimed: int = self.card.epsilon
        return claimed

    @property
    def count(self) -> int:
        return len(self.budgets)

    @property
    def epsilon_stated(self) -> int:
        """The epsilon that the paper states: the largest budget."""
        return max(self.budgets)


def levels(budgets: Sequence[int]) -> Levels:
    """Levels with these budgets (micro-epsilon), from the top range down. Raises UsageError unless there are 2 to 16,
    and for a report that costs more than epsilon 20."""
    m = len(budgets)
    if not 2 <= m <= lhp.MAX_RANGES or min(budgets) < 1:
        raise UsageError(
            f"levels need 2 to {lhp.MAX_RANGES} budgets, all above 0, not {', '.join(map(str, budgets)) or 'none'}"
        )
    try:
        card = cards.decode(lhp.composite(budgets).to_bytes())
    except cards.CardError:
        raise UsageError(
            "a report of these levels costs more than epsilon 20", hint="use smaller budgets"
        ) from None
    return of_card(card)


def of_card(card: cards.Card) -> Levels:
    """The levels of a card of LHP. Raises CardError for another one."""
    composite = lhp.from_bytes(card.data)
    budgets = tuple(value.epsilon for value in composite.value_cards)
    m = len(budgets)
    values = np.array([float(value) for value in composite.values()]).reshape(m, 2)
    return Levels(budgets, composite, card, values)


@lru_cache(maxsize=64)
def design(epsilon: int, proportions: tuple[float, ...] = lhp.BUDGETS) -> Levels:
    """The largest budgets in these proportions, lowest range first, for a true loss of `epsilon` (micro)."""
    return of_card(cards.decode(lhp.design(epsilon, None, proportions).card))


def proportions_of(text: str) -> tuple[float, ...]:
    """Budgets in words, from the lowest range up: `5,4,3,2,1`. Raises UsageError."""
    try:
        return tuple(float(budget) for budget in text.split(","))
    except ValueError:
        raise UsageError(f"{text!r} are no budgets", hint="such as 5,4,3,2,1") from None


# The estimator


def convert(counts: Counts, source: float, target: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """PLC: turn reports (..., 2) of a level into those of a more private one by flipping signs. A level is the value of
    its sign (Duchi's C = 1 / (2p - 1)); target >= source. The paper's flip probability is (p_i - p_j) / (2 p_i - 1)."""
    flip = (1 - source / target) / 2
    flipped = rng.binomial(counts, flip)
    moved: npt.NDArray[np.int64] = counts - flipped + flipped[..., ::-1]
    return moved


def estimate(of: Levels, counts: Counts, mu: float = 0.0, *, seed: int = 1) -> Floats:
    """Unbiased means of all values together, from counts (..., m, 2); nan without reports. A report is used at its
    level and, with probability `mu` each, at every more private one. It then weighs 1 / (1 + mu * such levels), so that
    every value has the same weight."""
    if not 0 <= mu <= 1:
        raise UsageError(f"the share mu must be 0 to 1, not {mu}")
    values = of.values[:, 1]
    rng = np.random.default_rng(seed)
    total = np.zeros(counts.shape[:-2])
    for source, value in enumerate(values):
        of_level = counts[..., source, :]
        targets = [i for i in range(of.count) if i != source and values[i] >= value] if mu else []
        weight = 1 / (1 + mu * len(targets))
        total += weight * value * (of_level[..., 1] - of_level[..., 0])
        for target in targets:
            moved = convert(rng.binomial(of_level, mu), value, values[target], rng)
            total += weight * values[target] * (moved[..., 1] - moved[..., 0])
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: Floats = total / counts.sum(axis=(-1, -2))
    return mean


def combine(parts: Sequence[tuple[Levels, Counts]], mu: float = 0.0, *, seed: int = 1) -> Floats:
    """Unbiased means from the counts (d x 2m) of classes of devices; nan without reports. A class weighs its reports at
    a coordinate over the worst variance of one, whatever their content, so that the result stays unbiased."""
    total = np.zeros(len(parts[0][1]))
    weight = np.zeros_like(total)
    for of, counts in parts:
        share = counts.sum(axis=1) / float(of.values.max()) ** 2
        means = estimate(of, counts.reshape(len(counts), of.count, 2), mu, seed=seed)
        total += share * np.nan_to_num(means)
        weight += share
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: Floats = total / weight
    return mean
