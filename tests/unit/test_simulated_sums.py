"""Rounds of simulated fleets about sums: counts that add up to what the clients hold, and what they
cost.
"""

from dataclasses import replace

import numpy as np
import pytest
from simulating import ask

from tern import card as cards
from tern import ledger, wire
from tern.sums import rho
from ternhost import vectorised
from ternhost.count.questions import (
    Question,
    cost_of,
    decode_body,
    round_body,
    values_of,
)
from ternhost.datasets import Holdings
from ternhost.learn.collecting import estimate
from ternhost.privacy import sums
from ternhost.privacy.mechanisms import design
from ternhost.reach.simulated.driver import SimulatedDriver

RECORDS = np.random.default_rng(1).integers(-16384, 16385, (6000, 5)).astype(np.int16)
EACH = 6
HOLDINGS = Holdings(RECORDS, np.arange(len(RECORDS)), EACH)
ASKED = {
    wire.LINEAR: [4000, -9000, 100, 0],
    wire.LOGISTIC: [9000, -9000, 100, 0],
    wire.SVM: [900, 900, 0, 0],
    wire.VALUES: [1, 0, 1, 1],
    wire.SOFTMAX_GRADIENT: [900, -900, 0, 7, 0, 9000, 5, 5],
}


def question_about(model, made, k=None):
    classes = 2 if model == wire.SOFTMAX_GRADIENT else 1
    question = Question(model, ASKED[model], -13, made.card, 1, classes=classes, range=made.range)
    return replace(question, k=k or values_of(question))


def sum_design(norm=2, cost=200_000, values=9, **more):
    asked = {"unit": 2, "radius": 0.7, "clipped": 90, "kept": -40, "units": 3, **more}
    return sums.design(sums.SumPlan(cost=cost, norm=norm, values=values, **asked))


def exact_sums(question):
    """The true sums of all clients, in the units of sums_of; the tally is the last one."""
    card, weights = cards.decode(question.card), np.array(ASKED[question.model])
    if question.classes == 2:
        weights = weights.reshape(2, -1)
    records_by_client = RECORDS.reshape(-1, EACH, 5)
    parameters = vectorised.ModelParameters(question.model, weights, exponent=-13)
    sums_by_client = vectorised.sums.sums(card, parameters, records_by_client, question.range)
    total = sums_by_client.sum(axis=0).astype(float)
    total[:-1] *= sums.grid(sums.of(card), question.range)
    return total


@pytest.mark.parametrize("model", ASKED)
@pytest.mark.parametrize("norm", [1, 2])
def test_counts_estimate_the_sums_of_all_clients_and_the_tally(model, norm):
    """Each client reports the sum of its clipped vectors with exact noise; the host adds up. The
    total is the exact one within its error, for each kind of question and norm. The last value, the
    tally, tells how many vectors were clipped.
    """
    clients, design = 1000, sum_design(norm)
    question = question_about(model, design)
    driver = SimulatedDriver(HOLDINGS, seed=3)
    (cohort,) = ask(driver, [(question, range(1, clients + 1))]).cohorts
    assert (cohort.counts.sum(axis=1) == clients).all(), "each reports every value"

    total, error = estimate.sums_of(cohort)
    assert (abs(total - exact_sums(question)) < 4.5 * error).all()  # 1 in 150,000 by chance
    # The noise of clients adds up; the tally, the last value, is in steps of the grid.
    assert error[0] == pytest.approx(np.sqrt(clients) * design.sigma, rel=0.02)
    grid_step = sums.grid(sums.of(cohort.card), question.range)
    assert error[-1] == pytest.approx(error[0] / grid_step)


# Little noise, and symbols of four steps of the grid or more.
COARSE_AND_EXACT = {"cost": 20_000_000, "steps": 100, "clipped": 0, "kept": 0}


@pytest.fixture(scope="module")
def cohorts():
    """Two cohorts of 100,000 and 300,000 clients with one question."""
    question = question_about(wire.LOGISTIC, sum_design(**COARSE_AND_EXACT))
    assert sums.of(cards.decode(question.card)).coarse >= 2
    parts = (question, range(1, 100_001)), (question, range(100_001, 400_001))
    return ask(SimulatedDriver(HOLDINGS, 400_000, seed=4), parts).cohorts


def test_totals_are_unbiased(cohorts):
    """1,000 clients 400 times: an error of half a grid step a report would be seen."""
    first, second = cohorts
    total, error = estimate.sums_of(first, second)
    assert (abs(total - 400 * exact_sums(first.question)) < 4.5 * error).all()
    half_step = 0.5 * sums.grid(sums.of(first.card), first.question.range)
    assert 400_000 * half_step > 5 * error[0]


def test_some_of_the_values_stand_for_all_clients():
    """Each client reports two of five values, chosen at random, so 40,000 of 100,000 report any of
    them. Scaled up, these estimate the sums of all clients; the error has a part for the choice
    beside the one for noise.
    """
    clients = 100_000
    question = question_about(wire.LOGISTIC, sum_design(radius=0.3), k=2)
    driver = SimulatedDriver(HOLDINGS, clients, seed=5)
    (cohort,) = ask(driver, [(question, range(1, clients + 1))]).cohorts
    assert cohort.counts.sum() == 2 * clients

    total, error = estimate.sums_of(cohort)
    largest_sum = 0.3 * 3  # of the three units of a client
    of_the_choice = largest_sum * np.sqrt(clients * 5 / 2)  # of the clients that report a value
    distance = abs(total - 100 * exact_sums(question))  # 100 clients hold the same records
    assert (distance[:-1] < 4.5 * np.hypot(error[:-1], of_the_choice)).all()


@pytest.mark.parametrize(
    ("norm", "price_in_rho"),
    [(1, rho(200_000)), (2, 200_000)],  # a Gaussian card is in rho
    ids=["laplace", "gaussian"],
)
def test_a_sum_costs_its_card_once_however_many_values_are_asked(norm, price_in_rho):
    question = question_about(wire.LOGISTIC, sum_design(norm), k=3)
    request = decode_body(round_body(1, question))
    certified = cards.decode(question.card).epsilon
    assert request.values == values_of(question) == 5
    assert cost_of(request) == certified <= 200_000
    assert cost_of(request, ledger.RHO) == pytest.approx(price_in_rho, rel=0.01)


def test_values_cost_their_card_each_in_the_measure_of_the_ledger():
    card = design("duchi", 1).card
    question = Question(wire.LOGISTIC, [1] * 4, -13, card, k=3)
    request = decode_body(round_body(1, question))
    assert cost_of(request) == 3 * 1_000_000
    assert cost_of(request, ledger.RHO) == 3 * rho(1_000_000)
