"""Links to boards.

A link sends frames, and puts received ones, in batches, on a queue that a driver reads. A port is a
URL, whose scheme names a subclass of Link in SCHEMES; pyserial opens any other port.
"""

from __future__ import annotations

import math
import queue
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
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
    """An event of a link: unchecked frames of a board, in their order.

    The last event of a link that was lost has an `error` instead.
    """

    link: Link
    frames: list[bytes]
    error: DeviceError | None = None


Events = queue.SimpleQueue[Received]
HELLO_EVERY = 0.5  # seconds between two hellos to a board that does not answer
_NONCE = slice(1, 5)  # of a HELLO, behind its type


# Scheme -> the class of its links, which gets the whole port and the queue.
_OWN = {"": "ternhost.reach.ports.link:SerialLink"}
SCHEMES: Registry[Callable[[str, Events], Link]] = Registry("link", "tern.links", _OWN)


def scheme_of(port: str) -> str:
    """Return the registered scheme with which a port begins; "" for a port of pyserial."""
    scheme, colon, _rest = port.partition(":")
    if colon and scheme in SCHEMES:
        return scheme
    return ""


def open_link(port: str, events: Events) -> Link:
    """Open the link to the board at a port. Raises DeviceError, UsageError.

    events: the queue that gets its frames.
    """
    return SCHEMES[scheme_of(port)](port, events)


def hello_request() -> tuple[int, bytes]:
    """Encode a HELLO_REQUEST; return its nonce and the frame."""
    nonce = secrets.randbits(32)
    buffer = bytearray(wire.MAX_FRAME)
    size = frames.encode_hello_request(buffer, nonce)
    return nonce, bytes(buffer[:size])


def read_hello(frame: bytes) -> host_frames.Hello:
    """Decode a HELLO, and make its text safe to show. Raises FrameError."""
    hello = host_frames.Hello(frame)
    if hello.text is not None:
        hello.text = visible(hello.text)
    return hello


def check_schema(name: str, hello: host_frames.Hello) -> None:
    """Raise RefusedError unless the board has this host's wire version and schema.

    name: of the port. The hint says which side to update.
    """
    if hello.version < wire.VERSION:
        hint = "update the board: install this host's tern library on it"
    elif hello.version > wire.VERSION:
        hint = "update this host: install a newer tern"
    elif hello.schema != wire.SCHEMA:
        hint = "install the same version of tern on the board and on this host"
    else:
        return
    raise RefusedError(
        f"the board on {name} speaks another schema (wire version {hello.version}, schema "
        f"{hello.schema.hex()}; here version {wire.VERSION}, schema {wire.SCHEMA.hex()})",
        hint,
    )


def drain(items: queue.SimpleQueue[T], timeout: float | None) -> list[T]:
    """Take all items from a queue; if it is empty, wait for one.

    timeout: seconds to wait at most; None: for ever.
    """
    drained: list[T] = []
    with suppress(queue.Empty):
        drained.append(items.get(timeout=timeout))
        while True:
            drained.append(items.get_nowait())
    return drained


class Link(ABC):
    """A connection to one board.

    A subclass passes received frames to `heard`, and the reason of a loss to `lose`.
    """

    scheme: ClassVar[str]  # the word before the colon of its ports
    AFTER_LOSS = "with --resume the training goes on where it was"  # hint for a lost link

    def __init__(self, name: str, events: Events) -> None:
        """name: of the port, for messages. events: the queue that gets what the board sends."""
        self.name = name
        self._events = events
        self._lost: DeviceError | None = None
        # HELLOs; None: the link is lost.
        self._hellos: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._awaits_hello = False  # else a HELLO is dropped

    @abstractmethod
    def send(self, frame: bytes) -> None:
        """Send a frame as soon as the board has room for it.

        Returns at once; a lost link shows on the events.
        """

    @abstractmethod
    def close(self) -> None:
        """Give the port back. A link that was lost is closed, too."""

    def backlog(self) -> int:
        """The number of bytes that wait for room."""
        return 0

    def ask_hello(self) -> int:
        """Ask the board for its HELLO, in any state of the board and the link; return the nonce."""
        nonce, request = hello_request()
        self.send(request)
        return nonce

    def heard(self, received: Iterable[bytes]) -> None:
        """Pass on frames that have come from the board, in their order.

        received: an empty frame was damaged; the aggregator counts it.
        """
        answers = []
        for frame in received:
            if frame[:1] != bytes((wire.HELLO,)):
                answers.append(frame)
            elif self._awaits_hello:
                self._hellos.put(frame)
        if answers:
            self._events.put(Received(self, answers))

    def lose(self, why: str) -> None:
        """Note that the board can no longer be reached."""
        if self._lost:
            return
        hint = f"check its cable and power; {self.AFTER_LOSS}"
        self._lost = DeviceError(f"the board on {self.name} is gone: {why}", hint)
        self._hellos.put(None)
        self._events.put(Received(self, [], self._lost))

    def hello(self, timeout: float = 5.0) -> host_frames.Hello:
        """Ask for the HELLO until it comes, and return it.

        Raises DeviceError after `timeout` seconds, RefusedError for another schema.
        """
        # A fixed number of questions: a delayed host must not give up a board that answers.
        for _ in range(math.ceil(timeout / HELLO_EVERY)):
            self._awaits_hello = True
            nonce = self.ask_hello()
            reply = self._wait_for_hello(nonce, min(timeout, HELLO_EVERY))
            try:
                hello = read_hello(reply)
            except frames.FrameError:
                continue
            check_schema(self.name, hello)
            return hello
        hint = "check that it is the right port, and that the board runs tern "
        hint += "(press its reset button)"
        raise DeviceError(f"no tern device answers on {self.name}", hint)

    def _wait_for_hello(self, nonce: int, timeout: float) -> bytes:
        """Wait for the HELLO that answers a request; return no bytes if it does not come in time.

        nonce: of the request. Raises DeviceError if the link is lost.
        """
        end = time.monotonic() + timeout
        try:
            while True:  # also after the end, for replies that are there already
                reply = self._hellos.get(timeout=max(0.0, end - time.monotonic()))
                if reply is None:
                    assert self._lost is not None
                    raise self._lost
                if reply[_NONCE] == nonce.to_bytes(4, "little"):
                    return reply
        except queue.Empty:
            return b""
        finally:
            self._awaits_hello = False
