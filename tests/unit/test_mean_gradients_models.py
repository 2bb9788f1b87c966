"""The fit of linear and softmax regression to mean gradients of devices that hold many records."""

import json

import numpy as np
import pytest

from tern.wire import LINEAR, SOFTMAX_GRADIENT
from ternhost.datasets.shipped import synthetic
from ternhost.errors import UsageError
from ternhost.learn.base import Population
from ternhost.learn.models.losses import mean_labels
from ternhost.learn.one_answer.direct import Direct
from ternhost.learn.one_answer.direct_many import DirectOfMany
from ternhost.learn.one_answer.direct_options import Options
from ternhost.learn.one_answer.expected_gradients import ExpectedGradients
from ternhost.learn.one_answer.mean_gradients import Answer, LabelFacts, MeanGradients
from ternhost.learn.one_answer.observations import Observation

FEATURES = 3
CLASSES = 3
RECORDS = 50  # of a device
RNG = np.random.default_rng(8)
ROWS = RNG.uniform(-1, 1, (2_000, FEATURES))
ROWS[:, 0] = 1  # the constant
OPTIMA = {
    LINEAR: np.array([0.3, 0.4, -0.2]),
    SOFTMAX_GRADIENT: np.array([0.5, 1.0, -0.6, 0.1, -0.7, 0.9, -0.6, -0.3, -0.3]),
}
ASKED = {LINEAR: np.array([0.1, 0.1, 0.2]), SOFTMAX_GRADIENT: OPTIMA[SOFTMAX_GRADIENT][::-1] / 2}
RESIDUAL_DEVIATION = 0.15  # of a label that is a number, from what the optimum predicts
EXPLAINED = float((ROWS @ OPTIMA[LINEAR]).var())  # of the variance of labels that are numbers
VARIANCE = EXPLAINED + RESIDUAL_DEVIATION**2  # of these labels

of_each_model = pytest.mark.parametrize("model", [LINEAR, SOFTMAX_GRADIENT])


def predicted(model, weights, rows=ROWS):
    """The mean label of each class that a model predicts for each row (n x classes)."""
    return mean_labels(model, rows @ weights.reshape(-1, FEATURES).T)


def mean_labels_of(model):
    """The mean label of each class, by the optimum."""
    return predicted(model, OPTIMA[model]).mean(axis=0)


def fit_of(model, variance=VARIANCE):
    """A fit that knows the mean label. variance: of a label that is a number."""
    return MeanGradients(model, ROWS, LabelFacts(mean_labels_of(model), 0.01, variance))


def expected_by(model):
    """What gradients are expected to be. Linear regression has one class."""
    return ExpectedGradients(model, ROWS, len(mean_labels_of(model)), VARIANCE)


def random_labels(model, means, rng):
    """Draw labels of these means (n x classes); those of classes are 1 for one class, else 0."""
    if model == LINEAR:
        return rng.normal(means, RESIDUAL_DEVIATION)
    chosen = (means.cumsum(axis=1) < rng.random((len(means), 1))).sum(axis=1)
    return np.eye(CLASSES)[np.minimum(chosen, CLASSES - 1)]


def gradients_of_devices(model, weights, records, devices, rng):
    """The mean gradients of devices whose records have random features and labels (devices x d)."""
    features = ROWS[rng.integers(0, len(ROWS), devices * records)]
    labels = random_labels(model, predicted(model, OPTIMA[model], features), rng)
    residuals = predicted(model, weights, features) - labels
    gradients = residuals[:, :, None] * features[:, None, :]
    return gradients.reshape(devices, records, -1).mean(axis=1)


def clipped(gradients, radius):
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    return gradients * np.minimum(1, radius / lengths)


def answer_of(model, asked, radius, rng, devices=20_000):
    """The answer of devices that clip their mean gradients, with hardly any noise."""
    gradients = clipped(gradients_of_devices(model, asked, RECORDS, devices, rng), radius)
    observed = Observation(asked, gradients.mean(axis=0), radius**2 / devices, radius)
    return Answer(observed, RECORDS)


# What is expected


@of_each_model
def test_the_mean_of_a_gradient_is_that_with_random_labels(model):
    gradients = gradients_of_devices(model, ASKED[model], 1, 400_000, np.random.default_rng(1))
    moments = expected_by(model).moments(ASKED[model], OPTIMA[model])
    assert moments.mean == pytest.approx(gradients.mean(axis=0), abs=0.005)


@of_each_model
def test_the_covariance_of_a_gradient_is_that_with_random_labels(model):
    gradients = gradients_of_devices(model, ASKED[model], 1, 400_000, np.random.default_rng(1))
    moments = expected_by(model).moments(ASKED[model], OPTIMA[model])
    assert moments.covariance == pytest.approx(np.cov(gradients.T), abs=0.005)


@of_each_model
def test_the_expected_clipped_mean_is_that_of_devices(model):
    asked, radius = ASKED[model], 0.1
    simulated = answer_of(model, asked, radius, np.random.default_rng(2))
    expected = expected_by(model).clipped_mean(simulated.observed, RECORDS, OPTIMA[model]).mean
    # As with two classes, a twenty-fifth of a radius is room for chance, and for what is not normal.
    assert np.abs(expected - simulated.observed.gradient).max() < radius / 25


@of_each_model
def test_the_curvature_is_the_change_of_the_mean_gradient_by_the_optimum(model):
    expected, asked, optimum = expected_by(model), ASKED[model], OPTIMA[model]
    curvature = expected.moments(asked, optimum).curvature
    step = 1e-5
    for weight, change in enumerate(step * np.eye(len(optimum))):
        after = expected.moments(asked, optimum + change).mean
        before = expected.moments(asked, optimum - change).mean
        assert -curvature[:, weight] == pytest.approx((after - before) / (2 * step), abs=1e-6)


@of_each_model
def test_the_first_question_predicts_the_mean_label_for_every_record(model):
    first = predicted(model, fit_of(model).weights)
    assert first == pytest.approx(np.tile(mean_labels_of(model), (len(ROWS), 1)))


# What a fit finds


@of_each_model
def test_the_fit_predicts_what_the_optimum_of_the_devices_predicts(model):
    """Weights of softmax regression are only known up to those that all classes have in common."""
    rng, fit = np.random.default_rng(3), fit_of(model)
    for _ in range(4):
        asked = fit.weights
        fit.add(answer_of(model, asked, fit.radius(asked, RECORDS), rng))
        fit.fit()
    error = predicted(model, fit.weights) - predicted(model, OPTIMA[model])
    assert np.abs(error).mean() < 0.02


def test_answers_show_a_variance_of_numbers_that_nobody_knows():
    """The radius of the next question becomes about that of a fit which knows the variance."""
    rng = np.random.default_rng(4)
    unknown = MeanGradients(LINEAR, ROWS, LabelFacts(np.zeros(1), None))
    for _ in range(5):
        asked = unknown.weights
        unknown.add(answer_of(LINEAR, asked, unknown.radius(asked, RECORDS), rng))
        unknown.fit()
    known = fit_of(LINEAR)
    for answer in unknown._answers:
        known.add(answer)
    known.fit()
    right = known.radius(known.weights, RECORDS)
    assert unknown.radius(unknown.weights, RECORDS) == pytest.approx(right, rel=0.5)


def test_the_radius_shrinks_with_what_a_linear_model_explains():
    fit = MeanGradients(LINEAR, ROWS, LabelFacts(mean_labels_of(LINEAR), 1e-6, VARIANCE))
    before = fit.radius(fit.weights, RECORDS)
    rng = np.random.default_rng(5)
    for _ in range(3):
        asked = fit.weights
        fit.add(answer_of(LINEAR, asked, fit.radius(asked, RECORDS), rng))
        fit.fit()
    shrunk = RESIDUAL_DEVIATION / np.sqrt(VARIANCE)
    assert fit.radius(fit.weights, RECORDS) == pytest.approx(shrunk * before, rel=0.1)


def fit_and_restored_fit():
    """A fit of numbers with an unknown variance, and the same from its state."""
    fit = MeanGradients(LINEAR, ROWS, LabelFacts(np.zeros(1), None))
    fit.add(answer_of(LINEAR, fit.weights, 0.1, np.random.default_rng(6)))
    fit.fit()
    again = MeanGradients(LINEAR, ROWS, LabelFacts(np.zeros(1), None))
    again.restore(json.loads(json.dumps(fit.state())))
    return fit, again


def test_a_restored_fit_of_numbers_with_an_unknown_variance_has_the_same_radius():
    fit, again = fit_and_restored_fit()
    assert again.radius(fit.weights, RECORDS) == fit.radius(fit.weights, RECORDS)


def test_a_restored_fit_of_numbers_with_an_unknown_variance_goes_on_identically():
    fit, again = fit_and_restored_fit()
    assert again.fit().tolist() == fit.fit().tolist()


# Runs


def test_devices_of_many_records_answer_once_about_a_linear_model():
    data = synthetic.linear(2_000, 4, seed=2)
    options = Options(data=data.name, model="linear", records=RECORDS, epsilon="4")
    assert isinstance(Direct.suited(options, Population(clients=20), data), DirectOfMany)


def test_more_weights_than_an_answer_can_tell_of_are_refused():
    options = Options(data="devices:20:7", model="softmax", records=RECORDS)
    with pytest.raises(UsageError) as refused:
        Direct.suited(options, Population(clients=20, knows_records=False))
    assert "fedsgd" in refused.value.hint
