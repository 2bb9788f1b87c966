"""The device's side of a link over a Unix socket, whose path its unix.json names. Each packet is a frame."""

import json
import select
import socket
import struct

from tern import wire

_SEQPACKET = 5  # MicroPython does not name it


def open_link(board):
    """Return the link of `board`, which listens from now on."""
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
        """Return the next frame, a memoryview; None where none came in `timeout_ms`."""
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
        """Send frame[:n]. Return whether the other end took all of it."""
        try:
            return self._host.write(memoryview(frame)[:n]) == n
        except OSError:  # it has gone
            return False

    def close(self):
        """Hang up, and listen no longer."""
        for one in (self._host, self._server):
            if one:
                one.close()
