"""What a model is worth: the exact gradient is the device's, the figures and their intervals by hand."""

from array import array
from dataclasses import replace

import numpy as np
import pytest

from tern import wire
from tern.fixed import ONE
from tern.gradient import Gradient
from ternhost.algorithms import judging
from ternhost.algorithms.parameters import MODELS, quantise
from ternhost.datasets import CLASSIFICATION, REGRESSION, Dataset, synthetic, to_fixed

FOUR = Dataset(
    "four",
    CLASSIFICATION,
    ("constant", "x"),
    to_fixed([[1, 0.5], [1, -0.5], [1, 0.5], [1, -0.5]]),
    to_fixed([1, -1, -1, -1]),
    np.array([False, True, True, True]),
)


@pytest.mark.parametrize("model", MODELS.values())
def test_exact_gradient_is_what_a_device_computes(model):
    dataset = (synthetic.linear if model == wire.LINEAR else synthetic.logistic)(200, 8)
    rng = np.random.default_rng(3)
    parameters = quantise(rng.uniform(-4, 4, dataset.dimension))
    gradient = Gradient(dataset.dimension)
    out = array("h", bytes(2 * dataset.dimension))
    for i in range(200):
        gradient.reset()
        row = array("h", dataset.records([i]).tobytes())
        gradient.add(model, parameters.mantissas, parameters.exponent, row)
        gradient.finish(out)
        want = judging.exact_gradient(
            model, dataset.features[i : i + 1], dataset.labels[i : i + 1], parameters.values
        )
        assert np.abs(np.array(out) / ONE - want).max() <= 2**-9


def test_a_mean_gradient_is_the_same_by_parts(monkeypatch):
    dataset = synthetic.logistic(300, 4)
    weights = np.array([0.5, -1.0, 2.0, 0.25])
    whole = judging.exact_gradient(wire.LOGISTIC, dataset.features[7:], dataset.labels[7:], weights)
    monkeypatch.setattr(judging, "_AT_ONCE", 64)
    found = judging.mean_gradient(wire.LOGISTIC, dataset, np.arange(7, 300), weights)
    assert found == pytest.approx(whole, abs=1e-12)


def test_figures_by_hand():
    weights = np.array([0.0, 1.0])
    assert judging.measure(FOUR) == judging.ACCURACY
    assert judging.accuracy(FOUR, weights) == pytest.approx(2 / 3)
    assert judging.majority(FOUR) == judging.baseline(FOUR) == 0  # the one training record says 1
    assert judging.squared_error(FOUR, weights) == pytest.approx((0.25 + 2.25 + 0.25) / 3)
    assert judging.judge(FOUR, weights) == pytest.approx(2 / 3)


def test_a_regression_is_judged_by_its_squared_error_beside_the_mean_label():
    data = replace(FOUR, task=REGRESSION)
    weights = np.array([0.0, 1.0])
    assert judging.measure(data) == judging.SQUARED_ERROR
    assert judging.judge(data, weights) == judging.squared_error(data, weights)
    assert judging.baseline(data) == 4  # the one training label is 1, and all the others are -1


def test_intervals_are_about_the_figure():
    low, high = judging.judge_interval(FOUR, np.array([0.0, 1.0]))
    assert 0 < low < 2 / 3 < high < 1
    data = synthetic.linear(4000, 4)
    weights = np.array([0.0, 0.3, 0.2, -0.1])
    low, high = judging.judge_interval(data, weights)
    errors = (data.features[data.test] / ONE @ weights - data.labels[data.test] / ONE) ** 2
    assert (low + high) / 2 == pytest.approx(errors.mean())
    assert (high - low) / 2 == pytest.approx(1.96 * errors.std() / len(errors) ** 0.5, rel=1e-2)


@pytest.mark.parametrize("d", [2, 5])
def test_the_score_of_0_counts_as_minus_1(d):
    data = synthetic.logistic(500, d)
    share = float(np.mean(data.labels[data.test] < 0))
    assert judging.accuracy(data, np.zeros(d)) == pytest.approx(share)
