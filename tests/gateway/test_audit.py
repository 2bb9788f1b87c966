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
from terngateway.round import answer_to
from ternhost import vectorised
from ternhost.count.cohort import Cohort
from ternhost.count.questions import Question, round_body
from ternhost.count.rounds import COMPLETE, RoundResult, StoredCohort
from ternhost.privacy import cards, certify, composing, mechanisms
from ternhost.reach.simulated.driver import count
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
    """The probability of each symbol for a value."""
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
    first_end, second_end = ends
    first = law(card, first_end) / law(card, held)
    second = law(card, second_end) / law(card, held)
    return np.log(counts @ first) - np.log(counts @ second)


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
        ("three-outputs", 1, 10, 5, 1e-3, 40_000),  # a small delta
        ("three-outputs", 2, 100, 1, 1e-2, 200_000),  # one round
        ("grr", 2, 30, 5, 1e-2, 20_000),  # categories
        ("three-outputs", 0.5, 100, 60, 1e-2, 10_000),  # many rounds
    ],
)
def test_counts_tell_of_a_device_what_is_claimed_and_not_much_less(
    name, epsilon, devices, rounds, delta, runs
):
    card = card_of(name, epsilon)
    claimed = claim(card, rounds, delta, mixed=devices)

    found = audited(card, devices, rounds, delta, runs)

    assert claimed < claim(card, rounds, delta), "less than single reports"
    assert found < claimed
    assert found > claimed / 2  # what an audit of so many runs finds of a tight claim


def test_the_audit_finds_a_gateway_that_mixes_fewer_devices_than_it_claims():
    card = card_of("three-outputs", 1)
    false_claim = claim(card, rounds=5, delta=1e-2, mixed=100)

    found = audited(card, devices=10, rounds=5, delta=1e-2, runs=40_000)

    assert found > 1.5 * false_claim  # clearly, not by chance


def test_an_answer_is_the_same_in_whatever_order_the_devices_report():
    two_values = Question(wire.VALUES, [1, 1], 0, card_of("three-outputs", 1).data, 1)
    body = round_body(1, two_values)
    ask = messages.Ask(1, [StoredCohort(body, np.arange(1, 7))])
    reported_cells = [0, 5, 2, 2, 4, 3]  # of 2 values x 3 symbols, one of each device

    answers = set()
    for order in (reported_cells, reported_cells[::-1], sorted(reported_cells)):
        cohort = Cohort(body, 6)
        for cell in order:
            cohort.count(np.array([[cell]]))
        result = RoundResult(1, COMPLETE, 6, 6, {}, [cohort.result()])
        answers.add(answer_to(ask, result).encode())

    assert len(answers) == 1
