"""The range of a round: chosen from priors, then from counts, wider where clipping would cost more
than noise does.
"""

from itertools import product

import numpy as np
import pytest
from simulating import begin, fleet_of, rounds

from tern import card as cards
from tern import wire
from tern.fixed import ONE
from ternhost import datasets
from ternhost.datasets import REGRESSION
from ternhost.datasets.shipped import synthetic
from ternhost.learn.models.fedsgd import design_showing_sizes
from ternhost.learn.models.ranges import Ranges, ReportedValues


@pytest.fixture(autouse=True)
def toy(monkeypatch, here):
    data = synthetic.logistic(20_000, 6, seed=2)
    monkeypatch.setattr(datasets, "load", lambda name, classes=False, selection=None: data)


# Estimating |x| from reports


@pytest.mark.parametrize("epsilon", ["0.5", "1.0", "0.000123"])
def test_a_scout_costs_no_more_than_the_card_it_replaces(epsilon):
    (design,) = begin("fedsgd", 100, epsilon=epsilon, mechanism="duchi", reports=100).designs
    substitute = design_showing_sizes(design)
    assert cards.certify(substitute.card)
    assert substitute.card.epsilon <= design.card.epsilon
    assert substitute.cost <= design.cost


# The chosen ranges


def ranges_of(algorithm):
    """The range of each round: values are clipped to 2**-range."""
    results = rounds(algorithm, fleet_of(algorithm))
    return [result.cohorts[0].question.range for result in results]


def test_the_range_narrows_as_the_residuals_of_a_regression_shrink(monkeypatch):
    """Gradients are clipped to 2**-range before noise is added: a larger range means less noise. As
    the model fits better, gradients shrink, and the host asks for larger ranges.
    """
    data = synthetic.linear(20_000, 6, seed=2)
    assert data.task == REGRESSION
    monkeypatch.setattr(datasets, "load", lambda name, classes=False, selection=None: data)
    ranges_of_rounds = ranges_of(
        begin("fedsgd", 20_000, model="linear", epsilon="1", reports=20_000)
    )
    # At least a step up, and to 3: values are clipped to an eighth.
    assert ranges_of_rounds[-1] >= max(3, ranges_of_rounds[0] + 1)


@pytest.mark.parametrize("share", [0.24, 0.5, 0.63])
def test_without_its_skew_a_clipped_gradient_is_zero_at_the_right_constant(share):
    chosen = Ranges(ReportedValues(wire.LOGISTIC, 2, 1, rounds=10, reported=100, variance=1.0))
    for tau, sign in product((0.5, 0.25, 0.125), (-1, 0, 1)):
        constant = np.log(share / (1 - share)) + sign / 2
        p = 1 / (1 + np.exp(-constant))
        gradient = (1 - share) * min(p, tau) - share * min(1 - p, tau)
        assert np.sign(round(gradient - chosen.skew(np.array([constant, 0]), tau), 12)) == sign


@pytest.mark.parametrize("range_", [0, 1, 2])
def test_the_estimate_equals_the_gradient_at_any_range(range_):
    """Devices report gradients clipped to tau = 2**-range. The mean that the host estimates from
    one round is the true mean of the clipped gradients, and its 95 % intervals cover it.
    """
    options = {"epsilon": "8", "k": 6, "reports": 18_000, "group": 18_000, "clip": str(range_)}
    algorithm = begin("fedsgd", 20_000, **options)
    driver = fleet_of(algorithm)

    # One round of 18,000 devices, each with one record.
    driver.open(1, algorithm.cohorts(driver.devices))
    tau = 2.0**-range_
    estimated, _ = algorithm.estimate_of(1, driver.collect(1).cohorts, tau)

    # The truth, from the records that these devices hold.
    records = algorithm.holdings.rows(np.arange(18_000))[:, 0] / ONE
    features, labels = records[:, :-1], records[:, -1:]
    gradients = np.clip(-0.5 * labels * features, -tau, tau)  # at the model 0
    truth = gradients.mean(axis=0)

    assert np.abs(estimated - truth).max() < 0.05
    last = algorithm.last_gradient
    covered = (np.array(last["low"]) <= truth) & (truth <= np.array(last["high"]))
    assert covered.sum() >= 4  # of six 95 % intervals


# Means of several records


def ranges_of_means(records):
    reported = ReportedValues(
        wire.LOGISTIC, 26, 1, rounds=20, reported=300, variance=10.0, records=records
    )
    return Ranges(reported)


def test_means_of_many_records_begin_at_a_narrower_range():
    assert ranges_of_means(500).exponent > ranges_of_means(1).exponent


def test_means_of_more_records_are_expected_to_be_smaller():
    sizes = [ranges_of_means(records).mean_size for records in (1, 2, 10, 500)]
    assert sizes == sorted(sizes, reverse=True)


def test_means_of_many_records_are_no_narrower_than_what_records_have_in_common():
    """However many they are, a mean keeps a part of the size of a record."""
    assert ranges_of_means(100_000).mean_size > ranges_of_means(1).mean_size / 10


def test_clipping_leaves_no_skew_in_means_of_many_records():
    assert ranges_of_means(500).skew(np.array([1.0, 0.0]), 0.25) == 0


def test_batches_of_one_record_have_the_range_of_single_records():
    of_one = begin("fedsgd", 50, records=20, batch=1, epsilon="4")
    single = begin("fedsgd", 50, epsilon="4")
    assert of_one._ranges.mean_size == single._ranges.mean_size


def test_a_report_of_much_noise_hardly_moves_the_expected_size_of_means():
    learner = begin("fedsgd", 20, records=100, epsilon="0.5")
    expected = learner._ranges.mean_size
    next(rounds(learner, fleet_of(learner)))
    assert learner._ranges.mean_size == pytest.approx(expected, rel=0.5)
