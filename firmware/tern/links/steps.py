"""The links of a console and of slots where an application's tasks run beside tern: receive(0) and send() never wait.

links.mqtt never does. A board without an application has no use for this module; with one, install() before the board
makes its link.
"""

import select
import sys

from tern import wire
from tern.compat import const
from tern.links import serial, slot

_TIMED = (wire.REPORT, wire.REPORTS, wire.ERROR)
_Serial = serial.Serial
_Slotted = slot.Slotted
_AT_ONCE = const(64)  # bytes read, or written, by one receive(0)
_NEAR_US = const(8000)  # receive(0), which is called more often than this, waits for a moment so near


def install():
    """Let boards make these links from now on."""
    serial.Serial = Serial  # type: ignore[misc]
    slot.Slotted = Slotted  # type: ignore[misc]


class _ByteByByte:
    """`source`, read one byte at a time: as many as are sure to be there."""

    def __init__(self, source):
        self._source = source

    def readinto(self, chunk, _):
        return self._source.readinto(chunk, 1)


class Serial(_Serial):
    """As links.serial.Serial. With receive(0) only bytes that are there are read, and written as they are taken: one by
    one, since a port does not tell how many.
    """

    poll_sink = sys.stdout  # what to poll for `sink`
    _room = None  # the poll for it, once receive(0) has been called
    _most = _AT_ONCE  # bytes that this call may read
    _at = _end = 0  # what is left of the frame that is being sent, in _coded
    _zeros = 0  # empty frames to be sent before or after it

    def receive(self, timeout_ms=-1):
        """As that of links.serial; with 0 None, too, where the end of a frame is not among 64 bytes."""
        if timeout_ms and self._room:
            self._room = None
            self._source = self._source._source
            self._write(self._coded[self._at : self._end], self._end - self._at)
            self._at = self._end
        elif not timeout_ms:
            if not self._room:
                self._room = select.poll()
                self._room.register(self.poll_sink, select.POLLOUT)
                self._source = _ByteByByte(self._source)
            self._most = _AT_ONCE
            self._push()
        return super().receive(timeout_ms)

    def _ready(self, timeout_ms):
        if not timeout_ms:
            self._most -= 1
            if self._most < 0:
                return False
        return super()._ready(timeout_ms)

    def _write(self, data, n):
        if not self._room:
            return super()._write(data, n)
        if data is not self._coded:
            self._zeros += n
        else:
            self._zeros += 0 < self._at < self._end  # the frame before was cut short
            self._at = 0
            self._end = n
        return self._push()

    def _push(self):
        # Returns whether all is written.
        for _ in range(_AT_ONCE):
            within = 0 < self._at < self._end
            if not within and not self._zeros and self._at == self._end:
                return True
            if not any(self._room.ipoll(0)):
                break
            if within or not self._zeros:
                self._at += self._sink.write(self._coded, self._at, 1) or 0
            else:
                self._zeros -= self._sink.write(b"\x00", 0, 1) or 0
        return self._at == self._end and not self._zeros

    def admit(self, kind):
        """Every frame is passed as it is."""

    def waiting(self):
        """Return how many frames are not sent yet."""
        return 1 if self._at < self._end else 0

    disconnect = _Serial.close


class Slotted(_Slotted):
    """As links.slot.Slotted, but an answer waits for its moment in receive(): with 0 that returns None before."""

    _answer = memoryview(b"")  # its first bytes wait for their moment
    _n = 0  # so many

    def __getattr__(self, name):
        return getattr(self._link, name)

    def receive(self, timeout_ms=-1):
        """As the link's, once the answer is sent."""
        if self._n:
            late = slot._diff(slot._us(), self._due)
            if not timeout_ms and self._slot - late % self._slot > _NEAR_US:
                return None
            self._give()
        return super().receive(timeout_ms)

    def send(self, frame, n):
        """As the link's; a REPORT, REPORTS or an ERROR at the next moment, which receive() waits for."""
        if frame[0] not in _TIMED:
            return super().send(frame, n)
        if self._n:
            self._give()
        if n > len(self._answer):  # once or twice
            self._answer = memoryview(bytearray(n))
        self._answer[:n] = memoryview(frame)[:n]  # the client's next answer would overwrite it
        self._n = n
        return True

    def waiting(self):
        """As the link's."""
        return self._link.waiting() + bool(self._n)

    def _give(self):
        self._wait()  # for the next moment: one that was missed does not tell when the answer was there
        self._link.send(self._answer, self._n)
        self._n = 0
