"""Gives bytes to the decoders of the device library and describes the result in a line, on CPython
or MicroPython.

Both must give the same lines. On MicroPython: micropython verdicts.py FILE, with the inputs of
`pack` in FILE; it writes into the current folder.
"""

import hashlib
import os
import struct
import sys
from array import array

from report_frames import answers_of, decode_report, reports_of
from scratch import write
from spec import answers
from streams import Keyed

from tern import (
    card,
    dns,
    frames,
    host_frames,
    ledger,
    projection,
    recorder,
    sampler,
    storage,
    sums,
    wire,
)
from tern.boards.emulated import Board
from tern.client import Client
from tern.fixed import exp_lower
from tern.model import decode_model
from tern.mqtt import Session
from tern.tcp import Lost

KEY = bytes(range(32))
import board_files  # noqa: E402  MicroPython's stack holds its imports once those above are done

FLEET_KEY = bytes(range(100, 132))
DEVICES = (
    0x3FFFFFFF,
    0x40000000,
)  # the last id that is a small integer on every board, and the next
D, BUDGET, LARGEST = 4, 40_000_000, 12_000_000
AHEAD = 3
MOST = 6  # messages in an input
RAW, CLIENT, FLEET, EMPTY = range(4)  # the key of a message's tag; EMPTY: b"", RAW: no tag is added
WRONG = "raises"
_WATCHED = 300  # bytes of the longest frame that is given byte by byte
_RECORDS, _ONE = 3, 16384


def verdict(name, data):
    """One line of text on how the decoder of that name treats `data` (bytes)."""
    try:
        return _VERDICTS[name](data)
    except frames.FrameError as error:
        return f"refused {error.code}"
    except card.CardError:
        return "no card"
    except ledger.LedgerError:
        return "no ledger"
    except storage.StorageError:
        return "no such file"


def judged(name, data):
    """The verdict; of an exception that no caller expects, a line that begins with WRONG."""
    try:
        return verdict(name, data)
    except Exception as error:
        return f"{WRONG}: {type(error).__name__} {error}"


def short(data):
    """The length and a short hash of these bytes."""
    return f"{len(data)}:{hashlib.sha256(data).digest()[:6].hex()}"


def messages(data):
    """The messages of an input: (key of its tag, its bytes), each behind a byte and its length as
    u16.
    """
    parts, at = [], 0
    while at + 3 <= len(data) and len(parts) < MOST:
        how, n = struct.unpack_from("<BH", data, at)
        parts.append((how & 3, data[at + 3 : at + 3 + n]))
        at += 3 + n
    return parts


def message(how, body):
    """The bytes of a message. how: the key of its tag."""
    return struct.pack("<BH", how, len(body)) + body


def key_of(device):
    """The key (bytes) of a client of the board that `provision` writes."""
    return bytes((device & 255,)) + KEY[1:]


def sealed(how, body):
    """The frame of a message: its body, and the tag."""
    if how == RAW:
        return body
    key = b""
    if how == FLEET:
        key = FLEET_KEY
    elif how == CLIENT:
        device = struct.unpack_from("<I", body, 1)[0] if len(body) >= 5 else 0
        key = key_of(device)
    return body + frames.tag(key, body)


class _Random(Keyed):
    state = wire.CTR_DRBG

    def end_report(self):
        pass


class FixedBoard(Board):
    """A board whose random bytes are known."""

    def generator(self):
        return _Random(KEY, b"verdicts")

    def text(self):
        return "fixed"


def provision(directory, ahead=1):
    """Write the files of a board into `directory`, over older ones. Return the board.

    ahead: for how many reports it pays at once; with more than 1 it has a single client.
    """
    rows = records = b""
    devices = DEVICES[:1] if ahead > 1 else DEVICES
    for i, device in enumerate(devices):
        rows += struct.pack(
            storage.CLIENT, device, key_of(device), LARGEST, BUDGET, i * _RECORDS, _RECORDS, 0
        )
    for i in range(len(devices) * _RECORDS * (D + 1)):
        records += struct.pack("<h", _ONE - 5117 * i % (2 * _ONE + 1))
    header = struct.pack(storage.RECORDS_HEADER, storage.MAGIC, D, len(devices) * _RECORDS)
    fleet = struct.pack(
        storage.FLEET_FIELDS, storage.FLEET_MAGIC, FLEET_KEY, 0, 8000, ahead, 1, _RECORDS, 0
    )
    files = (storage.CLIENTS, rows), (storage.RECORDS, header + records), (storage.FLEET, fleet)
    for name, data in files:
        write(directory + "/" + name, data)
    if storage.LEDGERS not in os.listdir(directory):
        os.mkdir(directory + "/" + storage.LEDGERS)
    for name in os.listdir(directory + "/" + storage.LEDGERS):
        os.remove(directory + "/" + storage.LEDGERS + "/" + name)
    for device in devices:
        ledger.create(directory + "/" + storage.ledger_name(device), BUDGET)
    return FixedBoard(directory)


def talk(board, data):
    """Give a board the messages of an input, and yield (its Client, frame, replies) for each.

    An empty message cuts the power of the board.
    """
    client = Client(board)
    try:
        for how, body in messages(data):
            frame = sealed(how, body)
            if not body:
                client.close()
                client = Client(board)
            else:
                yield client, frame, answers_of(client, frame)
    finally:
        client.close()


def _cobs(data):
    # A Receiver finds the frames in a stream, in pieces or at once, that COBS by its definition
    # finds.
    expected = [_unstuffed(part) for part in data.split(b"\0")[:-1]]
    expected = [None if frame is None or len(frame) > 200 else frame for frame in expected]
    received, certain = _received(data, 5)
    assert received == _received(data, len(data) or 1)[0] == expected
    for frame in expected:
        if frame is not None:
            out = bytearray(frames.cobs_size(len(frame)))
            n = frames.cobs_encode(frame, len(frame), out)
            assert _received(bytes(out[:n]), n)[0] == [frame]
    return str(certain)


def _received(data, step):
    receiver, received, certain = frames.Receiver(200), [], 0
    for at in range(0, len(data), step):
        receiver.give(data[at : at + step])
        while (n := receiver.next()) != frames.MORE:
            received.append(None if n == frames.DAMAGED else bytes(receiver.frame[:n]))
        certain += receiver.certain()
    assert len(receiver.frame) == 200
    return received, certain


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


def _round(data):
    # A ROUND that is accepted is one that encode_round writes.
    request = frames.Round()
    request.decode(memoryview(data))
    collects = request.model in wire.COLLECTIONS
    values = request.asked[: request.d] if collects else request.parameters
    again = _written(
        host_frames.encode_round,
        b"",
        request.device,
        request.round,
        request.model,
        values,
        bytes(request.card),
        request.k,
        request.exponent,
        request.range,
        request.classes,
        request.batch,
        (request.epochs, request.rate, request.tau),
    )
    assert again[: -wire.TAG_BYTES] == data[: -wire.TAG_BYTES]
    tally = request.card[0] & 15 == card.SUM
    assert 1 <= request.k <= request.values <= wire.MAX_VALUES + tally
    _never_waits_in_vain(data)
    return str(request.values)


def _never_waits_in_vain(frame):
    # A link never waits for bytes after the end of a frame.
    if len(frame) > _WATCHED:
        return
    coded = bytearray(frames.cobs_size(len(frame)))
    n = frames.cobs_encode(frame, len(frame), coded)
    receiver = frames.Receiver()
    for at in range(n):
        assert receiver.certain() <= n - at
        receiver.give(coded[at : at + 1])
        assert (receiver.next() == frames.MORE) == (at < n - 1)


def _frames(data):
    # Encoding restores every other frame that is accepted, with its own tag or the right one of the
    # empty key.
    words = []
    for frame in (data, data + frames.tag(b"", data)):
        for judge in (
            _hello_request,
            _model,
            _error,
            _hello,
            _updated,
            _reports,
            _report,
            frames.address,
        ):
            try:
                words.append(str(judge(frame)))
            except frames.FrameError as error:
                words.append(str(error.code))
    return short(" ".join(words).encode())


def _written(encode, *fields):
    out = bytearray(2 * wire.MAX_FRAME)
    try:
        return out[: encode(out, *fields)]
    except frames.FrameError as error:
        raise AssertionError(f"what was accepted cannot be written: {error}") from error


def _hello_request(frame):
    assert _written(frames.encode_hello_request, frames.decode_hello_request(frame)) == frame
    _never_waits_in_vain(frame)


def _model(frame):
    device, number, model, exponent, classes, parameters = decode_model(memoryview(frame), b"")
    fields = device, number, model, parameters, exponent, classes
    assert _written(host_frames.encode_model, b"", *fields) == frame


def _error(frame):
    assert _written(frames.encode_error, b"", *host_frames.decode_error(frame, b"")) == frame


def _hello(frame):
    hello = host_frames.Hello(frame)
    assert hello.schema != wire.SCHEMA or len(hello.text.encode()) <= 255
    return hello.text


def _updated(frame):
    return host_frames.decode_updated(frame, b"")


def _reports(frame):
    reports = reports_of(frame)
    assert answers.reports(*reports) == frame
    assert all(len(report) <= 17 + wire.MAX_PACKED for report in reports)


def _report(frame):
    for k, base in ((1, 3), (28, 3), (1, 65536), (5, 255)):
        symbols = array("H", bytes(2 * k))
        try:
            device, number = decode_report(frame, b"", k, base, symbols)
        except frames.FrameError:
            continue
        packing = frames.report_packing(k, base)
        assert _written(frames.encode_report, b"", device, number, symbols, packing) == frame
        assert max(symbols) < base
    return frames.kind(frame), frames.is_for_fleet(frame)


def _card(data):
    # The symbols drawn from a card are within bounds; a certified one keeps its epsilon.
    decoded = card.decode(data)
    assert bytes(decoded.data) == data
    drawn = draws(decoded)
    assert max(drawn) < decoded.symbols
    assert 2 <= decoded.symbols <= wire.MAX_BASE
    certified = card.certify(decoded)
    if certified:
        assert card.certify(decoded, decoded.epsilon + 1)
        _keeps_epsilon(decoded)
    return f"{decoded.shape} {decoded.symbols} {certified} {drawn}"


def _keeps_epsilon(decoded):
    # By the definition of local differential privacy, if a card names all its probabilities.
    bound = exp_lower(decoded.epsilon)
    if decoded.shape == card.TABLE:
        columns = decoded.symbols - 1
        ends = list(decoded.thresholds)
        rows = [[0] + ends[i : i + columns] + [card.T] for i in range(0, len(ends), columns)]  # noqa: RUF005
        for symbol in range(decoded.symbols):
            counts = [row[symbol + 1] - row[symbol] for row in rows]
            assert max(counts) << 40 <= bound * min(counts)
    elif decoded.shape == card.WINDOW:
        inside = decoded.threshold * (decoded.symbols - decoded.window)
        outside = (card.T - decoded.threshold) * decoded.window
        assert max(inside, outside) << 40 <= bound * min(inside, outside)
    elif decoded.shape == card.PROJECTION:
        assert decoded.body.a << 40 <= bound * decoded.body.b


def draws(decoded):
    """The symbols of a card for a few inputs, from known random bytes."""
    xs = array("h", (-32768, -_ONE, -8193, -1, 0, 1, 12000, _ONE, 32767))
    out = array("H", (0 for _ in range(len(xs))))
    if decoded.shape == card.SUM:
        answerer = sums.Answerer(None)
        answerer._sums = array("i", xs)
        all_of_them = array("h", range(len(xs)))
        answerer.draw(decoded, Keyed(KEY, b"draws"), all_of_them, out, len(xs))
    elif decoded.shape == card.PROJECTION:
        request = frames.Round()
        request.values = min(len(xs), decoded.body.size)
        answerer = projection.Answerer(request)
        answerer.question = KEY
        answerer.result = xs
        answerer.draw(decoded, Keyed(KEY, b"draws"), None, out, 1)
    else:
        sampler.sample(decoded, Keyed(KEY, b"draws"), xs, out, len(xs))
    return list(out)


def _client(data, ahead=1):
    lines = []
    for _, _, replies in talk(provision(".", ahead), data):
        for reply in replies:
            if reply[0] == wire.HELLO:  # its heap differs from one interpreter to the other
                hello = host_frames.Hello(reply)
                hello.heap = 0
                reply = str([getattr(hello, name) for name in host_frames.HELLO_NAMES]).encode()
            lines.append(f"{reply[9] if reply[0] == wire.ERROR else 0} {short(reply)}")
    for name in sorted(os.listdir(storage.LEDGERS)):
        book = ledger.Ledger()
        book.load(storage.LEDGERS + "/" + name)
        lines.append(f"{book.round} {book.spent} {short(bytes(book.report))}")
    return ", ".join(lines)


def _ahead(data):
    return _client(data, AHEAD)


_NAMES = "0123456789abcdefAx"


def _segments(data):
    # Each message is a segment, without the first fields of its header unless it is RAW. FLEET:
    # behind its name.
    head = recorder.SEGMENT_MAGIC + struct.pack("<H", board_files.D)
    files = []
    for how, body in messages(data):
        name = _NAMES[len(files)]
        if how == FLEET and body:
            n = 1 + (body[0] & 15)
            name = "".join([_NAMES[byte % len(_NAMES)] for byte in body[:n]])
            body = body[n:]
        files.append((name, body if how == RAW else head + body))
    return short(board_files.segments(files).encode())


def _dns(data):
    return str(dns._address(data, 12))


class _Line:
    """A connection that delivers `data` in pieces of `step` bytes, and then ends."""

    def __init__(self, data, step):
        self.data, self.step = data, step

    def read_into(self, view):
        n = min(len(view), len(self.data), self.step)
        if not n:
            raise Lost("at its end")
        view[:n] = self.data[:n]
        self.data = self.data[n:]
        return n

    def write(self, view):
        return len(view)

    def close(self):
        pass


def _mqtt(data):
    # Whatever a broker sends, no message is larger than the buffer, and no packet is read twice.
    words = []
    for step in (1, 2, 1000):
        session = Session(
            lambda at=step: _Line(data, at), b"x", b"u", b"p", largest=128, window=2, slot=64
        )
        out = memoryview(bytearray(32))
        received = 0
        try:
            session.subscribe(b"t")
            while not session.open():  # the first packet is not complete yet
                pass
            session.publish(b"t", b"x", 1)
            while session.receive():
                assert len(session.topic) > 0
                assert len(session.topic) + len(session.payload) < 128
                words.append(f"{short(session.topic)} {short(session.payload)}")
                session.take(out)
                session.publish(b"t", b"y", 1)
                received += 1
        except Lost as error:
            words.append(str(error))
        assert received <= len(data)
    return short(" ".join(words).encode())


_VERDICTS = {
    "cobs": _cobs,
    "round": _round,
    "frames": _frames,
    "card": _card,
    "client": _client,
    "ahead": _ahead,
    "dns": _dns,
    "mqtt": _mqtt,
    "ledger": board_files.ledgers,
    "storage": board_files.storages,
    "segments": _segments,
    "model": board_files.model,
    "boot": board_files.boot,
    "lease": board_files.leases,
    "package": board_files.package,
}
NAMES = sorted(_VERDICTS)


def pack(inputs):
    """The bytes of a file of inputs, (name, data) each."""
    return b"".join(
        [struct.pack("<BH", NAMES.index(name), len(data)) + data for name, data in inputs]
    )


def main(path):
    """Print the verdict on every input of a file, one a line."""
    with open(path, "rb") as file:
        while True:
            head = file.read(3)
            if not head:
                return
            name, n = struct.unpack("<BH", head)
            print(judged(NAMES[name], file.read(n)))


if __name__ == "__main__":
    main(sys.argv[1])
