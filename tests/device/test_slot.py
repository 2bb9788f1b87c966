"""A Slotted link sends answers at multiples of its slot."""

import scratch
import small_board
from checks import replaced
from fake_link import Link

from tern import storage, wire
from tern.boards.emulated import Board
from tern.client import Client
from tern.links import slot as module
from tern.links.slot import Slotted

REPORT = bytes((wire.REPORT,)) + b"answer"
ERROR = bytes((wire.ERROR,)) + b"ext"
QUESTION = memoryview(bytes((wire.ROUND,)) + b"frame")
HELLO = memoryview(bytes((wire.HELLO_REQUEST,)))


SLOT = 500  # ms


class Clock:
    """Time that passes only when it is read, 10 us each time, and in a sleep."""

    def __init__(self):
        self.us = 1000

    def now(self):
        self.us += 10
        return self.us // 1000

    def sleep_ms(self, ms):
        self.us += 1000 * ms

    def work(self, ms):
        """Let the board work for so long."""
        self.us += 1000 * ms

    @property
    def ms(self):
        return self.us // 1000


class TimedLink(Link):
    """Receives a frame in each call, and keeps its answers, looks and end with their times (ms)."""

    def __init__(self, clock, frame=QUESTION):
        super().__init__(console=True, end=frame)
        self.clock = clock
        self.looks = []

    def receive(self, timeout_ms=-1):
        self.looks.append(self.clock.ms)
        return super().receive(timeout_ms)

    def send(self, frame, n):
        self.sent.append((bytes(frame[:n]), self.clock.ms))
        return True

    def disconnect(self):
        self.left = self.clock.ms


def unlit(on):
    pass


def with_a_clock(function):
    def test():
        clock = Clock()
        with replaced(
            module,
            ticks_ms=clock.now,
            ticks_diff=lambda end, start: end - start,
            sleep_ms=clock.sleep_ms,
        ):
            function(clock)

    return test


def answering(clock, work_ms=0, frame=QUESTION):
    """(link, Slotted on it, time when the frame came): an answer waits for the end of its slot."""
    link = TimedLink(clock, frame)
    slotted = Slotted(link, SLOT, unlit)
    slotted.receive()
    start = slotted.last
    clock.work(work_ms)
    slotted.send(REPORT, len(REPORT))
    return link, slotted, start


@with_a_clock
def test_each_answer_is_sent_at_the_end_of_a_slot_of_its_own(clock):
    for work_ms, slots in ((5, 1), (SLOT + 5, 2)):
        link, slotted, start = answering(clock, work_ms)
        slotted.send(ERROR, len(ERROR))
        slotted.disconnect()
        assert link.sent == [(REPORT, start + slots * SLOT), (ERROR, start + (slots + 1) * SLOT)]


@with_a_clock
def test_an_answer_that_waits_is_a_copy(clock):
    # A slot is a fixed time after a question, at whose end the answer leaves, whenever the work
    # was done. Until then, the client may already overwrite its buffer.
    link = TimedLink(clock)
    slotted = Slotted(link, SLOT, unlit)
    slotted.receive()
    reply = bytearray(REPORT)
    slotted.send(reply, len(reply))
    reply[:] = bytes(len(reply))  # the client's next answer
    assert slotted.waiting()
    slotted.disconnect()
    assert link.sent[0][0] == REPORT and not slotted.waiting()


@with_a_clock
def test_a_link_begins_at_a_multiple_of_the_slot_since_power_on(clock):
    for opened_ms, began_ms in ((1, 500), (7, 500), (499, 500), (500, 1000), (730, 1000)):
        clock.us = 1000 * opened_ms
        link, _, start = answering(clock)
        assert start == began_ms and link.looks == [began_ms], opened_ms


@with_a_clock
def test_receive_blocks_a_task_only_shortly_before_the_answer_is_due(clock):
    # An answer leaves at the end of a slot of 500 ms, whatever the work took. Other tasks of the
    # program run meanwhile: only in the last 8 ms does receive() wait, to be exact.
    for work_ms in (0, 13, 39):
        link, slotted, start = answering(clock, work_ms)
        calls = 0
        while not link.sent:
            before = clock.us
            frame = slotted.receive(0)
            calls += 1
            assert clock.us - before <= 8100
            assert frame is None
            clock.work(5)  # the task sleeps
        assert link.sent[0][1] - start == 500, work_ms  # whatever the work, the same
        assert 80 < calls < 110  # about one for each 5 ms of the slot


@with_a_clock
def test_an_answer_is_in_time_beside_a_busy_task(clock):
    # An answer leaves at the end of a slot of 500 ms, to the millisecond, although another task
    # takes up to 80 ms at a time: the moment must not tell how long the work took.
    for busy_ms in (20, 40, 80):
        for work_ms in (0, 7, 56, 84):
            link, slotted, start = answering(clock, work_ms)
            while not link.sent:
                slotted.receive(0)
                clock.work(busy_ms)
            assert link.sent[0][1] - start == 500, (busy_ms, work_ms)


@with_a_clock
def test_an_answer_that_missed_its_slot_is_sent_at_the_end_of_the_next(clock):
    link, slotted, start = answering(clock)
    assert slotted.receive(0) is None
    clock.work(700)
    assert slotted.receive(0) is None
    slotted.receive(-1)
    assert link.sent[0][1] - start == 1000


@with_a_clock
def test_a_frame_takes_its_slot_with_or_without_an_answer(clock):
    # A slot, here of 500 ms, hides how long the work on a frame took. A MODEL has no answer, but
    # the next frame is not read before its slot is over, and the LED, too, is lit by the clock of
    # slots alone.
    for work_ms in (0, 60, 499):
        link = TimedLink(clock)
        lit = []
        slotted = Slotted(link, 500, lit.append)
        slotted.receive()  # a MODEL
        (start,) = link.looks  # times at which it looked for a frame
        clock.work(work_ms)
        assert lit == [False, True] and slotted.waiting()
        slotted.receive()
        assert link.looks[1] - start == 500 and not link.sent and lit == [False, True] * 2
        slotted.disconnect()
        assert link.left - start == 1000


@with_a_clock
def test_only_a_hello_is_sent_at_once(clock):
    link, slotted, _ = answering(clock, 30, HELLO)
    assert link.sent == [(REPORT, clock.ms)]
    assert slotted.waiting() == 0


@with_a_clock
def test_a_damaged_frame_takes_its_slot_too(clock):
    link, slotted, start = answering(clock, 30, memoryview(b""))
    assert not link.sent
    slotted.receive()
    assert link.sent == [(REPORT, start + 500)]


@with_a_clock
def test_what_a_link_does_by_itself_takes_a_slot_from_when_it_began(clock):
    """Such as a file that it writes, once connected or when the connection was lost."""
    # A slot hides how long work takes. Here a link is busy for 70 ms, which it announces with
    # hold(): what follows happens at the end of a slot that began then.

    class Writing(TimedLink):
        def receive(self, timeout_ms=-1):
            frame = super().receive(timeout_ms)
            if frame is None or frame[0] == wire.HELLO_REQUEST:
                self.hold()
                clock.work(70)
            return frame

        def send(self, frame, n):
            super().send(frame, n)
            self.hold()  # it has lost the connection
            clock.work(70)

    for frame in (None, HELLO):
        lit = []
        link = Writing(clock, frame)
        slotted = Slotted(link, 500, lit.append)
        for _ in range(3):
            assert slotted.receive() is frame
        looks = link.looks
        assert slotted.waiting() and [looks[1] - looks[0], looks[2] - looks[1]] == [500] * 2
        assert lit == [False] * 3
    slotted.send(REPORT, len(REPORT))
    assert slotted.receive() is None and link.sent == [(REPORT, looks[2] + 500)]
    slotted.receive()
    assert looks[3] == looks[2] + 1000, "nothing is read before the next slot is over"


def test_a_board_takes_its_slot_from_its_file():
    # fleet.bin holds the length of the slot (ms), the fixed time after which a board answers. With
    # 0 or without a valid file, its link is used directly.
    class Quiet(Board):
        def open_link(self):
            return Link()

    folder = scratch.folder()
    assert isinstance(Quiet(folder).link(), Link)
    for slot, kind in ((0, Link), (30, Slotted)):
        small_board.put_fleet(folder, slot=slot)
        assert isinstance(Quiet(folder).link(), kind)
    scratch.write(folder + "/" + storage.FLEET, b"damaged")
    assert isinstance(Quiet(folder).link(), Link)  # it still receives requests, and refuses them


def test_each_client_of_a_board_with_a_slot_answers_in_its_own_slot():
    # Three clients share a board. Without a slot, their answers leave in one frame, REPORTS. With
    # one, a fixed time of 500 ms for each answer, each sends its own.
    key = bytes(range(100, 132))
    for slot, kinds in ((0, [wire.REPORTS]), (500, [wire.REPORT] * 3)):
        folder = scratch.folder()
        client = Client(small_board.provision(folder, clients=3))
        small_board.put_fleet(folder, key, slot=slot, records=3)
        sent = []
        client.respond(
            small_board.round_frame(1, small_board.THREE, device=wire.FLEET, key=key),
            lambda reply, n, sent=sent: sent.append(reply[0]),
        )
        assert sent == kinds
        client.close()
