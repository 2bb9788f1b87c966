"""Targets of the fuzzing that are the host's alone; see targets.py."""

import os
import queue
import struct
from array import array
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import report_frames
from spec import answers

from harness import seeds, verdicts
from tern import card as cards
from tern import coordinates, frames, wire
from ternhost.count import batches
from ternhost.count.aggregator import Aggregator
from ternhost.count.questions import Averaged, Question, decode_body, question_of, round_body
from ternhost.count.rounds import Cohort
from ternhost.errors import StorageError, UsageError
from ternhost.privacy.mechanisms import design
from ternhost.reach.broker.access import Access
from ternhost.reach.gateway import messages
from ternhost.reach.gateway.messages import (
    Answer,
    Ask,
    Hello,
    Here,
    MessageError,
    Model,
    Refused,
    Still,
    Taken,
)
from ternhost.reach.gateway.round import check
from ternhost.reach.links import read_hello
from ternhost.reach.ports.link import SerialLink
from ternhost.store.store import Store
from ternhost.store.tallies import pack_counts

HERE = 5  # the number of a round in an input: it stands for that of the round under way
CARD = design("three-outputs", 1).card
_COHORTS = ((cards.TABLE, (1, 2, 3), 2), (cards.LAPLACE, (4, 5), 1))  # shape, devices, k
_UNASKED = 6
_ROUNDS = 300  # of a store, before it is made anew


def questions(data):
    """A body that is taken out of a store is one that the host would have put there."""
    try:
        asked = decode_body(data)
        cards.decode(asked.card)
    except (frames.FrameError, cards.CardError):
        return
    number = struct.unpack_from("<I", data)[0]
    with suppress(UsageError):  # longer than a frame
        assert round_body(number, question_of(asked)) == data


def packed(data):
    """Packed symbols, of any base and number: one by one or by the thousand they are the same."""
    if len(data) < 3:
        return
    k, base, data = data[0] % 64 + 1, max(2, struct.unpack_from("<H", data, 1)[0]), data[3:]
    out = array("H", bytes(2 * k))
    try:
        report_frames.unpack(data, k, base, out)
        fits = True
    except frames.FrameError:
        fits = False
    if len(data) == frames.packed_size(base, k):
        symbols, good = batches.unpack(np.frombuffer(data, np.uint8)[None], k, base)
        assert bool(good[0]) == fits
        again = bytearray(len(data))
        assert not fits or symbols[0].tolist() == out.tolist()
        assert not fits or (
            0 <= frames.pack(out, k, base, again, 0, len(again)) <= len(data) and again == data
        )
    else:
        assert not fits


class OnHost:
    """Targets that need a store or a port; files are in `folder`."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self._store = None
        self._opened = 0
        self._link = None
        self._ends = ()

    def close(self):
        if self._store:
            self._store.close()
        if self._link:
            self._link.close()
        for end in self._ends:
            os.close(end)

    def access(self, data):
        """host.json."""
        (self.folder / "host.json").write_bytes(data)
        with suppress(UsageError, StorageError):
            Access.load(self.folder / "host.json")

    def serial(self, data):
        """What a board sends over its port: frames for the aggregator, answers to the host's questions, and credits."""
        if not self._link:
            self._ends = os.openpty()
            self._events = queue.SimpleQueue()
            self._link = SerialLink(os.ttyname(self._ends[1]), self._events)
        self._link._awaits_hello = True
        receiver = frames.Receiver()
        for at in range(0, len(data), 100):
            self._link._take(receiver, data[at : at + 100])
        heard = 0
        while not self._events.empty():
            event = self._events.get()
            assert event.error is None
            assert all(len(frame) <= wire.MAX_FRAME for frame in event.frames)
            heard += len(event.frames)
        while not self._link._hellos.empty():
            frame = self._link._hellos.get()
            heard += 1
            with suppress(frames.FrameError):
                read_hello(frame)
        assert heard <= data.count(0)
        assert self._link.backlog() == 0

    def aggregate(self, data):
        """What becomes of a batch of frames is what becomes of each of its reports, looked at alone."""
        aggregator, number, asked = self._open()
        batch = [self._frame(how, body, number, asked) for how, body in verdicts.messages(data)]
        expected = {}
        rows = sum(reports_in(frame) for frame in batch)
        for frame in batch:
            for report in _reports(frame):
                device, symbols = self._judge(report, number, asked)
                if device:
                    expected.setdefault(device, symbols)
        before = vars(aggregator.statistics).copy()
        result = aggregator.accept(batch, 0.0)
        after = vars(aggregator.statistics)
        assert sum(after.values()) - sum(before.values()) == rows
        assert sorted(result.reports) == sorted((number, device) for device in expected)
        assert aggregator.accept(batch, 0.0).reports == []
        self._counts(aggregator, number, asked, expected)

    def _open(self):
        if self._opened % _ROUNDS == 0:
            if self._store:
                self._store.close()
            path = self.folder / "store.sqlite"
            for old in self.folder.glob("store.sqlite*"):
                old.unlink()
            self._store = Store(path)
            self._store.add_devices({device: bytes([device]) * 32 for device in range(1, _UNASKED + 1)})
            self._aggregator = Aggregator(self._store)
        self._opened += 1
        number = (self._opened - 1) % _ROUNDS + HERE + 1
        shapes = dict(seeds.some_cards())
        cohorts = [
            (Question(wire.LOGISTIC, [0] * verdicts.D, -14, shapes[shape], k), devices)
            for shape, devices, k in _COHORTS
        ]
        self._aggregator.open(number, cohorts, 0.0)
        asked = {}
        for question, devices in cohorts:
            body = round_body(number, question)
            for device in devices:
                digest = answers.question(bytes([device]) * 32, device, body)
                asked[device] = (digest, cards.decode(question.card), question.k)
        return self._aggregator, number, asked

    @staticmethod
    def _frame(how, body, number, asked):
        # Sealed with the key of whom it names; a REPORTS row by row.
        if how == verdicts.FLEET and len(body) > 1:
            size = body[0] % 8 + 1
            frame = struct.pack("<BIH", wire.REPORTS, number, size)
            for at in range(1, len(body) - size, size + 1):
                report = (
                    struct.pack("<BII", wire.REPORT, body[at] & 15, number) + body[at + 1 : at + 1 + size]
                )
                digest = asked.get(body[at] & 15, (bytes(32),))[0] if body[at] < 128 else bytes(32)
                frame += report[1:5] + report[9:] + answers.sealed(digest, report)[-8:]
            return frame
        if struct.unpack_from("<I", body, 5)[0] == HERE if len(body) >= 9 else False:
            body = body[:5] + struct.pack("<I", number) + body[9:]
        if how == verdicts.CLIENT and len(body) >= 5:
            return answers.sealed(asked.get(struct.unpack_from("<I", body, 1)[0], (bytes(32),))[0], body)
        return verdicts.sealed(how, body)

    @staticmethod
    def _judge(report, number, asked):
        device, of = struct.unpack_from("<II", report, 1)
        if of == number and device in asked:
            digest, card, k = asked[device]
            symbols = array("H", bytes(2 * k))
            with suppress(frames.FrameError):
                report_frames.decode_report(report, frames.answer_key(digest), k, card.symbols, symbols)
                return device, symbols
        return 0, None

    def _counts(self, aggregator, number, asked, expected):
        # What the round has told in the end, coordinate by coordinate.
        aggregator.give_up(number, list(asked))
        result = aggregator.ended(number, 0.0)
        assert result.reports == len(expected)
        for (_, devices, k), cohort in zip(_COHORTS, result.cohorts, strict=True):
            counts = np.zeros_like(cohort.counts)
            for device in set(devices) & expected.keys():
                chosen = [0] * k
                coordinates.choose(asked[device][0], verdicts.D, k, chosen)
                for coordinate, symbol in zip(chosen, expected[device], strict=True):
                    counts[coordinate, symbol] += 1
            assert np.array_equal(counts, cohort.counts)
        assert {device for device, _ in self._store.reports(number)} == expected.keys()
        self._store.end_round(number, result.ended)


def _reports(frame):
    if not frame or len(frame) > wire.MAX_FRAME:
        return []
    if frame[0] == wire.REPORTS:
        with suppress(frames.FrameError):
            return report_frames.reports_of(frame)
    return [frame] if frame[0] == wire.REPORT and len(frame) >= 17 else []


def reports_in(frame):
    """How many entries of the statistics a frame makes: one for each report, and one for what is no frame."""
    if 9 <= len(frame) <= wire.MAX_FRAME and frame[0] == wire.REPORTS:
        row = 12 + struct.unpack_from("<H", frame, 5)[0]
        if (len(frame) - 7) % row == 0:
            return (len(frame) - 7) // row
    return 1


_ASKED = Ask(
    HERE, [Cohort(round_body(HERE, Question(wire.LOGISTIC, [100] * 3, -14, CARD, 1)), np.arange(1, 9))]
)


def gateways(data):
    """What a gateway or its host says is refused, or comes back as it was; no answer counts that cannot be."""
    try:
        message = messages.decode(data)
    except MessageError:
        return
    again = message.encode()
    assert messages.decode(again).encode() == again
    if isinstance(message, Answer):
        with suppress(MessageError):
            (told,) = check(replace(message, number=HERE, digest=_ASKED.digest), _ASKED)
            assert told.counts.shape == (3, 3)
            assert told.counts.min() >= 0
            assert told.counts.sum() == told.reports <= 8


def gateway_messages():
    """Seeds of `gateways`."""
    counts = np.zeros((3, 3), np.int64)
    counts[0, 1] = 2
    answer = Answer(HERE, _ASKED.digest, "complete", [2], [(6, 1, 1)], [pack_counts(counts)])
    here = Here(np.arange(1, 9), 3, "mqtt", "1", 2, 5, True)
    model = Model(Averaged(1, [1, -2], -14))
    every = (Hello(), _ASKED, model, here, Still(HERE, 1), answer, Refused(HERE, "no", "why"), Taken())
    return [message.encode() for message in every]


PLAIN = {"questions": questions, "packed": packed, "gateways": gateways}
