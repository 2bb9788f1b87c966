"""The device's side of a link over a Unix socket, with its path in unix.json.

Each packet is a frame.
"""

import json
import select
import socket
import struct

from tern import wire

_SEQPACKET = 5  # MicroPython does not name it


def open_link(board):
    """Return the link of `board`, which is listening."""
    with open(board.directory + "/unix.json") as file:
        return UnixLink(json.load(file)["path"])


class UnixLink:
    """Takes one host after the other."""

    console = False

    def __init__(self, path):
        self._server = socket.socket(socket.AF_UNIX, _SEQPACKET)
        self._server.bind(struct.pack("<H", socket.AF_UNIX) + path.encode() + b"\x00")
        self._server.listen(1)
        self._host = None

    def receive(self, timeout_ms=-1):
        """Return the next frame, a memoryview; None: there is none within `timeout_ms`."""
        while True:
            poll = select.poll()
            poll.register(self._host or self._server, select.POLLIN)
            if not poll.poll(timeout_ms):
                return None
            if not self._host:
                self._host = self._server.accept()[0]
                continue
            frame = self._host.recv(wire.MAX_FRAME)  # readinto would take several packets
            if frame:
                return memoryview(frame)
            self._host.close()
            self._host = None

    def send(self, frame, n):
        """Send frame[:n]; return whether the whole frame was sent."""
        try:
            return self._host.write(memoryview(frame)[:n]) == n
        except OSError:  # the host has gone
            return False

    def close(self):
        """Hang up, and stop listening."""
        for end in (self._host, self._server):
            if end:
                end.close()
