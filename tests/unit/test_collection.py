"""Collecting many attributes: budgets, means and frequencies."""

import numpy as np
import pytest

from ternhost import datasets
from ternhost.algorithms import collection
from ternhost.errors import UsageError

EPSILON = 4_000_000
SIZES = (2, 5, 16)


def _people(n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    numeric = datasets.to_fixed(np.clip(rng.normal([0, 1 / 3, 2 / 3, -0.5, 0.9], 0.25, (n, 5)), -1, 1))
    categories = np.stack([np.minimum(rng.geometric(0.4, n) - 1, size - 1) for size in SIZES], axis=1)
    return numeric, categories


@pytest.mark.parametrize("rule", ["wide", "paper"])
def test_the_budget_is_split_as_in_the_paper(rule: str) -> None:
    plan = collection.plan(8_000_000, 5, SIZES, k_rule=rule)
    assert plan.numeric is not None
    assert plan.categorical is not None
    numeric = plan.numeric.k * plan.numeric.card.epsilon
    assert 0.999 * 5_000_000 < numeric <= 5_000_000
    for card in plan.categorical.cards:
        assert 0.999 * 3_000_000 < plan.categorical.k * card.epsilon <= 3_000_000
    assert plan.account().user_level <= 8_000_000
    assert plan.numeric.k == 2  # of 5e6: floor(5 / 2.5) and floor(5 / 2.5 + 0.6)
    assert plan.categorical.k == 1


def test_rules_differ_just_below_five() -> None:
    assert collection.plan(4_900_000, 5, k_rule="wide").numeric.k == 2
    assert collection.plan(4_900_000, 5, k_rule="paper").numeric.k == 1
    assert collection.plan(4_900_000, 5, k=5).numeric.card.epsilon <= 980_000


@pytest.mark.parametrize("mechanism", ["three-outputs", "duchi", "pm-sub"])
def test_means_and_frequencies(mechanism: str) -> None:
    n = 150_000
    numeric, categories = _people(n)
    plan = collection.plan(EPSILON, 5, SIZES, mechanism=mechanism)
    heard: list[int] = []
    parts = np.array_split(np.arange(n), 4)
    found = collection.collect(plan, ((numeric[p], categories[p]) for p in parts), 3, heard.append)
    assert found.reports == heard[-1] == n
    assert found.numeric is not None
    assert (abs(found.numeric.mean - numeric.mean(axis=0) / 16384) < 4.5 * found.numeric.standard_error).all()
    assert found.numeric.reports.sum() == n * plan.numeric.k
    for attribute, size in enumerate(SIZES):
        truth = np.bincount(categories[:, attribute], minlength=size) / n
        reports = found.categorical_counts[attribute].sum()
        card = plan.categorical.cards[attribute]
        same = card.threshold / 2**30
        error = 1 / (same - (1 - same) / (size - 1)) / np.sqrt(reports)
        assert abs(found.frequencies[attribute] - truth).max() < 4.5 * error
        assert found.frequencies[attribute].sum() == pytest.approx(1)


def test_means_are_unbiased_over_many_runs() -> None:
    numeric, _ = _people(400)
    plan = collection.plan(1_000_000, 5)
    found = np.array([collection.collect(plan, [(numeric, None)], seed).numeric.mean for seed in range(400)])
    error = found.std(axis=0) / 20
    assert (abs(found.mean(axis=0) - numeric.mean(axis=0) / 16384) < 4.5 * error).all()


def test_only_categories() -> None:
    _, categories = _people(20_000)
    plan = collection.plan(EPSILON, 0, SIZES)
    found = collection.collect(plan, [(None, categories)])
    assert found.numeric is None
    assert [len(row) for row in found.frequencies] == list(SIZES)
    assert sum(int(row.sum()) for row in found.categorical_counts) == 20_000 * plan.categorical.k


def test_what_does_not_fit() -> None:
    numeric, categories = _people(10)
    both = collection.plan(EPSILON, 5, SIZES)
    for chunk in (
        (numeric, None),
        (None, categories),
        (numeric[:, :4], categories),
        (numeric[:5], categories),
        (numeric, categories + 14),
        (numeric, categories - 1),
    ):
        with pytest.raises(UsageError, match=r"fit|rows|category"):
            collection.collect(both, [chunk])
    for arguments in ((EPSILON, 0), (EPSILON, 2, [1]), (EPSILON, 2, [300])):
        with pytest.raises(UsageError):
            collection.plan(*arguments)
    with pytest.raises(UsageError, match="cannot be reported"):
        collection.plan(EPSILON, 2, k=3)
