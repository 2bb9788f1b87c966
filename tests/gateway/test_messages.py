"""The messages between hosts and gateways: what was encoded is decoded, and all else is refused."""

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
from terngateway.round import answer_to, check_answer, without_names
from ternhost.count.cohort import Cohort
from ternhost.count.members import pack_ids
from ternhost.count.questions import Averaged, Question, round_body
from ternhost.count.rounds import Refusal, RoundResult, StoredCohort
from ternhost.privacy.mechanisms import design
from ternhost.store.tallies import pack_counts

CARD = design("three-outputs", 1).card
LAPLACE = design("laplace", epsilon_micro=1_000_000).card
GRADIENT = Question(wire.LOGISTIC, [100] * 3, -14, CARD, 1)
NUMBER = 7


def ids(*devices):
    return np.array(devices, np.int64)


def ask(*devices, question=GRADIENT, **fields):
    return Ask(NUMBER, [StoredCohort(round_body(NUMBER, question), ids(*devices))], **fields)


def answer(question, counts, reports, refusals=(), results=()):
    packed = pack_counts(np.asarray(counts, np.int64))
    single = [pack_counts(rows) for rows in results]
    return Answer(NUMBER, question.digest, "complete", [reports], list(refusals), [packed], single)


BUDGETS = [(0, 60, 5_000_000, 1_000, 3), (1, None, 9, 1, 2)]
EVERY = [
    Hello(),
    ask(1, 2, 5, individual=True, categories=[3], quorum=0.5, deadline=3.5, hold=2.0),
    ask(1, 2, toward_server=[1_000_000, 1e-6, 0.9]),
    Model(Averaged(1, [1, -2, 32767], -14)),
    Here(ids(1, 7, 9), 3, "mqtt", "0.1.0", boards=2, budgets=BUDGETS, single_results=True),
    Here(ids(1), 3, "mqtt", "0.1.0", toward_server=[250_000, 1e-9, 1], told=messages.MOST_TOLD),
    Still(NUMBER, 12),
    answer(ask(1, 2, 3), np.eye(3), 3, [(6, 100, 2)]),
    Refused(NUMBER, "no", "why"),
    Taken(),
]
EACH_MESSAGE = pytest.mark.parametrize("message", EVERY, ids=lambda each: type(each).__name__)


def require_refused(data):
    with pytest.raises(messages.MessageError):
        messages.decode(data)


@EACH_MESSAGE
def test_every_message_is_decoded_as_it_was_encoded(message):
    data = message.encode()
    again = messages.decode(data)
    assert again.encode() == data
    assert type(again) is type(message)
    assert messages.kind_of(data) == data[1]


@EACH_MESSAGE
def test_a_message_of_another_length_or_protocol_is_refused(message):
    data = message.encode()
    old_protocol, unknown_kind = bytes([1]), bytes([99])
    require_refused(old_protocol + data[1:])
    require_refused(data[:1] + unknown_kind + data[2:])

    empty_part, short_part = struct.pack("<I", 0), struct.pack("<I", 1) + b"x"
    for surplus in (b"\0", 2 * empty_part, 2 * short_part):
        require_refused(data + surplus)
    for length in range(len(data)):
        require_refused(data[:length])


@EACH_MESSAGE
def test_a_message_with_an_unknown_missing_or_mistyped_member_is_refused(message):
    # Protocol and kind, the length of the head (u32), the head in JSON, and parts.
    data = message.encode()
    (length,) = struct.unpack_from("<I", data, 2)
    head, parts = json.loads(data[6 : 6 + length]), data[6 + length :]

    def require_head_refused(changed):
        text = json.dumps(changed).encode()
        require_refused(data[:2] + struct.pack("<I", len(text)) + text + parts)

    require_head_refused({**head, "more": 1})
    require_head_refused([head])
    for name in head:
        require_head_refused({other: head[other] for other in head if other != name})
        for wrong in ({}, [[]], 1e300, -1, float("nan")):
            require_head_refused({**head, name: wrong})


@pytest.mark.parametrize(
    "bound",  # micro-epsilon, delta, and the share of honest devices
    [
        pytest.param([], id="no bound"),
        pytest.param([10**6, 1e-6], id="no share"),
        pytest.param([0, 1e-6, 1], id="no epsilon"),
        pytest.param([1.5, 1e-6, 1], id="a fraction of a micro-epsilon"),
        pytest.param([10**6, 0, 1], id="no delta"),
        pytest.param([10**6, float("nan"), 1], id="a delta that is no number"),
        pytest.param([10**6, 1e-6, 0], id="nobody honest"),
        pytest.param([10**6, 1e-6, 1.1], id="more than all honest"),
    ],
)
def test_a_bound_that_is_none_is_refused(bound):
    for message in (ask(1, 2), Here(ids(1), 3, "mqtt", "0.1.0")):
        with pytest.raises(messages.MessageError, match="toward_server"):
            messages.decode(replace(message, toward_server=bound).encode())


BOMB = zlib.compress(bytes(5 * messages.MOST_DEVICES), 9)


@pytest.mark.parametrize(
    "packed",
    [pack_ids([2, 1]), pack_ids([3, 3]), pack_ids([0, 1]), pack_ids([wire.FLEET]), b"x", BOMB],
    ids=["unsorted", "twice", "below 1", "of the fleet", "not packed", "too large when inflated"],
)
def test_devices_that_are_none_are_refused(packed):
    without_devices = Here(ids(), 0, "port", "1").encode()[: -len(pack_ids(ids())) - 4]
    require_refused(without_devices + struct.pack("<I", len(packed)) + packed)


def test_a_device_in_two_cohorts_is_refused():
    require_refused(Ask(NUMBER, [*ask(1, 2).cohorts, *ask(2, 3).cohorts]).encode())


def test_too_many_devices_are_refused_before_they_are_inflated(monkeypatch):
    """Each cohort may have as many devices as the cohorts before it have left of 1,000."""
    body = round_body(NUMBER, GRADIENT)
    cohorts = [
        StoredCohort(body, np.arange(1, 401)),
        StoredCohort(body, np.arange(401, 801)),
        StoredCohort(body, np.arange(801, 1002)),  # one more than 200
    ]
    seen_limits, unpack_ids = [], messages.unpack_ids

    def unpack(packed, most):
        seen_limits.append(most)
        return unpack_ids(packed, most)

    monkeypatch.setattr(messages, "MOST_DEVICES", 1000)
    monkeypatch.setattr(messages, "unpack_ids", unpack)
    require_refused(Ask(NUMBER, cohorts).encode())

    assert seen_limits == [1000, 600, 200]


def test_the_digest_covers_the_questions_and_devices_but_no_time_limit():
    question = ask(1, 2)
    other_weights = Question(wire.LOGISTIC, [100, 100, 101], -14, CARD, 1)
    limits = {"quorum": 0.1, "deadline": 9.0, "hold": 1.0, "toward_server": [1, 1e-6, 1]}

    other_devices = ask(1, 3)
    single_results = ask(1, 2, individual=True)
    other_question = ask(1, 2, question=other_weights)

    assert replace(question, **limits).digest == question.digest
    for other in (other_devices, single_results, other_question):
        assert other.digest != question.digest


# Answers are checked before they count

NONE = [0, 0, 0]  # of a coordinate, no report


@pytest.mark.parametrize(
    ("reports", "counts"),  # of three symbols at each of three coordinates
    [
        pytest.param(5, [[5, 0, 0], NONE, NONE], id="more reports than devices"),
        pytest.param(2, [[1, 0, 0], NONE, NONE], id="fewer counts than reports"),
        pytest.param(2, [[1, 1, 0], [1, 0, 0], NONE], id="more counts than reports"),
        pytest.param(2, [[3, -1, 0], NONE, NONE], id="a count below 0"),
        pytest.param(2, [[2**62] * 3, [2**62, 2, 0], NONE], id="counts that overflow"),
        pytest.param(2, [[2, 0, 0], NONE], id="a coordinate is missing"),
        pytest.param(2, [[2, 0], [0, 0], [0, 0]], id="a symbol is missing"),
    ],
)
def test_an_impossible_answer_of_four_devices_does_not_count(reports, counts):
    question = ask(1, 2, 3, 4)
    with pytest.raises(messages.MessageError):
        check_answer(answer(question, counts, reports), question)


def test_more_refusals_than_devices_do_not_count():
    question = ask(1, 2, 3, 4)
    two_reports = [[2, 0, 0], NONE, NONE]
    three_refuse = [(wire.ERR_BUDGET, 0, 3)]
    with pytest.raises(messages.MessageError):
        check_answer(answer(question, two_reports, 2, three_refuse), question)


def test_a_device_that_reports_a_coordinate_twice_does_not_count():
    question = ask(1, 2, question=Question(wire.LOGISTIC, [100] * 3, -14, CARD, 2))
    check_answer(answer(question, [[1, 0, 0], [1, 0, 0], NONE], 1), question)
    with pytest.raises(messages.MessageError, match="more often"):
        check_answer(answer(question, [[1, 1, 0], NONE, NONE], 1), question)


@pytest.mark.parametrize(
    "change",
    [
        {"digest": ask(1, 3).digest},
        {"number": NUMBER + 1},
        {"reports": [0, 0], "counts": [pack_counts(np.zeros((3, 3), int))] * 2},
    ],
    ids=["other devices", "another round", "two cohorts"],
)
def test_the_answer_to_another_question_does_not_count(change):
    right = answer(ask(1, 2), np.zeros((3, 3), int), 0)
    check_answer(right, ask(1, 2))
    with pytest.raises(messages.MessageError):
        check_answer(replace(right, **change), ask(1, 2))


def test_single_results_that_nobody_asked_for_do_not_count():
    question, counts = ask(1), [[1, 0, 0], NONE, NONE]
    check_answer(answer(question, counts, 1), question)
    with pytest.raises(messages.MessageError, match="single results"):
        check_answer(answer(question, counts, 1, results=[np.array([[0]])]), question)


@pytest.mark.parametrize(
    "results",
    [
        pytest.param([[[2, 5]]], id="another symbol"),
        pytest.param([[[2, 4], [2, 4]]], id="of two devices"),
        pytest.param([[[-1, 4]]], id="no symbol"),
        pytest.param([], id="no results"),
    ],
)
def test_single_results_must_add_up_to_the_counts(results):
    """One device reported symbol 2 of the first class and symbol 4 of the second."""
    vector = Question(wire.SOFTMAX, [1] * 6, -14, LAPLACE, 2, classes=2)
    question = ask(1, 2, question=vector, individual=True)
    counts = np.zeros((2, cards.decode(LAPLACE).symbols), int)
    counts[0, 2] = 1
    counts[1, 4] = 1
    check_answer(answer(question, counts, 1, results=[np.array([[2, 4]])]), question)

    with pytest.raises(messages.MessageError):
        check_answer(answer(question, counts, 1, results=map(np.array, results)), question)


def test_refusals_are_sent_by_reason_without_device_ids():
    question = ask(*range(1, 200))
    refusals = {}
    for device in range(1, 102):
        refusals[device] = Refusal(device, NUMBER, code=wire.ERR_BUDGET, detail=device)
    (asked,) = question.cohorts
    cohort = Cohort(asked.body, 199).result()
    result = RoundResult(NUMBER, "complete", 199, 0, refusals, [cohort])

    answered = answer_to(question, result)
    decoded = without_names(NUMBER, messages.decode(answered.encode()).refusals, 1)

    assert len(answered.refusals) == messages.MOST_REASONS, "rare details are joined to others"
    assert len(decoded) == 101
    assert {refusal.device for refusal in decoded.values()} == {wire.BOARD}
