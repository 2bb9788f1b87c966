"""Optimisers: steps computed by hand, states, automatic rates, and how well each trains."""

import numpy as np
import pytest
from simulating import begin, finished

from tern import wire
from tern.fixed import ONE
from ternhost import datasets
from ternhost.datasets import synthetic
from ternhost.learn import judging, training
from ternhost.learn.optimisers import OPTIMISERS, Adam, Averaging, Momentum, Noise
from ternhost.learn.parameters import LARGEST_WEIGHT
from ternhost.learn.training import RoundReports, StepSettings, Trainer


def walked(optimiser, gradients, rate=0.25):
    iterates = []
    for gradient in gradients:
        optimiser.step(np.array(gradient, np.float64), rate)
        iterates.append(optimiser.weights)
    return np.array(iterates)


GRADIENTS = [[1, 0.5], [-0.5, 0.25], [0, 0.125], [2, -1]]

# Steps


def test_momentum_is_the_heavy_ball():
    iterates = walked(Momentum(2), GRADIENTS)
    velocity, weights = np.zeros(2), np.zeros(2)
    for gradient, iterate in zip(GRADIENTS, iterates, strict=True):
        velocity = 0.9 * velocity + gradient
        weights = weights - 0.1 * 0.25 * velocity
        assert iterate == pytest.approx(weights)


def test_adam_follows_its_paper():
    iterates = walked(Adam(2), GRADIENTS)
    mean, square, weights = np.zeros(2), np.zeros(2), np.zeros(2)
    for t, (gradient, iterate) in enumerate(zip(np.array(GRADIENTS), iterates, strict=True), 1):
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        weights = weights - 0.25 * (mean / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)
        assert iterate == pytest.approx(weights)
    assert iterates[0] == pytest.approx([-0.25, -0.25])  # whatever the size of the first gradient


@pytest.mark.parametrize("name", OPTIMISERS)
def test_weights_stay_within_the_range_of_a_frame(name):
    optimiser = OPTIMISERS[name](2)
    assert np.abs(walked(optimiser, [[-1e6, 1e6]] * 50, 1e3)).max() == LARGEST_WEIGHT
    assert np.abs(optimiser.model).max() <= LARGEST_WEIGHT * (1 + 1e-12)


# State


# Rates


def test_the_rate_falls_with_the_noise_and_does_not_overshoot():
    rates = [
        Averaging.automatic_rate(Noise(wire.LOGISTIC, 28, 20, v))
        for v in (0, 1e-9, 0.01, 0.1, 1, 10)
    ]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == rates[1] == pytest.approx(16 / 28)
    clipped = Averaging.automatic_rate(Noise(wire.LOGISTIC, 28, 20, 0, kept=0.5))
    assert clipped == 2 * rates[0]  # half of the curvature, twice the step
    # As many reports in other groups make a path of the same length.
    few = training.plan(wire.LOGISTIC, 28, RoundReports(2_000, 1, 4.0), 10).learning_rate
    many = training.plan(wire.LOGISTIC, 28, RoundReports(200, 1, 4.0), 100).learning_rate
    assert 10 * few == pytest.approx(100 * many)


# How well they train


@pytest.fixture(scope="module")
def toy():
    return synthetic.logistic(12_000, 6, seed=4)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_every_optimiser_trains_without_noise(toy, name):
    from sklearn.linear_model import LogisticRegression

    x, y = toy.features / ONE, np.sign(toy.labels)
    negated = -y[toy.training, None] * x[toy.training]
    best = LogisticRegression(C=1e3, fit_intercept=False).fit(x[toy.training], y[toy.training])
    reports = RoundReports(devices=100, k=6, variance=0.0)
    chosen = training.plan(wire.LOGISTIC, 6, reports, 200, StepSettings(optimiser=name))
    trainer = Trainer(chosen)
    while not trainer.stopped:
        weights = trainer.question().values
        mean = (negated / (1 + np.exp(-negated @ weights))[:, None]).mean(axis=0)
        trainer.update(mean, np.full(6, chosen.expected))
    accuracy = judging.figures(toy, wire.LOGISTIC, trainer.model)["accuracy"]
    assert accuracy > best.score(x[toy.test], y[toy.test]) - 0.01 > 0.85


@pytest.fixture(scope="module")
def noisy(toy):
    """By optimiser, the accuracies of three seeds under noise: 10,000 reports at epsilon 4."""

    def accuracy(name, seed):
        options = {"epsilon": "4", "reports": 10_000, "group": 200, "optimiser": name, "seed": seed}
        return finished(begin("fedsgd", 10_000, **options)).figures()["accuracy"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "load", lambda name, classes=False: toy)
        return {name: [accuracy(name, seed) for seed in (1, 2, 3)] for name in OPTIMISERS}


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_automatic_rates_are_almost_as_good_as_that_of_averaging(noisy, name):
    assert min(noisy["averaging"]) > 0.87
    assert np.mean(noisy[name]) >= np.mean(noisy["averaging"]) - 0.01
    assert min(noisy[name]) > 0.86
