"""The serial link of a device: frames over a pair of byte streams, such as a board's USB or UART console.

Reading a console blocks until it has all that was asked for. So only bytes that must come are asked for: at first one,
then what COBS says of its block; with a time limit only a byte that is there. After every CREDIT bytes taken the device
sends an empty frame, so that the host never fills the port's small buffer.
"""

import gc
import select
import sys

from tern import frames, wire
from tern.compat import const, ticks_diff, ticks_ms

_COLLECT = const(250)  # frames
_SEND_MS = const(5000)  # a host that takes no byte for so long has gone
_AT_ONCE = const(64)  # bytes read, or written, by one receive(0)


def open_link(board):
    """Return the link over the console of a board, whichever it is."""
    return Serial(sys.stdin.buffer, sys.stdout.buffer, sys.stdin, sys.stdout, board.locked)


class Serial:
    """Frames over `source` (readinto) and `sink` (write)."""

    console = True  # its port is the board's console

    def __init__(self, source, sink, poll_source, poll_sink, locked=False):
        """poll_source, poll_sink: what to poll for them (sys.stdin for sys.stdin.buffer). locked: nobody interrupts."""
        self._locked = locked
        self._source = source
        self._sink = sink
        self._poll = select.poll()
        self._poll.register(poll_source, select.POLLIN)
        self._poll_sink = poll_sink
        self._room = None  # a poll for `sink`, with receive(0)
        self._state = frames.receiver_state(wire.MAX_FRAME)
        self._frame = memoryview(bytearray(wire.MAX_FRAME))
        self._last = self._frame[:0]  # the last frame: the next one may be as long
        self._chunk = bytearray(wire.AT_ONCE)
        # what is sent: a 0, which ends a frame that was cut short, and a frame
        self._coded = memoryview(bytearray(frames.cobs_size(wire.MAX_FRAME) + 1))
        self._body = self._coded[1:]
        self._at = self._end = 0  # what is left of it
        self._credits = 0  # empty frames to be sent
        self._taken = 0
        self._frames = 0  # sent since garbage was collected

    def receive(self, timeout_ms=-1):
        """Return the next frame, a memoryview until the following call; empty if damaged.

        None where none came in `timeout_ms`, or no end of it in 64 bytes (-1: wait for ever; 0: never). Raises EOFError when the other end has gone, and KeyboardInterrupt when it sends a carriage return and Ctrl-C in
        place of a frame, as tools do.
        """
        try:
            if not timeout_ms:
                if not self._room:
                    self._room = select.poll()
                    self._room.register(self._poll_sink, select.POLLOUT)
                self._push()
            return self._receive(timeout_ms, _AT_ONCE)
        except OSError:  # a pty whose other end was closed
            raise EOFError

    def _receive(self, timeout_ms, most):
        # Few variables: what takes more than 11 words lies on the heap.
        state = self._state
        while True:
            n = frames.cobs_decode(self._chunk, state, self._frame)
            if n == frames.MORE:
                n = frames.still_to_come(state, self._frame)
                if not n and not self._locked:
                    raise KeyboardInterrupt
                if timeout_ms >= 0:
                    n = 1
                    most -= 1
                if (timeout_ms >= 0 or self._frames > _COLLECT) and (most < 0 or not self._ready(timeout_ms)):
                    return None
                n = self._source.readinto(self._chunk, n or 1)  # no more than the chunk holds
                if not n:
                    raise EOFError
                state[0] = 0
                state[1] = n
                n += self._taken
                if n >= wire.CREDIT:
                    n -= wire.CREDIT
                    self._credits += 1
                    self._push()
                self._taken = n
            elif n:
                if n < 0:
                    n = 0
                if n != len(self._last):
                    self._last = self._frame[:n]
                return self._last

    def _ready(self, timeout_ms):
        # Time to wait is time to collect garbage: it takes 9 ms on a Pico, and would else come within a report.
        if self._frames > _COLLECT and timeout_ms and not self._ready(0):
            self._frames = 0
            gc.collect()
        return any(self._poll.ipoll(timeout_ms))

    def admit(self, kind):
        """Every frame is passed as it is."""

    def waiting(self):
        """Return how many frames are not sent yet."""
        return self._at < self._end

    def close(self):
        """The port stays open: it is the board's console."""

    disconnect = close

    def send(self, frame, n):
        """Send frame[:n]. Return whether the other end took all of it. A HELLO starts the count of credits afresh.

        Once receive(0) has been called, what the other end does not take now is sent by later calls, unless another
        frame is sent before.
        """
        self._frames += 1
        if frame[0] == wire.HELLO:
            self._taken = 0
        self._at = self._at == self._end  # 0: the one before was cut short
        self._end = 1 + frames.cobs_encode(frame, n, self._body)
        return self._push()

    def _push(self):
        # Writes on; returns whether all is written. Where it must not wait it asks before each byte.
        since = ticks_ms()
        most = _AT_ONCE
        while True:
            n = self._end - self._at
            if not n:
                if not self._credits:
                    return True
                self._credits -= 1
                self._at = 0
                self._end = n = 1
            if self._room:
                n = 1
                most -= 1
                if most < 0 or not any(self._room.ipoll(0)):
                    return False
            n = self._sink.write(self._coded, self._at, n)
            if n:
                self._at += n
                since = ticks_ms()
            elif ticks_diff(ticks_ms(), since) > _SEND_MS:
                return False
