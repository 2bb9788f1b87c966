"""Public moments: a link whose answers leave at fixed times (shared_specs/storage.md, Slot).

How long an answer takes may depend on private records. So whatever a board with a slot lets anybody
see happens at a public moment, a multiple of the slot after the frame that it answers.
"""

import gc

from tern import compat, wire
from tern.compat import const, sleep_ms, ticks_diff, ticks_ms

# A moment that is so near is waited for without sleep; beside tasks that take long, one farther
# off.
_NEAR_MS = const(8)
_SLEEP_MS = const(2000)  # at most, since the watchdog must be fed


class Slotted:
    """A link with slots: an answer, or silence, ends at a multiple of the slot after its frame.

    Nothing else is read or written until then. The link begins at a multiple of the slot since
    power on, and takes leave at one. The slot must be longer than the work for any frame.

    slot: ms. last: the last public moment (ms). busy: whether a slot is under way, at whose end
    there is an answer or silence.
    """

    def __init__(self, link, slot_ms, led):
        """link: the link behind this one, which calls our hold() before work whose time must not
        show. led: a function that is called with whether a frame is being answered.
        """
        self._link = link
        self.slot = slot_ms
        self._led = led
        self._seen = now = ticks_ms()  # when until() with 0 was called last
        self.last = now - now % slot_ms
        self.busy = True  # until the next one
        self._answer = bytearray()
        self._n = 0  # bytes of it that wait for their moment
        link.hold = self.hold

    def __getattr__(self, name):
        return getattr(self._link, name)

    def receive(self, timeout_ms=-1):
        """Return the next frame as the link does, once the answer is sent at its moment.

        With a timeout_ms of 0 it returns None until then, and once when the answer is sent.
        """
        if self.busy and not (self._give(timeout_ms) and timeout_ms):
            return None
        frame = self._link.receive(timeout_ms)
        if frame is not None and not self.busy:
            self.last = ticks_ms()
            # HELLO is computed from nothing that is private; at a console nobody waits for another.
            if not len(frame) or frame[0] != wire.HELLO_REQUEST:
                self.busy = True
                self._led(True)
        return frame

    def hold(self):
        """Begin a slot, unless one is under way."""
        if not self.busy:
            self.busy = True
            self.last = ticks_ms()

    def send(self, frame, n):
        """Keep the answer frame[:n] for the next moment, when receive() sends it.

        A further answer to the same frame sends it, too. Outside a slot this is the link's.
        """
        if not self.busy:
            return self._link.send(frame, n)
        if self._n:
            self._give(-1)
            self.busy = True
        self._answer[:n] = memoryview(frame)[:n]  # the client's next answer is written over it
        self._n = n
        # now: when it is due depends on what was computed, and it takes 9 ms on a Pico
        gc.collect()
        return True

    def waiting(self):
        """Return whether an answer, or something of the link, still waits."""
        return self.busy or self._link.waiting()

    def disconnect(self):
        """Take leave at the next moment, with an answer that still waits for it."""
        self._give(-1)
        self._link.disconnect()

    def until(self, step, timeout_ms):
        """Wait for the next multiple of `step` ms after `last`, and return it.

        timeout_ms: 0 to return -1 instead if that moment is not near. Since it is always a
        multiple, being late for one does not tell when the answer was ready: then it is the next.
        """
        start = ticks_ms()
        near = _NEAR_MS
        # Other tasks may take long between two calls. So a moment counts as near if it comes before
        # one and a half times the last interval is over; otherwise moment after moment is missed.
        if not timeout_ms:
            near = max(near, min(ticks_diff(start, self._seen) * 3 // 2, self.slot // 4))
            self._seen = start
        wait = step - ticks_diff(start, self.last) % step
        while (left := wait - ticks_diff(now := ticks_ms(), start)) > 0:
            if left > near:
                if not timeout_ms:
                    return -1
                compat.feed()
                sleep_ms(min(left - near, _SLEEP_MS))
            while ticks_ms() == now:  # a short loop, which ends just when the clock moves on
                pass
        return now + left

    def _give(self, timeout_ms):
        """Send the answer, if there is one, at the next moment, which ends the slot.

        Returns False if the moment is not near (timeout_ms: 0), or if sending has begun a new slot.
        """
        moment = self.until(self.slot, timeout_ms)
        if moment < 0:
            return False
        self.last = moment
        self.busy = False
        if self._n:
            self._link.send(self._answer, self._n)
            self._n = 0
        self._led(False)
        return not self.busy  # the connection may have been lost
