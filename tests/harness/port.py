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
    """The name of a port on which `text` comes every so many seconds, whatever is written to it."""
    far, near = os.openpty()
    tty.setraw(near)
    os.set_blocking(far, False)
    stop = threading.Event()

    def talk():
        while not stop.wait(every):
            for transfer in (lambda: os.read(far, 65536), lambda: os.write(far, text)):
                with suppress(BlockingIOError):
                    transfer()

    talking = threading.Thread(target=talk)
    talking.start()
    try:
        yield os.ttyname(near)
    finally:
        stop.set()
        talking.join()
        os.close(far)
        os.close(near)
