"""Collecting many attributes of every client, numeric and categorical, for means and frequencies.

Each client reports k of its d attributes, chosen at random, each at epsilon / k. Source: Zhao et al., IEEE IoT J. 8,
2021, Algorithm 6, which splits the budget between the d_n numeric and d_c categorical attributes as d_n epsilon / d and
d_c epsilon / d. Numeric attributes go through any card, categorical ones through generalised randomised response.
Where the paper scales a sum by d / k, the means here divide by the number of reports that an attribute really had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import card as cards
from ternhost import mechanisms, vectorised
from ternhost.aggregate import estimate
from ternhost.aggregate.aggregator import Counts
from ternhost.drivers.simulated import count, draw, lanes_at_a_time
from ternhost.errors import UsageError
from ternhost.mechanisms.accounting import Account, Release
from ternhost.runs.session import coordinates_by_rule
from ternhost.vectorised import RandomLanes, random_bits

Floats = npt.NDArray[np.float64]
Fixed = npt.NDArray[np.int16]
Categories = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Numeric:
    """d numeric attributes, k of which a client reports, each by `card`."""

    d: int
    k: int
    card: cards.Card


@dataclass(frozen=True)
class Categorical:
    """Categorical attributes, k of which a client reports, each by the card of its domain (one an attribute)."""

    k: int
    cards: tuple[cards.Card, ...]

    @property
    def d(self) -> int:
        return len(self.cards)


@dataclass(frozen=True)
class Plan:
    """What every client reports, and what it costs."""

    numeric: Numeric | None
    categorical: Categorical | None

    def account(self) -> Account:
        """The cost of one report to a client."""
        account = Account()
        if self.numeric:
            account.charge([Release("numeric attributes", self.numeric.card.epsilon, self.numeric.k)])
        if self.categorical:
            most = max(card.epsilon for card in self.categorical.cards)
            account.charge([Release("categorical attributes", most, self.categorical.k)])
        return account


def plan(
    epsilon: int,
    numeric: int,
    categories: Sequence[int] = (),
    *,
    mechanism: str = "three-outputs",
    k_rule: str = "wide",
    k: int | None = None,
    **options: Any,
) -> Plan:
    """Plan reports that cost `epsilon` (micro) altogether: `numeric` attributes, and one for each size in `categories`.

    `k_rule` gives k for both kinds from their share of the budget ("wide" or "paper"); `k` replaces it for the numeric
    ones. `options` are those of `mechanisms.design`. Raises UsageError.
    """
    d = numeric + len(categories)
    if d < 1 or numeric < 0:
        raise UsageError("there is no attribute to collect")
    if any(not 2 <= size <= cards.MAX_SYMBOLS for size in categories):
        raise UsageError(f"a categorical attribute has 2 to {cards.MAX_SYMBOLS} categories")
    numbers = choices = None
    if numeric:
        share = epsilon * numeric // d
        k_numeric = coordinates_by_rule(k_rule, share, numeric) if k is None else k
        if not 1 <= k_numeric <= numeric:
            raise UsageError(f"{k_numeric} of {numeric} attributes cannot be reported")
        design = mechanisms.design(mechanism, epsilon_micro=share // k_numeric, **options)
        numbers = Numeric(numeric, k_numeric, design.decode())
    if categories:
        share = epsilon * len(categories) // d
        k_categorical = coordinates_by_rule(k_rule, share, len(categories))
        of_size = {
            size: mechanisms.design("grr", levels=size, epsilon_micro=share // k_categorical).decode()
            for size in set(categories)
        }
        choices = Categorical(k_categorical, tuple(of_size[size] for size in categories))
    return Plan(numbers, choices)


@dataclass(frozen=True)
class Collected:
    """Means of the numeric attributes (None without any), and the frequencies of each categorical one's values."""

    reports: int
    numeric: estimate.Estimate | None
    numeric_counts: Counts | None
    frequencies: list[Floats]
    categorical_counts: list[Counts]


def collect(
    of: Plan,
    chunks: Iterable[tuple[Fixed | None, Categories | None]],
    seed: int = 1,
    report: Callable[[int], None] = lambda clients: None,
) -> Collected:
    """Simulate the reports of clients, chunk by chunk: numeric values (n x d_n, Q1.14), categories (n x d_c, from 0).

    A part that the plan does not have is None. `report` hears how many clients have reported. Raises UsageError for
    chunks that do not fit the plan.
    """
    bits = random_bits(seed)
    reports = 0
    numeric = np.zeros((of.numeric.d, of.numeric.card.symbols), np.int64) if of.numeric else None
    categorical = (
        [np.zeros(card.symbols, np.int64) for card in of.categorical.cards] if of.categorical else []
    )
    for values, categories in chunks:
        n = _clients(of, values, categories)
        step = lanes_at_a_time(max(of.numeric.d if of.numeric else 0, len(categorical)))
        for start in range(0, n, step):
            part = slice(start, min(start + step, n))
            if of.numeric and numeric is not None and values is not None:
                card, k = of.numeric.card, of.numeric.k
                numeric += count(of.numeric.d, card.symbols, *draw(card, bits, values[part], k))
            if of.categorical and categories is not None:
                _add_categories(of.categorical, bits, categories[part], categorical)
            reports += part.stop - part.start
            report(reports)
    return Collected(
        reports,
        None if of.numeric is None or numeric is None else estimate.estimate(of.numeric.card, numeric),
        numeric,
        [
            estimate.frequencies(card, counts)
            for card, counts in zip(of.categorical.cards if of.categorical else (), categorical, strict=True)
        ],
        categorical,
    )


def _clients(of: Plan, values: Fixed | None, categories: Categories | None) -> int:
    sizes = set()
    for part, data in ((of.numeric, values), (of.categorical, categories)):
        if (part is None) != (data is None) or (part and data is not None and data.shape[1:] != (part.d,)):
            raise UsageError("the values do not fit the plan: it has other attributes")
        if data is not None:
            sizes.add(len(data))
    if len(sizes) > 1:
        raise UsageError("there are not as many numeric as categorical rows")
    if of.categorical and categories is not None and len(categories):
        most = np.array([card.symbols for card in of.categorical.cards])
        if (categories < 0).any() or (categories >= most).any():
            raise UsageError("a category is not below the size of its attribute")
    return sizes.pop()


def _add_categories(
    of: Categorical, bits: np.random.BitGenerator, categories: Categories, counts: list[Counts]
) -> None:
    chosen = vectorised.choose(RandomLanes(bits, len(categories)), of.d, of.k)
    for attribute, card in enumerate(of.cards):
        which = np.flatnonzero((chosen == attribute).any(axis=1))
        drawn = vectorised.sample_categories(
            card, RandomLanes(bits, len(which)), categories[which, attribute]
        )
        counts[attribute] += np.bincount(drawn, minlength=card.symbols)
