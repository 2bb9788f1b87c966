"""Imaginary boards on a broker, in a process of their own: they say HELLO and answer every round.

All of them share one connection to the broker, and what they report is random. So the process uses
as little of the machine as possible, which the host and the broker need.
"""

import hashlib
import socket
import struct
from collections import deque
from itertools import pairwise

import numpy as np
from framing import hello
from harness.raw_client import field, length
from spec import answers

from benchmarks.child import Child
from tern import card as cards
from tern import frames, wire
from tern.links import mqtt
from ternhost.count.questions import decode_body, round_start

PREFIX = "tern"
BUDGET = 2**32 - 1  # micro-epsilon that each device has left
_MOST_IN_A_FRAME = 64  # reports of one board
_PUBLICATIONS_AT_ONCE = 500
_BODY_AT = 5  # of a ROUND frame: type, device, then the body
_ROUND_AT = 5  # of a ROUND frame, as of a REPORT
_CONNECT, _PUBLISH, _PUBACK, _SUBSCRIBE = 0x10, 0x30, 0x40, 0x82  # types of MQTT packets
_AT_QOS_1, _RETAINED = 0x02, 0x01  # flags of PUBLISH
_ACCEPTED = b"\x20\x02\x00\x00"  # the CONNACK of a broker that lets a client in
_NO_KEEP_ALIVE = 0


def key_of(device):
    """The key (32 bytes) of a device of these boards."""
    return hashlib.sha256(b"board %d" % device).digest()


class Boards(Child):
    """A process with `devices` devices on `boards` boards, equally many on each.

    The boards have said HELLO once the context manager is entered. port: of the broker, without
    TLS, where the board of device 1 may write to all topics. epoch: of the fleet key in the store.
    """

    def __init__(self, devices, boards, port, epoch):
        arguments = (devices, boards, port, epoch)
        super().__init__(_answer_rounds, arguments, failure="no board connected")


def _answer_rounds(devices, boards, port, epoch, pipe):
    connection = _Connection(port)
    first_devices = np.linspace(1, devices + 1, boards + 1).astype(int).tolist()
    clients = [range(*ends) for ends in pairwise(first_devices)]
    keys = [key_of(device) for device in range(1, devices + 1)]
    connection.subscribe(mqtt.ROUND % PREFIX)
    for some in _parts(clients, _PUBLICATIONS_AT_ONCE):
        hellos = []
        for ids in some:
            topic = mqtt.HELLO % (PREFIX, mqtt.name(ids.start))
            frame = hello(ids.start, len(ids), epoch=epoch, budget=BUDGET)
            hellos.append((topic, frame, _RETAINED))
        connection.publish(hellos)
    pipe.send("ready")

    answered = 0  # the number of the last round
    while True:
        request = connection.received()
        if not request:
            continue  # the host withdraws a round that has ended
        (number,) = struct.unpack_from("<I", request, _ROUND_AT)
        if number > answered:
            answered = number
            for some in _parts(clients, _PUBLICATIONS_AT_ONCE):
                connection.publish(list(_answers(request, number, some, keys)))


def _answers(request, number, clients, keys):
    """Yield (topic, frame, flags) of the reports of some boards.

    request: the announcement of the round. clients: the ids of the devices of each board.
    """
    body = request[_BODY_AT : -wire.TAG_BYTES]
    question = decode_body(body)
    symbols = cards.decode(bytes(question.card)).symbols
    assert question.k == 1, "a report has one symbol"
    assert symbols <= 256, "a symbol is one byte"
    for ids in clients:
        topic = mqtt.UP % (PREFIX, mqtt.name(ids.start))
        chance = np.random.Generator(np.random.SFC64([number, ids.start]))
        drawn = chance.integers(0, symbols, len(ids), np.uint8).tobytes()
        reports = []
        for index, device in enumerate(ids):
            digest = frames.question(keys[device - 1], round_start(device), body)
            packed = drawn[index : index + 1]
            report = struct.pack("<BII", wire.REPORT, device, number) + packed
            reports.append(report + frames.tag(frames.answer_key(digest), report))
        if len(reports) == 1:
            yield topic, reports[0], 0
            continue
        for some in _parts(reports, _MOST_IN_A_FRAME):
            yield topic, answers.reports(*some), 0


def _parts(items, size):
    """Yield lists of at most `size` of the items."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


class _Connection:
    """An MQTT connection at QoS 1 without TLS, under the name of the board of device 1."""

    def __init__(self, port):
        board = field(mqtt.name(1).encode())
        password = field(mqtt.password(key_of(1)).encode())
        body = field(b"MQTT") + b"\x04\xc2" + struct.pack(">H", _NO_KEEP_ALIVE)
        body += board + board + password
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._stream = self._socket.makefile("rb")
        self._socket.sendall(bytes([_CONNECT]) + length(len(body)) + body)
        if self._stream.read(len(_ACCEPTED)) != _ACCEPTED:
            raise ConnectionError("refused by the broker")
        self._packet_id = 0
        # Payloads that came while the broker acknowledged publications.
        self._early = deque()

    def subscribe(self, topic):
        body = b"\x00\x01" + field(topic.encode()) + b"\x01"
        self._socket.sendall(bytes([_SUBSCRIBE]) + length(len(body)) + body)

    def publish(self, publications):
        """Publish each (topic, payload, flags); return when the broker has acknowledged all."""
        packets = []
        for topic, payload, flags in publications:
            self._packet_id = self._packet_id % 65535 + 1
            body = field(topic.encode()) + struct.pack(">H", self._packet_id) + payload
            packets.append(bytes([_PUBLISH | _AT_QOS_1 | flags]) + length(len(body)) + body)
        self._socket.sendall(b"".join(packets))
        acknowledged = 0
        while acknowledged < len(packets):
            kind, body = self._packet()
            if kind == _PUBACK:
                acknowledged += 1
            elif kind == _PUBLISH:
                self._early.append(_payload(body))

    def received(self):
        """Wait for the next message, and return its payload."""
        while not self._early:
            kind, body = self._packet()
            if kind == _PUBLISH:
                self._early.append(_payload(body))
        return self._early.popleft()

    def _packet(self):
        """Wait for the next packet, and return its type and its body."""
        head = self._stream.read(1)
        if not head:
            raise ConnectionError("closed by the broker")
        size = shift = 0
        while True:
            byte = self._stream.read(1)[0]
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return head[0] & 0xF0, self._stream.read(size)


def _payload(body):
    """Return the payload of a PUBLISH at QoS 1, without acknowledging it."""
    (topic_bytes,) = struct.unpack_from(">H", body)
    return body[2 + topic_bytes + 2 :]
