"""A port whose other end belongs to a test."""

import os
import threading
import tty
from contextlib import contextmanager, suppress

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


@contextmanager
def port_that_prints(text, every):
    """A context with the name of a port that prints `text` every `every` seconds, and ignores what
    is sent to it.
    """
    far, near = os.openpty()
    tty.setraw(near)
    os.set_blocking(far, False)
    stop = threading.Event()

    def print_until_stopped():
        while not stop.wait(every):
            with suppress(BlockingIOError):  # nothing was sent
                os.read(far, 65536)
            with suppress(BlockingIOError):  # nobody reads, and the port's buffer is full
                os.write(far, text)

    printing = threading.Thread(target=print_until_stopped)
    printing.start()
    try:
        yield os.ttyname(near)
    finally:
        stop.set()
        printing.join()
        os.close(far)
        os.close(near)
