"""The connection between a host and the gateways of its sites, whatever carries the messages.

At the host, a Post sends bytes to gateways and receives their replies. At a site, a Handler turns a
message into a reply. A message may be lost, or be handled twice, but a reply comes from the site
whose name it carries.
"""

import queue
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from ternhost.errors import TernError, UsageError
from ternhost.reach.links import drain

# Directories beside those of the sites; no site may have such a name.
SERVER = "server"
NODES = "nodes"
LARGEST = 1 << 26  # bytes of a question or an answer
MOST_TEXT = 2000  # characters of an error

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")

Handler = Callable[[bytes], bytes]
"""Turns a message into a reply. If it raises TernError, the host gets the text of the error."""


@dataclass(frozen=True)
class Reply:
    """A reply of a gateway, or the failure to get one.

    site: the name of its site. payload: the bytes of the reply; None after a failure, for which
    `error` gives the reason.
    """

    site: str
    payload: bytes | None
    error: str = ""


class Post(ABC):
    """The connection of a host to its gateways.

    One thread sends and receives; any thread may stop it.
    """

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
        """Return, by name of each registered gateway, whether it can probably be reached now."""

    @abstractmethod
    def send(self, site: str, payload: bytes) -> None:
        """Send to a registered gateway. Returns at once; the message may be lost."""

    @abstractmethod
    def condition(self) -> str:
        """Return a sentence about what is wrong with the connection itself; "" if nothing is."""

    def receive(self, timeout: float) -> list[Reply]:
        """Return the replies that have come since the last call.

        If there are none, waits for the first one, up to `timeout` seconds or until `stop`.
        """
        replies = drain(self._replies, max(0.0, timeout))
        return [reply for reply in replies if reply is not None]  # None is there to end the wait

    def stop(self) -> None:
        """Have `receive` return soon. For another thread, or a signal handler."""
        self._replies.put(None)

    def received(self, site: str, payload: bytes | None, error: str = "") -> None:
        """Have `receive` return a Reply with these fields."""
        self._replies.put(Reply(site, payload, error))


def check_site(name: str) -> None:
    """Raise UsageError unless `name` can be the name of a site.

    It is also the name of the site's directory, so it must be safe there.
    """
    if not _NAME.fullmatch(name) or name in (SERVER, NODES):
        hint = f"up to 32 of A-Z a-z 0-9 _ -, such as north-1; not {SERVER!r} or {NODES!r}"
        raise UsageError(f"{name!r} cannot be the name of a site", hint)


def text_of(data: bytes) -> str:
    """Return the text of an error from another machine, of at most MOST_TEXT characters."""
    bytes_of_character = 4  # at most, in UTF-8
    text = data[: bytes_of_character * MOST_TEXT].decode(errors="replace")
    return text[:MOST_TEXT]


def handled(handler: Handler, payload: bytes) -> tuple[bool, bytes]:
    """Have a handler turn a message into a reply; return whether it has failed, and the reply.

    After a failure the reply is the text of the error.
    """
    try:
        return False, handler(payload)
    except TernError as error:
        return True, error.message.encode()
    except Exception as error:
        # A fault of the program. The host gets its text. The traceback is printed here, at the
        # site, as for an exception that ends a thread.
        details = (type(error), error, error.__traceback__, threading.current_thread())
        threading.excepthook(threading.ExceptHookArgs(details))
        return True, f"a fault of the gateway: {type(error).__name__}: {error}".encode()
