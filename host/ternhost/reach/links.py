"""Links to single boards, over a serial port or anything else that carries frames.

A link sends frames (messages of shared_specs/wire.md), and puts received ones, in batches, on a
queue that a driver reads. A port is a device path or a URL. The scheme of a URL names a subclass of
Link in SCHEMES; pyserial opens any other port.
"""

from __future__ import annotations

import queue
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from tern import frames, host_frames, wire
from ternhost.errors import DeviceError, RefusedError
from ternhost.reach.patience import AFTER_SIGN, GROWTH, HELLO_EVERY, MOST_WAIT, patience_for
from ternhost.registry import Registry
from ternhost.text import visible

T = TypeVar("T")


@dataclass(frozen=True)
class Received:
    """An event of a link: frames that have come from a board, in their order, not yet verified.

    The last event of a link that was lost has an `error` and no frames.
    """

    link: Link
    frames: list[bytes]
    error: DeviceError | None = None


Events = queue.SimpleQueue[Received]
_NONCE = slice(1, 5)  # where the nonce is in a HELLO: behind the byte with its type
_NONCE_BITS = 32


# The class of the links of each scheme; it is called with the whole port and the queue.
_OWN = {"": "ternhost.reach.ports.link:SerialLink"}
SCHEMES: Registry[Callable[[str, Events], Link]] = Registry("link", "tern.links", _OWN)


def scheme_of(port: str) -> str:
    """Return the scheme with which a port begins if it is in SCHEMES; "" for a port of pyserial."""
    scheme, colon, _rest = port.partition(":")
    if colon and scheme in SCHEMES:
        return scheme
    return ""


def open_link(port: str, events: Events) -> Link:
    """Open the link to the board at a port. Raises DeviceError and UsageError.

    events: the queue that gets the frames of the board.
    """
    link_class = SCHEMES[scheme_of(port)]
    return link_class(port, events)


def hello_request() -> tuple[int, bytes]:
    """Encode a HELLO_REQUEST, which asks a board to describe itself.

    Return its nonce, a random number that the board repeats in its answer, and the frame.
    """
    nonce = secrets.randbits(_NONCE_BITS)
    buffer = bytearray(wire.MAX_FRAME)
    size = frames.encode_hello_request(buffer, nonce)
    return nonce, bytes(buffer[:size])


def read_hello(frame: bytes) -> host_frames.Hello:
    """Decode a HELLO, and escape what is not printable in its text. Raises FrameError."""
    hello = host_frames.Hello(frame)
    if hello.text is not None:
        hello.text = visible(hello.text)
    return hello


def nonce_of(hello: bytes) -> int:
    """Return the nonce of a HELLO, which is that of the request that it answers. Not checked."""
    return int.from_bytes(hello[_NONCE], "little")


def check_schema(name: str, hello: host_frames.Hello) -> None:
    """Raise RefusedError unless a board speaks the same version of the protocol as this host.

    The hint of the error says which side to update. name: the board's port, for the message.
    hello: what the board says, with its version and schema (a hash of all message formats).
    """
    if hello.version < wire.VERSION:
        hint = "update the board: install this host's tern library on it"
    elif hello.version > wire.VERSION:
        hint = "update this host: install a newer tern"
    elif hello.schema != wire.SCHEMA:
        hint = "update the board to this host's version: tern board deploy"
    else:
        return
    raise RefusedError(
        f"the board on {name} speaks another schema (wire version {hello.version}, schema "
        f"{hello.schema.hex()}; here version {wire.VERSION}, schema {wire.SCHEMA.hex()})",
        hint,
    )


def drain(items: queue.SimpleQueue[T], timeout: float | None) -> list[T]:
    """Take all items from a queue. If it is empty, wait for the first one.

    timeout: how many seconds to wait at most; with None, for ever.
    """
    drained: list[T] = []
    with suppress(queue.Empty):
        drained.append(items.get(timeout=timeout))
        while True:
            drained.append(items.get_nowait())
    return drained


class Link(ABC):
    """A connection to one board.

    A subclass passes received frames to `heard`, and calls `lose` when the connection is lost.
    """

    scheme: ClassVar[str]  # the word before the colon of its ports
    AFTER_LOSS = "'tern resume' goes on where the run was"  # hint for a lost link

    def __init__(self, name: str, events: Events) -> None:
        """Begin a link to a board; a subclass opens the port.

        name: the port, for messages. events: the queue that gets the frames of the board.
        """
        self.name = name
        self._events = events
        self._lost: DeviceError | None = None  # the error once the link is lost
        # What has come while a HELLO was awaited, and shows that the board reads what it is sent:
        # HELLOs, errors, and credits (b""). None says that the link is lost.
        self._signs: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._awaits_hello = False  # otherwise a HELLO is dropped
        self._is_noise = False  # whether what comes is certainly not from a board
        self.answer_seconds = 0.0  # how long the board took for its last HELLO; 0 before the first

    @abstractmethod
    def send(self, frame: bytes) -> None:
        """Send a frame as soon as the board has room for it. Returns at once.

        If the link is lost, the queue of events gets the error.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the port. This is needed for a link that was lost, too."""

    def backlog(self) -> int:
        """Return the number of bytes that wait until the board has room for them."""
        return 0

    def ask_hello(self) -> int:
        """Ask the board for its HELLO, in whatever state it is; return the nonce of the request."""
        nonce, request = hello_request()
        self.send(request)
        return nonce

    def heard(self, received: Iterable[bytes]) -> None:
        """Pass on frames that have come from the board: HELLOs to `hello`, others to the driver.

        received: the frames in their order. One that was damaged is empty here; it is passed on,
        too, so that it is counted.
        """
        answers = []
        for frame in received:
            is_hello = bool(frame) and frame[0] == wire.HELLO
            if not is_hello:
                answers.append(frame)
            if self._awaits_hello and (is_hello or _is_error_of_board(frame)):
                self._signs.put(frame)
        if answers:
            self._events.put(Received(self, answers))

    def heard_credit(self) -> None:
        """Note that the board has read what it was sent, so that `hello` waits for its answer."""
        if self._awaits_hello:
            self._signs.put(b"")

    def lose(self, why: str) -> None:
        """Note that the board can no longer be reached, and tell all who wait for it.

        why: what has happened, for the error message. Only the first call counts.
        """
        if self._lost:
            return
        hint = f"check its cable and power; {self.AFTER_LOSS}"
        self._lost = DeviceError(f"the board on {self.name} is gone: {why}", hint)
        self._signs.put(None)
        self._events.put(Received(self, [], self._lost))

    def hello(self, patience: float = 5.0, most: float = MOST_WAIT) -> host_frames.Hello:
        """Ask the board for its HELLO, the message in which it describes itself, and return it.

        The request is repeated after longer and longer pauses, since a board that is just starting
        does not hear it. The HELLO may answer any of these requests.

        patience: seconds in which the board must say HELLO, or show by another sign that it reads
        what it is sent. After a sign, it has time until the end of its slot, however long that is.
        most: seconds in all. Raises DeviceError if no HELLO comes in time, and RefusedError if the
        board speaks another version of the protocol.
        """
        self._awaits_hello = True
        self._is_noise = False
        try:
            limit = patience_for(self.answer_seconds, patience)
            hello = self._ask_until_hello(min(limit, most), most)
        finally:
            self._awaits_hello = False
            drain(self._signs, timeout=0)
        if hello is None:
            hint = "check that it is the right port ('tern board list'); if the board lacks tern, "
            hint += "install it: tern board up; else press its reset button"
            raise DeviceError(f"no tern device answers on {self.name}", hint)
        check_schema(self.name, hello)
        return hello

    def _ask_until_hello(self, limit: float, most: float) -> host_frames.Hello | None:
        """Send requests until a HELLO answers one of them; return None if that takes too long.

        limit: seconds to wait, if nothing shows that the board reads. most: seconds in all. Raises
        DeviceError if the link is lost.
        """
        asked: dict[int, float] = {}  # when each request was sent, by its nonce
        pause = patience_for(self.answer_seconds, HELLO_EVERY)
        # The pauses are added up instead of looking at a clock: otherwise a host that was suspended
        # meanwhile would give up a board that answers.
        waited = 0.0
        last_sign = 0.0  # when the last sign came that the board reads
        has_read_request = False  # then a further request would only cost the board another slot
        least_limit = limit
        while waited < (least_limit if self._is_noise else limit):
            if not has_read_request:
                now = time.monotonic()
                asked[self.ask_hello()] = now
            this_pause = min(pause, limit - waited)
            waited += this_pause
            pause *= GROWTH
            for sign in self._signs_within(this_pause):
                now = time.monotonic()
                hello = _valid_hello(sign)
                if hello is not None and nonce_of(sign) in asked:
                    # The board has not begun with the request before the last sign.
                    self.answer_seconds = now - max(last_sign, asked[nonce_of(sign)])
                    return hello
                last_sign = now
                limit = min(most, waited + AFTER_SIGN)
                is_credit = not sign
                if is_credit:
                    has_read_request = True
                elif hello is None:  # an error: the request may have been damaged
                    has_read_request = False
                else:  # requests of another host come first
                    pause = max(pause, 2 * waited)
        return None

    def _signs_within(self, seconds: float) -> Iterator[bytes]:
        """Yield the signs of the board that come within some seconds, or are there already.

        Raises DeviceError if the link is lost.
        """
        end = time.monotonic() + seconds
        while True:
            seconds_left = end - time.monotonic()
            try:
                sign = self._signs.get(timeout=max(0.0, seconds_left))
            except queue.Empty:
                return
            if sign is None:  # the link is lost
                assert self._lost is not None
                raise self._lost
            yield sign
            if seconds_left < -seconds:  # a port that never falls silent
                return


def _valid_hello(frame: bytes) -> host_frames.Hello | None:
    """Decode a HELLO; return None for another frame, and for one that is damaged."""
    try:
        return read_hello(frame)
    except frames.FrameError:
        return None


def _is_error_of_board(frame: bytes) -> bool:
    """Return whether a frame is an ERROR in which a board names none of its devices.

    With it, a board answers what it could not read.
    """
    try:
        device, _round, _code, _detail = host_frames.decode_error(frame, b"")
    except frames.FrameError:
        return False
    return bool(device == wire.BOARD)
