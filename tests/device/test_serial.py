"""The serial link where it must not wait: over streams and a poll of the test's own."""

from array import array

import small_board

from tern import frames, host_frames, wire
from tern.frames import Receiver
from tern.links import serial, steps
from tern.links.steps import Serial

REPORT = bytes((wire.REPORT,)) + bytes(i & 255 for i in range(300))


class Stream:
    """Both ends of a port: `given` is what the host has sent, `taken` what it has read, of which it takes `room`."""

    def __init__(self):
        self.given = b""
        self.taken = bytearray()
        self.room = 1000000
        self.asked = {}  # how many bytes at once were read for -> how often
        self.polls = set()

    def readinto(self, view, n):
        n = min(n, len(view))
        self.asked[n] = self.asked.get(n, 0) + 1
        assert n <= len(self.given), "it would wait for ever"
        view[:n] = self.given[:n]
        self.given = self.given[n:]
        return n

    def write(self, data, at, n):
        assert self.room, "it would wait"
        n = min(n, self.room)
        self.taken += data[at : at + n]
        self.room -= n
        return n

    # in the place of the module `select`
    POLLIN = 1
    POLLOUT = 4

    def poll(self):
        return Poll(self)


class Poll:
    def __init__(self, stream):
        self.stream = stream

    def register(self, _, event):
        self.event = event

    def ipoll(self, timeout_ms):
        self.stream.polls.add(timeout_ms)
        ready = self.stream.given if self.event == Stream.POLLIN else self.stream.room
        return iter(((self.stream, self.event),) if ready else ())


def with_a_stream(function):
    stream = Stream()
    good = serial.select
    serial.select = steps.select = stream
    try:
        function(stream, Serial(stream, stream, stream, False))
    finally:
        serial.select = steps.select = good


def coded(frame):
    out = bytearray(frames.cobs_size(len(frame)))
    return bytes(out[: frames.cobs_encode(frame, len(frame), out)])


def answers(data):
    receiver = Receiver(wire.MAX_FRAME)
    receiver.give(data)
    found = []
    while (n := receiver.next()) != frames.MORE:
        found.append(bytes(receiver.frame[:n]) if n >= 0 else None)
    return found


def test_a_host_that_dies_in_a_frame_holds_nobody():
    def run(stream, link):
        question = bytes((wire.ROUND,)) + bytes(100)
        for cut in range(1, len(question), 7):
            stream.given = coded(question)[:cut]
            for _ in range(5):
                assert link.receive(0) is None
            assert not stream.given
            stream.given = b"\x00" + coded(question)
            found = []
            for _ in range(10):
                frame = link.receive(0)
                if frame is not None:
                    found.append(bytes(frame))
            assert found[-1] == question, cut
        assert set(stream.asked) == {1} and stream.polls == {0}

    with_a_stream(run)


def test_one_call_reads_64_bytes_at_most():
    def run(stream, link):
        question = bytes((wire.ROUND,)) + bytes(1 + i % 255 for i in range(1000))
        stream.given = coded(question) + coded(question)
        size = len(stream.given)
        calls = found = 0
        while stream.given:
            left = len(stream.given)
            frame = link.receive(0)
            assert left - len(stream.given) <= 64
            calls += 1
            if frame is not None:
                assert bytes(frame) == question
                found += 1
        assert found == 2 and calls >= size // 64
        assert stream.taken == bytes(size // wire.CREDIT), "credits as ever"

    with_a_stream(run)


def test_a_host_that_takes_nothing_holds_nobody():
    def run(stream, link):
        assert link.receive(0) is None
        stream.room = 10
        assert not link.send(REPORT, len(REPORT)) and link.waiting() == 1
        assert link.receive(0) is None and len(stream.taken) == 10
        for _ in range(20):
            stream.room += 20
            before = len(stream.taken)
            assert link.receive(0) is None and len(stream.taken) - before <= 64
        assert answers(stream.taken) == [REPORT] and link.waiting() == 0
        assert stream.polls == {0}

    with_a_stream(run)


def test_an_answer_that_did_not_get_out_gives_way_to_the_next():
    def run(stream, link):
        assert link.receive(0) is None
        for room in (0, 1, 10, 100, 302):
            stream.taken[:] = b""
            stream.room = room
            link.send(REPORT, len(REPORT))
            for _ in range(6):
                link.receive(0)
            stream.room = 1000
            link.send(REPORT, 50)
            for _ in range(6):
                link.receive(0)
            assert answers(stream.taken)[-1] == REPORT[:50] and link.waiting() == 0
            assert REPORT not in answers(stream.taken)

    with_a_stream(run)


def test_credits_wait_for_the_end_of_a_frame():
    def run(stream, link):
        assert link.receive(0) is None
        stream.room = 100
        link.send(REPORT, len(REPORT))
        stream.given = coded(bytes((wire.ROUND,)) + bytes(1 + i % 255 for i in range(300)))
        for _ in range(10):
            link.receive(0)
        stream.room = 1000
        for _ in range(10):
            link.receive(0)
        assert answers(stream.taken)[0] == REPORT
        assert stream.taken.endswith(bytes(3)) and not stream.taken.endswith(bytes(4))

    with_a_stream(run)


def test_without_a_limit_it_asks_for_what_must_come():
    def run(stream, link):
        question = bytearray(wire.MAX_FRAME)
        parameters = array("h", (j for j in range(128)))
        n = host_frames.encode_round(
            question, bytes(32), 7, 1, wire.LINEAR, parameters, small_board.THREE, 1, -14
        )
        question = bytes(question[:n])
        stream.given = coded(question)
        assert bytes(link.receive()) == question
        assert max(stream.asked) == wire.AT_ONCE and sum(stream.asked.values()) < 100
        assert link.send(REPORT, len(REPORT)) and not stream.polls
        assert answers(stream.taken)[-1] == REPORT

    with_a_stream(run)
