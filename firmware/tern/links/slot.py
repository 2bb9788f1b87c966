"""Fixed moments to send at, so that the time from a round to its report tells nothing of data or noise."""

import time

from tern import compat, wire
from tern.compat import MICROPYTHON, const, sleep_ms

if MICROPYTHON:
    _us = time.ticks_us
    _add = time.ticks_add
    _diff = time.ticks_diff
else:

    def _us():
        return time.monotonic_ns() // 1000

    def _add(ticks, us):
        return ticks + us

    def _diff(later, earlier):
        return later - earlier


_SPIN_US = const(3000)
_SLEEP_MS = const(2000)  # at most, for the watchdog


class Slotted:
    """A link like `link` that answers rounds only at whole multiples of a slot after it received, or answered, last.

    The slot must be longer than any report takes to make: then every report is sent at the first of these moments.
    What does not depend on data (HELLO, BENCH) is sent at once: a host soon asks again who a board is.
    """

    def __init__(self, link, slot_ms):
        self._link = link
        self._slot = 1000 * slot_ms
        self._due = _us()
        self.console = link.console
        self.close = link.close

    def receive(self, timeout_ms=-1):
        """As the link's."""
        frame = self._link.receive(timeout_ms)
        self._due = _us()
        return frame

    def send(self, frame, n):
        """As the link's; a REPORT, REPORTS or an ERROR at the next moment."""
        if frame[0] == wire.REPORT or frame[0] == wire.REPORTS or frame[0] == wire.ERROR:
            self._wait()
        return self._link.send(frame, n)

    def _wait(self):
        slot = self._slot
        late = _diff(_us(), self._due)
        self._due = _add(self._due, (late // slot + 1) * slot)
        while (left := _diff(self._due, _us())) > 0:
            if left > _SPIN_US:
                compat.feed()
                sleep_ms(min((left - _SPIN_US) // 1000 + 1, _SLEEP_MS))
