"""Optimisers: steps computed by hand, states, automatic rates, and how well each trains."""

import numpy as np
import pytest

from tern import wire
from tern.fixed import ONE
from ternhost.datasets.shipped import synthetic
from ternhost.learn.models import judging, training
from ternhost.learn.models.optimisers import OPTIMISERS, Adam, Averaging, Momentum, Noise
from ternhost.learn.models.training import RoundReports, StepSettings, Trainer
from ternhost.learn.parameters import LARGEST_WEIGHT


def walked(optimiser, gradients, rate):
    """The weights after each step."""
    iterates = []
    for gradient in gradients:
        optimiser.step(np.array(gradient, np.float64), rate)
        iterates.append(optimiser.weights)
    return np.array(iterates)


GRADIENTS = [[1, 0.5], [-0.5, 0.25], [0, 0.125], [2, -1]]

# Steps


def test_momentum_is_the_heavy_ball():
    iterates = walked(Momentum(2), GRADIENTS, rate=0.25)
    velocity, weights = np.zeros(2), np.zeros(2)
    for gradient, iterate in zip(GRADIENTS, iterates, strict=True):
        velocity = 0.9 * velocity + gradient
        weights = weights - 0.1 * 0.25 * velocity
        assert iterate == pytest.approx(weights)


def test_adam_follows_its_paper():
    """The steps equal those of algorithm 1 of Kingma and Ba, written out: decay rates of 0.9 and
    0.999, both means corrected for their start at 0.
    """
    iterates = walked(Adam(2), GRADIENTS, rate=0.25)
    mean, square, weights = np.zeros(2), np.zeros(2), np.zeros(2)
    for step, gradient in enumerate(np.array(GRADIENTS), 1):
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        unbiased_mean = mean / (1 - 0.9**step)
        unbiased_square = square / (1 - 0.999**step)
        weights = weights - 0.25 * unbiased_mean / (np.sqrt(unbiased_square) + 1e-8)
        assert iterates[step - 1] == pytest.approx(weights)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_weights_stay_within_the_range_of_a_frame(name):
    optimiser = OPTIMISERS[name](2)
    assert np.abs(walked(optimiser, [[-1e6, 1e6]] * 50, 1e3)).max() == LARGEST_WEIGHT
    assert np.abs(optimiser.model).max() <= LARGEST_WEIGHT * (1 + 1e-12)


# Rates


def rate_of(variance, curvature_share=1.0):
    """The rate of averaging for 28 weights and 20 rounds with noise of this variance."""
    return Averaging.automatic_rate(
        Noise(wire.LOGISTIC, 28, 20, variance, curvature_share=curvature_share)
    )


def test_the_rate_falls_with_the_noise_and_does_not_overshoot():
    rates = [rate_of(variance) for variance in (0, 1e-9, 0.01, 0.1, 1, 10)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == rates[1] == pytest.approx(16 / 28)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_every_optimiser_trains_without_noise(name):
    """Each registered optimiser, fed with exact gradients of the logistic loss instead of private
    reports, comes within 1 % of the accuracy of scikit-learn's optimum.
    """
    from sklearn.linear_model import LogisticRegression

    data = synthetic.logistic(12_000, 6, seed=4)
    x, labels = data.features / ONE, np.sign(data.labels)
    known, new = data.training, data.test  # which records are which
    best = LogisticRegression(C=1e3, fit_intercept=False).fit(x[known], labels[known])

    # 200 rounds of the exact mean gradient, at whatever weights the trainer asks about.
    reports = RoundReports(devices=100, k=6, variance=0.0)
    plan = training.plan(wire.LOGISTIC, 6, reports, 200, StepSettings(optimiser=name))
    trainer = Trainer(plan)
    negated = -labels[known, None] * x[known]
    while not trainer.stopped:
        weights = trainer.question().values
        gradients = negated / (1 + np.exp(-negated @ weights))[:, None]
        trainer.update(gradients.mean(axis=0), np.full(6, plan.expected))

    accuracy = judging.figures(data, wire.LOGISTIC, trainer.model)["accuracy"]
    assert accuracy > best.score(x[new], labels[new]) - 0.01 > 0.85
