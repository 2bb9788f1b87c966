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
    question_of,
    round_body,
    values_of,
)
from ternhost.datasets import Holdings
from ternhost.learn import estimate
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
    """The true sums of all clients, in the units of sums_of."""
    card, weights = cards.decode(question.card), np.array(ASKED[question.model])
    asked = (
        weights.reshape(2, -1) if question.classes == 2 else weights,
        -13,
        RECORDS.reshape(-1, EACH, 5),
    )
    total = vectorised.sums.sums(card, question.model, *asked, question.range).sum(axis=0) * 1.0
    total[:-1] *= sums.grid(sums.of(card), question.range)
    return total


@pytest.mark.parametrize("model", ASKED)
@pytest.mark.parametrize("norm", [1, 2])
def test_counts_estimate_the_sums_of_all_clients_and_the_tally(model, norm):
    question = question_about(model, sum_design(norm))
    (cohort,) = ask(SimulatedDriver(HOLDINGS, seed=3), [(question, range(1, 1001))]).cohorts
    assert (cohort.counts.sum(axis=1) == 1000).all()
    total, error = estimate.sums_of(cohort)
    assert (abs(total - exact_sums(question)) < 4.5 * error).all()
    assert error[0] == pytest.approx(np.sqrt(1000) * sum_design(norm).sigma, rel=0.02)
    assert error[-1] == pytest.approx(error[0] / sums.grid(sums.of(cohort.card), question.range))


def test_totals_are_unbiased_and_merge_over_cohorts_and_sites():
    """1,000 clients 400 times: an error of half a grid step a report would be seen."""
    question = question_about(
        wire.LOGISTIC, sum_design(cost=20_000_000, steps=100, clipped=0, kept=0)
    )
    assert sums.of(cards.decode(question.card)).coarse >= 2
    driver = SimulatedDriver(HOLDINGS, 400_000, seed=4)
    of_others = question_about(wire.LOGISTIC, sum_design()), range(1, 9)
    parts = (question, range(1, 100_001)), (question, range(100_001, 400_001)), of_others
    first, second, other = ask(driver, parts).cohorts
    whole = replace(first, counts=first.counts + second.counts, reports=400_000)
    total, error = estimate.sums_of(first, second)
    assert np.array_equal((total, error), estimate.sums_of(whole))
    assert (abs(total - 400 * exact_sums(question)) < 4.5 * error).all()
    assert 400_000 * 0.5 * sums.grid(sums.of(whole.card), question.range) > 5 * error[0]
    three, wider = estimate.sums_of(first, second, other)
    alone, of_other = estimate.sums_of(other)
    assert np.allclose((three, wider), (total + alone, np.hypot(error, of_other)))


def test_some_of_the_values_stand_for_all_clients():
    question = question_about(wire.LOGISTIC, sum_design(radius=0.3), k=2)
    (cohort,) = ask(
        SimulatedDriver(HOLDINGS, 100_000, seed=5), [(question, range(1, 100_001))]
    ).cohorts
    assert cohort.counts.sum() == 200_000
    total, error = estimate.sums_of(cohort)
    spread = 0.3 * 3 * np.sqrt(100_000 * 2.5)  # which clients report it
    assert (abs(total - 100 * exact_sums(question))[:-1] < 4.5 * np.hypot(error[:-1], spread)).all()
    nobody = replace(cohort, counts=cohort.counts * [[1], [1], [0], [1], [1]])
    assert np.isnan(estimate.sums_of(nobody)[0]).tolist() == [False, False, True, False, False]


def test_a_sum_costs_its_card_once_in_the_measure_of_the_ledger():
    for norm, in_rho in ((1, rho(200_000)), (2, None)):
        question = question_about(wire.LOGISTIC, sum_design(norm), k=3)
        request = decode_body(round_body(1, question))
        assert question_of(request) == replace(question, parameters=request.parameters)
        assert request.values == values_of(question) == 5
        assert cost_of(request) == cards.decode(question.card).epsilon <= 200_000
        assert cost_of(request, ledger.RHO) == (in_rho or cost_of(request))
    pure = decode_body(
        round_body(1, Question(wire.LOGISTIC, [1] * 4, -13, design("duchi", 1).card, 3))
    )
    assert (cost_of(pure), cost_of(pure, ledger.RHO)) == (3_000_000, 3 * rho(1_000_000))
