"""Learning from noisy sums: the optimum without noise, the radius, what is counted, public rows
right and wrong.
"""

import json
import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import minimize

from tern.wire import LINEAR, LOGISTIC, SOFTMAX_GRADIENT
from ternhost.errors import UsageError
from ternhost.learn.sums.descent import Descent
from ternhost.learn.sums.refit import ENOUGH, Refit, descent_for
from ternhost.learn.sums.survey import PublicFacts


def population(model, rows=6000, d=6, classes=1, seed=7):
    """Features whose sizes differ, and labels of a model; classes as one-hot rows."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, d)) * np.linspace(1, 0.4, d)
    x[:, 0] = 1
    weights = rng.normal(size=(classes, d))
    if model == LINEAR:
        return x, np.clip(x @ weights[0] * 0.2 + 0.05 * rng.normal(size=rows), -1, 1)
    if model == SOFTMAX_GRADIENT:
        noise = rng.gumbel(size=(rows, classes))
        return x, np.eye(classes)[(2 * x @ weights.T + noise).argmax(axis=1)]
    assert model == LOGISTIC
    return x, (rng.random(rows) < 1 / (1 + np.exp(-2 * x @ weights[0]))).astype(float)


def gradients(learner, x, labels):
    """The gradient of each record at the learner's weights, a row each."""
    facts = learner.facts
    scores = x @ learner.weights.reshape(facts.classes, -1).T
    targets = labels.reshape(len(x), facts.classes)
    if facts.model == LINEAR:
        residuals = scores - targets
    elif facts.model == LOGISTIC:
        residuals = 1 / (1 + np.exp(-scores)) - targets
    else:
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        residuals = powers / powers.sum(axis=1, keepdims=True) - targets
    return (residuals[:, :, None] * x[:, None]).reshape(len(x), facts.values)


class Sums(NamedTuple):
    """What the boards answer together."""

    gradient: np.ndarray
    tally: float  # of clipped and of kept units
    sigma: float  # the standard deviation of the noise of a board
    boards: int


def answer(learner, x, labels, random, noisy=True, clips=True):
    """A round of boards with these records: the sums that the learner takes, and the share of units
    that were clipped. Boards that do not clip find the radius right.
    """
    facts = learner.facts
    units = gradients(learner, x, labels).reshape(-1, facts.unit, facts.values).sum(axis=1)
    lengths = np.linalg.norm(units, axis=1)
    clipped = lengths > learner.radius
    if clips:
        units *= np.minimum(1, learner.radius / np.maximum(lengths, 1e-12))[:, None]
    of_clipped, of_kept = learner.tally
    tally = 0
    if clips or learner.round == 0:
        tally = of_clipped * clipped.sum() + of_kept * (~clipped).sum()
    sigma = 0.0
    if noisy:
        squared_norm = learner.radius**2 + of_clipped**2
        sigma = math.sqrt(squared_norm / (2 * facts.rho * learner.rho_share))
    noise = sigma * math.sqrt(facts.boards) * random.normal(size=facts.values + 1)
    sums = Sums(units.sum(axis=0) + noise[1:], tally + noise[0], sigma, facts.boards)
    return sums, clipped.mean() if len(x) else 0.0


def learn(learner, x, labels, seed=1, **how):
    """Run all rounds; return the shares of units that were clipped in each."""
    random, shares = np.random.default_rng(seed), []
    while not learner.done:
        sums_of_boards, share = answer(learner, x, labels, random, **how)
        shares.append(share)
        learner.learn(*sums_of_boards)
    return shares


def loss(model, x, labels, weights, classes=1):
    scores = x @ weights.reshape(classes, -1).T
    if model == LINEAR:
        return ((scores[:, 0] - labels) ** 2).mean()
    if model == SOFTMAX_GRADIENT:
        return (np.log(np.exp(scores).sum(axis=1)) - (scores * labels).sum(axis=1)).mean()
    return np.log1p(np.exp((1 - 2 * labels) * scores[:, 0])).mean()


CASES = [(LOGISTIC, 1), (LINEAR, 1), (SOFTMAX_GRADIENT, 3)]
FACTS = PublicFacts(LOGISTIC, features=6, boards=20, records=300, rho=1.0)


@pytest.mark.parametrize(("model", "classes"), CASES)
@pytest.mark.parametrize("public_rows", [0, 400])
def test_without_noise_and_clipping_it_finds_the_optimum(model, classes, public_rows):
    """The learner sees only sums of gradients over boards. If nothing disturbs them, its model
    comes within 2 percent of the optimum that SciPy finds from the records themselves, with and
    without public rows to begin with. With rows, a classifier knows how the clipping acts.
    """
    x, labels = population(model, classes=classes)
    rows_of_host = None
    if public_rows:
        rows_of_host, _ = population(model, public_rows, classes=classes, seed=8)
    facts = replace(FACTS, model=model, rho=100.0, classes=classes)
    learner = descent_for(facts, rows_of_host)
    learn(learner, x, labels, noisy=False, clips=public_rows > 0 and model != LINEAR)

    def loss_of(weights):
        return loss(model, x, labels, weights, classes)

    at_zero = np.zeros(6 * classes)  # of six features
    optimum = minimize(loss_of, at_zero, method="BFGS").fun
    assert loss_of(learner.model) - optimum < 0.02 * (loss_of(at_zero) - optimum)


@pytest.mark.parametrize("public_rows", [None, ENOUGH])
def test_all_rounds_spend_rho_once(public_rows):
    """Rho measures what noisy sums tell; each round spends a share of a fixed rho."""
    rows = public_rows and population(LOGISTIC, public_rows)[0]
    learner = descent_for(FACTS, rows)
    spent = 0.0
    while not learner.done:
        spent += learner.rho_share
        learner.learn(total=np.zeros(6), tally=0.0, sigma=1.0, boards=20)
    assert spent == pytest.approx(1)


def test_the_tally_costs_little_once_the_descent_has_begun():
    """A board's sum has one more coordinate, the tally of records that were clipped. It is short
    beside the radius, so that the noise which hides both is little more.
    """
    learner = Descent(FACTS)
    while not learner.done:
        of_clipped, of_kept = learner.tally
        if learner.round >= 6:  # the survey is over
            assert max(abs(of_clipped), abs(of_kept)) < learner.radius / 5
        learner.learn(total=np.zeros(6), tally=0.0, sigma=1.0, boards=20)


def test_half_of_the_boards_move_the_model_as_all_would():
    """Sums are divided by the number of boards that answered: sums of half the size from half of
    the boards make the same step.
    """
    x, labels = population(LOGISTIC)
    of_all, of_half = Descent(FACTS), Descent(FACTS)
    all_sums, _ = answer(of_all, x, labels, np.random.default_rng(1), noisy=False)

    of_all.learn(*all_sums)
    half_of_sums = all_sums.gradient / 2, all_sums.tally / 2
    of_half.learn(*half_of_sums, all_sums.sigma, all_sums.boards // 2)

    assert of_half.weights == pytest.approx(of_all.weights)


def test_a_round_without_an_answer_moves_nothing():
    learner = Descent(FACTS)
    before = learner.state()
    learner.learn(np.zeros(6), 0.0, 1.0, 0)
    assert learner.state() == {**before, "round": 1}


def near_a_line(direction, rows, seed):
    """Features that nearly lie on a line, which has this direction."""
    random = np.random.default_rng(seed)
    along = random.normal(size=(rows, 1)) * direction
    features = np.clip(along + 0.05 * random.normal(size=(rows, len(direction))), -1, 1)
    features[:, 0] = 1
    return features


def test_right_public_rows_are_kept_and_wrong_ones_dropped():
    """The host may begin with public rows of its own. If they vary in the direction in which the
    boards' records vary, few rounds suffice; if in another, the learner drops them and goes on by
    descent.
    """
    line, other_line = np.zeros(12), np.zeros(12)  # directions that have nothing in common
    line[[1, 3]] = other_line[[2, 5]] = 0.5, 0.4
    facts = replace(FACTS, features=12, rho=0.1)
    random = np.random.default_rng(2)
    for seed in range(3):
        x = near_a_line(line, rows=6000, seed=seed)  # the records of the boards
        labels = (random.random(6000) < 1 / (1 + np.exp(-3 * x[:, 1]))).astype(float)
        right = Refit(facts, near_a_line(line, rows=400, seed=9))
        wrong = Refit(facts, near_a_line(other_line, rows=400, seed=9))

        learn(right, x, labels)
        learn(wrong, x, labels)

        assert right.rows_suit
        assert right.rounds < 20
        assert not wrong.rows_suit
        assert wrong.rounds >= 60
        # The second one learns all the same: better than a coin, whose loss is log 2.
        assert loss(LOGISTIC, x, labels, wrong.model) < 0.98 * math.log(2)


@pytest.mark.parametrize("factor", [0.1, 1e-4, 0.0])
def test_public_rows_of_another_scale_are_dropped(factor):
    x, labels = population(LOGISTIC)
    rows, _ = population(LOGISTIC, rows=400, seed=8)
    rows[:, 1:] *= factor
    learner = Refit(FACTS, rows)

    learn(learner, x, labels)

    assert not learner.rows_suit
    assert learner.misfit > 2


def test_public_rows_of_the_same_population_leave_nothing_but_noise_unexplained():
    x, labels = population(LOGISTIC)
    learner = Refit(FACTS, population(LOGISTIC, rows=400, seed=8)[0])
    learn(learner, x, labels)
    assert learner.rows_suit
    assert 0.5 < learner.misfit < 1.5


def test_with_public_rows_a_rare_class_is_learned():
    """Three in a hundred records are positive. The model is much better than their share alone."""
    x, _ = population(LOGISTIC)
    scores = x @ np.array([-6, 4, -3, 2, 0, 1])
    labels = (np.random.default_rng(3).random(6000) < 1 / (1 + np.exp(-scores))).astype(float)
    share = labels.mean()
    assert 0.01 < share < 0.05
    learner = Refit(FACTS, population(LOGISTIC, rows=400, seed=8)[0])

    learn(learner, x, labels)

    loss_of_share = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert loss(LOGISTIC, x, labels, learner.model) < 0.8 * loss_of_share


@pytest.mark.parametrize(
    "begun",
    [
        lambda: Descent(FACTS),
        lambda: Refit(FACTS, population(LOGISTIC, 400, seed=8)[0]),
        lambda: Refit(FACTS, near_a_line(np.linspace(-0.6, 0.6, 6), 400, 1)),
    ],
    ids=["no public rows", "public rows that fit", "public rows of another population"],
)
def test_a_restored_learner_goes_on_exactly_as_it_would_have(begun):
    """After every round, a new learner takes over the state, as JSON. It makes the same of the next
    answers, bit for bit.
    """
    x, labels = population(LOGISTIC)
    learner, random = begun(), np.random.default_rng(4)
    while not learner.done:
        restored = begun()
        restored.restore(json.loads(json.dumps(learner.state())))

        sums_of_boards, _ = answer(learner, x, labels, random)
        learner.learn(*sums_of_boards)
        restored.learn(*sums_of_boards)

        assert restored.state() == learner.state()
        assert np.array_equal(restored.weights, learner.weights)


def test_the_state_of_another_model_is_refused():
    other = Descent(replace(FACTS, features=7))
    with pytest.raises(UsageError, match="state"):
        Descent(FACTS).restore(other.state())


def test_a_learner_that_has_dropped_its_rows_can_go_back_to_its_beginning():
    x, labels = population(LOGISTIC)
    learner = Refit(FACTS, near_a_line(np.linspace(-0.6, 0.6, 6), 400, 1))
    beginning, rounds = learner.state(), learner.rounds
    learn(learner, x, labels)
    assert not learner.rows_suit

    learner.restore(beginning)

    assert learner.state() == beginning
    assert learner.rounds == rounds
    assert learner.rows_suit


# A rare class


def rare(rows=10_000, share=0.1, seed=5):
    """Records of two classes, of which so large a share is of the class 1."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, 6))
    x[:, 0] = 1
    scores = x[:, 1:] @ [3.0, -2.0, 1.5, 0.0, 1.0]
    order = np.argsort(scores + rng.logistic(size=rows))
    labels = np.zeros(rows)
    labels[order[-int(share * rows) :]] = 1
    return x, labels


def learned(rho, share=0.1, seed=1):
    """The log-loss of a model that twenty boards learned, of the best one, and of class shares."""
    x, labels = rare(share=share)
    facts = replace(FACTS, boards=20, records=500, rho=rho)
    learner = Descent(facts)
    learn(learner, x, labels, seed=seed)
    best = minimize(lambda weights: loss(LOGISTIC, x, labels, weights), np.zeros(6)).fun
    shares = -share * math.log(share) - (1 - share) * math.log(1 - share)
    return loss(LOGISTIC, x, labels, learner.model), best, shares


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_the_survey_finds_the_share_of_a_class(share):
    x, labels = rare(share=share)
    learner = Descent(replace(FACTS, boards=20, records=500))
    random = np.random.default_rng(1)
    for _ in range(6):
        sums_of_boards, _ = answer(learner, x, labels, random)
        learner.learn(*sums_of_boards)
    predicted = 1 / (1 + math.exp(-learner.weights[0]))
    assert predicted == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("share", [0.02, 0.1])
def test_with_a_rare_class_and_little_noise_the_model_is_near_the_optimum(share):
    log_loss, best, _ = learned(rho=4.0, share=share)  # about epsilon 20 at delta 1e-6
    assert log_loss < best + 0.01


@pytest.mark.parametrize("share", [0.02, 0.1])
def test_with_a_rare_class_and_much_noise_the_model_is_no_worse_than_class_shares(share):
    log_loss, _, shares = learned(rho=0.017, share=share)  # about epsilon 1 at delta 1e-6
    assert log_loss < shares


def test_more_epsilon_is_no_worse_for_a_rare_class():
    at_one, _, _ = learned(rho=0.017)
    at_twenty, _, _ = learned(rho=4.0)
    assert at_twenty < at_one


def test_public_rows_are_not_used_if_noise_hides_whether_they_suit():
    x, labels = rare(rows=2_000, share=0.5)
    rows, _ = rare(rows=400, seed=6)
    learner = Refit(replace(FACTS, boards=20, records=100, rho=0.002), rows)
    learn(learner, x, labels)
    assert not learner.rows_suit
    assert not learner.can_be_checked


def test_labels_in_a_narrow_part_of_their_range_are_learned():
    """Most labels are near -1, as counts are whose bound is large: the mean label is the least that
    a model must reach.
    """
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (10_000, 6))
    x[:, 0] = 1
    labels = np.clip(-0.95 + rng.exponential(0.05, 10_000) * (1.5 + x[:, 1]), -1, 1)
    learner = Descent(replace(FACTS, model=LINEAR, boards=20, records=500, rho=0.2))
    learn(learner, x, labels)
    assert loss(LINEAR, x, labels, learner.model) < labels.var()
