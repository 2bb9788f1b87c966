"""A Post carries bytes between a host and the gateways of its sites; at a site a Handler turns a question into a reply.

A message may be lost, or be handled twice, but a reply comes from the site whose name it carries. On a gateway's socket
a question is its length, 4 bytes big-endian, and its bytes; the reply is a byte (0: the answer, 1: the text of an
error), a length and bytes. A connection may carry several.
"""

from __future__ import annotations

import os
import queue
import re
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ternhost.errors import DeviceError, TernError, UsageError
from ternhost.reach.links import drain

SOCKET = "gateway.sock"  # in the directory of a site
SERVER = "server"  # the directory beside those of the sites; no site may have this name
LARGEST = 1 << 28  # bytes of a question or an answer
MOST_TEXT = 2000  # characters of an error

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_LENGTH = struct.Struct(">I")
_LONGEST_PATH = 100  # bytes; the system takes 107 for a socket

Handler = Callable[[bytes], bytes]
"""Turns a question into a reply. A TernError reaches the host as the text of an error."""


@dataclass(frozen=True)
class Reply:
    """A reply of the gateway at `site`; after a failure `payload` is None and `error` gives the reason."""

    site: str
    payload: bytes | None
    error: str = ""


class Post(ABC):
    """The connection of a host to its gateways. One thread sends and receives; any thread may stop it."""

    def __init__(self) -> None:
        self._replies: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        """Begin. Raises UsageError and DeviceError."""
        return self

    @abstractmethod
    def __exit__(self, *raised: object) -> None:
        """End, with all threads and processes that it started."""

    @abstractmethod
    def sites(self) -> Mapping[str, bool]:
        """The name of each registered gateway, and whether it can probably be reached now."""

    @abstractmethod
    def send(self, site: str, payload: bytes) -> None:
        """Send to a registered gateway. Returns at once; the message may be lost."""

    @abstractmethod
    def condition(self) -> str:
        """A sentence about what is wrong with the connection itself; "" where all is well."""

    def receive(self, timeout: float) -> list[Reply]:
        """The replies so far; if there are none, wait up to `timeout` seconds, or until `stop`."""
        return [reply for reply in drain(self._replies, max(0.0, timeout)) if reply]

    def stop(self) -> None:
        """Have `receive` return soon. For another thread, or a signal handler."""
        self._replies.put(None)

    def received(self, site: str, payload: bytes | None, error: str = "") -> None:
        """Have `receive` return this Reply."""
        self._replies.put(Reply(site, payload, error))


def check_site(name: str) -> None:
    """Raise UsageError unless `name` can be the name of a site."""
    if not _NAME.fullmatch(name) or name == SERVER:
        raise UsageError(
            f"{name!r} cannot be the name of a site",
            hint=f"up to 32 of A-Z a-z 0-9 _ -, such as north-1; not {SERVER!r}",
        )


def call(path: str | Path, payload: bytes, timeout: float) -> bytes:
    """Ask the gateway at a socket. Raises DeviceError without an answer in `timeout` seconds, or with its error."""
    end = time.monotonic() + timeout
    try:
        with connected(path, timeout) as connection:
            send_frame(connection, payload)
            (failed,) = exactly(connection, 1, end)
            answer = receive_frame(connection, end)
    except TimeoutError as error:
        raise DeviceError(f"the gateway at {path} has not answered within {timeout:g} s") from error
    except (OSError, EOFError) as error:
        raise DeviceError(
            f"no gateway answers at {path}: {error}", hint="is 'tern gateway run' running there?"
        ) from error
    if failed:
        raise DeviceError(text_of(answer))
    return answer


def text_of(data: bytes) -> str:
    """The text of an error that another machine has sent, of at most MOST_TEXT characters."""
    return data[: 4 * MOST_TEXT].decode(errors="replace")[:MOST_TEXT]


@contextmanager
def serve_locally(path: str | Path, handler: Handler) -> Iterator[None]:
    """Answer questions on a socket, for its owner alone, while the context is open; each connection has a thread. At
    its end, open questions lose their connection. Raises UsageError if another process serves the socket.
    """
    path = Path(path)
    if served(path):
        raise UsageError(f"{path} is served already", hint="one gateway runs in a directory")
    connections: set[socket.socket] = set()
    with listening(path) as server:
        thread = threading.Thread(target=_accept, args=(server, handler, connections), daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)  # wakes accept()
            thread.join()
            path.unlink(missing_ok=True)
            for connection in list(connections):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


def _accept(server: socket.socket, handler: Handler, connections: set[socket.socket]) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        connections.add(connection)
        threading.Thread(target=_answer, args=(connection, handler, connections), daemon=True).start()


def _answer(connection: socket.socket, handler: Handler, connections: set[socket.socket]) -> None:
    """Answer the questions of one connection, until it is closed."""
    try:
        with suppress(OSError, EOFError), connection:
            while True:
                failed, reply = _handled(handler, receive_frame(connection))
                send_frame(connection, reply, bytes((failed,)))
    finally:
        connections.discard(connection)


def _handled(handler: Handler, payload: bytes) -> tuple[bool, bytes]:
    try:
        return False, handler(payload)
    except TernError as error:
        return True, error.message.encode()
    except Exception as error:  # a fault of the gateway, for the host and for the log at the site
        details = type(error), error, error.__traceback__, threading.current_thread()
        threading.excepthook(threading.ExceptHookArgs(details))
        return True, f"a fault of the gateway: {type(error).__name__}: {error}".encode()


def send_frame(connection: socket.socket, data: bytes, before: bytes = b"") -> None:
    """Send `before`, the length of `data`, and `data`. Raises OSError."""
    connection.sendall(before + _LENGTH.pack(len(data)) + data)


def receive_frame(connection: socket.socket, end: float | None = None, most: int = LARGEST) -> bytes:
    """The data of `send_frame`. Raises as `exactly`, and OSError for more than `most` bytes."""
    (length,) = _LENGTH.unpack(exactly(connection, _LENGTH.size, end))
    if length > most:
        raise OSError(f"{length} bytes are more than {most}")
    return exactly(connection, length, end)


def exactly(connection: socket.socket, length: int, end: float | None = None) -> bytes:
    """The next `length` bytes. Raises EOFError if it is closed before, TimeoutError after `end` (monotonic seconds)."""
    data = bytearray()
    while len(data) < length:
        if end is not None:
            connection.settimeout(max(0.001, end - time.monotonic()))
        part = connection.recv(min(length - len(data), 1 << 20))
        if not part:
            raise EOFError("it has closed the connection")
        data += part
    return bytes(data)


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A socket that listens at `path`, for its owner alone; replaces a stale one. Raises OSError."""
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        with _short(temporary) as name:
            server.bind(name)
        os.chmod(temporary, 0o600)  # before it listens, and before it has its name
        server.listen(64)
        os.replace(temporary, path)
        yield server


@contextmanager
def connected(path: str | Path, timeout: float | None = None) -> Iterator[socket.socket]:
    """A connection to the socket at `path`. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        with _short(Path(path)) as name:
            connection.connect(name)
        yield connection


def served(path: Path) -> bool:
    """Whether a process listens at `path`."""
    try:
        with connected(path, 1.0):
            return True
    except OSError:
        return False


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """`path`, or another name of it that is short enough for a socket."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
