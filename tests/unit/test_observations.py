"""What noisy gradients tell: clips without bias, answers joined, rows right and wrong, questions,
rows made up.
"""

import json

import numpy as np
import pytest

from tern.wire import LOGISTIC
from ternhost.learn.one_answer.observations import (
    DIRECTION,
    Observation,
    Observations,
    distance,
    made_up,
)

D = 6
TRUE = np.array([0.5, -1.5, 1.0, 0.0, 0.7, -0.4])


def rows(n, seed=1):
    x = np.random.default_rng(seed).uniform(-1, 1, (n, D))
    x[:, 2] = (x[:, 1] + x[:, 2]) / 2
    x[:, 0] = 1
    return x


def mean_label(x, weights):
    return 1 / (1 + np.exp(-x @ weights))


def answer(x, asked=None, noise=0.0, seed=1, radius=None, tau=None, true=TRUE):
    """The mean gradient of a population with these features and true weights, over both labels of
    each row.
    """
    asked = np.zeros(D) if asked is None else asked
    question = Observation(asked, np.zeros(D), 0.0, radius, tau)
    predicted, share_of_ones = mean_label(x, asked), mean_label(x, true)
    gradients_of_zeros = question.clipped(x * predicted[:, None])
    gradients_of_ones = question.clipped(x * (predicted - 1)[:, None])
    weight = share_of_ones[:, None]
    gradient = ((1 - weight) * gradients_of_zeros + weight * gradients_of_ones).mean(axis=0)
    gradient = gradient + noise * np.random.default_rng(seed).normal(size=D)
    return Observation(asked, gradient, noise**2, radius, tau)


@pytest.mark.parametrize(
    ("radius", "tau"), [(None, None), (DIRECTION, None), (0.1, None), (None, 0.05), (0.3, 0.2)]
)
def test_a_clip_leaves_no_bias(radius, tau):
    x = rows(2000)
    mine = Observations(LOGISTIC, x)
    # The rows are few. Each answer is at the model of the one before, and nearer.
    for error in (0.15, 0.08, 0.05):
        mine.add(answer(x, mine.weights, 1e-5, radius=radius, tau=tau))
        assert mine.fit() == pytest.approx(TRUE, abs=error)


def test_the_deviation_of_a_weight_is_that_of_its_error():
    """Besides the weights that explain noisy gradients, a fit gives the standard deviation of each.
    So errors in units of it have a root mean square of about 1.
    """
    x, errors = rows(10_000), []
    for seed in range(8):
        mine = Observations(LOGISTIC, x)
        mine.add(answer(x, noise=0.003, seed=seed, radius=DIRECTION))
        errors.append((mine.fit() - TRUE) / mine.deviations())
    # 48 errors, of 8 fits of 6 weights. They are few, and fits are slightly biased towards 0.
    assert 0.7 < np.sqrt(np.mean(np.square(errors))) < 1.4


# Public rows stand for the features of the devices' records. In these rows two of the six features
# vary twenty times less than in the devices' records, so that the devices' answer contradicts them.
SPREAD_OF_FEATURES = [1, 1, 1, 1, 0.05, 0.05]


@pytest.fixture
def contradicted():
    """Observations with such rows, after the devices' first answer and a fit to it."""
    x = rows(4000)
    observations = Observations(LOGISTIC, x[:1000] * SPREAD_OF_FEATURES)
    observations.add(answer(x, noise=0.003, radius=DIRECTION))
    observations.fit()
    return observations


def test_rows_of_another_population_are_found_out(contradicted):
    assert not contradicted.rows_suit
    assert contradicted.misfit > 10, "noise alone would give 1"


def test_a_model_moves_against_the_gradient_where_the_rows_do_not_suit(contradicted):
    """A fit to these rows cannot be trusted, but the gradient that devices reported can."""
    step = contradicted.weights
    gradient = answer(rows(4000), radius=DIRECTION).gradient
    cosine = step @ gradient / np.linalg.norm(step) / np.linalg.norm(gradient)
    assert cosine < -0.99


def test_the_next_question_is_at_the_model_0_where_the_rows_do_not_suit(contradicted):
    weights, _ = contradicted.question()
    assert np.array_equal(weights, np.zeros(D))


def direction_of(x, variance):
    """What devices with these features report of their mean direction, but for the noise."""
    mean = (x / np.linalg.norm(x, axis=1)[:, None]).mean(axis=0)
    return Observation(np.zeros(D), mean, variance, radius=1.0)


@pytest.mark.parametrize(
    ("spread", "is_far"), [(1, False), (0.2, True), (0, True)], ids=["right", "fifth", "zeros"]
)
def test_the_direction_of_features_shows_in_which_unit_rows_are(spread, is_far):
    public = rows(1000, seed=3)
    public[:, 1:] *= spread
    features = direction_of(rows(4000), variance=1e-3)
    # The variance is that of noise, of which this mean has none.
    assert distance(public, features).is_far == is_far


def test_the_direction_of_features_shows_rows_of_another_part_of_the_population():
    public = rows(4000, seed=3)
    public = public[public[:, 1] > 0.3]
    assert distance(public, direction_of(rows(4000), variance=1e-3)).is_far


def test_a_direction_that_is_hardly_known_speaks_against_no_rows():
    zeros = np.tile(np.eye(D)[0], (100, 1))
    assert not distance(zeros, direction_of(rows(4000), variance=0.1)).is_far


def test_answers_to_the_same_question_are_joined_whatever_was_asked_between():
    x = rows(1000)
    mine = Observations(LOGISTIC, x)
    for tau in (None, 0.1, None):
        mine.add(answer(x, noise=0.01, tau=tau))
    variances = [variance for _, _, variance, _, _ in mine.state()["seen"]]
    assert variances == pytest.approx([0.01**2 / 2, 0.01**2])


@pytest.fixture
def answered_once():
    """Observations of one answer, from devices with the same features as the rows, and their fit."""
    x = rows(2000)
    observations = Observations(LOGISTIC, x)
    observations.add(answer(x, noise=0.003, radius=DIRECTION))
    observations.fit()
    return observations


def test_the_first_question_asks_for_directions_of_gradients_alone():
    """At the model 0, any gradient exceeds the radius DIRECTION, to which devices clip it."""
    weights, radius = Observations(LOGISTIC, rows(2000)).question()
    assert np.array_equal(weights, np.zeros(D))
    assert radius == DIRECTION


def test_rows_of_the_population_that_answers_suit(answered_once):
    assert answered_once.rows_suit


def test_the_second_question_is_at_a_model_that_is_good_enough(answered_once):
    weights, _ = answered_once.question()
    assert np.any(weights)
    assert np.array_equal(weights, answered_once.weights)


def test_the_radius_of_the_second_question_leaves_three_of_five_gradients_whole(answered_once):
    weights, radius = answered_once.question()

    x = rows(2000)
    predicted = mean_label(x, weights)
    labels = np.random.default_rng(3).random(2000) < predicted
    gradients = (predicted - labels)[:, None] * x
    share_within_radius = (np.linalg.norm(gradients, axis=1) <= radius).mean()
    assert share_within_radius == pytest.approx(0.6, abs=0.05)


def test_without_public_rows_a_few_rounds_come_near():
    """Without public records, features are made up from the mean direction of the devices'
    features; four rounds still give a model whose scores correlate with the true ones.
    """
    x = rows(4000)
    x[:, 2] = rows(4000, seed=2)[:, 1]  # made-up features are independent of each other
    direction = (x / np.linalg.norm(x, axis=1)[:, None]).mean(axis=0)
    mine = Observations(LOGISTIC, made_up(D, direction), invented=True)
    for number in range(4):
        weights, radius = mine.question()
        mine.add(answer(x, weights, 0.01, number, radius))
        mine.fit()
    assert np.corrcoef(x @ mine.weights, x @ TRUE)[0, 1] > 0.97


def test_a_restored_one_goes_on_exactly_as_it_would_have():
    """A host that was stopped restores what it knew from JSON. Given the same answers, a restored
    copy and the original have equal weights, states and judgements of the rows.
    """
    x = rows(500)
    whole = Observations(LOGISTIC, x)
    for number in range(2):
        restored = Observations(LOGISTIC, x)
        restored.restore(json.loads(json.dumps(whole.state())))
        weights, radius = whole.question()
        for observations in (whole, restored):
            observations.add(answer(x, weights, 0.01, number, radius))
        assert np.array_equal(restored.fit(), whole.fit())
        assert restored.state() == whole.state()
        assert (restored.rows_suit, restored.misfit) == (whole.rows_suit, whole.misfit)


def descent_error(noise, rounds):
    """The expected error of the scores after a descent with this noise in each round."""
    question = Observation(np.zeros(D), np.zeros(D), noise**2, tau=0.5)
    return Observations(LOGISTIC, rows(2000)).expected_error_of_descent(question, rounds)


def test_a_descent_without_noise_reaches_the_optimum():
    assert descent_error(noise=0, rounds=500) < 0.01 * descent_error(noise=0, rounds=1)


def test_a_descent_under_noise_gains_by_more_rounds():
    assert descent_error(noise=0.05, rounds=20) < descent_error(noise=0.05, rounds=5)


def test_a_descent_of_nothing_but_noise_learns_nothing():
    variance_before = 4  # of the scores
    assert descent_error(noise=100, rounds=20) >= variance_before
