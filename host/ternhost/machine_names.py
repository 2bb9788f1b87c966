"""Names of which each can be held by one process of this machine at a time.

The operating system gives a name back when its process ends, however it ends. Only Linux has such
names: sockets in its abstract namespace, which are no files. Elsewhere nobody holds any name.
"""

import socket
import sys

from ternhost.files import Closing


class NameIsHeld(Exception):
    """Another holder on this machine has the name already."""


class HeldName(Closing):
    """A name that this process holds until `close`."""

    def __init__(self, name: str) -> None:
        """Take a name of at most 100 ASCII characters. Raises NameIsHeld."""
        self._socket: socket.socket | None = None
        if not _exist_here():
            return
        holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            holder.bind(_address(name))
        except OSError:
            holder.close()
            raise NameIsHeld(name) from None
        self._socket = holder

    def close(self) -> None:
        """Give the name back; it does no harm to close a name twice."""
        if self._socket is not None:
            self._socket.close()


def is_held(name: str) -> bool:
    """Return whether a process of this machine holds the name; this does not take it."""
    if not _exist_here():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as visitor:
        try:
            visitor.connect(_address(name))
        except OSError:
            return False
    return True


def _exist_here() -> bool:
    return sys.platform == "linux" and hasattr(socket, "AF_UNIX")


def _address(name: str) -> str:
    """Return the address of the socket; \\0 at its beginning makes it a name instead of a file."""
    return f"\0{name}"
