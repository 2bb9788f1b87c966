"""The aggregator's core, fed with frames that the device library itself encodes."""

import random
from array import array
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec import answers

from tern import card as cards
from tern import coordinates, frames, wire
from ternhost.count import batches
from ternhost.count.aggregator import Aggregator, Statistics
from ternhost.count.questions import Question, round_body
from ternhost.count.rounds import COMPLETE, DEADLINE, QUORUM, Ending
from ternhost.errors import StorageError, UsageError
from ternhost.privacy.mechanisms import design

D = 7
KEYS = {device: bytes([device]) * 32 for device in range(1, 7)}
CARD = cards.decode(design("three-outputs", 1).card)
OTHER = cards.decode(design("duchi", 2).card)


def question(card=CARD, k=2):
    return Question(wire.LOGISTIC, list(range(-3, 4)), -12, card.data, k, batch=1)


def digest(device, number=1, key=None, to=None):
    return answers.question(key or KEYS[device], device, round_body(number, to or question()))


def report(device, number=1, symbols=(0, 2), card=CARD, key=None, to=None):
    """A REPORT to a question, by default `question()`."""
    base = card.symbols
    packed = sum(symbol * base**i for i, symbol in enumerate(symbols))
    packed = packed.to_bytes(frames.packed_size(base, len(symbols)), "little")
    return answers.report(digest(device, number, key, to), device, number, packed)


def error(device, code, detail=0, number=1, key=None):
    if device == wire.BOARD:
        return answers.board_error(number, code, detail)
    return answers.error(digest(device, number, key), device, number, code, detail)


def chosen(digest, d=D, k=2):
    """The coordinates that a device chooses for this digest of its question."""
    out = array("H", bytes(2 * k))
    coordinates.choose(digest, d, k, out)
    return list(out)


def counts_of(symbols_by_device):
    """Counts by coordinate and symbol of the reports of these devices to `question()`."""
    counts = np.zeros((D, 3), int)
    for device, symbols in symbols_by_device.items():
        for coordinate, symbol in zip(chosen(digest(device)), symbols, strict=True):
            counts[coordinate, symbol] += 1
    return counts


@pytest.fixture
def store(store):
    store.add_devices(KEYS)
    return store


@pytest.fixture
def aggregator(store):
    return Aggregator(store)


def open_round(aggregator, devices=(1, 2, 3), number=1, **options):
    """Ask these devices at 100.0; options: when the round ends."""
    aggregator.open(number, [(question(), devices)], now=100.0, ending=Ending(**options))
    return aggregator


@pytest.fixture
def asked(aggregator):
    """An aggregator that has asked three devices."""
    return open_round(aggregator)


def as_if_from(frame, device):
    """The frame of device 1, as if another had sent it."""
    return frame.replace((1).to_bytes(4, "little"), device.to_bytes(4, "little"), 1)


def flipped(frame, bit):
    """The frame with a bit flipped."""
    frame = bytearray(frame)
    frame[bit // 8] ^= 1 << bit % 8
    return bytes(frame)


def test_counts_are_by_coordinate_and_symbol(asked):
    symbols_by_device = {1: (0, 2), 2: (1, 1), 3: (2, 0)}
    for device, symbols in symbols_by_device.items():
        asked.accept([report(device, symbols=symbols)], now=101.0)
    result = asked.ended(1, now=101.0)
    assert (result.ended, result.reports, result.asked) == (COMPLETE, 3, 3)
    np.testing.assert_array_equal(result.cohorts[0].counts, counts_of(symbols_by_device))


@pytest.mark.parametrize(
    ("kind", "batch"),
    [
        ("accepted", [report(1)]),
        ("late", [report(2, number=9)]),
        ("unasked", [report(4)]),
        ("unknown", [as_if_from(report(1), 99)]),
        ("forged", [report(2, key=KEYS[3]), error(3, wire.ERR_BUDGET, detail=5, key=KEYS[1])]),
        ("damaged", [b"", b"\x82", bytes(2560)]),
        ("forged", [report(2)[:-1]]),  # cut
        ("refused", [error(3, wire.ERR_BUDGET, detail=5)]),
        ("unread", [error(2, wire.ERR_TAG), error(wire.BOARD, wire.ERR_FRAME)]),
    ],
)
def test_every_frame_is_accounted_for(asked, kind, batch):
    asked.accept(batch, now=101.0)
    assert asked.statistics == Statistics(**{kind: len(batch)})


def test_no_flipped_bit_is_accepted(asked):
    for bit in range(8 * len(report(1))):
        assert asked.accept([flipped(report(1), bit)], now=101.0).reports == []


def test_a_round_ends_when_its_quorum_has_reported(aggregator):
    open_round(aggregator, devices=(1, 2, 3), quorum=2)
    aggregator.accept([report(1)], now=101.0)
    assert aggregator.ended(1, now=101.0) is None
    aggregator.accept([report(2)], now=101.0)
    result = aggregator.ended(1, now=101.0)
    assert (result.ended, result.reports) == (QUORUM, 2)


def test_a_report_after_the_quorum_is_late(aggregator, store):
    open_round(aggregator, devices=(1, 2, 3), quorum=2)
    aggregator.accept([report(1), report(2)], now=101.0)
    aggregator.ended(1, now=101.0)
    aggregator.accept([report(3)], now=101.0)
    assert aggregator.statistics.late == 1
    assert [device for device, _ in store.reports(1)] == [1, 2]


@pytest.fixture
def aggregator_with_deadline(aggregator):
    """An aggregator whose round ends at 110.0, before which device 1 has reported."""
    open_round(aggregator, deadline=10.0)  # it begins at 100.0
    aggregator.accept([report(1)], now=109.9)
    return aggregator


def test_a_round_ends_at_its_deadline(aggregator_with_deadline):
    assert aggregator_with_deadline.ended(1, now=109.9) is None
    result = aggregator_with_deadline.ended(1, now=110.0)
    assert (result.ended, result.reports) == (DEADLINE, 1)


def test_a_report_at_the_deadline_is_late(aggregator_with_deadline, store):
    aggregator_with_deadline.accept([report(2)], now=110.0)
    assert aggregator_with_deadline.ended(1, now=110.0).reports == 1
    assert aggregator_with_deadline.statistics.late == 1
    assert [device for device, _ in store.reports(1)] == [1]


def test_refused_and_given_up_devices_complete_a_round(asked):
    asked.accept([report(1), error(2, wire.ERR_POLICY, detail=7)], now=101.0)
    assert asked.ended(1, now=101.0) is None
    asked.give_up(1, [3, 1, 99])
    result = asked.ended(1, now=101.0)
    assert (result.ended, result.reports, list(result.refusals)) == (COMPLETE, 1, [2])


def test_cohorts_are_counted_apart(aggregator):
    """A round may ask groups of devices (cohorts) different questions. Here two devices are asked
    for 2 values each, and one for 3 values with another card.
    """
    two_values, three_values = question(CARD, k=2), question(OTHER, k=3)
    aggregator.open(1, [(two_values, [1, 2]), (three_values, [5])], now=0.0)
    report_of_5 = report(5, symbols=(1, 0, 1), card=OTHER, to=three_values)
    aggregator.accept([report_of_5, report(1)], now=0.0)
    aggregator.give_up(1, [2])

    first, second = aggregator.ended(1, now=0.0).cohorts
    assert (first.reports, first.counts.shape) == (1, (D, CARD.symbols))
    assert (second.reports, second.counts.shape) == (1, (D, OTHER.symbols))
    assert first.counts.sum() == 2, "a count for each of two values"
    assert second.counts.sum() == 3


@pytest.fixture
def resumed(asked, store):
    """The aggregator of a new process, which reads the store. Device 1 of 3 had reported before."""
    asked.accept([report(1)], now=101.0)
    aggregator = Aggregator(store)
    assert aggregator.resume(now=500.0) == [1], "the number of the open round"
    return aggregator


def test_a_host_that_has_crashed_asks_the_same_questions(asked, resumed):
    for device in (1, 2, 3):
        assert resumed.request(1, device) == asked.request(1, device)


def test_a_host_that_has_crashed_knows_who_has_answered(resumed):
    assert resumed.unanswered(1) == [2, 3]


def test_a_host_that_has_crashed_counts_each_device_once(resumed):
    resumed.accept([report(1), report(2), report(3)], now=501.0)
    assert resumed.statistics.duplicate == 1
    (cohort,) = resumed.ended(1, now=501.0).cohorts
    same_symbols = dict.fromkeys((1, 2, 3), (0, 2))
    np.testing.assert_array_equal(cohort.counts, counts_of(same_symbols))


OTHER_QUESTION = Question(wire.LOGISTIC, [0] * D, -12, CARD.data, 2, batch=1)


def test_answers_to_a_question_that_this_host_never_asked_do_not_count(asked, store):
    """An attacker with the fleet's key has published it instead of the round, and honest devices
    have answered.
    """
    forged = [report(device, to=OTHER_QUESTION) for device in (1, 2)]
    refusal = answers.error(digest(3, to=OTHER_QUESTION), 3, 1, wire.ERR_BUDGET)
    accepted = asked.accept([*forged, answers.reports(*forged), refusal], now=101.0)
    assert (accepted.reports, accepted.refusals) == ([], [])
    assert store.report_count() == 0
    assert asked.ended(1, now=101.0) is None
    assert asked.statistics.forged == 5


def test_an_answer_of_another_device_or_round_does_not_count(asked):
    """A frame begins with its kind, its device and its round; the tag is about all of it."""
    open_round(asked, number=2)
    frame, two = report(1, number=1), (2).to_bytes(4, "little")
    kind, device, number, rest = frame[:1], frame[1:5], frame[5:9], frame[9:]
    of_device_2 = kind + two + number + rest
    of_round_2 = kind + device + two + rest
    for moved in (of_device_2, of_round_2):
        asked.accept([moved, answers.reports(moved)], now=101.0)
    assert asked.statistics == Statistics(forged=4)


def test_a_report_counts_once_however_it_is_packed(asked, store):
    """Reports come as single frames or several in one frame. Only the first one of a device counts,
    and a second one with other values changes nothing.
    """
    of_1, of_2, other_of_2 = report(1), report(2), report(2, symbols=(2, 2))
    together = answers.reports(of_1, of_2, of_1)
    asked.accept([of_1, together, of_2], now=101.0)
    asked.accept([answers.reports(other_of_2, of_1)], now=101.0)
    asked.accept([other_of_2], now=101.0)

    symbols = slice(9, -8)  # between the head of a frame and its tag
    assert store.reports(1) == [(1, of_1[symbols]), (2, of_2[symbols])]
    assert asked.statistics == Statistics(accepted=2, duplicate=6)


@pytest.fixture
def aggregator_of_a_mixed_frame(aggregator):
    """An aggregator that has accepted one frame, with good reports of devices 1, 2 and 5 and bad
    reports among them.
    """
    three_values = question(OTHER, k=3)
    cohorts = [(question(), [1, 2]), (three_values, [5]), (question(), [3])]
    aggregator.open(1, cohorts, now=0.0)

    of_other_cohort = report(5, symbols=(1, 0, 1), card=OTHER, to=three_values)
    last_bit_of_tag = 8 * len(report(2)) - 1
    with_wrong_tag = flipped(report(2), last_bit_of_tag)
    # Symbols of this card are 0, 1 and 2, and two of them are packed as a number below 9.
    with_impossible_symbols = answers.report(digest(3), 3, 1, b"\xff")
    of_devices_that_were_not_asked = [report(4), report(6, key=KEYS[1])]
    of_an_unknown_device = as_if_from(report(1), 99)
    frame = answers.reports(
        with_wrong_tag,
        with_impossible_symbols,
        *of_devices_that_were_not_asked,
        of_an_unknown_device,
        report(1),
        report(2),
        of_other_cohort,
    )
    aggregator.accept([frame], now=0.0)
    return aggregator


def test_good_reports_count_beside_bad_ones_in_the_same_frame(aggregator_of_a_mixed_frame, store):
    assert [device for device, _ in store.reports(1)] == [1, 2, 5]


def test_the_bad_reports_of_a_frame_are_counted_by_what_is_wrong(aggregator_of_a_mixed_frame):
    expected = Statistics(accepted=3, forged=1, damaged=1, unasked=2, unknown=1)
    assert aggregator_of_a_mixed_frame.statistics == expected


def test_the_unanswered_among_some_devices_are_those_that_were_asked(asked):
    not_asked = 7
    assert asked.unanswered(1, among=[not_asked, 3, 1]) == [1, 3]


def test_nothing_counts_that_was_not_committed(asked, store):
    """The disk is full when two reports come. They do not count until they were sent again and
    stored.
    """
    full = mock.patch.object(store, "add_reports", side_effect=StorageError("full"))
    with full, pytest.raises(StorageError):
        asked.accept([report(1), report(2)], now=101.0)
    assert asked.unanswered(1) == [1, 2, 3]
    assert asked.statistics.accepted == 0
    asked.accept([report(1), report(2), report(3)], now=101.0)
    assert asked.ended(1, now=101.0).cohorts[0].counts.sum() == 6


IMPOSSIBLE = {
    "no cohort": [],
    "a device twice": [(question(), [1, 1])],
    "a device in two cohorts": [(question(), [1]), (question(), [1])],
    "an unknown device": [(question(), [77])],
    "more values than weights": [(question(k=D + 1), [1])],
    "an exponent below -30": [(Question(wire.LOGISTIC, [0] * D, -40, CARD.data, 1), [1])],
    "a cut card": [(Question(wire.LOGISTIC, [0] * D, -12, CARD.data[:-1], 1), [1])],
}


@pytest.mark.parametrize("cohorts", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_round_that_cannot_be_asked_is_refused(aggregator, store, cohorts):
    with pytest.raises(UsageError):
        aggregator.open(1, cohorts, now=0.0)
    assert store.last_round() == 0


# Batches against the device library, report by report


def rows(data):
    """Byte strings of one length as the rows of an array."""
    return np.frombuffer(b"".join(data), np.uint8).reshape(len(data), -1)


def altered(data, i):
    """The bytes with one bit of byte i flipped."""
    return data[:i] + bytes((data[i] ^ 1,)) + data[i + 1 :]


@given(
    device=st.integers(0, 2**32 - 1),
    number=st.integers(0, 2**32 - 1),
    packed=st.binary(min_size=1, max_size=300),
    digest=st.binary(min_size=32, max_size=32),
)
def test_a_batch_accepts_the_tag_of_a_single_frame_and_no_other(device, number, packed, digest):
    """Tags of reports are verified many at a time. The result must be that of verifying each one:
    the right tag is accepted; a tag with a changed byte, or of another question, is not.
    """
    tag = answers.report(digest, device, number, packed)[-8:]
    wrong_tags = [altered(tag, i) for i in range(8)]
    tags = [tag, *wrong_tags, tag]
    digests = [digest] * 9 + [altered(digest, 8)]  # the last tag is right for another question
    devices = [device.to_bytes(4, "little")] * 10
    verified = batches.verify(rows(digests), number, rows(devices), rows([packed] * 10), rows(tags))
    assert verified.tolist() == [True] + [False] * 9


@pytest.mark.parametrize(("d", "k"), [(1, 1), (28, 28), (256, 60), (257, 1), (1024, 1023)])
def test_a_batch_has_the_coordinates_that_devices_choose(d, k):
    """Which k of d coordinates a device reports follows from the digest of its question. The host
    computes that for many devices at a time, and must get what the device library gets. At d = 257,
    half of the draws are rejected, and some digests have no coordinate in their eight bytes.
    """
    source = random.Random(d * k)
    digests = [source.randbytes(32) for _ in range(1000)]
    batch = batches.choose(rows(digests), d, k).tolist()
    compared = 1 if k > 60 else 1000  # the device library is slow in Python
    assert batch[:compared] == [chosen(digest, d, k) for digest in digests[:compared]]
