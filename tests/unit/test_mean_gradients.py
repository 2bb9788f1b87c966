"""The fit of a model to mean gradients of devices that hold many records, for two classes: what it
expects of them, and what it finds.
"""

import json

import numpy as np
import pytest

from tern.wire import LOGISTIC
from ternhost.errors import UsageError
from ternhost.learn.models.losses import mean_labels
from ternhost.learn.one_answer.expected_gradients import ExpectedGradients
from ternhost.learn.one_answer.mean_gradients import Answer, LabelFacts, MeanGradients
from ternhost.learn.one_answer.observations import Observation, made_up

FEATURES = 4
RECORDS = 50  # of a device
RNG = np.random.default_rng(7)
ROWS = RNG.uniform(-1, 1, (3_000, FEATURES))
ROWS[:, 0] = 1  # the constant
ROWS[:, 2] = ROWS[:, 1] / 2 + ROWS[:, 2] / 2  # features that vary together
OPTIMUM = np.array([-0.8, 1.0, -0.5, 0.7])
SHARE = float(mean_labels(LOGISTIC, ROWS @ OPTIMUM).mean())
KNOWN = LabelFacts(np.array([SHARE]), 0.01)
ASKED = np.array([-0.6, 0.2, 0.1, -0.3])  # weights of a question, neither the first nor the optimum
HARDLY = 1e-9  # a variance that is as good as none
EXPECTED = ExpectedGradients(LOGISTIC, ROWS)


def fit_of(rows=ROWS, labels=KNOWN):
    return MeanGradients(LOGISTIC, rows, labels)


def gradients_of_devices(weights, records, devices, rng, rows=ROWS, optimum=OPTIMUM):
    """The mean gradients of devices whose records have random features and labels (devices x d)."""
    features = rows[rng.integers(0, len(rows), (devices, records))]
    labels = rng.random((devices, records)) < mean_labels(LOGISTIC, features @ optimum)
    residuals = mean_labels(LOGISTIC, features @ weights) - labels
    return np.einsum("dr,drf->df", residuals, features) / records


def clipped(gradients, radius):
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    return gradients * np.minimum(1, radius / lengths)


def answer(gradient, weights, radius, variance=HARDLY, records=RECORDS):
    return Answer(Observation(weights, gradient, variance, radius), records)


def expected_mean(weights, radius, optimum=OPTIMUM, records=RECORDS):
    """The mean of what devices are expected to report, with its derivative."""
    question = Observation(weights, np.zeros(FEATURES), HARDLY, radius)
    return EXPECTED.clipped_mean(question, records, optimum)


def expected_answer(weights, radius, optimum=OPTIMUM, variance=HARDLY):
    """The answer of infinitely many devices whose records are as expected."""
    return answer(expected_mean(weights, radius, optimum).mean, weights, radius, variance)


# What is expected


@pytest.mark.parametrize("radius", [0.03, 0.1, 0.4])
def test_the_expected_clipped_mean_is_that_of_devices(radius):
    """The radii are a third of a typical mean gradient's length, about this length, and far more."""
    gradients = gradients_of_devices(ASKED, RECORDS, 40_000, np.random.default_rng(1))
    expected = expected_mean(ASKED, radius).mean
    simulated = clipped(gradients, radius).mean(axis=0)
    # A standard error of the simulation is 1 / sqrt(40,000) radii at most. The mean of 50 gradients
    # is not quite normal, as one label is rarer. A twenty-fifth of a radius is room for both.
    assert np.abs(expected - simulated).max() < radius / 25


@pytest.mark.parametrize("records", [2, 8, 32])
def test_the_expected_clipped_mean_of_few_records_is_that_of_devices(records):
    """Such means are not normal: where a label is rare, clipping shortens its gradients most."""
    rare = np.array([-2.5, 1.0, -0.5, 0.7])  # label 1 has a share of a tenth
    asked = np.array([-2.2, 0, 0, 0])
    gradients = gradients_of_devices(
        asked, records, 100_000, np.random.default_rng(8), optimum=rare
    )
    radius = np.linalg.norm(gradients, axis=1).mean()
    expected = expected_mean(asked, radius, rare, records).mean
    simulated = clipped(gradients, radius).mean(axis=0)
    # The drawn devices are a thousand or more, of which clipping moves some by about half a radius.
    assert np.abs(expected - simulated).max() < radius / 50


@pytest.mark.parametrize("radius", [0.05, 0.4])
def test_the_derivative_of_the_expected_mean_is_that_of_its_differences(radius):
    """The derivative takes the covariance as constant: so it is right to some per cent."""
    step = 1e-4
    differences = []
    for change in step * np.eye(FEATURES):
        after = expected_mean(ASKED, radius, OPTIMUM + change).mean
        before = expected_mean(ASKED, radius, OPTIMUM - change).mean
        differences.append((after - before) / (2 * step))
    derivative = expected_mean(ASKED, radius).derivative
    largest = np.abs(derivative).max()
    assert derivative == pytest.approx(np.transpose(differences), abs=0.1 * largest)


def test_the_covariance_of_a_gradient_is_that_with_random_labels():
    gradients = gradients_of_devices(ASKED, 1, 400_000, np.random.default_rng(2))
    moments = EXPECTED.moments(ASKED, OPTIMUM)
    assert moments.covariance == pytest.approx(np.cov(gradients.T), abs=0.003)


def test_the_curvature_is_the_change_of_the_mean_gradient_by_the_optimum():
    step = 1e-5
    for weight, change in enumerate(step * np.eye(FEATURES)):
        after = EXPECTED.moments(ASKED, OPTIMUM + change).mean
        before = EXPECTED.moments(ASKED, OPTIMUM - change).mean
        curvature = EXPECTED.moments(ASKED, OPTIMUM).curvature
        assert -curvature[:, weight] == pytest.approx((after - before) / (2 * step), abs=1e-6)


# Questions


def test_the_first_question_predicts_the_share_of_label_1_for_every_record():
    predicted = mean_labels(LOGISTIC, ROWS @ fit_of().weights)
    assert predicted == pytest.approx(np.full(len(ROWS), SHARE))


def test_the_radius_is_the_root_of_the_expected_squared_length():
    """It is that of p (1 - p) E|x|^2 / m, if the share p is exactly known."""
    fit = fit_of(labels=LabelFacts(np.array([SHARE]), 1e-6))
    squared_length_of_rows = np.square(ROWS).sum(axis=1).mean()
    squared = SHARE * (1 - SHARE) * squared_length_of_rows / RECORDS
    assert fit.radius(fit.weights, RECORDS) == pytest.approx(np.sqrt(squared), rel=1e-3)


def test_the_radius_falls_with_the_root_of_the_number_of_records():
    fit = fit_of(labels=LabelFacts(np.array([SHARE]), 1e-6))
    of_few, of_many = fit.radius(fit.weights, 10), fit.radius(fit.weights, 1_000)
    assert of_few == pytest.approx(10 * of_many, rel=1e-3)


def test_a_share_that_nobody_knows_makes_the_radius_larger():
    known, unknown = fit_of(), fit_of(labels=LabelFacts(np.array([SHARE]), None))
    assert unknown.radius(unknown.weights, 500) > 3 * known.radius(known.weights, 500)


def test_answers_of_mere_noise_do_not_make_the_radius_longer_than_the_gradient_of_a_record():
    """After them the prior leaves room for any weights. The longest gradient is that of a record."""
    rows = made_up(31)
    fit = fit_of(rows)
    radius = fit.radius(fit.weights, RECORDS)
    noise = np.random.default_rng(5).normal(0, 100 * radius, 31)
    fit.add(answer(noise, fit.weights, radius, (100 * radius) ** 2))
    fit.fit()
    longest = np.linalg.norm(rows, axis=1).max()
    assert fit.radius(fit.weights, RECORDS) < longest


@pytest.mark.parametrize("share", [0.001, 0.999])
def test_the_radius_of_a_rare_class_is_short(share):
    rare = fit_of(labels=LabelFacts(np.array([share]), 1e-6))
    assert rare.radius(rare.weights, RECORDS) < fit_of().radius(fit_of().weights, RECORDS) / 5


# What a fit finds


@pytest.mark.parametrize("is_known", [True, False])
def test_without_noise_the_fit_finds_the_optimum(is_known):
    """From answers at the weights of the first question and at those of the first fit."""
    fit = fit_of(labels=KNOWN if is_known else LabelFacts(np.array([0.5]), None))
    for _ in range(4):
        asked = fit.weights
        fit.add(expected_answer(asked, fit.radius(asked, RECORDS)))
        fit.fit()
    # The number of rows is taken into account, and so the prior of the weights pulls a little.
    assert fit.weights == pytest.approx(OPTIMUM, abs=0.03)


def test_the_fit_finds_the_optimum_of_devices_that_clip_their_gradients():
    """Many devices answer at the model so far. The radius is too short for most of the gradients."""
    rng = np.random.default_rng(3)
    fit = fit_of()
    for _ in range(4):
        asked = fit.weights
        radius = fit.radius(asked, RECORDS) / 2
        gradients = clipped(gradients_of_devices(asked, RECORDS, 20_000, rng), radius)
        fit.add(answer(gradients.mean(axis=0), asked, radius, radius**2 / 20_000))
        fit.fit()
    assert fit.weights == pytest.approx(OPTIMUM, abs=0.1)


def test_the_stated_deviations_are_those_of_the_noise():
    """The errors of 30 fits, in units of the deviations that they state, have a mean square of 1."""
    rng = np.random.default_rng(4)
    errors = []
    for _ in range(30):
        fit = fit_of()
        radius = fit.radius(fit.weights, RECORDS)
        noiseless = expected_answer(fit.weights, radius).observed.gradient
        deviation = radius / 40
        noisy = noiseless + rng.normal(0, deviation, FEATURES)
        fit.add(answer(noisy, fit.weights, radius, deviation**2))
        fit.fit()
        errors.append((fit.weights - OPTIMUM) / fit.deviations())
    # 120 squares of standard normal numbers have a mean of 1 with a deviation of .13.
    assert np.square(errors).mean() == pytest.approx(1, abs=0.5)


def test_answers_of_more_devices_weigh_more():
    """Two answers contradict each other. The fit goes with the one that has less noise."""
    fit = fit_of()
    asked, radius = fit.weights, fit.radius(fit.weights, RECORDS)
    opposite = 2 * fit.weights - OPTIMUM
    fit.add(expected_answer(asked, radius, OPTIMUM, variance=1e-6))
    fit.add(expected_answer(asked, radius, opposite, variance=1e-2))
    fit.fit()
    assert np.linalg.norm(fit.weights - OPTIMUM) < np.linalg.norm(fit.weights - opposite) / 5


def test_answers_that_tell_nothing_leave_the_model_at_the_share():
    fit = fit_of()
    radius = fit.radius(fit.weights, RECORDS)
    noise = np.random.default_rng(5).normal(0, 100 * radius, FEATURES)
    fit.add(answer(noise, fit.weights, radius, (100 * radius) ** 2))
    fit.fit()
    assert fit.mean_label == pytest.approx([SHARE], abs=0.05)


def test_the_evidence_is_higher_for_the_right_rows_than_for_those_of_another_scale():
    right = fit_of()
    smaller_rows = ROWS.copy()
    smaller_rows[:, 1:] /= 5
    wrong = fit_of(smaller_rows)
    rng = np.random.default_rng(6)
    for _ in range(3):
        asked = right.weights
        radius = right.radius(asked, RECORDS)
        gradients = clipped(gradients_of_devices(asked, RECORDS, 20_000, rng), radius)
        for fit in (right, wrong):
            fit.add(answer(gradients.mean(axis=0), asked, radius, radius**2 / 20_000))
        right.fit()
    wrong.fit()
    assert right.log_evidence > wrong.log_evidence + 3


# Rows and labels that are out of the ordinary


def constant_feature():
    rows = ROWS.copy()
    rows[:, 2] = 0.25
    return rows


def zeros():
    return ROWS * [1, 0, 0, 0]


ODD_ROWS = {
    "a constant feature": constant_feature(),
    "all zeros": zeros(),
    "as many as features": ROWS[:FEATURES],
    "made up": made_up(FEATURES),
}


@pytest.mark.parametrize("rows", ODD_ROWS)
@pytest.mark.parametrize("share", [0.001, 0.5, 0.999])
def test_odd_rows_give_a_finite_model_and_a_radius_above_0(rows, share):
    fit = fit_of(ODD_ROWS[rows], LabelFacts(np.array([share]), 0.01))
    for _ in range(3):
        radius = fit.radius(fit.weights, RECORDS)
        fit.add(answer(np.full(FEATURES, radius / 2), fit.weights, radius, radius**2))
        fit.fit()
    assert np.isfinite(fit.weights).all()
    assert 0 < fit.radius(fit.weights, RECORDS) < np.inf


@pytest.mark.parametrize("features", [1, 2, 128])
def test_a_model_may_have_1_to_128_features(features):
    fit = fit_of(made_up(features))
    radius = fit.radius(fit.weights, RECORDS)
    fit.add(answer(np.full(features, radius / features), fit.weights, radius, radius**2))
    assert np.isfinite(fit.fit()).all()


# State


def fit_with_answers():
    fit = fit_of()
    for sign in (1, -1):
        radius = fit.radius(fit.weights, RECORDS)
        fit.add(answer(np.full(FEATURES, sign * radius / 2), fit.weights, radius, radius**2))
        fit.fit()
    return fit


def restored(fit):
    new = fit_of()
    new.restore(json.loads(json.dumps(fit.state())))
    return new


def test_a_restored_fit_has_the_same_radius():
    fit = fit_with_answers()
    assert restored(fit).radius(fit.weights, RECORDS) == fit.radius(fit.weights, RECORDS)


def test_a_restored_fit_has_the_same_evidence():
    fit = fit_with_answers()
    assert restored(fit).log_evidence == fit.log_evidence


def test_a_restored_fit_goes_on_identically():
    fit = fit_with_answers()
    again = restored(fit)
    for each in (fit, again):
        each.add(answer(np.full(FEATURES, 0.01), ASKED, 0.1, 0.01))
        each.fit()
    assert again.weights.tolist() == fit.weights.tolist()


@pytest.mark.parametrize("change", [{"weights": [1.0]}, {"answers": None}, {"answers": [[1]]}])
def test_the_state_of_something_else_is_refused(change):
    with pytest.raises(UsageError):
        fit_of().restore({**fit_of().state(), **change})
