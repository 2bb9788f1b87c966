"""Given the key and the random bytes of a board, a simulated device sends the board's reports.

The vectors of whole rounds, rounds.json, say what a board sends that is asked about all of its many
records, about bins of numbers, or about categories that its card does not have. Device tests
require it of every instruction set.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from simulating import ask
from spec.files import key_of

from tern import frames, wire
from tern.card import decode
from ternhost import vectorised
from ternhost.count import batches
from ternhost.count.questions import question_of, values_of
from ternhost.datasets import Holdings
from ternhost.reach.simulated import driver as simulated

VECTORS = Path(__file__).parents[2] / "shared_specs/vectors/rounds.json"
DEVICE = 7
ABOUT = ("gradients of all of", "bins of numbers", "a category above")
ROUNDS = [
    case
    for case in json.loads(VECTORS.read_text())["rounds"]
    if any(subject in case["comment"] for subject in ABOUT)
]


def records_of(case):
    """The records of the board in a case."""
    data = bytes.fromhex(case["files"]["records.bin"])
    (d,) = np.frombuffer(data[4:6], "<u2")
    return np.frombuffer(data[10:], "<i2").reshape(-1, d + 1)


def simulated_symbols(records, request, digest, lanes, monkeypatch):
    """The report of a simulated device that holds these records.

    The board's randomness takes the place of the simulation's: lanes of its random bytes, and the
    digest of the question, which chooses coordinates and turns the vector of a projection. So does
    its id, by which it hashes categories.
    """
    question = question_of(request)
    digests = np.frombuffer(digest, np.uint8).reshape(1, 32)
    chosen = batches.choose(digests, values_of(question), question.k)
    holdings = Holdings(records, np.arange(len(records)), per_client=len(records))
    fleet = simulated.SimulatedDriver(holdings, clients=1, individual=True)
    hashes = vectorised.hashes([DEVICE], request.round)
    with monkeypatch.context() as patch:
        patch.setattr(simulated, "RandomLanes", lambda bits, count: lanes)
        patch.setattr(vectorised, "choose", lambda lanes, d, k: chosen)
        patch.setattr(vectorised, "hashes", lambda devices, number: hashes)
        patch.setattr(
            vectorised.projection,
            "random_signs",
            lambda card, lanes: vectorised.projection.signs(card, digests),
        )
        (cohort,) = ask(fleet, [(question, fleet.devices)], request.round).cohorts
    return cohort.answers.symbols.tolist()


@pytest.mark.parametrize("case", ROUNDS, ids=lambda case: case["comment"])
def test_a_simulated_device_sends_the_reports_of_a_board(case, monkeypatch):
    records = records_of(case)
    start, *steps = case["steps"]
    random_bytes = np.frombuffer(bytes.fromhex(start["start"]), np.uint8).reshape(1, -1)
    lanes = vectorised.ReplayLanes(random_bytes)

    for step in steps:
        frame = bytes.fromhex(step["frame"])
        request = frames.Round()
        request.decode(memoryview(frame))
        assert request.batch == 0
        digest = hashlib.sha256(key_of(DEVICE) + frame[: -wire.TAG_BYTES]).digest()
        symbols = simulated_symbols(records, request, digest, lanes, monkeypatch)

        (report,) = step["answers"]
        packed = np.frombuffer(bytes.fromhex(report)[9 : -wire.TAG_BYTES], np.uint8)
        card = decode(request.card)
        sent, _ = batches.unpack(packed.reshape(1, -1), request.k, card.symbols)
        assert symbols == sent.tolist()
    assert lanes._position.tolist() == [random_bytes.size], "as many bytes are drawn"
