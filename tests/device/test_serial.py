"""The serial link where it must not wait, on streams and a poll of the test."""

import small_board
from checks import replaced

from tern import frames, wire
from tern.frames import Receiver
from tern.links import serial
from tern.links.serial import Serial

REPORT = bytes((wire.REPORT,)) + bytes(i & 255 for i in range(300))


class Stream:
    """Both ends of a port: the host has sent `given` and read `taken`, and can read `room` more
    bytes.
    """

    def __init__(self):
        self.given = b""
        self.taken = bytearray()
        self.room = 1000000
        self.slow = False  # whether a write may return without having written
        self.reads = {}  # size of a read -> number of such reads
        self.polls = set()

    def readinto(self, view, n):
        n = min(n, len(view))
        self.reads[n] = self.reads.get(n, 0) + 1
        assert n <= len(self.given), "it would wait for ever"
        view[:n] = self.given[:n]
        self.given = self.given[n:]
        return n

    def write(self, data, at, n):
        assert self.room or self.slow, "it would wait"
        n = min(n, self.room)
        self.taken += data[at : at + n]
        self.room -= n
        return n

    # stands in for the module `select`
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
    def test():
        stream = Stream()
        # A busy machine takes no time from the link.
        with replaced(serial, select=stream, ticks_ms=lambda: 0):
            function(stream, Serial(stream, stream, stream, stream, False))

    return test


def coded(frame):
    out = bytearray(frames.cobs_size(len(frame)))
    return bytes(out[: frames.cobs_encode(frame, len(frame), out)])


def long_round():
    """A ROUND of 128 parameters."""
    return bytes(small_board.round_frame(1, small_board.THREE, d=128, k=1))


def question_of(n):
    """A frame of the type of a ROUND, with n more bytes that are not 0."""
    return bytes((wire.ROUND,)) + bytes(1 + i % 255 for i in range(n))


def answers(data):
    receiver = Receiver(wire.MAX_FRAME)
    receiver.give(data)
    answers = []
    while (n := receiver.next()) != frames.MORE:
        answers.append(bytes(receiver.frame[:n]) if n >= 0 else None)
    return answers


@with_a_stream
def test_a_host_that_dies_in_a_frame_blocks_nothing(stream, link):
    # A frame on the serial line is cut at some byte and never ends. receive(0) must return None at
    # once, and the next whole frame, after a zero byte that separates them, be received.
    question = bytes((wire.ROUND,)) + bytes(100)
    for cut in range(1, len(question), 7):
        stream.given = coded(question)[:cut]
        for _ in range(5):
            assert link.receive(0) is None
        assert not stream.given

        stream.given = b"\x00" + coded(question)
        received = []
        for _ in range(10):
            frame = link.receive(0)
            if frame is not None:
                received.append(bytes(frame))
        assert received[-1] == question, cut
    # It read what was there byte by byte, and never waited.
    assert set(stream.reads) == {1} and stream.polls == {0}


@with_a_stream
def test_one_call_reads_64_bytes_at_most(stream, link):
    # So that other tasks of a program run between calls. For every CREDIT bytes that it reads, the
    # board sends a zero byte, a credit, with which the host may send more.
    question = question_of(1000)
    stream.given = coded(question) + coded(question)
    size = len(stream.given)
    calls = received = 0
    while stream.given:
        left = len(stream.given)
        frame = link.receive(0)
        assert left - len(stream.given) <= 64
        calls += 1
        if frame is not None:
            assert bytes(frame) == question
            received += 1
    assert received == 2 and calls >= size // 64
    assert stream.taken == bytes(size // wire.CREDIT), "a credit for every CREDIT bytes"


@with_a_stream
def test_a_host_that_reads_nothing_blocks_nothing(stream, link):
    # `stream.room` is how many bytes the serial line takes now. An answer of about 300 bytes goes
    # out in parts, as there is room, in further calls of receive(0), none of which waits.
    assert link.receive(0) is None
    stream.room = 10
    assert not link.send(REPORT, len(REPORT)) and link.waiting() == len(coded(REPORT)) - 10
    assert link.receive(0) is None and len(stream.taken) == 10
    calls = 0
    while link.waiting():
        stream.room = 20
        assert link.receive(0) is None
        calls += 1
    assert calls >= 300 // 20  # 20 bytes in each
    assert answers(stream.taken) == [REPORT] and link.waiting() == 0
    assert stream.polls == {0}


@with_a_stream
def test_nothing_is_read_before_an_answer_is_written(stream, link):
    # `stream.room` is how many bytes the serial line takes now. While a part of an answer is not
    # written yet, a question that is there is left unread, and a second answer is refused.
    # So the answer contains no credit, and the host waits with its next frame.
    question = question_of(300)
    for room in (0, 1, 10, 100, len(coded(REPORT)) - 1):
        assert link.receive(0) is None
        stream.taken[:] = b""
        stream.room = room
        assert not link.send(REPORT, len(REPORT))
        stream.given = coded(question)
        while stream.room:
            assert link.receive(0) is None
        assert link.receive(0) is None
        assert not link.send(REPORT, 50), "the host asks again"
        assert stream.given == coded(question) and stream.room == 0
        stream.room = 1000
        while (frame := link.receive(0)) is None:
            pass
        assert bytes(frame) == question and not stream.given and link.waiting() == 0
        assert answers(stream.taken)[0] == REPORT and not any(answers(stream.taken)[1:])
        assert len(answers(stream.taken)) - 1 in (2, 3), "credits"


@with_a_stream
def test_a_credit_for_which_there_is_no_room_is_written_later(stream, link):
    # A credit is a zero byte with which a board allows its host to send more. With no room on the
    # serial line it waits, or the host would wait for ever.
    assert link.receive(0) is None
    stream.room = 0
    stream.given = coded(question_of(300))
    for _ in range(10):
        assert link.receive(0) is None
    assert link.waiting() == 1 and not stream.taken
    stream.room = 1
    while stream.given:
        link.receive(0)
        stream.room = 1
    assert stream.taken == bytes(2)  # two credits, for about 300 bytes


@with_a_stream
def test_the_rest_of_a_frame_that_was_cut_short_is_written_first(stream, link):
    # A slow line takes 10 bytes of an answer and then nothing; send() gives up after some seconds.
    # The rest has to go before the next answer, or the host would see a damaged frame.
    now = 0  # ms

    def later():
        nonlocal now
        now += 1000
        return now

    stream.slow = True
    stream.room = 10
    with replaced(serial, ticks_ms=later):
        assert not link.send(REPORT, len(REPORT)) and link.waiting() == len(coded(REPORT)) - 10
        assert 5000 < now < 12000
        assert not link.send(REPORT, 9)
    stream.room = 1000
    assert link.send(REPORT, 50) and link.waiting() == 0
    assert answers(stream.taken) == [REPORT, REPORT[:50]]


@with_a_stream
def test_a_program_may_wait_and_not_wait_in_turn(stream, link):
    # receive(0) does not wait, receive() does. Frames that are cut anywhere between the two kinds
    # of calls arrive whole, and an answer that was written in part is completed.
    question = long_round()
    for cut in range(1, len(question), 23):
        stream.given = coded(question)[:cut]
        assert link.receive(0) is None
        stream.given += coded(question)[cut:]
        assert bytes(link.receive()) == question
        stream.room = 7
        assert link.receive(0) is None and not link.send(REPORT, len(REPORT))
        stream.room = 1000
        stream.given = coded(question)
        assert bytes(link.receive(100)) == question
        assert REPORT in answers(stream.taken) and link.waiting() == 0
        stream.taken[:] = b""


@with_a_stream
def test_a_link_without_a_time_limit_reads_many_bytes_at_once(stream, link):
    question = long_round()
    stream.given = coded(question)
    assert bytes(link.receive()) == question
    assert max(stream.reads) == wire.AT_ONCE and sum(stream.reads.values()) < 100
    assert link.send(REPORT, len(REPORT)) and not stream.polls
    assert answers(stream.taken)[-1] == REPORT
