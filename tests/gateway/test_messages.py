"""The messages between hosts and gateways: each is decoded as it was encoded, and malformed ones
are refused.
"""

import json
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest

from tern import card as cards
from tern import wire
from terngateway import messages
from terngateway.messages import Answer, Ask, Hello, Here, Model, Refused, Still, Taken
from terngateway.round import answer_to, check, without_names
from ternhost.count.cohort import Cohort
from ternhost.count.members import pack_ids
from ternhost.count.questions import Averaged, Question, round_body
from ternhost.count.rounds import Refusal, RoundResult, StoredCohort
from ternhost.privacy.mechanisms import design
from ternhost.store.tallies import pack_counts

CARD = design("three-outputs", 1).card
LAPLACE = design("laplace", epsilon_micro=1_000_000).card
NUMBER = 7


def ids(*devices):
    return np.array(devices, np.int64)


def ask(*devices, question=None, **fields):
    question = question or Question(wire.LOGISTIC, [100] * 3, -14, CARD, 1)
    return Ask(NUMBER, [StoredCohort(round_body(NUMBER, question), ids(*devices))], **fields)


def answer(question, counts, reports, refusals=(), results=()):
    packed = pack_counts(np.asarray(counts, np.int64))
    single = [pack_counts(rows) for rows in results]
    return Answer(NUMBER, question.digest, "complete", [reports], list(refusals), [packed], single)


EVERY = [
    Hello(),
    ask(1, 2, 5, individual=True, categories=[3], quorum=0.5, deadline=3.5, hold=2.0),
    Model(Averaged(1, [1, -2, 32767], -14)),
    Here(
        ids(1, 7, 9),
        3,
        "mqtt",
        "0.1.0",
        2,
        [(0, 60, 5_000_000, 1_000, 3), (1, None, 9, 1, 2)],
        True,
    ),
    Here(ids(), 0, "port", "0.1.0"),
    ask(1, 2, toward_server=[1_000_000, 1e-6, 0.9]),
    Here(ids(1), 3, "mqtt", "0.1.0", toward_server=[250_000, 1e-9, 1], told=messages.MOST_TOLD),
    Still(NUMBER, 12),
    answer(ask(1, 2, 3), np.eye(3), 3, [(6, 100, 2)]),
    Refused(NUMBER, "no", "why"),
    Taken(),
]


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_every_message_is_decoded_as_it_was_encoded(message):
    data = message.encode()
    again = messages.decode(data)
    assert again.encode() == data
    assert type(again) is type(message)
    assert messages.kind_of(data) == data[1]


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_a_message_of_another_length_or_protocol_is_refused(message):
    data = message.encode()
    more = (b"\0", 2 * struct.pack("<I", 0), 2 * (struct.pack("<I", 1) + b"x"))
    wrong = [
        bytes([1]) + data[1:],
        data[:1] + bytes([99]) + data[2:],
        *(data + end for end in more),
    ]
    for malformed in (*wrong, *(data[:end] for end in range(len(data)))):
        with pytest.raises(messages.MessageError):
            messages.decode(malformed)


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_a_message_with_an_unknown_missing_or_mistyped_member_is_refused(message):
    data = message.encode()
    (length,) = struct.unpack_from("<I", data, 2)
    head, rest = json.loads(data[6 : 6 + length]), data[6 + length :]

    def refused(changed):
        text = json.dumps(changed).encode()
        with pytest.raises(messages.MessageError):
            messages.decode(data[:2] + struct.pack("<I", len(text)) + text + rest)

    refused({**head, "more": 1})
    refused([head])
    for name in head:
        refused({other: value for other, value in head.items() if other != name})
        for wrong in ({}, [[]], 1e300, -1, float("nan")):
            refused({**head, name: wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        [1],
        [10**6, 1e-6],
        [10**6, 1e-6, 1, 1],
        [0, 1e-6, 1],
        [-1, 1e-6, 1],
        [1.5, 1e-6, 1],
        [10**10, 1e-6, 1],
        [True, 1e-6, 1],
        ["1", 1e-6, 1],
        [10**6, 0, 1],
        [10**6, 1, 1],
        [10**6, -1e-6, 1],
        [10**6, 2, 1],
        [10**6, float("nan"), 1],
        [10**6, "1e-6", 1],
        [10**6, 1e-6, 0],
        [10**6, 1e-6, 1.1],
        [10**6, 1e-6, float("nan")],
        [10**6, 1e-6, None],
        {"epsilon": 1},
        "1",
        1,
        False,
    ],
    ids=str,
)
def test_a_wrong_bound_is_refused(wrong):
    for message in (ask(1, 2), Here(ids(1), 3, "mqtt", "0.1.0")):
        with pytest.raises(messages.MessageError, match="'toward_server' is not as it must be"):
            messages.decode(replace(message, toward_server=wrong).encode())


def test_unsorted_devices_and_compression_bombs_are_refused():
    head = Here(ids(), 0, "port", "1").encode()[: -len(pack_ids(ids())) - 4]
    bomb = zlib.compress(bytes(5 * messages.MOST_DEVICES), 9)
    for packed in (
        pack_ids([2, 1]),
        pack_ids([3, 3]),
        pack_ids([0, 1]),
        pack_ids([wire.FLEET]),
        b"x",
        bomb,
    ):
        with pytest.raises(messages.MessageError):
            messages.decode(head + struct.pack("<I", len(packed)) + packed)


def test_a_device_in_two_cohorts_is_refused():
    cohorts = [ask(*devices).cohorts[0] for devices in ((1, 2), (2, 3))]
    with pytest.raises(messages.MessageError, match="a device is asked twice"):
        messages.decode(Ask(NUMBER, cohorts).encode())


def test_too_many_devices_in_several_cohorts_are_refused_before_they_are_inflated(monkeypatch):
    monkeypatch.setattr(messages, "MOST_DEVICES", 1000)
    body = ask(1).cohorts[0].body

    def message(*sizes):
        parts = np.split(np.arange(sum(sizes)) + 1, np.cumsum(sizes)[:-1])
        return Ask(NUMBER, [StoredCohort(body, devices) for devices in parts]).encode()

    assert messages.decode(message(400, 400, 200)).asked == 1000
    inflated, unpack_ids = [], messages.unpack_ids
    monkeypatch.setattr(
        messages, "unpack_ids", lambda ids, n: inflated.append(n) or unpack_ids(ids, n)
    )
    for sizes in ((1001,), (400, 400, 201), (1000,) * 50):
        del inflated[:]
        with pytest.raises(messages.MessageError):
            messages.decode(message(*sizes))
        assert inflated == [1000, 600, 200][: len(sizes)] or inflated == [1000, 0]


def test_the_digest_covers_the_questions_and_devices_but_no_time_limit():
    question = ask(1, 2)
    within = {"quorum": 0.1, "deadline": 9.0, "hold": 1.0, "toward_server": [1, 1e-6, 1]}
    assert question.digest == replace(question, **within).digest
    assert len({question.digest, ask(1, 3).digest, ask(1, 2, individual=True).digest}) == 3
    assert messages.decode(question.encode()).digest == question.digest
    other_parameters = Question(wire.LOGISTIC, [100, 100, 101], -14, CARD, 1)
    assert ask(1, 2, question=other_parameters).digest != question.digest


# Answers are checked before they count

LIES = {
    "more reports than devices": ([[5, 0, 0], [0, 0, 0], [0, 0, 0]], 5, ()),
    "fewer counts than reports": ([[1, 0, 0], [0, 0, 0], [0, 0, 0]], 2, ()),
    "more counts than reports": ([[1, 1, 0], [1, 0, 0], [0, 0, 0]], 2, ()),
    "a count below 0": ([[3, -1, 0], [0, 0, 0], [0, 0, 0]], 2, ()),
    "counts that overflow": ([[2**62, 2**62, 2**62], [2**62, 2, 0], [0, 0, 0]], 2, ()),
    "refusals of more devices": ([[2, 0, 0], [0, 0, 0], [0, 0, 0]], 2, [(6, 0, 3)]),
    "other coordinates": ([[2, 0, 0], [0, 0, 0]], 2, ()),
    "other symbols": ([[2, 0], [0, 0], [0, 0]], 2, ()),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_impossible_answer_does_not_count(lie):
    counts, reports, refusals = LIES[lie]
    question = ask(1, 2, 3, 4)
    with pytest.raises(messages.MessageError):
        check(answer(question, counts, reports, refusals), question)


def test_a_device_that_reports_a_coordinate_twice_does_not_count():
    question = ask(1, 2, question=Question(wire.LOGISTIC, [100] * 3, -14, CARD, 2))
    check(answer(question, [[1, 0, 0], [1, 0, 0], [0, 0, 0]], 1), question)
    with pytest.raises(messages.MessageError, match="more often"):
        check(answer(question, [[1, 1, 0], [0, 0, 0], [0, 0, 0]], 1), question)


def test_the_answer_to_another_question_does_not_count():
    question = ask(1, 2)
    counts = np.zeros((3, 3), int)
    for other_question in (ask(1, 3), ask(1, 2, individual=True)):
        with pytest.raises(messages.MessageError, match="another question"):
            check(answer(other_question, counts, 0), question)
    with pytest.raises(messages.MessageError, match="another round"):
        check(replace(answer(question, counts, 0), number=8), question)
    twice = replace(answer(question, counts, 0), reports=[0, 0], counts=[pack_counts(counts)] * 2)
    with pytest.raises(messages.MessageError, match="other cohorts"):
        check(twice, question)


# Results of single devices


def test_an_answer_with_results_that_nobody_asked_for_does_not_count():
    counts, rows = [[1, 0, 0], [0, 0, 0], [0, 0, 0]], [np.array([[0]])]
    for question in (ask(1), ask(1, individual=True)):
        check(answer(question, counts, 1), question)
        with pytest.raises(messages.MessageError, match="nobody asked for"):
            check(answer(question, counts, 1, results=rows), question)
    with pytest.raises(messages.MessageError, match="without any content"):
        messages.decode(replace(answer(ask(1), counts, 1), results=[b""]).encode())


def test_single_results_must_add_up_to_the_counts():
    vector = Question(wire.SOFTMAX, [1] * 6, -14, LAPLACE, 2, classes=2)
    question = ask(1, 2, question=vector, individual=True)
    counts = np.zeros((2, cards.decode(LAPLACE).symbols), int)
    counts[0, 2] = counts[1, 4] = 1
    check(answer(question, counts, 1, results=[np.array([[2, 4]])]), question)
    for rows in ([[2, 5]], [[2, 4], [2, 4]], [[-1, 4]], [[10**9, 4]]):
        with pytest.raises(messages.MessageError):
            check(answer(question, counts, 1, results=[np.array(rows)]), question)
    with pytest.raises(messages.MessageError, match="lacks"):
        check(answer(question, counts, 1), question)


def test_refusals_are_sent_by_reason_without_device_ids():
    question = ask(*range(1, 200))
    refusals = {device: Refusal(device, NUMBER, 6, device % 100) for device in range(1, 101)}
    refusals[150] = Refusal(150, NUMBER, 7, 3)
    cohort = Cohort(question.cohorts[0].body, 199)
    answered = answer_to(
        question, RoundResult(NUMBER, "complete", 199, 0, refusals, [cohort.result()])
    )
    assert len(answered.refusals) == messages.MOST_REASONS
    assert sum(count for _, _, count in answered.refusals) == 101
    decoded = without_names(NUMBER, messages.decode(answered.encode()).refusals, 1)
    assert len(decoded) == 101
    assert max(decoded) < 0
    assert {refusal.device for refusal in decoded.values()} == {wire.BOARD}
