"""Links to single boards, over a serial port or anything else that carries frames.

A link sends frames (messages of shared_specs/wire.md), and puts received ones, in batches, on a
queue that a driver reads. A port is a device path or a URL. The scheme of a URL names a subclass of
Link in SCHEMES; pyserial opens any other port.
"""

from __future__ import annotations

import math
import queue
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from tern import frames, host_frames, wire
from ternhost.errors import DeviceError, RefusedError
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
HELLO_EVERY = 0.5  # seconds between two HELLO_REQUESTs to a board that does not answer
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
        # The HELLOs that have come while one was awaited; None says that the link is lost.
        self._hellos: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._awaits_hello = False  # otherwise a HELLO is dropped

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
            elif self._awaits_hello:
                self._hellos.put(frame)
        if answers:
            self._events.put(Received(self, answers))

    def lose(self, why: str) -> None:
        """Note that the board can no longer be reached, and tell all who wait for it.

        why: what has happened, for the error message. Only the first call counts.
        """
        if self._lost:
            return
        hint = f"check its cable and power; {self.AFTER_LOSS}"
        self._lost = DeviceError(f"the board on {self.name} is gone: {why}", hint)
        self._hellos.put(None)
        self._events.put(Received(self, [], self._lost))

    def hello(self, timeout: float = 5.0) -> host_frames.Hello:
        """Ask the board for its HELLO, the message in which it describes itself, and return it.

        The request is repeated until the HELLO comes. A program with a slot may answer a request
        only after the next one was sent; that counts, too. Raises DeviceError if no HELLO has come
        after `timeout` seconds, and RefusedError if the board speaks another version of the
        protocol.
        """
        # The attempts are counted instead of the time: otherwise a host that was suspended meanwhile
        # would give up a board that answers.
        attempts = math.ceil(timeout / HELLO_EVERY)
        nonces: set[bytes] = set()
        for _ in range(attempts):
            self._awaits_hello = True
            nonces.add(self.ask_hello().to_bytes(_NONCE_BITS // 8, "little"))
            reply = self._wait_for_hello(nonces, min(timeout, HELLO_EVERY))
            try:
                hello = read_hello(reply)
            except frames.FrameError:
                continue
            check_schema(self.name, hello)
            return hello
        hint = "check that it is the right port, and that the board runs tern "
        hint += "(press its reset button)"
        raise DeviceError(f"no tern device answers on {self.name}", hint)

    def _wait_for_hello(self, nonces: Collection[bytes], timeout: float) -> bytes:
        """Wait for the HELLO that answers a request; return b"" if it does not come in time.

        nonces: the numbers in the requests, which their answers repeat. timeout: seconds to wait.
        Raises DeviceError if the link is lost.
        """
        end = time.monotonic() + timeout
        try:
            while True:  # even after the end, for replies that are in the queue already
                seconds_left = max(0.0, end - time.monotonic())
                reply = self._hellos.get(timeout=seconds_left)
                if reply is None:  # the link is lost
                    assert self._lost is not None
                    raise self._lost
                if reply[_NONCE] in nonces:  # else it answers an earlier call
                    return reply
        except queue.Empty:
            return b""
        finally:
            self._awaits_hello = False
