"""The MQTT session, packet by packet, over a connection written by a test. tests/integration has
real brokers.
"""

import gc

from checks import no_memory, raises

from tern import absence, wire
from tern.compat import MICROPYTHON
from tern.frames import encode_hello_request, encode_report
from tern.links.mqtt import Mqtt, name, password
from tern.mqtt import Session
from tern.tcp import Lost

NEEDS = "sockets"
WHO = b"00000007", b"u", b"pw"  # client, user, password


class Wire:
    """A connection whose other end is the test: the session reads `given`, and has written `taken`."""

    def __init__(self, given=b"\x20\x02\x00\x00", step=1000):
        self.given = given
        self.step = step
        self.taken = bytearray()
        self.room = None  # the number of bytes that it still takes; None: any
        self.waits = 0
        self.closed = self.broken = False

    def read_into(self, view):
        n = min(len(view), len(self.given), self.step)
        view[:n] = self.given[:n]
        self.given = self.given[n:]
        return n

    def write(self, view):
        if self.broken:
            raise Lost("broken")
        n = len(view) if self.room is None else min(len(view), self.room)
        if self.room is not None:
            self.room -= n
        self.taken += view[:n]
        return n

    def wait(self, timeout_ms):
        self.waits += 1
        if self.waits > 100:
            raise AssertionError("waits for ever")

    def close(self):
        self.closed = True


def session_over(*wires, **options):
    """A Session that connects to these wires, one after the other."""
    left = list(wires)

    def connect():
        if not left:
            raise Lost("no broker")
        return left.pop(0)

    options.setdefault("patience_ms", 0)
    return Session(connect, *WHO, **options)


def opened(step=1000, **options):
    line = Wire(step=step)
    session = session_over(line, **options)
    assert session.open()
    line.taken[:] = b""
    return session, line


def message(topic, payload, qos=0, number=0, flags=0):
    body = (
        bytes((0, len(topic)))
        + topic
        + (bytes((number >> 8, number & 255)) if qos else b"")
        + payload
    )
    length = bytearray()
    n = len(body)
    while n > 127:
        length.append(n & 127 | 128)
        n >>= 7
    length.append(n)
    return bytes((0x30 | qos << 1 | flags,)) + bytes(length) + body


def test_connect_names_the_client_and_its_will():
    line = Wire(b"\x20\x02\x01\x00")  # the broker kept the session
    session = session_over(line, keep_alive=300, clean=False, will=(b"t", b""))
    assert session.open()
    assert line.taken == (
        b"\x10\x20\x00\x04MQTT\x04\xec\x01\x2c\x00\x0800000007\x00\x01t\x00\x00\x00\x01u\x00\x02pw"
    )
    line = Wire()
    assert session_over(line).open()
    assert line.taken == b"\x10\x1b\x00\x04MQTT\x04\xc2\x00\x3c\x00\x0800000007\x00\x01u\x00\x02pw"


def test_a_refusal_names_its_code():
    for code in range(1, 7):
        error = raises(Lost, session_over(Wire(bytes((0x20, 2, 0, code)))).open)
        assert str(error).endswith(str(code))
        assert error.reason == (absence.CREDENTIALS if code in (4, 5) else absence.DECLINED)
    for answer in (b"\x30\x02\x00\x00", b"SSH-2.0" + bytes(90), b"\xff" * 6):
        assert raises(Lost, session_over(Wire(answer)).open).reason == absence.NO_BROKER


def open_until_it_ends(session):
    while not session.open():  # it gives up once a millisecond has passed since it wrote
        pass


def test_a_broker_that_never_answers_is_given_up():
    for answer in (b"", b"\x20\x02\x00"):
        raises(Lost, open_until_it_ends, session_over(Wire(answer)))


def test_messages_are_received_whole_and_in_pieces():
    for step in (1, 2, 3, 7, 1000):
        session, line = opened(step, patience_ms=1000)
        for n in (0, 1, 118, 119, 120, 2560):
            payload = bytes(i & 255 for i in range(n))
            line.given = (
                message(b"tern/round", payload, 1, 258 + n, 1) + b"\xd0\x00" + message(b"t", b"x")
            )
            assert session.receive()
            assert bytes(session.topic) == b"tern/round" and bytes(session.payload) == payload
            assert not line.taken, "acknowledged only with the next call"
            assert session.receive()
            assert bytes(session.topic) == b"t" and bytes(session.payload) == b"x"
            assert line.taken == b"\x40\x02" + bytes(((258 + n) >> 8, (258 + n) & 255))
            assert not session.receive()
            line.taken[:] = b""


def test_a_message_that_is_too_long_is_dropped_and_acknowledged():
    session, line = opened(patience_ms=1000, largest=200)
    for n in (200, 1000, 20000):
        line.given = message(b"t", bytes(n), 1, 7) + message(b"t", b"next")
        steps = 0
        while not session.receive():  # each drops at most 64 bytes
            steps += 1
        assert (n - 200) // 64 <= steps <= n // 64 + 1
        assert bytes(session.payload) == b"next"
    assert line.taken == 3 * b"\x40\x02\x00\x07"


def test_malformed_packets_end_the_connection():
    for packet in (
        b"\x30\x01\x00",  # no topic
        b"\x30\x02\x00\x00",  # an empty topic
        b"\x30\x03\x00\x05a",  # longer than the packet
        b"\x32\x04\x00\x01tx",  # no whole packet id
        b"\x34\x06\x00\x01t\x00\x01x",  # QoS 2
        b"\x36\x06\x00\x01t\x00\x01x",  # QoS 3
        b"\x30\xff\xff\xff\xff\x01",  # length of five bytes
        b"\x40\x03\x00\x01x",
        b"\x40\x00",
        b"\x90\x03\x00\x01\x80",  # subscription refused
        b"\xd0\x01x",
        b"\x00\x00",
        b"\x10\x00",
        b"\x20\x02\x00\x00",
        b"\xf0\x00",
    ):
        session, line = opened(patience_ms=1000)
        line.given = packet
        assert raises(Lost, session.receive).reason in (absence.NO_BROKER, absence.DECLINED)


def test_publications_are_sent_again_until_acknowledged():
    first, second = Wire(), Wire()
    session = session_over(first, second, patience_ms=100000, window=2)
    session.open()
    first.taken[:] = b""
    session.publish(b"t", b"one+", 3)
    session.publish(b"t", b"two", 3, True)
    assert first.taken == b"\x32\x08\x00\x01t\x00\x01one" + b"\x33\x08\x00\x01t\x00\x02two"
    first.given = b"\x40\x02\x00\x01" + b"\x40\x02\x11\x11"
    assert not session.receive()
    assert session.waiting() == 1
    session.close()
    assert session.open()
    assert second.taken.endswith(b"\x3b\x08\x00\x01t\x00\x02two")  # DUP
    assert second.taken.count(b"one") == 0
    second.given = b"\x40\x02\x00\x02"
    session.publish(b"t", b"three", 5)  # takes what is there
    assert session.waiting() == 1


def test_a_publication_without_a_connection_goes_out_over_the_next():
    first = Wire()
    first.broken = True
    second = Wire()
    session = session_over(first, second, patience_ms=1000)
    session.publish(b"t", b"early", 5)
    raises(Lost, session.open)
    session.close()
    assert session.open()
    assert b"early" in second.taken
    second.broken = True
    raises(Lost, session.publish, b"t", b"late", 4)
    assert session.waiting() == 2


def test_publishing_reads_acknowledgements():
    session, line = opened(patience_ms=1000, window=2)
    line.given = message(b"t", b"question", 1, 9)
    assert session.receive()
    out = memoryview(bytearray(100))
    assert session.take(out) == 8 and bytes(out[:8]) == b"question"
    for number in range(1, 11):
        session.publish(b"t", b"answer", 6)
        line.given += bytes((0x40, 2, 0, number))
    line.given += message(b"t", b"next")
    session.publish(b"t", b"x", 1)
    session.publish(b"t", b"x", 1)
    assert session.receive() and bytes(session.payload) == b"next"
    assert session.waiting() == 2
    assert line.taken.count(b"\x40\x02\x00\x09") == 1


def test_packet_ids_wrap_and_skip_those_in_flight():
    session, line = opened(patience_ms=100000, window=3)
    session.publish(b"t", b"stays", 5)
    session._id = number = 64900
    for i in range(300):
        session.publish(b"t", b"", 0)
        number = number % 65000 + 1
        if number == 1:
            number = 2  # 1 is still in flight
        assert line.taken[-2:] == bytes((number >> 8, number & 255)), (i, number)
        line.taken = bytearray()
        line.given = bytes((0x40, 2, number >> 8, number & 255))
        session.receive()
        if (
            i % 2
        ):  # the slots are used in turn: this one stays, since the session takes it for the newest
            session._oldest = 1
    assert session.waiting() == 1


def test_a_ping_without_an_answer_ends_the_connection():
    session, line = opened(keep_alive=6000, patience_ms=0)
    session._sent = session._heard = session._sent - 2400000
    assert not session.receive() and not line.taken
    session._sent -= 1200000
    assert not session.receive() and line.taken == b"\xc0\x00"
    line.given = b"\xd0\x00"
    assert not session.receive()
    session._sent -= 3600000
    assert not session.receive()
    raises(Lost, session.receive)  # no answer to this ping within the patience of 0


def test_half_a_packet_or_a_missing_acknowledgement_ends_the_connection():
    for given in (b"\x30", b"\x30\x05\x00\x01"):
        session, line = opened(keep_alive=0)
        line.given = given
        raises(Lost, session.receive)
    session, line = opened(keep_alive=0)
    session.publish(b"t", b"x", 1)
    raises(Lost, session.receive)
    for more in (b"", b"\x90\x03\xff\xff\x01"):
        line = Wire(b"\x20\x02\x00\x00" + more)
        session = session_over(line, keep_alive=0)
        session.subscribe(b"t")
        assert session.open()
        assert line.taken.endswith(b"pw\x82\x06\xff\xff\x00\x01t\x01")
        if more:
            assert not session.receive()
        else:
            raises(Lost, session.receive)


def test_a_session_disconnects_and_refuses_publications_that_are_too_long():
    session, line = opened()
    session.disconnect()
    assert line.taken == b"\xe0\x00" and line.closed and not session.connected
    raises(ValueError, session.publish, b"t", bytes(400), 400)


class Quiet(Wire):
    """A Wire that allocates as little as a socket: `given` is a memoryview, and written bytes are
    dropped.
    """

    def __init__(self):
        super().__init__()
        self.at = 0

    def read_into(self, view):
        n = min(len(view), len(self.given) - self.at)
        view[:n] = self.given[self.at : self.at + n] if n else b""
        self.at += n
        return n

    def write(self, view):
        return len(view)


def test_a_message_takes_at_most_1024_bytes():
    if not MICROPYTHON:
        return
    line = Quiet()
    session = session_over(line, patience_ms=100000)
    session.open()
    out = memoryview(bytearray(2600))
    given = memoryview(message(b"tern/round", bytes(2500), 1, 9))
    ack = memoryview(b"\x40\x02\x00\x01")
    worst = 0
    for _ in range(20):
        gc.collect()
        gc.disable()
        before = gc.mem_alloc()
        line.given = given
        line.at = 0
        assert session.receive()
        session.take(out)
        session._id = 0
        session.publish(b"tern/up/00000007", out, 273)
        line.given = ack
        line.at = 0
        session.receive()
        worst = max(worst, gc.mem_alloc() - before)
        gc.enable()
    assert not session.waiting()
    assert worst <= 1024, worst


class Broker:
    """A broker that takes connections while it is `up`."""

    def __init__(self):
        self.up = True
        self.lines = []

    def connect(self):
        if not self.up:
            raise Lost("no broker")
        self.lines.append(Wire(b"\x20\x02\x00\x00\x90\x03\x00\x01\x01\x90\x03\x00\x02\x01"))
        return self.lines[-1]


ROUND = message(b"fleet/round", bytes((wire.ROUND,)) + bytes(20))
UNWANTED = message(b"fleet/round", bytes((wire.HELLO_REQUEST,)) + bytes(20))


def report(out):
    """Write a REPORT into `out`; return its length."""
    return encode_report(out, bytes(32), 7, 3, b"\x00\x00", 1, 3, 1)


def linked(admitted=None):
    """(a link that has passed on its first HELLO_REQUEST, its connection)"""
    broker = Broker()
    link = Mqtt(Session(broker.connect, *WHO), "fleet", name(7))
    if admitted:
        link.admit(admitted)
    assert link.receive(0)[0] == wire.HELLO_REQUEST
    return link, broker.lines[0]


def test_a_link_sends_hello_and_takes_rounds_only():
    link, line = linked()
    assert b"fleet/down/00000007" in line.taken and b"fleet/round" in line.taken
    line.given += (
        UNWANTED + message(b"fleet/round", b"") + message(b"fleet/round", bytes(3000)) + ROUND
    )
    while (frame := link.receive(0)) is None:  # the long message is dropped in steps
        pass
    assert frame[0] == wire.ROUND and len(frame) == 21
    out = bytearray(100)
    n = report(out)
    line.taken = bytearray()
    assert link.send(out, n)
    assert line.taken[:1] == b"\x32"
    assert b"fleet/up/00000007" in line.taken and bytes(out[:n]) in bytes(line.taken)
    out[0] = wire.HELLO
    assert link.send(out, n)
    assert b"fleet/hello/00000007" in line.taken
    assert link.receive(0) is None


def test_a_link_drops_one_unwanted_frame_in_a_step():
    link, line = linked()
    line.given += 5 * UNWANTED + ROUND
    for _ in range(5):
        assert link.receive(0) is None
    assert link.receive(0)[0] == wire.ROUND
    line.given += 5 * UNWANTED + ROUND
    assert link.receive(1000)[0] == wire.ROUND and line.waits == 5


def test_a_link_passes_admitted_frames():
    for kind in (None, wire.MODEL, 0x77):
        link, line = linked(kind)
        assert (b"fleet/model" in line.taken) == (kind == wire.MODEL)
        for other in (wire.MODEL, 0x77):
            line.given += message(b"fleet/model", bytes((other,)) + bytes(20))
            frame = link.receive(0)
            assert (frame is not None) == (other == kind)


def test_a_link_disconnects_after_the_last_acknowledgement():
    broker = Broker()
    link = Mqtt(Session(broker.connect, *WHO), "fleet", name(7))
    link.send(bytes((wire.REPORT,)), 1)
    assert link.waiting() == 1
    assert link.receive(0)[0] == wire.HELLO_REQUEST
    line = broker.lines[0]
    line.given += message(b"fleet/round", bytes((wire.ROUND,)) + bytes(20), 1, 9)
    assert link.receive(0)[0] == wire.ROUND and link.waiting() == 1
    line.given += b"\x40\x02\x00\x01"
    line.room = 2  # of the acknowledgement
    assert link.receive(0) is None and link.waiting() == 1
    line.room = None
    assert link.receive(0) is None and link.waiting() == 0
    link.disconnect()
    assert line.taken.endswith(b"\x40\x02\x00\x09\xe0\x00") and line.closed


def test_a_broker_that_reads_slowly_gets_every_byte_once():
    for room in (1, 2, 3, 7, 50):
        packets = []
        for most in (None, room):
            line = Wire(b"\x20\x02\x00\x00", step=3)
            line.room = most
            session = session_over(line, patience_ms=100000, window=4)
            session.subscribe(b"topic")
            while not session.open():
                line.room = most
            for i in range(3):
                session.publish(b"t", bytes((i,)) * 50, 50)
            line.given = message(b"t", b"x", 1, 77)
            for _ in range(300):
                if most:
                    line.room = most
                session.receive()
            packets.append(bytes(line.taken))
            assert session.waiting() == 3
        assert packets[0] == packets[1] and packets[0].endswith(b"\x02\x02\x40\x02\x00\x4d")


def test_a_full_window_ends_the_connection_and_is_sent_over_the_next():
    line, second = Wire(), Wire()
    session = session_over(line, second, patience_ms=100000, window=3)
    session.open()
    line.room = 4
    for i in range(3):
        session.publish(b"t", bytes((i,)) * 20, 20)
    raises(Lost, session.publish, b"t", b"\x03" * 20, 20)
    assert not session.connected and line.closed
    assert session.open()
    for i in range(1, 4):
        assert bytes((i,)) * 20 in second.taken
    assert session.waiting() == 3


def test_a_link_reconnects_after_longer_and_longer_pauses():
    broker = Broker()
    link = Mqtt(Session(broker.connect, *WHO, patience_ms=1000), "tern", name(7), 2000)
    assert link.receive(0)[0] == wire.HELLO_REQUEST
    broker.lines[0].broken = True
    broker.up = False
    out = bytearray(100)
    n = report(out)
    assert not link.send(out, n)
    pauses = []
    waits = set()
    for _ in range(20):
        assert link._pause // 2 <= link._wait <= link._pause
        pauses.append(link._pause)
        waits.add(link._wait)
        link._wait = 0  # time passes
        assert link.receive(0) is None
    assert pauses == [500, 1000] + 18 * [2000], pauses
    assert len(waits) > 5, (
        "boards that lost their broker at the same time reconnect at different times"
    )
    broker.up = True
    link._wait = 0
    assert link.receive(0)[0] == wire.HELLO_REQUEST
    assert bytes(out[:n]) in bytes(broker.lines[1].taken)  # the report that could not be sent


def test_a_link_reconnects_after_memory_ran_out():
    lines = [
        MemoryError,
        Wire(b"\x20\x02\x00\x00\x90\x03\x00\x01\x01\x90\x03\x00\x02\x01"),
        MemoryError,
    ]

    def connect():
        line = lines.pop(0)
        if line is MemoryError:
            raise MemoryError
        return line

    link = Mqtt(Session(connect, *WHO), "tern", name(7))
    assert link.receive(0) is None and link._pause == 500
    link._wait = 0
    assert link.receive(0)[0] == wire.HELLO_REQUEST
    link._session.publish = no_memory
    assert not link.send(bytearray((wire.REPORT,)), 1)
    link._wait = 0
    assert link.receive(0) is None and not lines


class Port:
    """The board's port: `given` comes in, `sent` goes out. And its Absence, which notes reasons."""

    def __init__(self, *given):
        self.given = list(given)
        self.sent = []
        self.reasons = []
        self.show = lambda: None
        self.failed = lambda reason, now: self.reasons.append(reason)
        self.ended = lambda hold: self.reasons.append(0)

    def receive(self, timeout_ms):
        assert timeout_ms == 0, "it never waits for the port"
        frame = self.given.pop(0) if self.given else None
        if frame == b"end":
            raise EOFError
        return frame

    def send(self, frame, n):
        self.sent.append(bytes(frame[:n]))

    def waiting(self):
        return 0

    def ready(self, timeout_ms):
        return self.given


def test_a_hello_request_at_the_port_is_answered_there_whether_or_not_there_is_a_broker():
    asks = bytearray(13)
    encode_hello_request(asks, 5)
    damaged = asks[:-1] + b"x"
    hello = bytes((wire.HELLO,)) + bytes(30)
    broker = Broker()
    broker.up = False
    port = Port(b"", damaged, bytes((wire.ROUND,)) + bytes(40), asks, b"end", asks)
    link = Mqtt(Session(broker.connect, *WHO), "fleet", name(7), absent=port, port=port)
    assert link.receive(0) is None, "no broker"
    assert link.receive(0) is None, "damaged"
    assert link.receive(0) == asks
    link.send(hello, 31)
    assert port.sent == [hello] and port.reasons == [absence.LOST]
    assert link.waiting(), "no broker has heard it"
    assert link.receive(0) is None, "the port's other end has gone"
    broker.up = True
    link._wait = 0
    assert link.receive(0)[0] == wire.HELLO_REQUEST and port.reasons[-1] == 0
    link.send(hello, 31)
    assert port.sent == [hello] and b"fleet/hello/00000007" in broker.lines[0].taken
    assert link.receive(0) == asks  # an answer that is never made
    port.given.append(None)
    broker.lines[0].given += b"\x40\x02\x00\x01"
    assert link.receive(0) is None and not link.waiting()
    link.send(hello, 31)
    assert port.sent == [hello], "the next HELLO goes to the broker again"


def test_a_link_notes_why_it_has_no_broker():
    for error, connected, reason in (
        (Lost("no", absence.REFUSED), False, absence.REFUSED),
        (Lost("no", absence.CLOSED), True, absence.LOST),
        (Lost("no", absence.CREDENTIALS), False, absence.CREDENTIALS),
        (Lost("no", absence.DECLINED), True, absence.DECLINED),
        (MemoryError(), False, absence.FAULT),
        (OSError(5), True, absence.FAULT),
    ):
        port = Port()
        link = Mqtt(Session(Broker().connect, *WHO), "fleet", name(7), absent=port, port=port)
        if connected:
            link.receive(0)
        link._lose(error)
        assert port.reasons == [0] * connected + [reason]


def test_passwords_follow_from_keys_and_names_from_ids():
    assert password(bytes(32)) == password(bytes(32)) != password(bytes(31) + b"\x01")
    assert len(password(bytes(32))) == 32
    assert name(7) == "00000007" and name(0xFFFFFFFE) == "fffffffe"


def test_the_radio_is_off_after_a_link_has_disconnected():
    broker = Broker()
    switched = []

    class Station:
        @staticmethod
        def leave():
            switched.append(False)

    link = Mqtt(Session(broker.connect, *WHO), "tern", name(7), station=Station)
    link.disconnect()
    assert switched == [False]


def test_an_error_of_the_network_does_not_end_the_program():
    def connect():
        raise OSError(12)

    link = Mqtt(Session(connect, *WHO), "tern", name(7))
    for _ in range(3):
        assert link.receive(0) is None
    assert isinstance(link.error, OSError) and link._wait
