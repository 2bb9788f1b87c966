"""An audit of what the counts of a gateway tell the server's owner: how well they say which of two
values one device of a simulated site holds, over one round and several, all other devices holding
what tells most.

The statistic is the exact log-likelihood ratio of the counts. Half of the runs choose a threshold,
the others bound both of its rates (Clopper and Pearson), and with them epsilon at delta from below.
"""

import math

import numpy as np
import pytest

from tern import wire
from tern.fixed import ONE
from terngateway import messages
from terngateway.round import answer_to, check
from ternhost import vectorised
from ternhost.count.cohort import Cohort
from ternhost.count.questions import Question, round_body
from ternhost.count.rounds import COMPLETE, RoundResult, StoredCohort
from ternhost.datasets import Holdings
from ternhost.privacy import cards, certify, composing, mechanisms
from ternhost.reach.simulated.driver import SimulatedDriver, count
from terntests.hil.audit import lower, upper

CONFIDENCE, SEED = 0.99, 3
SIDES = [(ends, held) for ends in ((ONE, -ONE), (-ONE, ONE)) for held in (ONE, -ONE)]
pytestmark = pytest.mark.slow


def card_of(name, epsilon):
    return cards.decode(mechanisms.design(name, epsilon).card)


def claim(card, rounds, delta, mixed=0):
    return composing.compose_exactly({composing.ReportKind.of(card).among(mixed): rounds}, delta)


def laws_of(card):
    return {x: np.array([float(p) for p in certify.distribution(card, x)]) for x in (ONE, -ONE)}


def counts_at(card, value, held, devices, runs, bits):
    """Counts of the devices of a site (runs x symbols), the first of which holds `value` and all
    others `held`.
    """
    values = np.full((runs, devices), held, np.int16)
    values[:, 0] = value
    symbols = vectorised.sample(card, vectorised.RandomLanes(bits, runs), values)
    return count(
        runs, card.symbols, np.broadcast_to(np.arange(runs)[:, None], symbols.shape), symbols
    )


def ratios(counts, laws, ends, held):
    """The log-likelihood ratios of counts: of a report among the others' it is the mean of those of
    each symbol.
    """
    p, q = (laws[x] / laws[held] for x in ends)
    return np.log(counts @ p) - np.log(counts @ q)


def epsilon_lower(likely, unlikely, delta, confidence):
    """A lower bound of epsilon at delta from a statistic that is larger in the first of two cases."""
    half, each = len(likely) // 2, 1 - (1 - confidence) / 2

    def bound(threshold, runs):
        most, least = ((case[runs] > threshold).sum() for case in (likely, unlikely))
        p, q = lower(most, half, each), upper(least, half, each)
        return math.log((p - delta) / q) if p > delta else -math.inf

    tails = np.quantile(likely[:half], 1 - np.geomspace(1.5 * delta, 0.99, 60))
    return bound(
        max(tails, key=lambda threshold: bound(threshold, slice(half))), slice(half, 2 * half)
    )


def audited(card, devices, rounds, delta, runs, seen=None):
    """The bound of the best of attacks on either value, all other devices holding either. seen: how
    many devices, the one in question among them, the gateway mixes (default: all).
    """
    laws, bits = laws_of(card), vectorised.random_bits(SEED, devices, rounds)
    best = 0.0
    for ends, held in SIDES:
        told = [
            sum(
                ratios(counts_at(card, x, held, seen or devices, runs, bits), laws, ends, held)
                for _ in range(rounds)
            )
            for x in ends
        ]
        best = max(best, epsilon_lower(*told, delta, 1 - (1 - CONFIDENCE) / len(SIDES)))
    return best


@pytest.mark.parametrize(
    ("name", "epsilon", "devices", "rounds", "delta", "runs"),
    [
        ("three-outputs", 1, 10, 1, 1e-2, 40_000),
        ("three-outputs", 1, 10, 5, 1e-3, 40_000),
        ("three-outputs", 2, 30, 1, 1e-3, 40_000),
        ("three-outputs", 1, 30, 5, 1e-2, 40_000),
        ("grr", 2, 30, 5, 1e-2, 40_000),
        ("three-outputs", 2, 100, 1, 1e-2, 200_000),
        ("three-outputs", 2, 100, 5, 1e-2, 40_000),
        ("three-outputs", 0.5, 100, 60, 1e-2, 10_000),
    ],
)
def test_counts_tell_of_a_device_what_is_claimed_and_not_much_less(
    name, epsilon, devices, rounds, delta, runs
):
    card = card_of(name, epsilon)
    claimed = claim(card, rounds, delta, devices)
    bound = audited(card, devices, rounds, delta, runs)
    assert claimed / 2 < bound < claimed < claim(card, rounds, delta), (bound, claimed)


def test_the_audit_finds_a_gateway_that_passes_reports_on_in_the_order_of_the_devices():
    card = card_of("three-outputs", 1)
    bound = audited(card, 30, 5, 1e-2, 40_000, seen=1)
    alone = claim(card, 5, 1e-2)
    assert 1.5 * claim(card, 5, 1e-2, 30) < bound
    assert alone / 2 < bound < alone


def test_the_audit_finds_a_gateway_that_mixes_ten_devices_at_a_time():
    card = card_of("three-outputs", 1)
    bound = audited(card, 100, 5, 1e-2, 40_000, seen=10)
    assert 1.5 * claim(card, 5, 1e-2, 100) < bound < claim(card, 5, 1e-2, 10)


def answered(card, value, held, devices, runs, number):
    """The counts as `counts_at` has them, by the simulated fleet of a site and an answer of its
    gateway.
    """
    question = Question(wire.VALUES, [1], 0, card.data, 1)
    ids = np.arange(1, devices + 1)
    records = np.full((devices, 2), held, np.int16)
    records[0] = value
    driver = SimulatedDriver(Holdings(records, ids - 1), devices, SEED)
    driver.open(number, [(question, ids)] * runs)
    ask = messages.Ask(number, [StoredCohort(round_body(number, question), ids)] * runs)
    answer = messages.decode(answer_to(ask, driver.collect(number)).encode())
    return np.concatenate([cohort.counts for cohort in check(answer, ask)])


def test_answers_of_a_gateway_tell_what_is_claimed_and_not_much_less():
    card, ends, held = card_of("three-outputs", 2), (-ONE, ONE), -ONE  # the most telling side
    told = []
    for i, x in enumerate(ends):
        counts = np.concatenate(
            [answered(card, x, held, 10, 250, 1 + 2 * j + i) for j in range(40)]
        )
        told.append(ratios(counts, laws_of(card), ends, held))
    claimed = claim(card, 1, 1e-2, 10)
    assert claimed / 2 < epsilon_lower(*told, 1e-2, CONFIDENCE) < claimed


def test_an_answer_is_the_same_in_whatever_order_the_devices_report():
    body = round_body(1, Question(wire.VALUES, [1, 1], 0, card_of("three-outputs", 1).data, 1))
    ask = messages.Ask(1, [StoredCohort(body, np.arange(1, 7))])
    cells = np.array([0, 5, 2, 2, 4, 3])[:, None]
    sent = []
    for order in (cells, cells[::-1], np.sort(cells, axis=0)):
        cohort = Cohort(body, 6)
        for cell in order:
            cohort.count(cell[None])
        sent.append(answer_to(ask, RoundResult(1, COMPLETE, 6, 6, {}, [cohort.result()])).encode())
    assert sent[0] == sent[1] == sent[2]
