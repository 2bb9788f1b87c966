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
    """The epsilon that is claimed of a device in these rounds. mixed: devices of a count."""
    return composing.compose_exactly({composing.ReportKind.of(card).among(mixed): rounds}, delta)


def law(card, value):
    return np.array([float(p) for p in certify.distribution(card, value)])


def counts_at(card, value, held, devices, runs, bits):
    """Counts (runs x symbols) of a site's devices: the first holds `value`, the others `held`."""
    values = np.full((runs, devices), held, np.int16)
    values[:, 0] = value
    symbols = vectorised.sample(card, vectorised.RandomLanes(bits, runs), values)
    run_of_symbol = np.broadcast_to(np.arange(runs)[:, None], symbols.shape)
    return count(runs, card.symbols, run_of_symbol, symbols)


def ratios(card, counts, ends, held):
    """The log-likelihood ratios of counts: the mean of those of each symbol, as a report is among
    the others'.
    """
    p, q = (law(card, end) / law(card, held) for end in ends)
    return np.log(counts @ p) - np.log(counts @ q)


def epsilon_lower(likely, unlikely, delta, confidence):
    """A lower bound of epsilon at delta from a statistic that is larger in the first of two cases."""
    half = len(likely) // 2
    each = 1 - (1 - confidence) / 2

    def bound(threshold, runs):
        p = lower((likely[runs] > threshold).sum(), half, each)
        q = upper((unlikely[runs] > threshold).sum(), half, each)
        return math.log((p - delta) / q) if p > delta else -math.inf

    thresholds = np.quantile(likely[:half], 1 - np.geomspace(1.5 * delta, 0.99, 60))
    chosen = max(thresholds, key=lambda threshold: bound(threshold, slice(half)))
    return bound(chosen, slice(half, 2 * half))


def audited(card, devices, rounds, delta, runs):
    """The best lower bound over attacks on either value, all other devices holding either."""
    bits = vectorised.random_bits(SEED, devices, rounds)
    best = 0.0
    for ends, held in SIDES:
        statistics = []
        for end in ends:
            total = np.zeros(runs)
            for _ in range(rounds):
                counts = counts_at(card, end, held, devices, runs, bits)
                total += ratios(card, counts, ends, held)
            statistics.append(total)
        confidence = 1 - (1 - CONFIDENCE) / len(SIDES)
        best = max(best, epsilon_lower(*statistics, delta, confidence))
    return best


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "epsilon", "devices", "rounds", "delta", "runs"),
    [
        ("three-outputs", 1, 10, 5, 1e-3, 40_000),
        ("three-outputs", 1, 10, 1, 1e-2, 40_000),
        ("three-outputs", 2, 100, 1, 1e-2, 200_000),
        ("grr", 2, 30, 5, 1e-2, 20_000),
        ("three-outputs", 2, 100, 5, 1e-2, 40_000),
        ("three-outputs", 0.5, 100, 60, 1e-2, 10_000),
        ("three-outputs", 2, 30, 1, 1e-3, 40_000),
    ],
)
def test_counts_tell_of_a_device_what_is_claimed_and_not_much_less(
    name, epsilon, devices, rounds, delta, runs
):
    card = card_of(name, epsilon)
    claimed = claim(card, rounds, delta, devices)
    assert claimed < claim(card, rounds, delta), "less than single reports"
    assert claimed / 2 < audited(card, devices, rounds, delta, runs) < claimed


def test_the_audit_finds_a_gateway_that_mixes_fewer_devices_than_it_claims():
    card = card_of("three-outputs", 1)
    bound_of_ten = audited(card, devices=10, rounds=5, delta=1e-2, runs=40_000)
    assert bound_of_ten > 1.5 * claim(card, 5, 1e-2, mixed=100)


def answered_counts(card, value, held, devices, runs, number):
    """As `counts_at`, by the simulated fleet of a site and an answer of its gateway."""
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
    number, statistics = 0, []
    for end in ends:
        counts = []
        for _ in range(20):
            number += 1
            counts.append(answered_counts(card, end, held, 10, 250, number))
        statistics.append(ratios(card, np.concatenate(counts), ends, held))
    claimed = claim(card, 1, 1e-2, mixed=10)
    assert claimed / 2 < epsilon_lower(*statistics, 1e-2, CONFIDENCE) < claimed


def test_an_answer_is_the_same_in_whatever_order_the_devices_report():
    body = round_body(1, Question(wire.VALUES, [1, 1], 0, card_of("three-outputs", 1).data, 1))
    ask = messages.Ask(1, [StoredCohort(body, np.arange(1, 7))])
    cells = np.array([0, 5, 2, 2, 4, 3])[:, None]
    sent = set()
    for order in (cells, cells[::-1], np.sort(cells, axis=0)):
        cohort = Cohort(body, 6)
        for cell in order:
            cohort.count(cell[None])
        result = RoundResult(1, COMPLETE, 6, 6, {}, [cohort.result()])
        sent.add(answer_to(ask, result).encode())
    assert len(sent) == 1
