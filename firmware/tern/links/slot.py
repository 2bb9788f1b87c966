"""Fixed moments to send at, so that the time from a round to its report tells nothing of data or noise."""

import time

from tern import compat, wire
from tern.compat import MICROPYTHON, const, sleep_ms

if MICROPYTHON:
    _us = time.ticks_us
    _diff = time.ticks_diff
else:

    def _us():
        return time.monotonic_ns() // 1000

    def _diff(later, earlier):
        return later - earlier


_NEAR_US = const(8000)  # a moment so near is waited for; beside tasks that take long, one farther off
_SLEEP_MS = const(2000)  # at most, for the watchdog


class Slotted:
    """`link`, but REPORT and ERROR leave only at whole multiples of a slot after the last frame or answer.

    The slot must be longer than the work for any report (shared_specs/storage.md, "Slot").
    """

    def __init__(self, link, slot_ms):
        self._link = link
        self._slot = 1000 * slot_ms
        self._last = _us()  # when it received, or answered
        self._answer = bytearray()
        self._n = 0  # bytes of it that wait for their moment
        self._looked = self._last

    def __getattr__(self, name):
        return getattr(self._link, name)

    def receive(self, timeout_ms=-1):
        """As the link's, once the answer is sent at its moment; with 0 None before."""
        if self._n and not self._give(timeout_ms):
            return None
        frame = self._link.receive(timeout_ms)
        self._last = _us()
        return frame

    def send(self, frame, n):
        """As the link's; a REPORT, REPORTS or an ERROR at the next moment, by receive() or by the next of them."""
        if frame[0] in (wire.REPORT, wire.REPORTS, wire.ERROR):
            if self._n:
                self._give(-1)
            self._answer[:n] = memoryview(frame)[:n]  # the client's next answer is written over it
            self._n = n
            self._looked = _us()
            return True
        return self._link.send(frame, n)

    def waiting(self):
        return self._n or self._link.waiting()

    def _give(self, timeout_ms):
        # Returns whether it has. A moment that was missed does not tell when the answer was there: the next one.
        start = _us()
        near = _NEAR_US
        if not timeout_ms:  # tasks that take long would else have it miss moment after moment
            near = max(near, min(_diff(start, self._looked) * 3 // 2, self._slot // 4))
            self._looked = start
        wait = self._slot - _diff(start, self._last) % self._slot
        while (left := wait - _diff(_us(), start)) > 0:
            if left > near:
                if not timeout_ms:
                    return False
                compat.feed()
                sleep_ms(min((left - near) // 1000 + 1, _SLEEP_MS))
        self._last = _us()
        self._link.send(self._answer, self._n)
        self._n = 0
        return True
