"""Links to boards. A link sends frames, and puts what it receives, in batches, on a queue that a driver reads.

A port is a URL, whose scheme names the kind of link; what has no scheme of SCHEMES is opened by pyserial. A new kind is
a class (most of it is in links.listening) and a line: SCHEMES.register("unix", UnixLink), or an entry point.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

from tern import frames, host_frames, wire
from ternhost.errors import DeviceError, RefusedError
from ternhost.registry import Registry
from ternhost.text import visible


@dataclass(frozen=True)
class Received:
    """Frames of a board, in order, not checked; `error` instead once the link is lost, and nothing after that."""

    link: Link
    frames: list[bytes]
    error: DeviceError | None = None


Events = SimpleQueue[Received]


class Link(Protocol):
    """A connection to one board."""

    name: str

    def hello(self, timeout: float = 5.0) -> host_frames.Hello:
        """Ask the board who it is. Raises DeviceError (no answer) and RefusedError (another schema)."""

    def send(self, frame: bytes) -> None:
        """Send a frame, at once or as soon as the board has room for it. Returns without waiting."""

    def backlog(self) -> int:
        """How many bytes wait for room."""

    def ask(self, frame: bytes, kind: int, nonce: int, timeout: float) -> bytes | None:
        """Send a question to the board itself and wait for its reply.

        Returns the frame of type `kind` that carries the nonce, or an ERROR of the board, or None if neither comes
        within `timeout` seconds. Raises DeviceError once the link is lost.
        """

    def close(self) -> None:
        """Give the port back. A link that was lost is closed too."""


# Scheme -> the class of its links, which is given the whole port, and the queue.
SCHEMES: Registry[Callable[[str, Events], Link]] = Registry(
    "link", "tern.links", {"": "ternhost.reach.ports.link:SerialLink"}
)


def open_link(port: str, events: Events) -> Link:
    """The link to the board at `port`. Raises DeviceError, UsageError."""
    scheme, colon, _ = port.partition(":")
    return SCHEMES[scheme if colon and scheme in SCHEMES else ""](port, events)


def hello_request() -> tuple[int, bytes]:
    """A HELLO_REQUEST: its nonce, and the frame."""
    nonce = secrets.randbits(32)
    frame = bytearray(wire.MAX_FRAME)
    n = frames.encode_hello_request(frame, nonce)
    return nonce, bytes(frame[:n])


def read_hello(frame: bytes) -> host_frames.Hello:
    """A HELLO, whose text is fit to be shown. Raises FrameError."""
    hello = host_frames.Hello(frame)
    if hello.text is not None:
        hello.text = visible(hello.text)
    return hello


def check_schema(name: str, hello: host_frames.Hello) -> None:
    """Raise RefusedError, saying which side to update, unless the board has this host's wire version and schema."""
    version, schema = wire.VERSION, wire.SCHEMA
    if hello.version < version:
        advice = "update the board: install this host's tern library on it"
    elif hello.version > version:
        advice = "update this host: install a newer tern"
    elif hello.schema != schema:
        advice = "install the same version of tern on the board and on this host"
    else:
        return
    raise RefusedError(
        f"the board on {name} speaks another schema (wire version {hello.version}, schema {hello.schema.hex()}; "
        f"here version {version}, schema {schema.hex()})",
        hint=advice,
    )
