"""A Slotted link sends answers at multiples of its slot."""

import time

import scratch
import small_board
from checks import replaced
from fake_link import Link

from tern import storage, wire
from tern.boards.emulated import Board
from tern.client import Client
from tern.compat import MICROPYTHON, sleep_ms
from tern.links import slot as module
from tern.links.slot import Slotted

REPORT = bytes((wire.REPORT,)) + b"answer"
ERROR = bytes((wire.ERROR,)) + b"ext"


def now_us():
    return time.ticks_us() if MICROPYTHON else time.monotonic_ns() // 1000


def since(start, end):
    """Microseconds between two now_us(), also after a device's clock has wrapped."""
    return time.ticks_diff(end, start) if MICROPYTHON else end - start


class TimedLink(Link):
    """Receives a frame in each call, and keeps its answers with their times."""

    def __init__(self, now=now_us):
        super().__init__(console=True, end=memoryview(b"frame"))
        self.now = now

    def send(self, frame, n):
        self.sent.append((bytes(frame[:n]), self.now()))
        return True


def test_answers_are_sent_at_multiples_of_the_slot():
    for work_ms in (0, 5, 19, 25, 45):
        link = TimedLink()
        slotted = Slotted(link, 20)
        before = now_us()
        assert bytes(slotted.receive()) == b"frame"
        start = slotted._last
        assert since(before, start) >= 0 and since(start, now_us()) >= 0, "the time when the frame came"
        sleep_ms(work_ms)
        reply = bytearray(REPORT)
        assert slotted.send(reply, 3)
        reply[:3] = bytes(3)  # the client's next answer
        assert not link.sent and slotted.waiting() == 3
        slotted.send(ERROR, 4)
        at = since(start, link.sent[0][1])
        least = (work_ms // 20 + 1) * 20000
        assert least - 1000 <= at, (work_ms, at)  # never early; late only if this machine was busy elsewhere
        assert bytes(slotted.receive()) == b"frame" and slotted.waiting() == 0
        assert since(link.sent[0][1], link.sent[1][1]) >= 19000 - (at - least) % 20000
        assert [sent[0] for sent in link.sent] == [REPORT[:3], ERROR]


class Clock:
    """Time that passes only when it is read, 10 us each time, and in a sleep."""

    def __init__(self):
        self.us = 1000

    def now(self):
        self.us += 10
        return self.us

    def sleep_ms(self, ms):
        self.us += 1000 * ms


def with_a_clock(function):
    def test():
        clock = Clock()
        with replaced(module, _us=clock.now, _diff=lambda end, start: end - start, sleep_ms=clock.sleep_ms):
            function(clock)

    return test


def answering(clock, work_ms=0):
    """(link, Slotted on it, time when the frame came): a slot of 500 ms, and an answer that waits for its end."""
    link = TimedLink(lambda: clock.us)
    slotted = Slotted(link, 500)
    slotted.receive(0)
    start = slotted._last
    clock.us += 1000 * work_ms
    slotted.send(REPORT, 3)
    return link, slotted, start


@with_a_clock
def test_receive_blocks_a_task_only_shortly_before_the_answer_is_due(clock):
    for work_ms in range(0, 40, 3):
        link, slotted, start = answering(clock, work_ms)
        calls = 0
        while not link.sent:
            before = clock.us
            frame = slotted.receive(0)
            calls += 1
            assert clock.us - before <= 8100
            assert (frame is None) == (not link.sent)
            clock.us += 5000  # the task sleeps
        assert 500000 <= link.sent[0][1] - start <= 500020, work_ms  # whatever the work, the same
        assert 80 < calls < 110


@with_a_clock
def test_an_answer_is_in_time_beside_a_busy_task(clock):
    for busy_ms in (20, 40, 80):
        for work_ms in range(0, 90, 7):
            link, slotted, start = answering(clock, work_ms)
            while not link.sent:
                slotted.receive(0)
                clock.us += 1000 * busy_ms
            assert 500000 <= link.sent[0][1] - start <= 500020, (busy_ms, work_ms)


@with_a_clock
def test_an_answer_that_missed_its_slot_is_sent_at_the_end_of_the_next(clock):
    link, slotted, start = answering(clock)
    assert slotted.receive(0) is None
    clock.us += 700000
    assert slotted.receive(0) is None
    slotted.receive(-1)
    assert 1000000 <= link.sent[0][1] - start <= 1000020
    assert slotted.waiting() == 0


def test_answers_that_do_not_depend_on_data_are_sent_at_once():
    link = TimedLink()
    slotted = Slotted(link, 60000)
    for kind in (wire.HELLO, wire.UPDATED):
        slotted.receive()
        assert slotted.send(bytes((kind,)), 1)
        assert link.sent.pop()[0] == bytes((kind,))


def test_other_calls_are_passed_to_the_link():
    link = TimedLink()
    slotted = Slotted(link, 20)
    assert slotted.console is True
    slotted.admit(wire.MODEL)
    slotted.disconnect()
    slotted.close()
    assert link.admitted == [wire.MODEL] and link.left == link.closed == 1


def test_a_board_takes_its_slot_from_its_file():
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
    key = bytes(range(100, 132))
    for slot, kinds in ((0, [wire.REPORTS]), (500, [wire.REPORT] * 3)):
        folder = scratch.folder()
        client = Client(small_board.provision(folder, clients=3))
        small_board.put_fleet(folder, key, slot=slot)
        sent = []
        client.respond(
            small_board.round_frame(1, small_board.THREE, device=wire.FLEET, key=key),
            lambda reply, n, sent=sent: sent.append(reply[0]),
        )
        assert sent == kinds
        client.close()
