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


_TIMED = (wire.REPORT, wire.REPORTS, wire.ERROR)
_SPIN_US = const(3000)
_NEAR_US = const(8000)  # receive(0), which is called more often than this, waits for a moment so near
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
        self._answer = b""  # its first bytes wait for their moment
        self._n = 0  # so many

    def __getattr__(self, name):
        return getattr(self._link, name)

    def receive(self, timeout_ms=-1):
        """As the link's, once the answer is sent; with 0 None before that."""
        if self._n and not self._sent(timeout_ms):
            return None
        frame = self._link.receive(timeout_ms)
        self._due = _us()
        return frame

    def send(self, frame, n):
        """As the link's; a REPORT, REPORTS or an ERROR at the next moment, which receive() waits for."""
        if frame[0] not in _TIMED:
            return self._link.send(frame, n)
        if self._n:
            self._sent(-1)
        if n > len(self._answer):  # once or twice
            self._answer = memoryview(bytearray(n))
        self._answer[:n] = memoryview(frame)[:n]  # the client's next answer would overwrite it
        self._n = n
        return True

    def waiting(self):
        """As the link's."""
        return self._link.waiting() + bool(self._n)

    def _sent(self, timeout_ms):
        # Sends the answer at its moment; returns whether it has, which without waiting is not so before.
        due = _add(self._due, (_diff(_us(), self._due) // self._slot + 1) * self._slot)
        while (left := _diff(due, _us())) > 0:
            if not timeout_ms and left > _NEAR_US:
                return False
            if left > _SPIN_US:
                compat.feed()
                sleep_ms(min((left - _SPIN_US) // 1000 + 1, _SLEEP_MS))
        self._due = due
        self._link.send(self._answer, self._n)
        self._n = 0
        return True
