"""The host's side of a link over a Unix socket, at the port unix:PATH. Each packet is a frame."""

from __future__ import annotations

import contextlib
import socket
import threading

from tern import wire
from ternhost.errors import DeviceError
from ternhost.reach.links import Events, Link


class UnixLink(Link):
    """A link to the board that listens at a path."""

    scheme = "unix"

    def __init__(self, port: str, events: Events) -> None:
        """Raises DeviceError if no board listens."""
        super().__init__(port, events)
        self._closing = False
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._connection.connect(port.partition(":")[2])
        except OSError as error:
            self._connection.close()
            raise DeviceError(
                f"no board listens at {port}: {error.strerror}", hint="start the board first"
            ) from error
        self._thread = threading.Thread(target=self._listen, name=f"link {port}", daemon=True)
        self._thread.start()

    def send(self, frame: bytes) -> None:
        with contextlib.suppress(OSError):  # the listening thread notices
            self._connection.send(frame)

    def close(self) -> None:
        self._closing = True
        with contextlib.suppress(OSError):  # the board may have gone first
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while frame := self._connection.recv(wire.MAX_FRAME):
                self.heard([frame])
        if not self._closing:
            self.lose("its process has ended")
