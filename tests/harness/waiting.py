"""Waits for what other programs and boards do, each time with a limit."""

import time
from contextlib import closing, suppress
from queue import SimpleQueue

from ternhost.errors import DeviceError
from ternhost.reach.links import open_link

LOOK_EVERY = 0.02  # seconds


def wait_for(condition, seconds=60.0, said=lambda: "waited in vain"):
    """Wait until `condition()` is true, and return its value.

    said: returns what a test that has waited in vain shows, such as a log.
    """
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, said()
        time.sleep(LOOK_EVERY)
    return value


def wait_for_board(url, device, seconds=300.0):  # 30 on a machine that is not busy
    """Wait until the board at a port says that its first device has this id."""

    def answers():
        with suppress(DeviceError), closing(open_link(url, SimpleQueue())) as link:
            return link.hello(20.0).first == device
        return False

    wait_for(answers, seconds, lambda: "the board stays silent")
