"""Simulated fleets answer like a fleet of devices, and a run over them can be repeated."""

import tracemalloc
from array import array

import numpy as np
import pytest
from simulating import ask

from tern import gradient as gradients
from tern import wire
from tern.card import decode
from ternhost import datasets
from ternhost.count.questions import Question
from ternhost.count.rounds import COMPLETE
from ternhost.datasets import Holdings
from ternhost.errors import RefusedError
from ternhost.learn.collecting import estimate
from ternhost.privacy.mechanisms import design
from ternhost.reach.simulated import driver as simulated
from ternhost.reach.simulated.driver import SimulatedDriver

RECORDS = datasets.synthetic.logistic(4000, 5).records(np.arange(4000))


def fleet_with(records=RECORDS, seed=1, *, clients=None, each=1, individual=False):
    """A driver whose client i (from 0), the device i + 1, holds record i modulo the number of
    records.
    """
    holdings = Holdings(records, np.arange(len(records)), each)
    return SimulatedDriver(holdings, clients, seed, individual=individual)


PARAMETERS = array("h", range(0, 4500, 900))


def gradient_question(k, card):
    return Question(wire.LOGISTIC, PARAMETERS, -12, card, k)


def mean_gradient():
    """The mean over all records of the gradient that a device computes."""
    device = gradients.Gradient(5)
    total, out = np.zeros(5), array("h", bytes(10))
    for row in RECORDS:
        device.reset()
        device.add(wire.LOGISTIC, PARAMETERS, -12, array("h", row.tolist()))
        device.finish(out)
        total += np.array(out) / 16384
    return total / len(RECORDS)


@pytest.mark.parametrize(("mechanism", "k"), [("three-outputs", 1), ("pm-sub", 5)])
def test_counts_estimate_the_mean_gradient(mechanism, k):
    """A host gets the number of times that each symbol was reported, and no single report. From
    100,000 simulated clients these counts give the mean gradient, as the code of the device
    computes it without noise, within the stated standard error. Every client reports k symbols, one
    for each of k coordinates.
    """
    card = design(mechanism, 4).card
    driver = fleet_with(seed=8, clients=25 * len(RECORDS))  # 25 clients for each of 4,000 records
    result = ask(driver, [(gradient_question(k, card), driver.devices)])
    assert (result.ended, result.reports, result.asked) == (COMPLETE, 100_000, 100_000)
    counts = result.cohorts[0].counts
    assert counts.sum() == k * 100_000

    estimated = estimate.combine([(decode(card), counts)])
    error = abs(estimated.mean - mean_gradient())
    assert (error < 4.5 * estimated.standard_error).all()  # once in 150,000 by chance
    assert estimated.standard_error.max() < 0.05


def test_a_round_is_repeated_by_its_seed_and_differs_from_the_next():
    """Simulated noise follows from the seed of the fleet and the number of the round: the same for
    the same pair, and another one if either changes.
    """
    question = gradient_question(1, design("duchi", 1).card)

    def counts(seed, number):
        """The counts of this round of a fleet with this seed."""
        (cohort,) = ask(fleet_with(seed=seed), [(question, range(1, 3001))], number).cohorts
        return cohort.counts

    first = counts(seed=5, number=7)
    assert np.array_equal(counts(seed=5, number=7), first)
    assert not np.array_equal(counts(seed=5, number=8), first)
    assert not np.array_equal(counts(seed=6, number=7), first)


def test_a_card_that_does_not_certify_is_refused():
    card = bytearray(design("duchi", 1).card)
    card[1:5] = (999_000).to_bytes(4, "little")  # it claims an epsilon of 0.999
    question = Question(wire.VALUES, [1] * 5, -12, bytes(card), 1)
    with pytest.raises(RefusedError):
        ask(fleet_with(), [(question, range(1, 101))])


def test_values_of_many_clients_are_estimated_in_parts(monkeypatch):
    """Memory does not grow with the number of clients: a large fleet is simulated in parts, after
    each of which a status is given. The estimate is that of the whole.
    """
    monkeypatch.setattr("ternhost.reach.simulated.driver._CHUNK", 1 << 15)  # 32,768 at once
    rng = np.random.default_rng(4)
    values = rng.integers(-16384, 16385, (60_000, 4)).astype(np.int16)  # the last is the label
    card = design("three-outputs", 2).card
    statuses, driver = [], fleet_with(values, 3)
    # Each of 60,000 clients reports two (k) of its three features.
    driver.open(1, [(Question(wire.VALUES, [1, 1, 1], -12, card, 2), driver.devices)])
    result = driver.collect(1, statuses.append)

    assert len(statuses) > 1
    assert statuses[-1].reports == result.reports == 60_000
    counts = result.cohorts[0].counts
    assert counts.sum() == 2 * 60_000, "k is 2"
    estimated = estimate.combine([(decode(card), counts)])
    error = abs(estimated.mean - values[:, :3].mean(axis=0) / 16384)  # in fixed point, 16384 is 1
    assert (error < 4.5 * estimated.standard_error).all()


def gradients_of_owners(counts):
    """The gradients of clients that hold so many records each, over all of them."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    holdings = Holdings(RECORDS, np.arange(starts[-1]), max(counts), starts)
    question = Question(wire.LOGISTIC, PARAMETERS, -14, design("duchi", 1.0).card, 1)
    cohort = simulated._CohortRound(3, question, decode(question.card), bits=None)
    clients = np.arange(len(counts))
    return SimulatedDriver(holdings)._inputs(cohort, clients, chosen=None)


def test_clients_with_different_numbers_of_records_use_all_of_them():
    """A device with 3, 40 or 100 records reports the mean gradient of all of them in each round."""
    counts = [3, 40, 100, 40, 7]
    computed = gradients_of_owners(counts)
    first = 0
    for count, of_client in zip(counts, computed, strict=True):
        device = gradients.Gradient(5, many=True)
        out = array("h", bytes(10))
        device.reset()
        for row in RECORDS[first : first + count]:
            device.add(wire.LOGISTIC, PARAMETERS, -14, array("h", row.tolist()))
        device.finish(out)
        assert of_client.tolist() == list(out)
        first += count


def test_gradients_do_not_depend_on_how_many_clients_are_computed_at_a_time(monkeypatch):
    counts = [3, 40, 100, 40, 7]
    together = gradients_of_owners(counts)
    monkeypatch.setattr(simulated, "_CHUNK", 1)
    assert np.array_equal(gradients_of_owners(counts), together)


def test_a_round_about_all_records_needs_little_memory():
    """The 8,000 clients hold 300 records of 6 numbers each, 14 million numbers in all."""
    holdings = Holdings(RECORDS, np.arange(8000 * 300) % len(RECORDS), 300)
    question = Question(wire.LOGISTIC, PARAMETERS, -14, design("duchi", 1.0).card, 1)
    fleet = SimulatedDriver(holdings)
    tracemalloc.start()
    ask(fleet, [(question, fleet.devices)])
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    bytes_at_a_time = 30 * simulated._CHUNK  # of a record-value, in several arrays
    assert peak_bytes < bytes_at_a_time
