"""A port whose other end belongs to a test."""

import os
import tty
from contextlib import contextmanager

from spec.frames import cobs


class Port:
    """A pseudo terminal: a program opens `port`, and the test reads and writes at `far`."""

    def __init__(self):
        self.far, self.near = os.openpty()
        tty.setraw(self.near)
        self.port = os.ttyname(self.near)

    def send(self, frame):
        """Send a frame, and return its bytes on the line."""
        os.write(self.far, cobs(frame))
        return cobs(frame)

    def hang_up(self):
        for end in (self.near, self.far):
            if end >= 0:
                os.close(end)
        self.near = self.far = -1

    close = hang_up


@contextmanager
def silent():
    """A context with the name of a port that never answers."""
    port = Port()
    try:
        yield port.port
    finally:
        port.close()
