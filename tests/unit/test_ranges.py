"""The range of a round: chosen from priors, then from counts, wider where clipping would cost more
than noise does.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from simulating import begin, fleet_of, rounds

from tern import card as cards
from tern import wire
from tern.fixed import ONE
from ternhost import datasets
from ternhost.datasets import REGRESSION, synthetic
from ternhost.learn import estimate
from ternhost.learn.fedsgd import scout
from ternhost.learn.ranges import Ranges, ReportedValues
from ternhost.privacy import certify, mechanisms

WITH_ZEROS = ("rr3", "pm-sub", "optimal")


@pytest.fixture(autouse=True)
def toy(monkeypatch, here):
    data = synthetic.logistic(20_000, 6, seed=2)
    monkeypatch.setattr(datasets, "load", lambda name, classes=False: data)


# Estimating |x| from reports


@pytest.mark.parametrize("name", WITH_ZEROS)
@pytest.mark.parametrize("epsilon", ["1", "4"])
def test_the_mean_score_is_the_magnitude_of_the_input(name, epsilon):
    card = mechanisms.design(name, epsilon).decode()
    magnitude = estimate.magnitude(card.data)
    for x in range(-ONE, ONE + 1, ONE // 8):
        law = np.array([float(p) for p in certify.distribution(card, x)])
        mean = law @ magnitude.scores
        assert mean == pytest.approx(abs(x) / ONE, abs=0.1)
        assert law @ magnitude.scores**2 - mean**2 <= magnitude.deviation**2 + 1e-9


@pytest.mark.parametrize("epsilon", ["0.5", "1.0", "0.000123"])
def test_a_scout_costs_no_more_than_the_card_it_replaces(epsilon):
    (design,) = begin("fedsgd", 100, epsilon=epsilon, mechanism="duchi", reports=100).designs
    substitute = scout(design)
    assert substitute.card.epsilon <= design.card.epsilon
    assert substitute.cost <= design.cost
    assert cards.certify(substitute.card)
    again = scout(substitute).card.data
    assert again == substitute.card.data or estimate.magnitude(substitute.card.data) is None


def test_every_tenth_round_uses_a_scout_for_a_card_without_magnitudes():
    algorithm = begin("fedsgd", 1000, epsilon="0.5", reports=1000, group=50)
    symbols = [result.cohorts[0].card.symbols for result in rounds(algorithm, fleet_of(algorithm))]
    assert symbols == [3, *[2] * 9] * 2
    fixed = begin("fedsgd", 1000, epsilon="0.5", reports=1000, group=500, range="2")
    assert [result.cohorts[0].card.symbols for result in rounds(fixed, fleet_of(fixed))] == [2, 2]


# The chosen ranges


def tau_of(algorithm):
    """The range of each round."""
    return [result.cohorts[0].question.range for result in rounds(algorithm, fleet_of(algorithm))]


def test_the_range_narrows_as_the_residuals_of_a_regression_shrink(monkeypatch):
    data = synthetic.linear(20_000, 6, seed=2)
    assert data.task == REGRESSION
    monkeypatch.setattr(datasets, "load", lambda name, classes=False: data)
    ranges_of_rounds = tau_of(begin("fedsgd", 20_000, model="linear", epsilon="1", reports=20_000))
    assert ranges_of_rounds[-1] >= max(3, ranges_of_rounds[0] + 1)


def test_the_range_stays_wide_with_little_noise():
    few = tau_of(begin("fedsgd", 20_000, epsilon="8", reports=20_000))
    assert max(few) <= 2
    assert np.mean(few) < np.mean(tau_of(begin("fedsgd", 20_000, epsilon="0.5", reports=20_000)))


def test_unequal_classes_keep_the_range_wide(monkeypatch):
    whole = synthetic.logistic(20_000, 16, seed=2)
    mean_ranges = {}
    for share in (0.5, 0.24):
        rng = np.random.default_rng(1)
        labels = np.where(rng.random(len(whole.labels)) < share, ONE, -ONE).astype(np.int16)
        data = replace(whole, labels=labels)
        monkeypatch.setattr(datasets, "load", lambda name, data=data, classes=False: data)
        mean_ranges[share] = np.mean(tau_of(begin("fedsgd", 15_000, epsilon="4", reports=15_000)))
    assert mean_ranges[0.24] < mean_ranges[0.5] - 0.3


@pytest.mark.parametrize("share", [0.24, 0.5, 0.63])
def test_without_its_skew_a_clipped_gradient_is_zero_at_the_right_constant(share):
    chosen = Ranges(ReportedValues(wire.LOGISTIC, 2, 1, rounds=10, reported=100, variance=1.0))
    for tau, sign in product((0.5, 0.25, 0.125), (-1, 0, 1)):
        constant = np.log(share / (1 - share)) + sign / 2
        p = 1 / (1 + np.exp(-constant))
        gradient = (1 - share) * min(p, tau) - share * min(1 - p, tau)
        assert np.sign(round(gradient - chosen.skew(np.array([constant, 0]), tau), 12)) == sign


@pytest.mark.parametrize("r", ["0", "1", "2"])
def test_the_estimate_equals_the_gradient_at_any_range(r):
    algorithm = begin("fedsgd", 20_000, epsilon="8", k=6, reports=18_000, group=18_000, range=r)
    driver = fleet_of(algorithm)
    driver.open(1, algorithm.cohorts(driver.devices))
    mean, reports = algorithm.estimate_of(1, driver.collect(1).cohorts, 2.0 ** -int(r))
    rows = algorithm.holdings.rows(np.arange(18_000))[:, 0] / ONE
    truth = np.clip(-0.5 * rows[:, -1:] * rows[:, :-1], -(2.0 ** -int(r)), 2.0 ** -int(r)).mean(
        axis=0
    )
    low, high = algorithm.last_gradient["low"], algorithm.last_gradient["high"]
    assert np.abs(mean - truth).max() < 0.05
    assert sum(a <= t <= b for a, t, b in zip(low, truth, high, strict=True)) >= 4
    assert (reports == 18_000).all()


# State
