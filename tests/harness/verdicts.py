"""Gives bytes to the decoders of the device library and describes the result in a line, on CPython or MicroPython.

Both must give the same lines. On MicroPython: micropython verdicts.py FILE, with the inputs of `pack` in FILE; it
writes into the current folder.
"""

import hashlib
import os
import struct
import sys
from array import array

from report_frames import answers_of
from scratch import write
from streams import Keyed

from tern import card, dns, frames, host_frames, ledger, recorder, sampler, storage, wire
from tern.boards.emulated import Board
from tern.client import Client
from tern.model import decode_model
from tern.mqtt import Session
from tern.tcp import Lost

KEY = bytes(range(32))
import board_files  # noqa: E402  MicroPython's stack holds its imports once those above are done

FLEET_KEY = bytes(range(100, 132))
DEVICES = (0x3FFFFFFF, 0x40000000)  # the last id that is a small integer on every board, and the next
D = 4
BUDGET = 40_000_000
LARGEST = 12_000_000
AHEAD = 3
MOST = 6  # messages in an input
RAW, CLIENT, FLEET, EMPTY = range(4)  # the key of a message's tag; EMPTY: b"", RAW: no tag is added
WRONG = "raises"
_RECORDS = 3
_ONE = 16384


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
    """The messages of an input: (key of its tag, its bytes), each behind a byte and its length as u16."""
    parts = []
    at = 0
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
    fleet = struct.pack(storage.FLEET_FIELDS, storage.FLEET_MAGIC, FLEET_KEY, 0, 8000, ahead, 1, _RECORDS)
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
    words = []
    receiver = frames.Receiver(200)
    for at in range(0, len(data), 7):
        receiver.give(data[at : at + 7])
        while True:
            n = receiver.next()
            if n == frames.MORE:
                break
            words.append(str(n) if n < 0 else short(bytes(receiver.frame[:n])))
        words.append(str(receiver.certain()))
    return short(" ".join(words).encode())


def _round(data):
    request = frames.Round()
    request.decode(memoryview(data))
    fields = (
        request.device, request.round, request.model, request.range, request.exponent, request.classes, request.d,
        request.k, request.batch, request.epochs, request.rate, request.tau, request.values,
    )  # fmt: skip
    collects = wire.VALUES <= request.model <= wire.CATEGORIES
    values = bytes(request.asked[: request.d]) if collects else bytes(request.parameters)
    return f"{fields} {short(values)} {short(bytes(request.card))}"


def _request(data):
    # All other frames that the library decodes, with the tag of the empty key.
    frame = memoryview(data + frames.tag(b"", data))
    words = []
    for decode in (
        frames.decode_hello_request,
        lambda frame: decode_model(frame, b""),
        lambda frame: host_frames.decode_error(frame, b""),
        frames.address,
        lambda frame: host_frames.Hello(bytes(frame)).text,
        lambda frame: host_frames.decode_updated(frame, b""),
    ):
        try:
            fields = decode(frame)
            if isinstance(fields, tuple):
                fields = [bytes(part) if isinstance(part, (memoryview, array)) else part for part in fields]
            words.append(str(fields))
        except frames.FrameError as error:
            words.append(str(error.code))
    return short(" ".join(words).encode())


def _card(data):
    decoded = card.decode(data)
    return f"{decoded.shape} {decoded.symbols} {card.certify(decoded)} {draws(decoded)}"


def draws(decoded):
    """The symbols of a card for a few inputs, from known random bytes."""
    xs = array("h", (-32768, -_ONE, -8193, -1, 0, 1, 12000, _ONE, 32767))
    out = array("H", (0 for _ in range(len(xs))))
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
    # Each message is a segment, without the first fields of its header unless it is RAW. FLEET: behind its name.
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
        self.data = data
        self.step = step

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
        session = Session(lambda step=step: _Line(data, step), b"x", largest=128, window=2, slot=64)
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
    "cobs": _cobs, "round": _round, "request": _request, "card": _card, "client": _client, "ahead": _ahead,
    "dns": _dns, "mqtt": _mqtt, "ledger": board_files.ledgers, "storage": board_files.storages, "segments": _segments,
    "model": board_files.model, "boot": board_files.boot, "lease": board_files.leases, "package": board_files.package,
}  # fmt: skip
NAMES = sorted(_VERDICTS)


def pack(inputs):
    """The bytes of a file of inputs, (name, data) each."""
    return b"".join([struct.pack("<BH", NAMES.index(name), len(data)) + data for name, data in inputs])


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
