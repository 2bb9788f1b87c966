"""Counts of symbols -> means: unbiased, with intervals that cover."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tern import card as cards
from tern.fixed import ONE
from ternhost.count import estimate
from ternhost.privacy import base, certify, mechanisms


def designed(name, epsilon, levels=None):
    return cards.decode(mechanisms.design(name, epsilon, levels).card)


def counts_of(card, inputs, reports, rng):
    """Symbols drawn from the exact distribution at each input."""
    rows = [np.array([float(p) for p in certify.distribution(card, round(x * ONE))]) for x in inputs]
    return np.array([rng.multinomial(reports, row / row.sum()) for row in rows])


@pytest.mark.parametrize("name", ["duchi", "three-outputs", "pm-sub", "3r"])
def test_expected_counts_give_the_input_back(name):
    # Counts equal to their expectation, exactly: 2**44 reports at an input of few bits.
    card = designed(name, "1.25", 15 if name == "pm-sub" else None)
    v = ONE // 4
    row = certify.distribution(card, v)
    unit = np.lcm.reduce([p.denominator for p in row], dtype=object)
    counts = [[int(p * unit) for p in row]]
    values = certify.values(card)
    mean = sum(n * value for n, value in zip(counts[0], values, strict=True)) / Fraction(int(unit))
    assert mean == Fraction(1, 4)
    if unit < 2**62:
        assert estimate.estimate(card, counts).mean[0] == pytest.approx(0.25, abs=1e-9)


def test_means_are_unbiased_and_intervals_cover():
    rng = np.random.default_rng(7)
    inputs = np.linspace(-1, 1, 9)
    for method, of_reporters, least in (
        ("bound", True, 0.94),
        ("bound", False, 0.94),
        ("empirical", False, 0.93),
    ):
        card = designed("three-outputs", "2")
        covered = total = 0
        means = []
        for _ in range(400):
            result = estimate.estimate(
                card, counts_of(card, inputs, 500, rng), method=method, of_reporters=of_reporters
            )
            covered += int(np.sum((result.low <= inputs) & (inputs <= result.high)))
            total += len(inputs)
            means.append(result.mean)
            assert (result.reports == 500).all()
        assert covered / total >= least
        error = np.mean(means, axis=0) - inputs
        assert np.abs(error).max() < 4.5 * np.sqrt(1.93 / (400 * 500))


def test_personalised_budgets_combine_better_than_either_alone():
    rng = np.random.default_rng(3)
    inputs = np.array([-0.75, 0.0, 0.5])
    strict, loose = designed("three-outputs", "0.8"), designed("pm-sub", "4", 31)
    alone, together = [], []
    for _ in range(300):
        few, many = counts_of(loose, inputs, 60, rng), counts_of(strict, inputs, 1500, rng)
        alone.append(estimate.estimate(loose, few).mean)
        together.append(estimate.combine([(strict, many), (loose, few)]).mean)
    assert np.abs(np.mean(together, axis=0) - inputs).max() < 0.03
    assert (np.var(together, axis=0) < np.var(alone, axis=0)).all()


def test_a_coordinate_without_reports_is_nan_and_does_not_spoil_others():
    card = designed("duchi", "1")
    other = designed("three-outputs", "1")
    result = estimate.combine([(card, [[0, 0], [3, 5]]), (other, [[0, 0, 0], [0, 0, 0]])])
    assert np.isnan(result.mean[0])
    assert result.mean[1] == pytest.approx(2 / 8 * float(certify.scale(card)))
    assert list(result.reports) == [0, 8]


@pytest.mark.parametrize("counts", [[1, 2], [[1, 2, 3]], np.zeros((1, 2, 2))])
def test_counts_of_another_shape_are_refused(counts):
    with pytest.raises(ValueError, match="counts must be"):
        estimate.estimate(designed("duchi", "1"), counts)


def test_frequencies_of_categories():
    card = cards.decode(base.window(4, 1, cards.T // 2))
    n = 60_000
    truth = np.array([0.5, 0.3, 0.2, 0.0])
    expected = n * (truth * 0.5 + (1 - truth) * 0.5 / 3)
    assert estimate.combine_frequencies([(card, np.round(expected), None)]).mean == pytest.approx(
        truth, abs=1e-4
    )
    with pytest.raises(ValueError, match="window 1"):
        estimate.combine_frequencies([(designed("pm-sub", "1"), np.ones(255), None)])


def test_the_interval_of_a_share_covers_it():
    # exactly, over the binomial law
    n = 57
    for true in (0.5, 0.9, 0.97):
        covered = 0.0
        for seen in range(n + 1):
            low, high = estimate.share_interval(seen / n, n)
            if low <= true <= high:
                covered += math.comb(n, seen) * true**seen * (1 - true) ** (n - seen)
        assert 0.92 < covered < 0.98
    low, high = estimate.share_interval(1.0, n)
    assert 0.93 < low < high == pytest.approx(1)


def test_few_reports_that_are_equal_do_not_look_certain():
    card = designed("duchi", "1")
    for n in (1, 2, 29):
        few = estimate.estimate(card, [[0, n]])
        sure = estimate.estimate(card, [[0, n]], method=estimate.BOUND)
        assert few.standard_error[0] == sure.standard_error[0] > 0
