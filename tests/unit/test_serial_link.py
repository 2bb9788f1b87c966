"""The serial link against a peer that counts every byte: credits, hello, losses, errors of opening."""

import contextlib
import fcntl
import itertools
import os
import queue
import random
import struct
import termios
import threading
import time
from array import array
from types import SimpleNamespace

import pytest
from framing import encoded, hello
from harness.port import Port
from spec.frames import cobs

from tern import frames, host_frames, wire
from ternhost.errors import DeviceError, RefusedError
from ternhost.reach import links
from ternhost.reach.links import open_link
from ternhost.reach.ports import board as board_module
from ternhost.reach.ports import link as module
from ternhost.reach.ports.link import SerialLink


class Peer(Port):
    """A peer that counts the bytes that it receives."""

    def __init__(self):
        super().__init__()
        self.receiver = frames.Receiver()
        self.thread = None  # the one that answers

    def waiting(self):
        """The number of bytes that the link has sent and nobody has read."""
        return struct.unpack("i", fcntl.ioctl(self.far, termios.FIONREAD, bytes(4)))[0]

    def wait_for(self, count):
        end = time.monotonic() + 60
        while self.waiting() < count and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(0.05)  # more bytes would have arrived by then
        return self.waiting()

    def read(self, count):
        data = b""
        while len(data) < count:
            data += os.read(self.far, count - len(data))
        return data

    def read_frame(self):
        """The next frame that is not empty."""
        while True:
            self.receiver.give(os.read(self.far, 1))
            n = self.receiver.next()
            if n > 0:
                return bytes(self.receiver.frame[:n])

    def write(self, data):
        os.write(self.far, data)

    def close(self):
        if self.far >= 0:
            # This ends the thread, which must not read from the next file with the number of `far`.
            os.close(self.near)
            self.near = -1
            if self.thread:
                self.thread.join(60)
            self.hang_up()


@pytest.fixture
def peer():
    peer = Peer()
    yield peer
    peer.close()


@pytest.fixture
def events():
    return queue.SimpleQueue()


@pytest.fixture
def link(peer, events, monkeypatch):
    # A delayed test must not look like a board that was reset.
    monkeypatch.setattr(module, "_STALL", 3600)
    link = SerialLink(peer.port, events)
    yield link
    link.close()


def damaged(frame):
    """A frame with another last byte."""
    return frame[:-1] + bytes([frame[-1] ^ 1])


def answering(peer, *answers):
    """Answer each HELLO_REQUEST by the next of `answers`, nonce -> bytes to write; the last one is
    repeated.
    """

    def answer_each():
        with contextlib.suppress(OSError):  # the port is closed
            for reply in itertools.chain(answers, itertools.repeat(answers[-1])):
                peer.write(reply(frames.decode_hello_request(peer.read_frame())))

    peer.thread = threading.Thread(target=answer_each, daemon=True)
    peer.thread.start()


# Flow control


def test_a_hello_resets_no_console(peer, monkeypatch):
    """Its bytes may reach MicroPython's prompt: none of them leaves it, interrupts or resets."""
    nonces = itertools.chain([0x02, 0x0300, 0x040000], itertools.repeat(0x55555555))
    monkeypatch.setattr(links.secrets, "randbits", lambda bits: next(nonces))
    with contextlib.closing(open_link(peer.port, queue.SimpleQueue())) as link:
        assert link.ask_hello() == 0x55555555


def test_the_link_never_has_more_in_flight_than_allowed(peer, link):
    """A board's input buffer is small, so the host may have at most wire.IN_FLIGHT bytes on the way
    that the board has not read. A board gives a zero as credit for each wire.CREDIT bytes that it
    has read; then the host sends as many more.
    """
    frame = bytes([wire.ROUND]) + b"x" * 199
    for _ in range(20):
        link.send(frame)
    unread = 20 * len(cobs(frame))  # encoded, as they go over the cable
    assert peer.wait_for(wire.IN_FLIGHT) == wire.IN_FLIGHT

    while unread > wire.IN_FLIGHT:
        peer.read(wire.CREDIT)
        peer.write(b"\x00")
        unread -= wire.CREDIT
        in_flight = min(unread, wire.IN_FLIGHT)
        assert peer.wait_for(in_flight) == in_flight
    assert link.backlog() == 0, "all was sent"


def test_a_hello_restores_lost_credits(peer, link, monkeypatch):
    """The host waits for credit, a board's sign that it has read more bytes. A board that was reset
    gives none for what it had in its buffer, and both would wait for ever. After a while (_STALL)
    the host asks for a hello, and the answer clears the account.
    """
    monkeypatch.setattr(module, "_STALL", 0.2)

    # A board reads as much as may be in flight, and is reset.
    first, second, third = [bytes([wire.ROUND]) + text * 199 for text in (b"a", b"b", b"c")]
    for frame in (first, second, third):
        link.send(frame)
    peer.wait_for(wire.IN_FLIGHT)
    peer.read(wire.IN_FLIGHT)  # it gives no credit

    # After the reset, it answers the request for a hello.
    peer.receiver = frames.Receiver()
    nonce = frames.decode_hello_request(peer.read_frame())
    time.sleep(0.05)
    while peer.waiting():  # the link sends nothing else until the board has answered
        nonce = frames.decode_hello_request(peer.read_frame())
    peer.send(hello(1, nonce=nonce))

    received = peer.read_frame()
    while received[0] == wire.HELLO_REQUEST:  # sent before the answer arrived
        received = peer.read_frame()
    # The second frame was cut in two, so it is lost and left out; the third arrives whole.
    assert received == third
    assert link.backlog() == 0


def test_a_request_that_is_still_unread_counts_as_in_flight(peer, link):
    """A host has sent two requests for a hello. The board answers the first one before it reads the
    second one, which is then in its buffer. Only the rest of the buffer has room.
    """
    frame = bytes([wire.ROUND]) + b"x" * 600
    first_nonce = link.ask_hello()
    first_size = peer.wait_for(1)
    link.ask_hello()
    second_size = peer.wait_for(first_size + 1) - first_size
    link.send(frame)
    peer.read(first_size)
    peer.send(hello(1, nonce=first_nonce))

    assert peer.wait_for(wire.IN_FLIGHT) == wire.IN_FLIGHT
    assert 0 < second_size < wire.IN_FLIGHT


def test_credits_before_the_hello_make_no_room(peer, link):
    """The board gives a credit when it has read the zeros before a request. Both sides begin to
    count only with its hello.
    """
    link.ask_hello()
    link.send(bytes([wire.ROUND]) + b"x" * 199)
    peer.read(peer.wait_for(1))
    peer.write(b"\x00")
    time.sleep(0.3)  # more bytes would have arrived by then
    assert peer.waiting() == 0


# Hello


def test_a_hello_is_requested_until_it_arrives(peer, link, monkeypatch):
    """A host asks a board to introduce itself. Silence, console noise, the answer to another
    request (each has a random nonce) and a damaged answer are passed over, until the right one
    comes.
    """
    monkeypatch.setattr(links, "HELLO_EVERY", 0.1)
    answering(
        peer,
        lambda nonce: b"",  # silence
        lambda nonce: b"Traceback: noise\r\n\x00",
        lambda nonce: cobs(hello(1, nonce=nonce ^ 1)),  # of another question
        lambda nonce: cobs(damaged(hello(1, nonce=nonce))),
        lambda nonce: cobs(hello(7, 9, nonce=nonce, text="a; b; c")),
    )
    received = link.hello(60)
    assert (received.first, received.clients, received.text) == (7, 9, "a; b; c")


def test_an_answer_may_come_after_the_next_request(peer, link, monkeypatch):
    """A program with a slot answers a request at the end of the slot, when the host has asked again
    already. Its answer to the earlier request counts.
    """
    monkeypatch.setattr(links, "HELLO_EVERY", 0.1)
    requests = []

    def answer_the_one_before(nonce):
        requests.append(nonce)
        return cobs(hello(1, nonce=requests[-2])) if len(requests) > 1 else b""

    answering(peer, *[answer_the_one_before] * 100)
    assert link.hello(10).first == 1


def test_a_board_that_does_not_answer_is_an_error(link):
    began = time.monotonic()
    with pytest.raises(DeviceError, match="no tern device answers") as caught:
        link.hello(0.3)
    assert time.monotonic() - began < 30, "a busy machine is slow, but the wait ends"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("newer", "advice"),
    [(-1, "update the board"), (0, "tern board deploy"), (1, "update this host")],
)
def test_the_error_of_another_schema_names_the_side_to_update(peer, link, newer, advice):
    """Board and host must speak the same version of the frames (their schema, named by its hash in
    the hello). Otherwise the host refuses the board, and advises to update whichever is older. If
    their versions are the same, it is the board.
    """

    def hello_of_another_schema(nonce):
        frame = bytearray(hello(1, nonce=nonce)[: -wire.TAG_BYTES])
        frame[5] = wire.VERSION + newer  # a hello has the version of its schema here,
        frame[6:14] = b"another!"  # and the hash here
        frame += bytes(wire.TAG_BYTES)
        frames.seal(b"", frame, len(frame) - wire.TAG_BYTES)  # a checksum
        return cobs(bytes(frame))

    answering(peer, hello_of_another_schema)
    with pytest.raises(RefusedError, match="another schema") as caught:
        link.hello(60)
    assert advice in caught.value.hint


# Receiving


def test_unsolicited_hellos_are_not_kept(peer, link, events):
    """A hello that answers no request is dropped: a board that sends hundreds of them fills no
    memory, and its unasked hello (of 1 client) is not taken for the answer to a request (3
    clients).
    """
    unasked = cobs(hello(1))
    end = bytes([wire.REPORT]) + bytes(20)

    def flood():
        for _ in range(500):
            peer.write(unasked)
        peer.send(end)
        assert events.get(timeout=60).frames == [end]  # all frames before it have been read
        assert link._signs.empty()

    flood()
    answering(peer, lambda nonce: unasked + cobs(hello(1, 3, nonce=nonce)))
    assert link.hello(60).clients == 3
    flood()  # after its answer, the question is closed


def test_a_hang_up_is_reported_once(peer, link, events):
    """A board that is unplugged gives one event with an error; later calls are harmless, and give
    no second one.
    """
    peer.hang_up()
    event = events.get(timeout=60)
    assert event.frames == []
    assert "unplugged" in event.error.message or "gone" in event.error.message
    link.send(b"anything")  # harmless
    with pytest.raises(queue.Empty):
        events.get(timeout=0.3)


# Opening


@pytest.mark.parametrize(("first", "clients"), [(1, 2**32 - 2), (2**32 - 2, 2), (1, 2**20 + 1)])
def test_a_board_that_claims_impossible_clients_is_refused(monkeypatch, first, clients):
    hello = SimpleNamespace(first=first, clients=clients, budget=0)
    link = SimpleNamespace(
        hello=lambda patience, most: hello, close=lambda: None, answer_seconds=0.0
    )
    monkeypatch.setattr(board_module, "open_link", lambda port, events: link)
    with pytest.raises(DeviceError, match="clients from"):
        board_module.BoardOnPort("/dev/ttyACM0").open(None, 1)


# A device never waits for bytes that need not come, and hears tools at any point


def frames_of_a_host():
    """A question with zeros, without zeros, and with a large card; and a request for a HELLO."""
    draw, key = random.Random(9), bytes(32)
    for dimension, largest, card_bytes in ((28, 0, 40), (128, 32767, 300), (100, 300, 2048)):
        parameters = array("h", (draw.randint(-largest, largest) for _ in range(dimension)))
        card = draw.randbytes(card_bytes)
        asked = (key, 7, 3, wire.LOGISTIC, parameters, card, 1, -14)  # device 7, round 3
        yield cobs(encoded(host_frames.encode_round, *asked))
    yield cobs(encoded(frames.encode_hello_request, 5))


def test_a_tool_is_heard_after_any_incomplete_frame_and_its_zeros():
    """A host may die in the middle of a frame. A tool that then wants the board's console sends 65
    zeros, which end any frame, and Enter and Ctrl-C. Wherever the frame was cut, the receiver of
    the board reads no byte of it that need not come, and gives the console the rest.
    """
    most_at_once = 64  # bytes that a board reads
    for data in frames_of_a_host():
        for cut in range(1, len(data), 7):
            receiver, read = frames.Receiver(), 0
            line = data[:cut] + bytes(65) + b"\r\x03"
            while read < len(line):
                # The frame cannot end before so many more bytes have come.
                size = min(receiver.certain(), most_at_once)
                assert 0 < size <= len(line) - read, "it waits for no byte that need not come"
                receiver.give(line[read : read + size])
                read += size
                while receiver.next() != frames.MORE:
                    pass
            assert receiver.certain() == 0, "the tool has it"
