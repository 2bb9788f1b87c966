"""HierA: hierarchical aggregation of values whose ranges have privacy levels of their own.

Source: Hao, Wu, Wan, Sensors 2023, 23, 1115, with these corrections:

- A report tells a level and a sign, and both depend on the value. Their joint loss is larger than the largest of the
  budgets, which the paper states. `Levels.epsilon` is the true one, computed exactly from the integers of the cards.
- Step 5 counts reports that were converted to several levels several times, which biases the mean towards the less
  private ranges. Here every report weighs as much as any other whatever its level (`estimate`).
- Clamping the result biases small samples: it is optional, and off by default.

Converting a report to a more private level (PLC) adds noise to what is known already, so that the mean of the reports
as they are (`mu` = 0) has the least variance. `mu` is the share of reports reused that way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern.lhp import Hierarchy
from tern.wire import LINEAR
from ternhost import vectorised
from ternhost.aggregate.aggregator import Counts, Question
from ternhost.algorithms import training
from ternhost.algorithms.training import Trainer
from ternhost.datasets import Dataset
from ternhost.drivers.simulated import SimulatedFleet
from ternhost.errors import UsageError
from ternhost.mechanisms import lhp
from ternhost.mechanisms.base import MICRO
from ternhost.vectorised import Lanes, RandomLanes, random_bits

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Levels:
    """Equal ranges of [-1, 1], from the top one down, with a budget each (micro-epsilon)."""

    budgets: tuple[int, ...]
    composite: lhp.Composite
    card: cards.Card  # what a device of these levels obeys
    values: Floats  # m x 2: what each report stands for

    @property
    def device(self) -> Hierarchy:
        """What draws the reports."""
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
        """What the paper states: the largest budget."""
        return max(self.budgets)


def levels(budgets: Sequence[int]) -> Levels:
    """Levels with these budgets (micro-epsilon), from the top range down.

    Raises UsageError for fewer than 2 or more than 16, and where a report costs more than epsilon 20.
    """
    m = len(budgets)
    if not 2 <= m <= lhp.MAX_RANGES or min(budgets) < 1:
        raise UsageError(f"{m} levels cannot be", hint=f"give 2 to {lhp.MAX_RANGES} positive budgets")
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


def design(epsilon: int, proportions: Sequence[float] = lhp.BUDGETS) -> Levels:
    """Levels with budgets in these proportions, as large as a report's true loss of `epsilon` (micro) allows."""
    return of_card(cards.decode(lhp.design(epsilon, None, proportions).card))


def proportions_of(text: str) -> list[float]:
    """Budgets in words: `5,4,3,2,1`. Raises UsageError."""
    try:
        return [float(budget) for budget in text.split(",")]
    except ValueError:
        raise UsageError(f"{text!r} are no budgets", hint="such as 5,4,3,2,1") from None


# Reports


def draw(of: Levels, lanes: Lanes, xs: npt.NDArray[np.int16]) -> npt.NDArray[np.uint8]:
    """The report of every value, a lane each: that of tern.lhp, draw for draw."""
    drawn: npt.NDArray[np.uint8] = vectorised.sample(of.card, lanes, xs)
    return drawn


def collect(of: Levels, values: npt.NDArray[np.int16], seed: int) -> Counts:
    """Simulate the reports of `values` (n, Q1.14): how often each (level, sign) was reported, m x 2."""
    bits = random_bits(seed)
    counts = np.zeros(2 * of.count, np.int64)
    for start in range(0, len(values), 1 << 17):
        part = values[start : start + (1 << 17)]
        counts += np.bincount(draw(of, RandomLanes(bits, len(part)), part), minlength=len(counts))
    return counts.reshape(of.count, 2)


# The estimator


def convert(counts: Counts, source: float, target: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """PLC: make reports (..., 2) of a level into such of a more private one, by flipping signs.

    A level is given by the value of its sign (Duchi's C = 1 / (2p - 1)); target >= source. The paper's flip
    probability 1 - q is (p_i - p_j) / (2 p_i - 1).
    """
    flip = (1 - source / target) / 2
    flipped = rng.binomial(counts, flip)
    moved: npt.NDArray[np.int64] = counts - flipped + flipped[..., ::-1]
    return moved


def estimate(of: Levels, counts: Counts, mu: float = 0.0, *, seed: int = 1, clamp: bool = False) -> Floats:
    """Unbiased means from counts (..., m, 2), of all the values together.

    Each report is used at its own level and, with probability `mu` each, at every more private one; it then weighs
    1 / (1 + mu * such levels), so that every value has the same weight. nan where there are no reports.
    """
    if not 0 <= mu <= 1:
        raise UsageError(f"a share mu of {mu} cannot be", hint="give 0 to 1")
    values = of.values[:, 1]
    rng = np.random.default_rng(seed)
    total = np.zeros(counts.shape[:-2])
    for source, value in enumerate(values):
        own = counts[..., source, :]
        targets = [i for i in range(of.count) if i != source and values[i] >= value] if mu else []
        weight = 1 / (1 + mu * len(targets))
        total += weight * value * (own[..., 1] - own[..., 0])
        for target in targets:
            moved = convert(rng.binomial(own, mu), value, values[target], rng)
            total += weight * values[target] * (moved[..., 1] - moved[..., 0])
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: Floats = total / counts.sum(axis=(-1, -2))
    return np.clip(mean, -1, 1) if clamp else mean


# Linear regression by mini-batches


def train(
    of: Levels,
    dataset: Dataset,
    *,
    reports: int,
    group: int,
    mu: float = 0.0,
    seed: int = 1,
    clamp: bool = False,
) -> dict[str, Any]:
    """Linear regression from simulated reports of one gradient coordinate a client, each client once.

    Returns `squared_error` and `squared_error_nonprivate` on held-out records, `weights`, and both losses of a
    report: `epsilon` (true) and `epsilon_stated` (the paper's).
    """
    d = dataset.dimension
    variance = of.values.max() ** 2  # of the most private level: the rate is on the safe side
    settings = training.plan(LINEAR, d, reports=reports, group=group, k=1, variance=variance)
    dealt = training.choose_groups(dataset, reports, group, seed)
    trainer = Trainer(settings)
    simulated = SimulatedFleet(dataset.records(np.arange(len(dataset.labels))), seed)
    while not trainer.stopped:
        asked = trainer.question()
        question = Question(LINEAR, asked.mantissas, asked.exponent, of.card.data, 1)
        (cohort,) = simulated.collect(trainer.round + 1, [(question, dealt[trainer.round])]).cohorts
        counts = cohort.counts.reshape(d, of.count, 2)
        mean = estimate(of, counts, mu, seed=seed + trainer.round, clamp=clamp)
        trainer.update(mean, counts.sum(axis=(1, 2)))
    exact = training.train_exactly(settings, dataset, dealt)
    return {
        "squared_error": training.squared_error(dataset, trainer.model),
        "squared_error_nonprivate": training.squared_error(dataset, exact.model),
        "weights": trainer.model.tolist(),
        "epsilon": of.epsilon / MICRO,
        "epsilon_stated": of.epsilon_stated / MICRO,
    }
