"""Targets of the fuzzing in the host's code; see targets.py."""

import os
import queue
import struct
from array import array
from contextlib import suppress
from pathlib import Path

import numpy as np
import report_frames
from spec import answers

from harness import seeds, verdicts
from tern import card as cards
from tern import coordinates, frames, wire
from ternhost.count import batches
from ternhost.count.aggregator import Aggregator
from ternhost.count.questions import Question, decode_body, question_of, round_body
from ternhost.errors import StorageError, UsageError
from ternhost.privacy.mechanisms import design
from ternhost.reach.broker.access import Access
from ternhost.reach.links import read_hello
from ternhost.reach.ports.link import SerialLink
from ternhost.store.store import Store

try:
    from harness import gateway_messages
except ModuleNotFoundError:  # the package terngateway is not there
    gateway_messages = None

HERE = 5  # the round number in an input that stands for the number of the open round
CARD = design("three-outputs", 1).card
_COHORTS = ((cards.TABLE, (1, 2, 3), 2), (cards.LAPLACE, (4, 5), 1))  # shape, devices, k
_UNASKED = 6
_ROUNDS = 300  # of a store, before a new one replaces it


def questions(data):
    """A body that decodes from a store is one that the host would have stored."""
    try:
        request = decode_body(data)
        cards.decode(request.card)
    except (frames.FrameError, cards.CardError):
        return
    number = struct.unpack_from("<I", data)[0]
    with suppress(UsageError):  # longer than a frame
        assert round_body(number, question_of(request)) == data


def packed(data):
    """Unpacking symbols, of any base and number, gives the same one by one or by the thousand."""
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
        if fits:
            assert symbols[0].tolist() == out.tolist()
            again = bytearray(len(data))
            assert 0 <= frames.pack(out, array("i", (k, base, 0, len(again))), again) <= len(data)
            assert again == data
    else:
        assert not fits


class OnHost:
    """Targets that need a store, a port or a file. Files are in `folder`."""

    def __init__(self, folder):
        self.folder, self._store, self._opened = Path(folder), None, 0
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
        """Loading any host.json raises nothing but errors for the user."""
        path = self.folder / "host.json"
        path.write_bytes(data)
        with suppress(UsageError, StorageError):
            Access.load(path)

    def serial(self, data):
        """A serial link makes at most one frame of each part of a board's bytes, none of them too
        long.
        """
        if not self._link:
            self._ends, self._events = os.openpty(), queue.SimpleQueue()
            self._link = SerialLink(os.ttyname(self._ends[1]), self._events)
        self._link._awaits_hello = True
        receiver = frames.Receiver()
        for at in range(0, len(data), 100):
            self._link._take(receiver, data[at : at + 100])
        received = 0
        while not self._events.empty():
            event = self._events.get()
            assert event.error is None
            assert all(len(frame) <= wire.MAX_FRAME for frame in event.frames)
            received += len(event.frames)
        while not self._link._signs.empty():
            frame = self._link._signs.get()
            if frame[:1] == bytes([wire.HELLO]):
                received += 1
                with suppress(frames.FrameError):
                    read_hello(frame)
        assert received <= data.count(0)
        assert self._link.backlog() == 0

    def aggregate(self, data):
        """An aggregator treats a batch of frames as it treats each report in it alone."""
        aggregator, number, questions = self._open()
        batch = [self._frame(how, body, number, questions) for how, body in verdicts.messages(data)]
        expected = {}
        rows = sum(reports_in(frame) for frame in batch)
        for frame in batch:
            for report in _reports(frame):
                device, symbols = self._judge(report, number, questions)
                if device:
                    expected.setdefault(device, symbols)
        before = vars(aggregator.statistics).copy()
        result, after = aggregator.accept(batch, 0.0), vars(aggregator.statistics)
        assert sum(after.values()) - sum(before.values()) == rows
        assert sorted(result.reports) == sorted((number, device) for device in expected)
        assert aggregator.accept(batch, 0.0).reports == []
        self._counts(aggregator, number, questions, expected)

    def _open(self):
        # (aggregator, number of a round that it has just opened, (digest, card, k) by device).
        if self._opened % _ROUNDS == 0:
            if self._store:
                self._store.close()
            path = self.folder / "store.sqlite"
            for old in self.folder.glob("store.sqlite*"):
                old.unlink()
            self._store = Store(path)
            self._store.add_devices(
                {device: bytes([device]) * 32 for device in range(1, _UNASKED + 1)}
            )
            self._aggregator = Aggregator(self._store)
        self._opened += 1
        number = (self._opened - 1) % _ROUNDS + HERE + 1
        shapes = dict(seeds.some_cards())
        model = wire.LOGISTIC, [0] * verdicts.D, -14
        cohorts = [(Question(*model, shapes[shape], k), devices) for shape, devices, k in _COHORTS]
        self._aggregator.open(number, cohorts, 0.0)
        questions = {}
        for question, devices in cohorts:
            body = round_body(number, question)
            for device in devices:
                digest = answers.question(bytes([device]) * 32, device, body)
                questions[device] = (digest, cards.decode(question.card), question.k)
        return self._aggregator, number, questions

    @staticmethod
    def _frame(how, body, number, questions):
        # Sealed with the key of the device in it; a REPORTS row by row.
        unknown = (bytes(32),)
        if how == verdicts.FLEET and len(body) > 1:
            size = body[0] % 8 + 1
            frame = struct.pack("<BIH", wire.REPORTS, number, size)
            for at in range(1, len(body) - size, size + 1):
                device = body[at] & 15
                report = (
                    struct.pack("<BII", wire.REPORT, device, number) + body[at + 1 : at + 1 + size]
                )
                digest = (questions.get(device, unknown) if body[at] < 128 else unknown)[0]
                frame += report[1:5] + report[9:] + answers.sealed(digest, report)[-8:]
            return frame
        if len(body) >= 9 and struct.unpack_from("<I", body, 5)[0] == HERE:
            body = body[:5] + struct.pack("<I", number) + body[9:]
        if how == verdicts.CLIENT and len(body) >= 5:
            return answers.sealed(
                questions.get(struct.unpack_from("<I", body, 1)[0], unknown)[0], body
            )
        return verdicts.sealed(how, body)

    @staticmethod
    def _judge(report, number, questions):
        device, of = struct.unpack_from("<II", report, 1)
        if of == number and device in questions:
            digest, card, k = questions[device]
            symbols = array("H", bytes(2 * k))
            with suppress(frames.FrameError):
                report_frames.decode_report(
                    report, frames.answer_key(digest), k, card.symbols, symbols
                )
                return device, symbols
        return 0, None

    def _counts(self, aggregator, number, questions, expected):
        # Compares the counts of the ended round with the expected symbols, coordinate by
        # coordinate.
        aggregator.give_up(number, list(questions))
        result = aggregator.ended(number, 0.0)
        assert result.reports == len(expected)
        for (_, devices, k), cohort in zip(_COHORTS, result.cohorts, strict=True):
            counts = np.zeros_like(cohort.counts)
            for device in set(devices) & expected.keys():
                chosen = [0] * k
                coordinates.choose(questions[device][0], verdicts.D, k, chosen)
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
    """The number of entries that a frame makes in the statistics: one for each report, and one for
    other bytes.
    """
    if 9 <= len(frame) <= wire.MAX_FRAME and frame[0] == wire.REPORTS:
        row = 12 + struct.unpack_from("<H", frame, 5)[0]
        if (len(frame) - 7) % row == 0:
            return (len(frame) - 7) // row
    return 1


PLAIN = {"questions": questions, "packed": packed}
if gateway_messages is not None:
    PLAIN["gateways"] = gateway_messages.check
