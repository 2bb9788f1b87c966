"""How long a host waits for a board at a port, which may answer only at the end of its slot."""

import contextlib
import os
import queue
import random
import threading
import time

import pytest
from framing import hello
from harness.port import Port

from tern import frames, wire
from ternhost.errors import DeviceError
from ternhost.reach import links
from ternhost.reach.links import Link
from ternhost.reach.ports import board as board_module
from ternhost.reach.ports.board import BoardOnPort
from ternhost.reach.ports.link import SerialLink
from ternhost.reach.ports.open_requests import PATIENCE, OpenRequests

PATIENCE_S = 0.05  # less than a board takes for an answer here
SLOT_S = 0.4
ERROR = bytearray(wire.MAX_FRAME)
ERROR = bytes(ERROR[: frames.encode_error(ERROR, b"", wire.BOARD, 0, wire.ERR_FRAME)])


class Slow(Link):
    """A link to a board that does something at once when it is asked, and answers a slot later."""

    def __init__(self, at_once=lambda link: None, slot=SLOT_S, answers=1):
        """answers: to how many of the requests it answers, from the first one on."""
        super().__init__("slow", queue.SimpleQueue())
        self.at_once, self.slot, self.answers = at_once, slot, answers
        self.requests = []

    def ask_hello(self):
        nonce = 1000 + len(self.requests)
        self.requests.append(nonce)
        if len(self.requests) <= self.answers:
            threading.Timer(self.slot, self.heard, [[hello(1, nonce=nonce)]]).start()
        self.at_once(self)
        return nonce

    def send(self, frame):
        pass

    def close(self):
        pass


def stale_hello(link):
    link.heard([hello(1, nonce=7)])


def error(link):
    link.heard([ERROR])


@pytest.mark.parametrize("sign", [Link.heard_credit, stale_hello, error])
def test_a_board_that_shows_that_it_reads_has_time_for_its_slot(sign):
    """It gives a credit for what it has read, or answers something that was sent before."""
    assert Slow(sign).hello(PATIENCE_S).first == 1


def test_a_board_without_a_sign_is_given_up():
    with pytest.raises(DeviceError):
        Slow(answers=0).hello(PATIENCE_S)


def test_a_board_that_has_read_the_request_is_not_asked_again(monkeypatch):
    """Each further request would cost it a slot."""
    monkeypatch.setattr(links, "HELLO_EVERY", SLOT_S / 20)
    link = Slow(Link.heard_credit)
    link.hello(PATIENCE_S)
    assert len(link.requests) == 1


def test_a_board_that_could_not_read_the_request_is_asked_again(monkeypatch):
    monkeypatch.setattr(links, "HELLO_EVERY", PATIENCE_S)

    def credit_and_error(link):
        link.heard_credit()
        link.heard([ERROR])

    link = Slow(credit_and_error)
    link.hello(PATIENCE_S)
    assert len(link.requests) > 1


@pytest.mark.parametrize("sign", [Link.heard_credit, stale_hello, error])
def test_no_sign_lets_a_host_wait_beyond_its_limit(sign):
    with pytest.raises(DeviceError):
        Slow(sign, answers=0).hello(PATIENCE_S, most=0.2)


def test_hellos_without_end_do_not_let_a_host_wait_for_ever():
    """A device sends hellos of its own, faster than the host reads them."""
    stop = threading.Event()

    def flood(link):
        def send():
            while not stop.is_set():
                stale_hello(link)

        threading.Thread(target=send, daemon=True).start()

    try:
        with pytest.raises(DeviceError):
            Slow(flood, answers=0).hello(PATIENCE_S, most=0.2)
    finally:
        stop.set()


def test_a_board_that_was_slow_before_gets_that_time_again():
    """The host knows by then that it has a slot."""
    link = Slow(Link.heard_credit, answers=2)
    link.hello(PATIENCE_S)
    link.at_once = lambda link: None
    assert link.hello(PATIENCE_S).first == 1


# Over a serial port


LONG = 60  # seconds; a sign of a board would let the host wait for twice as long


@contextlib.contextmanager
def answered_by(answer):
    """A link to a port on which another device calls `answer(port)` again and again."""
    port = Port()

    def answer_on_and_on():
        with contextlib.suppress(OSError):  # the port is closed
            while True:
                answer(port)

    threading.Thread(target=answer_on_and_on, daemon=True).start()
    with contextlib.closing(SerialLink(port.port, queue.SimpleQueue())) as link:
        yield link
    port.close()


def seconds_until_given_up(link):
    start = time.monotonic()
    with pytest.raises(DeviceError):
        link.hello(1)
    return time.monotonic() - start


def echo(port):
    os.write(port.far, os.read(port.far, 4096))


def print_noise(port):
    time.sleep(0.001)
    os.write(port.far, random.randbytes(200))


def test_an_echo_of_zeros_is_no_sign_of_a_board():
    """Each request begins with zeros. A plug that connects the two lines of a port sends them back,
    and there they look like credits.
    """
    with answered_by(echo) as link:
        assert seconds_until_given_up(link) < LONG


def test_zeros_in_noise_are_no_sign_of_a_board():
    with answered_by(print_noise) as link:
        assert seconds_until_given_up(link) < LONG


# In a round


def repeats(requests, seconds):
    """Whether the request to device 1 is sent again after so many seconds of silence."""
    asked = []
    requests.feed(asked.append)
    requests.repeat_after_silence(seconds)
    requests.feed(asked.append)
    return len(asked) > 1


def test_a_request_is_repeated_after_silence():
    assert repeats(OpenRequests([1], 0.0), 1.5 * PATIENCE)


def test_a_request_is_not_repeated_before_the_slot_of_its_board_ends():
    assert not repeats(OpenRequests([1], 0.0, answer_seconds=5.0), 7.0)


def test_a_board_that_comes_back_has_the_time_that_it_took_before(monkeypatch):
    """A board was gone. Its port is opened again, and it has its slot for the HELLO."""
    waited = []

    class Reopened(Slow):
        def hello(self, patience, most):
            waited.append(most)
            self.answer_seconds = 2.5
            return super().hello(patience, most)

    monkeypatch.setattr(board_module, "open_link", lambda port, events: Reopened(slot=0.01))
    board = BoardOnPort("slow")
    board.answer_seconds = 2.5
    board.reopen(queue.SimpleQueue(), now=1000.0)
    board.close()
    assert min(waited) > 2.5
