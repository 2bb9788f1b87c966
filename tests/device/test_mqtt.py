"""The MQTT session, packet by packet, over a connection written by a test. tests/integration has
real brokers.
"""

import gc

from checks import FakeClock, no_memory, raises

from tern import absence, mqtt, wire
from tern.compat import MICROPYTHON
from tern.frames import encode_hello_request
from tern.links import mqtt as mqtt_link
from tern.links.mqtt import Mqtt, name
from tern.mqtt import Session
from tern.tcp import Lost

NEEDS = "sockets"
CLIENT = b"00000007", b"u", b"pw"  # id, user, password
HOUR_MS = 3_600_000

# Packets of MQTT 3.1.1
ACCEPTED = b"\x20\x02\x00\x00"
PING = b"\xc0\x00"
PONG = b"\xd0\x00"
DISCONNECT = b"\xe0\x00"


def acknowledgement(number):
    return bytes((0x40, 2, number >> 8, number & 255))


def subscribed(count):
    """The acknowledgements of a link's first subscriptions."""
    return b"".join([bytes((0x90, 3, 0, number, 1)) for number in range(1, count + 1)])


def message(topic, payload, number=0):
    """A PUBLISH: at QoS 1 with this packet id, or at QoS 0 if it is 0."""
    body = bytes((0, len(topic))) + topic
    if number:
        body += bytes((number >> 8, number & 255))
    body += payload
    packet = bytearray((0x32 if number else 0x30,))
    length = len(body)
    while length > 127:
        packet.append(length & 127 | 128)
        length >>= 7
    packet.append(length)
    return bytes(packet) + body


class Wire:
    """A connection whose other end is the test: the session reads `given`, and has written `taken`."""

    def __init__(self, given=ACCEPTED, step=1000):
        self.given = given
        self.step = step  # the most bytes that one read returns
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
        n = len(view)
        if self.room is not None:
            n = min(n, self.room)
            self.room -= n
        self.taken += view[:n]
        return n

    def wait(self, timeout_ms):
        self.waits += 1
        assert self.waits <= 100, "waits for ever"

    def close(self):
        self.closed = True


def session_over(*wires, **options):
    """A Session that connects to these wires, one after the other."""
    left = list(wires)

    def connect():
        if not left:
            raise Lost("no broker")
        return left.pop(0)

    options.setdefault("patience_ms", 100_000)
    return Session(connect, *CLIENT, **options)


def opened(step=1000, **options):
    """(a session with a broker, its connection)"""
    line = Wire(step=step)
    session = session_over(line, **options)
    assert session.open()
    line.taken[:] = b""
    return session, line


# --- The session


def test_connect_names_the_client_and_its_will():
    # The first packet of MQTT, CONNECT, byte for byte: protocol, flags, keep-alive, client name,
    # the will (a message that the broker sends once the client is gone), user and password.
    line = Wire()
    assert session_over(line).open()
    # Flags 0xc2: a user, a password, a clean session. 60 s of keep-alive.
    assert line.taken == b"\x10\x1b\x00\x04MQTT\x04\xc2\x00\x3c\x00\x0800000007\x00\x01u\x00\x02pw"

    line = Wire(b"\x20\x02\x01\x00")  # the broker kept the session
    assert session_over(line, keep_alive=300, clean=False, will=(b"t", b"")).open()
    # Flags 0xec: also a retained will at QoS 1; the session is kept.
    assert line.taken == (
        b"\x10\x20\x00\x04MQTT\x04\xec\x01\x2c\x00\x0800000007\x00\x01t\x00\x00\x00\x01u\x00\x02pw"
    )


def test_what_is_no_broker_is_recognised():
    for answer in (b"\x30\x02\x00\x00", b"SSH-2.0" + bytes(90), b"\xff" * 6):
        assert raises(Lost, session_over(Wire(answer)).open).reason == absence.NO_BROKER


def test_a_broker_that_never_answers_is_given_up():
    # The answer to CONNECT is missing or incomplete. Within `patience_ms` the session waits
    # without blocking, and later it gives up.
    for answer in (b"", ACCEPTED[:3]):
        with FakeClock(mqtt) as clock:
            session = session_over(Wire(answer), patience_ms=1000)
            clock.ms = 999
            assert not session.open()
            clock.ms = 2000  # more than 1000 ms after open() began
            raises(Lost, session.open)


def test_messages_are_received_whole_and_in_pieces():
    # The network delivers `step` bytes at a time. Payloads around 119 bytes, as MQTT codes larger
    # lengths in two bytes; 2560 is about the longest frame. 258 is the number of a message; PONG,
    # a packet in between, is passed over.
    for step in (1, 2, 7, 1000):
        session, line = opened(step)
        for n in (0, 118, 119, 120, 2560):  # 120: the length takes two bytes
            payload = bytes(i & 255 for i in range(n))
            line.given = message(b"tern/round", payload, 258) + PONG + message(b"t", b"x")
            assert session.receive()
            assert bytes(session.topic) == b"tern/round" and bytes(session.payload) == payload
            assert session.receive()
            assert bytes(session.topic) == b"t" and bytes(session.payload) == b"x"
            assert not session.receive()


def test_a_message_is_acknowledged_with_the_next_call():
    session, line = opened()
    line.given = message(b"t", b"x", 258)
    assert session.receive() and not line.taken
    session.receive()
    assert line.taken == acknowledgement(258)


def test_a_message_that_is_too_long_is_dropped_and_acknowledged():
    # A message without room on the board (more than 200 bytes here) is read away in small steps,
    # so that other tasks run, and acknowledged, or the broker would send it for ever.
    session, line = opened(largest=200)
    for n in (200, 1000, 20000):
        line.given = message(b"t", bytes(n), 7) + message(b"t", b"next")
        steps = 0
        while not session.receive():
            steps += 1
        assert steps >= (n - 200) // 64, "a step drops at most 64 bytes"
        assert bytes(session.payload) == b"next"
    assert line.taken == 3 * acknowledgement(7)


MALFORMED = (
    b"\x30\x01\x00",  # no topic
    b"\x30\x02\x00\x00",  # an empty topic
    b"\x30\x03\x00\x05a",  # a topic longer than the packet
    b"\x32\x04\x00\x01tx",  # no whole packet id
    b"\x34\x06\x00\x01t\x00\x01x",  # QoS 2
    b"\x36\x06\x00\x01t\x00\x01x",  # QoS 3
    b"\x30\xff\xff\xff\xff\x01",  # a length of five bytes
    b"\x40\x03\x00\x01x",
    b"\x40\x00",
    b"\x90\x03\x00\x01\x80",  # a subscription refused
    b"\xd0\x01x",
    b"\x00\x00",
    b"\x10\x00",
    ACCEPTED,
    b"\xf0\x00",
)


def test_malformed_packets_end_the_connection():
    for packet in MALFORMED:
        session, line = opened()
        line.given = packet
        assert raises(Lost, session.receive).reason in (absence.NO_BROKER, absence.DECLINED)


def test_publications_are_sent_again_over_the_next_connection_until_acknowledged():
    # At QoS 1 a message is delivered at least once: it is kept until the broker acknowledges its
    # number. Here the first of two is acknowledged (0x1111 is the number of none), so that the
    # next connection repeats the second alone.
    first, second = Wire(), Wire()
    session = session_over(first, second, window=2)
    session.open()
    first.taken[:] = b""
    session.publish(b"t", b"one+", 3)
    session.publish(b"t", b"two", 3, True)
    assert first.taken == b"\x32\x08\x00\x01t\x00\x01one" + b"\x33\x08\x00\x01t\x00\x02two"

    first.given = acknowledgement(1) + acknowledgement(0x1111)
    assert not session.receive() and session.waiting() == 1
    session.close()

    assert session.open()
    assert second.taken.endswith(b"\x3b\x08\x00\x01t\x00\x02two")  # the flag DUP
    assert b"one" not in second.taken


def test_a_publication_without_a_connection_goes_out_over_the_next():
    # Whether the connection was already lost before a message or breaks while it is written, the
    # message is kept and waits for the next one.
    broken, second = Wire(), Wire()
    broken.broken = True
    session = session_over(broken, second)
    session.publish(b"t", b"early", 5)
    raises(Lost, session.open)
    session.close()
    assert session.open() and b"early" in second.taken

    second.broken = True
    raises(Lost, session.publish, b"t", b"late", 4)
    assert session.waiting() == 2


def test_publishing_reads_acknowledgements_as_far_as_the_next_message():
    # At most `window` publications may wait for an acknowledgement. publish() makes room by
    # reading acknowledgements, but leaves an arriving message to receive().
    session, line = opened(window=2)
    for number in range(1, 11):
        session.publish(b"t", b"answer", 6)
        line.given += acknowledgement(number)
    line.given += message(b"t", b"next")
    session.publish(b"t", b"x", 1)
    session.publish(b"t", b"x", 1)
    assert session.receive() and bytes(session.payload) == b"next"
    assert session.waiting() == 2


def test_packet_ids_wrap_and_skip_those_in_flight():
    session, line = opened(window=4)
    session.publish(b"t", b"stays", 5)  # id 1
    session._id = 64999
    for number in (65000, 2):
        session.publish(b"t", b"", 0)
        assert line.taken[-2:] == bytes((number >> 8, number & 255))


def test_a_ping_without_an_answer_ends_the_connection():
    # A client that is silent for its keep-alive, here two hours, is cut off, so that it pings
    # after half of it. A broker that does not answer within patience_ms is given up.
    with FakeClock(mqtt) as clock:
        session, line = opened(keep_alive=2 * HOUR_MS // 1000, patience_ms=1000)
        clock.ms = HOUR_MS - 1
        assert not session.receive() and not line.taken
        clock.ms = HOUR_MS  # half of the keep-alive
        assert not session.receive() and line.taken == PING
        line.given = PONG
        assert not session.receive()
        clock.ms += HOUR_MS
        assert not session.receive() and line.taken == 2 * PING
        clock.ms += 1000
        raises(Lost, session.receive)


def test_half_a_packet_ends_the_connection():
    session, line = opened(keep_alive=0, patience_ms=0)
    line.given = b"\x30\x05\x00\x01"
    raises(Lost, session.receive)


def test_a_missing_acknowledgement_ends_the_connection():
    session, _ = opened(keep_alive=0, patience_ms=0)
    session.publish(b"t", b"x", 1)
    raises(Lost, session.receive)


def test_a_missing_acknowledgement_of_a_subscription_ends_the_connection():
    line = Wire()
    session = session_over(line, keep_alive=0, patience_ms=0)
    session.subscribe(b"t")
    assert session.open()
    assert line.taken.endswith(b"\x82\x06\xff\xff\x00\x01t\x01")  # SUBSCRIBE to t at QoS 1
    raises(Lost, session.receive)


def test_a_publication_that_is_too_long_is_refused():
    session, _ = opened()
    raises(ValueError, session.publish, b"t", bytes(400), 400)


def written_with_room(room):
    """All that a session writes to a broker that takes `room` bytes at a time; None: any number."""
    line = Wire(step=3)
    line.room = room
    session = session_over(line, window=4)
    session.subscribe(b"topic")
    while not session.open():
        line.room = room
    for i in range(3):
        session.publish(b"t", bytes((i,)) * 50, 50)
    line.given = message(b"t", b"x", 77)
    for _ in range(300):
        line.room = room
        session.receive()
    assert session.waiting() == 3
    return bytes(line.taken)


def test_a_broker_that_reads_slowly_gets_every_byte_once():
    expected = written_with_room(None)
    assert expected.endswith(acknowledgement(77))
    for room in (1, 2, 7, 50):
        assert written_with_room(room) == expected, room


def test_a_full_window_ends_the_connection_and_is_sent_over_the_next():
    # A window of 3 messages may wait for an acknowledgement. The broker takes only 4 bytes and
    # then hangs: the fourth message pushes out the oldest, ends the connection, and the next one
    # sends the newest three.
    line, second = Wire(), Wire()
    session = session_over(line, second, window=3)
    session.open()
    line.room = 4  # bytes that the broker still takes
    for i in range(3):
        session.publish(b"t", bytes((i,)) * 20, 20)
    raises(Lost, session.publish, b"t", b"\x03" * 20, 20)
    assert not session.connected and line.closed
    assert session.open()
    for i in range(1, 4):
        assert bytes((i,)) * 20 in second.taken
    assert session.waiting() == 3


class Quiet(Wire):
    """A Wire that allocates as little as a socket: `given` is a memoryview, and written bytes are
    dropped.
    """

    at = 0

    def give(self, view):
        self.given = view
        self.at = 0

    def read_into(self, view):
        n = min(len(view), len(self.given) - self.at)
        view[:n] = self.given[self.at : self.at + n] if n else b""
        self.at += n
        return n

    def write(self, view):
        return len(view)


def test_a_message_takes_at_most_1024_bytes():
    # The heap that a board needs for a whole round: receive a question of 2500 bytes, publish an
    # answer of 273, take the acknowledgement. Garbage collection is off, to count all that is
    # allocated.
    if not MICROPYTHON:
        return
    line = Quiet()
    session = session_over(line)
    session.open()
    out = memoryview(bytearray(2600))
    question = memoryview(message(b"tern/round", bytes(2500), 9))
    acknowledged = [memoryview(acknowledgement(number)) for number in range(1, 21)]
    for each in acknowledged:
        gc.collect()
        gc.disable()
        before = gc.mem_alloc()
        line.give(question)
        assert session.receive()
        session.take(out)
        session.publish(b"tern/up/00000007", out, 273)
        line.give(each)
        session.receive()
        taken = gc.mem_alloc() - before
        gc.enable()
        assert taken <= 1024, taken  # bytes
    assert not session.waiting()


# --- The link


class Broker:
    """A broker that takes connections while it is `up`."""

    def __init__(self):
        self.up = True
        self.lines = []

    def connect(self):
        if not self.up:
            raise Lost("no broker")
        self.lines.append(Wire(ACCEPTED + subscribed(2)))
        return self.lines[-1]


ROUND = bytes((wire.ROUND,)) + bytes(20)


def link_on(connect, **options):
    return Mqtt(Session(connect, *CLIENT), "fleet", name(7), **options)


def connected(admitted=None):
    """(a link that has passed on its first HELLO_REQUEST, its connection)"""
    broker = Broker()
    link = link_on(broker.connect)
    if admitted:
        link.admit(admitted)
    assert link.receive(0)[0] == wire.HELLO_REQUEST
    return link, broker.lines[0]


def test_a_link_passes_on_rounds_only():
    # Anyone may publish to a topic: what is empty or too long is no frame, and a link drops it
    # without an error.
    link, line = connected()
    assert b"fleet/down/00000007" in line.taken and b"fleet/round" in line.taken
    for payload in (b"", bytes(3000), ROUND):
        line.given += message(b"fleet/round", payload)
    # The long message is dropped in steps.
    while (frame := link.receive(0)) is None:
        pass
    assert bytes(frame) == ROUND
    assert link.receive(0) is None


def test_a_link_drops_one_unwanted_frame_in_a_step():
    unwanted = message(b"fleet/round", bytes((wire.HELLO_REQUEST,)) + bytes(20))
    link, line = connected()
    line.given += 5 * unwanted + message(b"fleet/round", ROUND)
    for _ in range(5):
        assert link.receive(0) is None
    assert link.receive(0)[0] == wire.ROUND


def test_a_link_passes_on_admitted_frames():
    for admitted in (None, wire.MODEL, 0x77):
        link, line = connected(admitted)
        assert (b"fleet/model/#" in line.taken) == (admitted == wire.MODEL)
        for kind in (wire.MODEL, 0x77):
            for topic in (b"fleet/model", b"fleet/model/limits"):
                line.given += message(topic, bytes((kind,)) + bytes(20))
                assert (link.receive(0) is not None) == (kind == admitted)


def test_a_link_waits_until_all_is_acknowledged():
    # A board that sleeps between rounds must not leave before its report is acknowledged, and
    # before the question is acknowledged, which the broker would else deliver again.
    broker = Broker()
    link = link_on(broker.connect)
    link.send(bytes((wire.REPORT,)), 1)
    assert link.waiting() == 1
    link.receive(0)

    (line,) = broker.lines
    line.given += message(b"fleet/round", ROUND, 9)  # to be acknowledged as number 9
    assert link.receive(0)[0] == wire.ROUND and link.waiting() == 1
    line.given += acknowledgement(1)
    line.room = 2  # of the four bytes that acknowledge the round
    assert link.receive(0) is None and link.waiting() == 1
    line.room = None
    assert link.receive(0) is None and link.waiting() == 0
    link.disconnect()
    assert line.taken.endswith(acknowledgement(9) + DISCONNECT) and line.closed


def pauses_without_a_broker(count, longest_pause_ms):
    """The times (ms) between `count` attempts to connect."""
    attempts = []

    def connect():
        attempts.append(clock.ms)
        raise Lost("no broker")

    link = link_on(connect, longest_pause_ms=longest_pause_ms)
    with FakeClock(mqtt_link) as clock:
        while len(attempts) <= count:
            assert link.receive(0) is None
            clock.ms += 1
    return [attempts[i + 1] - attempts[i] for i in range(count)]


def test_a_link_reconnects_after_longer_and_longer_pauses():
    pauses = pauses_without_a_broker(6, longest_pause_ms=2000)
    for pause, most in zip(pauses, (500, 1000, 2000, 2000, 2000, 2000)):
        assert most // 2 <= pause <= most
    others = pauses_without_a_broker(6, longest_pause_ms=2000)
    assert pauses != others, "boards that lost their broker together reconnect at different times"


def test_a_link_goes_on_after_memory_ran_out():
    # Memory runs out in connecting, in publishing, and in connecting again; each time the link
    # tries anew.
    attempts = [no_memory, Broker().connect, no_memory, Broker().connect]
    link = link_on(lambda: attempts.pop(0)(), longest_pause_ms=1)
    while link.receive(0) is None:
        pass
    link._session.publish = no_memory
    assert not link.send(bytearray((wire.REPORT,)), 1)
    while link.receive(0) is None:
        pass
    assert not attempts


def test_an_error_of_the_network_does_not_end_the_program():
    # OSError 12 (no memory) comes from the network's driver. receive() returns None, as without a
    # frame, and keeps the error.
    def connect():
        raise OSError(12)

    link = link_on(connect)
    for _ in range(3):
        assert link.receive(0) is None
    assert isinstance(link.error, OSError)


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


HELLO_REQUEST = bytearray(13)
encode_hello_request(HELLO_REQUEST, 5)
HELLO = bytes((wire.HELLO,)) + bytes(30)


def test_a_hello_request_at_the_port_is_answered_there_without_a_broker():
    # Without a network, a technician asks a board through its serial port. Of what comes there,
    # only a whole HELLO_REQUEST is answered: a damaged one and a ROUND are not.
    broker = Broker()
    broker.up = False
    damaged = HELLO_REQUEST[:-1] + b"x"
    port = Port(b"", damaged, bytes((wire.ROUND,)) + bytes(40), HELLO_REQUEST, b"end")
    link = link_on(broker.connect, absent=port, port=port)
    while (frame := link.receive(0)) is None:
        pass
    assert frame == HELLO_REQUEST
    link.send(HELLO, len(HELLO))
    assert port.sent == [HELLO] and port.reasons == [absence.LOST]
    assert link.waiting(), "no broker has heard it"
    assert link.receive(0) is None, "the port's other end has gone"


def test_the_radio_is_off_after_a_link_has_disconnected():
    # A board that sleeps between rounds on a battery must not leave its radio on.
    switched_off = []

    class Station:
        @staticmethod
        def leave():
            switched_off.append(True)

    link = link_on(Broker().connect, station=Station)
    link.disconnect()
    assert switched_off
