"""Targets of the fuzzing: each gives any bytes to decoders, and raises an exception if their result is wrong.

A target catches the exceptions that a decoder may raise; any other exception is a finding. The seeds of a target are
seeds.of(its name).
"""

import hashlib
import struct
from array import array
from contextlib import suppress
from pathlib import Path

import report_frames
from spec import answers
from streams import Replay

from harness import verdicts
from tern import card, frames, host_frames, sampler, storage, wire
from tern.fixed import exp_lower
from tern.model import decode_model

_FRAME_ERRORS = frames.FrameError
_WATCHED = 300  # bytes of the longest frame that is given byte by byte


def cobs(data):
    """A Receiver finds the frames in a stream, in pieces or at once, that COBS by its definition finds."""
    received = _received(data, len(data) or 1)
    assert received == _received(data, 5)
    expected = [_unstuffed(part) for part in data.split(b"\0")[:-1]]
    expected = [None if frame is None or len(frame) > 200 else frame for frame in expected]
    assert received == expected
    for frame in expected:
        if frame is not None:
            out = bytearray(frames.cobs_size(len(frame)))
            n = frames.cobs_encode(frame, len(frame), out)
            assert _received(bytes(out[:n]), n) == [frame]


def _received(data, step):
    receiver = frames.Receiver(200)
    received = []
    for at in range(0, len(data), step):
        receiver.give(data[at : at + step])
        while (n := receiver.next()) != frames.MORE:
            received.append(None if n == frames.DAMAGED else bytes(receiver.frame[:n]))
        assert receiver.certain() >= 0
    assert len(receiver.frame) == 200
    return received


def _unstuffed(part):
    # COBS by its definition; None for invalid bytes.
    out = b""
    while part:
        n = part[0]
        if n > len(part):
            return None
        out += part[1:n]
        part = part[n:]
        if n < 255 and part:
            out += b"\0"
    return out


def round_(data):
    """A ROUND that is accepted is one that encode_round writes, and a link never waits for bytes after its end."""
    request = frames.Round()
    try:
        request.decode(memoryview(data))
    except _FRAME_ERRORS:
        return
    collects = wire.VALUES <= request.model <= wire.CATEGORIES
    again = bytearray(2 * wire.MAX_FRAME)
    n = host_frames.encode_round(
        again, b"", request.device, request.round, request.model,
        request.asked[: request.d] if collects else request.parameters, bytes(request.card), request.k,
        request.exponent, request.range, request.classes, request.batch,
        (request.epochs, request.rate, request.tau),
    )  # fmt: skip
    assert again[: n - wire.TAG_BYTES] == data[: -wire.TAG_BYTES]
    assert 1 <= request.k <= request.values <= wire.MAX_VALUES
    _never_waits_in_vain(data)


def _never_waits_in_vain(frame):
    if len(frame) > _WATCHED:
        return
    coded = bytearray(frames.cobs_size(len(frame)))
    n = frames.cobs_encode(frame, len(frame), coded)
    receiver = frames.Receiver()
    for at in range(n):
        assert receiver.certain() <= n - at
        receiver.give(coded[at : at + 1])
        assert (receiver.next() == frames.MORE) == (at < n - 1)


def request(data):
    """Encoding restores every accepted HELLO request and MODEL, with the tag of the empty key."""
    frame = data + frames.tag(b"", data)
    out = bytearray(2 * wire.MAX_FRAME)
    with suppress(_FRAME_ERRORS):
        n = frames.encode_hello_request(out, frames.decode_hello_request(frame))
        assert out[:n] == frame
        _never_waits_in_vain(frame)
    with suppress(_FRAME_ERRORS):
        device, number, model, exponent, classes, parameters = decode_model(memoryview(frame), b"")
        n = host_frames.encode_model(out, b"", device, number, model, parameters, exponent, classes)
        assert out[:n] == frame


def answers_(data):
    """Encoding restores every accepted frame of a device, with its own tag or the right one."""
    for frame in (data, data + frames.tag(b"", data)):
        _answer(frame)


def _answer(frame):
    out = bytearray(2 * wire.MAX_FRAME)
    with suppress(_FRAME_ERRORS):
        hello = host_frames.Hello(frame)
        assert hello.schema != wire.SCHEMA or len(hello.text.encode()) <= 255
    with suppress(_FRAME_ERRORS):
        assert out[: frames.encode_error(out, b"", *host_frames.decode_error(frame, b""))] == frame
    with suppress(_FRAME_ERRORS):
        reports = report_frames.reports_of(frame)
        assert answers.reports(*reports) == frame
        assert all(len(report) <= 17 + wire.MAX_PACKED for report in reports)
    for k, base in ((1, 3), (28, 3), (1, 65536), (5, 255)):
        symbols = array("H", bytes(2 * k))
        with suppress(_FRAME_ERRORS):
            device, number = report_frames.decode_report(frame, b"", k, base, symbols)
            size = frames.packed_size(base, k)
            assert out[: frames.encode_report(out, b"", device, number, symbols, k, base, size)] == frame
            assert max(symbols) < base
    for function in (frames.kind, frames.address, frames.is_for_fleet):
        with suppress(_FRAME_ERRORS):
            function(frame)


def card_(data):
    """The symbols drawn from a decoded card are within bounds; a certified card keeps its epsilon."""
    try:
        decoded = card.decode(data)
    except card.CardError:
        return
    assert bytes(decoded.data) == data
    assert 2 <= decoded.symbols <= wire.MAX_BASE
    xs = array("h", (-32768, -16384, -5001, 0, 1, 16384, 32767))
    symbols = array("H", bytes(2 * len(xs)))
    sampler.sample(decoded, Replay(hashlib.shake_256(data).digest(20_000)), xs, symbols, len(xs))
    assert max(symbols) < decoded.symbols
    if card.certify(decoded):
        assert card.certify(decoded, decoded.epsilon + 1)
        _keeps_epsilon(decoded)


def _keeps_epsilon(decoded):
    # By the definition of local differential privacy, if a card names all its probabilities.
    bound = exp_lower(decoded.epsilon)
    if decoded.shape == card.TABLE:
        for symbol in range(decoded.symbols):
            counts = [card.count(decoded, knot, symbol) for knot in range((1 << decoded.knot_bits) + 1)]
            assert max(counts) << 40 <= bound * min(counts)
    elif decoded.shape == card.WINDOW:
        inside = decoded.threshold * (decoded.symbols - decoded.window)
        outside = (card.T - decoded.threshold) * decoded.window
        assert max(inside, outside) << 40 <= bound * min(inside, outside)


class OnBoard:
    """Targets that need the files of a board, which are in `folder`."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self._board = verdicts.provision(str(self.folder))

    def client(self, data):
        """A board reports to valid ROUNDs alone; it pays once for a report, and nothing for a refusal."""
        board = verdicts.provision(str(self.folder))
        book = {device: self._account(device) for device in verdicts.DEVICES}
        for client, frame, replies in verdicts.talk(board, data):
            after = {device: self._account(device) for device in verdicts.DEVICES}
            reports = [report for reply in replies for report in _reports_in(reply)]
            for device in verdicts.DEVICES:
                self._balances(device, frame, book[device], after[device], reports)
            book = after
            if reports:
                again = report_frames.answers_of(client, frame)
                assert [report for reply in again for report in _reports_in(reply)] == reports
                assert book == {device: self._account(device) for device in verdicts.DEVICES}

    def ahead(self, data):
        """A board that pays ahead has paid for every report that it released, whenever its power is cut."""
        board = verdicts.provision(str(self.folder), verdicts.AHEAD)
        device = verdicts.DEVICES[0]
        released = {}
        spent = 0
        for _, frame, replies in verdicts.talk(board, data):
            reports = [report for reply in replies for report in _reports_in(reply)]
            assert len(reports) <= 1
            for report in reports:
                (number,) = struct.unpack_from("<I", report, 5)
                digest = answers.question(verdicts.key_of(device), device, frame[5:-8])
                assert answers.sealed(digest, report[:-8]) == report
                assert released.get(number, report) == report
                if number not in released:
                    assert number > max(released, default=0)
                    released[number] = report
                    spent += _cost(frame)
            budget, paid, last = struct.unpack_from("<III", self._account(device), 4)
            assert spent <= paid <= budget == verdicts.BUDGET
            assert max(released, default=0) <= last

    def _account(self, device):
        return (self.folder / storage.ledger_name(device)).read_bytes()

    @staticmethod
    def _balances(device, frame, before, after, reports):
        # By the layouts of ledger.md and wire.md alone.
        reports = [report for report in reports if struct.unpack_from("<I", report, 1)[0] == device]
        digest = None
        if frame[:1] == bytes((wire.ROUND,)) and len(frame) > 17:
            digest = answers.question(verdicts.key_of(device), device, frame[5:-8])
            to = struct.unpack_from("<I", frame, 1)[0]
            fleet_tag = hashlib.sha256(verdicts.FLEET_KEY + frame[:-8]).digest()[:8]
            if frame[-8:] != {wire.FLEET: fleet_tag, device: digest[:8]}.get(to):
                digest = None
        if digest is None:
            assert not reports
            assert after == before
            return
        assert len(reports) <= 1
        for report in reports:
            assert answers.sealed(digest, report[:-8]) == report
            assert after[54:-4] == report
            assert after[16:48] == digest
        budget, spent, last = struct.unpack_from("<III", after, 4)
        old_budget, old_spent, old_last = struct.unpack_from("<III", before, 4)
        assert spent <= budget == old_budget == verdicts.BUDGET
        if after == before:
            return
        assert reports
        assert last == struct.unpack_from("<I", frame, 5)[0] > old_last
        assert spent - old_spent == _cost(frame) <= verdicts.LARGEST


def _cost(frame):
    # The micro-epsilon of a report to this ROUND, by its layout (wire.md).
    k, length = struct.unpack_from("<H", frame, 15)[0], struct.unpack_from("<H", frame, 24)[0]
    (epsilon,) = struct.unpack_from("<I", frame, len(frame) - 8 - length + 1)
    return epsilon if frame[9] == wire.SOFTMAX else k * epsilon


def _reports_in(reply):
    assert len(reply) <= wire.MAX_FRAME
    if reply[0] == wire.REPORTS:
        return report_frames.reports_of(reply)
    assert reply[0] in (wire.REPORT, wire.ERROR, wire.HELLO)
    if reply[0] == wire.ERROR:
        assert 1 <= reply[9] <= len(wire.ERRORS)
    return [reply] if reply[0] == wire.REPORT else []


PLAIN = {"cobs": cobs, "round": round_, "request": request, "answers": answers_, "card": card_}
