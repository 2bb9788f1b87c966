"""Links to boards. A link sends frames, and puts what it receives, in batches, on a queue that a driver reads."""

from __future__ import annotations

from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

from tern import host_frames
from ternhost.errors import DeviceError, RefusedError


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


def open_link(port: str, events: Events) -> Link:
    """The link to the board at `port`: a URL of pyserial, or inprocess:DIRECTORY. Raises DeviceError, UsageError."""
    # Imported here, since they import this module.
    from ternhost.links.inprocess import SCHEME, InProcessLink
    from ternhost.links.serial import SerialLink

    if port.startswith(SCHEME):
        return InProcessLink(port.removeprefix(SCHEME), events)
    return SerialLink(port, events)


def check_schema(name: str, hello: host_frames.Hello, version: int, schema: bytes) -> None:
    """Raise RefusedError, saying which side to update, unless the board has this host's wire version and schema."""
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
