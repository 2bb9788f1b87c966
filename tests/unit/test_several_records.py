"""Simulated clients with several records, and not all of them equally many, compute what a board
computes of the same records, client by client.
"""

import itertools
from array import array
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from simulating import ask

from tern import collect, gradient, inference, local, softmax, wire
from tern.card import decode
from ternhost import vectorised
from ternhost.count.questions import Question, values_of
from ternhost.datasets import Holdings
from ternhost.learn.inference.clustering import noise_card
from ternhost.privacy import projection, sums
from ternhost.privacy.mechanisms import design
from ternhost.reach.simulated.driver import SimulatedDriver

COUNTS = [1, 5, 40, 2, 40, 33, 7, 1]  # records of the clients; a batch has 32 at most
FEATURES, CLASSES = 4, 3
RNG = np.random.default_rng(5)
RECORDS = RNG.integers(-16384, 16385, (sum(COUNTS), FEATURES + 1)).astype(np.int16)
RECORDS[:, -1] = RNG.integers(0, CLASSES, len(RECORDS))
STARTS = np.cumsum([0, *COUNTS])
HOLDINGS = Holdings(RECORDS, np.arange(len(RECORDS)), max(COUNTS), STARTS)
CARD = design("pm-sub", 4).card
OF_CLASSES = [900, -900, 8000, 7, 0, 9000, 5, -500, 3000, 1, 2, -4000]
QUESTIONS = {
    "linear": Question(wire.LINEAR, [4000, -9000, 100, 50], -13, CARD, FEATURES),
    "logistic": Question(wire.LOGISTIC, [9000, -9000, 100, 50], -13, CARD, FEATURES, range=2),
    "svm": Question(wire.SVM, [900, 900, 0, -3], -13, CARD, FEATURES, batch=3),
    "softmax": Question(
        wire.SOFTMAX_GRADIENT, OF_CLASSES, -13, CARD, CLASSES * FEATURES, batch=2, classes=CLASSES
    ),
    "values": Question(wire.VALUES, [1, 0, 1, 1], -13, CARD, 3),
    "probabilities": Question(
        wire.SOFTMAX, OF_CLASSES, -13, noise_card(2_000_000), CLASSES, classes=CLASSES
    ),
    "training": Question(
        wire.LOCAL + wire.LOGISTIC,
        [9000, -9000, 100, 50],
        -14,
        CARD,
        FEATURES,
        batch=8,
        local=(2, 1, 4000),
    ),
}
ANSWERERS = {
    wire.SOFTMAX_GRADIENT: softmax,
    wire.VALUES: collect,
    wire.SOFTMAX: inference,
    wire.LOCAL + wire.LOGISTIC: local,
}


class RecordsOfBoard:
    """Reads records as storage.Records does, from an array."""

    def read(self, index, row):
        row[:] = array("h", RECORDS[index].tolist())


def values_of_board(question, client, number):
    """What the device library computes for a client, before it draws noise."""
    epochs, rate, tau = question.local or (0, 0, 0)
    request = SimpleNamespace(
        model=question.model,
        parameters=array("h", question.parameters),
        asked=question.parameters,
        exponent=question.exponent,
        range=question.range,
        classes=question.classes,
        batch=question.batch,
        round=number,
        d=FEATURES,
        changes=1,
        k=question.k,
        epochs=epochs,
        rate=rate,
        tau=tau,
    )
    answerer = ANSWERERS.get(question.model, gradient).Answerer(request)
    board_client = SimpleNamespace(
        device=client + 1, start=int(STARTS[client]), records=COUNTS[client]
    )
    values = answerer.values(board_client, RecordsOfBoard(), decode(question.card))
    return list(values[: question.k])


@pytest.fixture
def inputs(monkeypatch):
    """The values that simulated clients drew noise for, filled by a round."""
    drawn = []
    sample = vectorised.sample

    def kept(card, lanes, values):
        drawn.append(np.asarray(values))
        return sample(card, lanes, values)

    monkeypatch.setattr(vectorised, "sample", kept)
    return drawn


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("number", [1, 2, 11])
def test_each_client_computes_what_a_board_computes_of_its_records(name, number, inputs):
    question = QUESTIONS[name]
    assert question.k == values_of(question), "all values, in order"
    ask(SimulatedDriver(HOLDINGS), [(question, range(1, len(COUNTS) + 1))], number)
    (simulated,) = inputs
    for client in range(len(COUNTS)):
        assert simulated[client].tolist() == values_of_board(question, client, number), client


def test_a_projection_is_of_the_mean_gradient_of_a_client(monkeypatch):
    made = projection.design(4_000_000, FEATURES, 0.5)
    question = replace(QUESTIONS["linear"], card=made.card, k=1, range=made.range)
    draw = vectorised.projection.draw
    gradients_of_batches = []

    def draw_and_keep(card, lanes, values, rotations):
        gradients_of_batches.append(values)
        return draw(card, lanes, values, rotations)

    monkeypatch.setattr(vectorised.projection, "draw", draw_and_keep)
    ask(SimulatedDriver(HOLDINGS), [(question, range(1, len(COUNTS) + 1))], 3)
    (gradients,) = gradients_of_batches
    whole_gradient = replace(question, k=FEATURES, card=CARD)
    for client in range(len(COUNTS)):
        assert gradients[client].tolist() == values_of_board(whole_gradient, client, 3)


def test_sums_are_over_all_records_of_a_client(monkeypatch):
    made = sums.design(
        sums.SumPlan(
            cost=200_000, unit=2, radius=0.7, clipped=90, kept=-40, units=20, values=FEATURES + 1
        )
    )
    question = replace(
        QUESTIONS["logistic"], card=made.card, k=FEATURES + 1, range=made.range, batch=0
    )
    symbols = vectorised.sums.symbols
    sums_of_batches = []

    def draw_and_keep(card, lanes, values):
        sums_of_batches.append(values)
        return symbols(card, lanes, values)

    monkeypatch.setattr(vectorised.sums, "symbols", draw_and_keep)
    ask(SimulatedDriver(HOLDINGS), [(question, range(1, len(COUNTS) + 1))])
    parameters = vectorised.ModelParameters(
        wire.LOGISTIC, np.array(question.parameters), question.exponent
    )
    (sums_of_clients,) = sums_of_batches
    for client, (start, end) in enumerate(itertools.pairwise(STARTS)):
        rows = RECORDS[None, start:end]
        expected = vectorised.sums.sums(decode(made.card), parameters, rows, made.range)
        assert sums_of_clients[client].tolist() == expected[0].tolist()


def test_a_part_of_the_clients_is_answered_for_alike(inputs):
    """Clients 3 and 6 asked alone compute the same as among all."""
    question = QUESTIONS["logistic"]
    ask(SimulatedDriver(HOLDINGS), [(question, [3, 6])], 4)
    (simulated,) = inputs
    assert simulated.tolist() == [values_of_board(question, client, 4) for client in (2, 5)]
