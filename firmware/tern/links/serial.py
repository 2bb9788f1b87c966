"""The serial link of a device: frames over a pair of byte streams, such as a board's USB or UART console.

Reading a console blocks until it has all that was asked for. So only bytes that must come are asked for: at first one,
then what COBS says of its block. After every CREDIT bytes taken the device sends an empty frame, so that the host never
fills the port's small buffer. Where receive(0) must not wait for the rest of a frame, links.steps takes this one's
place.
"""

import gc
import select
import sys

from tern import frames, wire
from tern.compat import const, ticks_diff, ticks_ms

_COLLECT = const(250)  # frames
_SEND_MS = const(5000)  # a host that takes no byte for so long has gone


def open_link(board):
    """Return the link over the console of a board, whichever it is."""
    return Serial(sys.stdin.buffer, sys.stdout.buffer, sys.stdin, board.locked)


class Serial:
    """Frames over `source` (readinto) and `sink` (write)."""

    console = True  # its port is the board's console

    def __init__(self, source, sink, poll_source, locked):
        """poll_source: what to poll for `source` (sys.stdin for sys.stdin.buffer). locked: nobody interrupts."""
        self._locked = locked
        self._source = source
        self._sink = sink
        self._poll = select.poll()
        self._poll.register(poll_source, select.POLLIN)
        self._state = frames.receiver_state(wire.MAX_FRAME)
        self._frame = memoryview(bytearray(wire.MAX_FRAME))
        self._last = self._frame[:0]  # the last frame: the next one may be as long
        self._chunk = bytearray(wire.AT_ONCE)
        self._coded = bytearray(frames.cobs_size(wire.MAX_FRAME))
        self._taken = 0
        self._frames = 0  # sent since garbage was collected
        self._cut = False  # whether the last frame sent was cut short

    def receive(self, timeout_ms=-1):
        """Return the next frame, a memoryview until the following call; empty if damaged.

        None where none came in `timeout_ms` (-1: wait for ever). Raises EOFError when the other end has gone, and
        KeyboardInterrupt when it sends a carriage return and Ctrl-C in place of a frame, as tools do.
        """
        try:
            return self._receive(timeout_ms)
        except OSError:  # a pty whose other end was closed
            raise EOFError

    def _receive(self, timeout_ms):
        # Few variables: what takes more than 11 words lies on the heap.
        state = self._state
        while True:
            n = frames.cobs_decode(self._chunk, state, self._frame)
            if n == frames.MORE:
                n = frames.still_to_come(state, self._frame)
                if not n and not self._locked:
                    raise KeyboardInterrupt
                if (timeout_ms >= 0 or self._frames > _COLLECT) and not self._ready(timeout_ms):
                    return None
                n = self._source.readinto(self._chunk, n or 1)  # no more than the chunk holds
                if not n:
                    raise EOFError
                state[0] = 0
                state[1] = n
                n += self._taken
                if n >= wire.CREDIT:
                    n -= wire.CREDIT
                    self._write(b"\x00", 1)
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

    def close(self):
        """The port stays open: it is the board's console."""

    def send(self, frame, n):
        """Send frame[:n]. Return whether the other end took all of it. A HELLO starts the count of credits afresh."""
        self._frames += 1
        if frame[0] == wire.HELLO:
            self._taken = 0
        return self._write(self._coded, frames.cobs_encode(frame, n, self._coded))

    def _write(self, data, n):
        if self._cut:
            self._cut = False
            if not self._write(b"\x00", 1):
                return False
        since = ticks_ms()
        at = 0
        while at < n:
            took = self._sink.write(data, at, n - at)
            if took:
                at += took
                since = ticks_ms()
            elif ticks_diff(ticks_ms(), since) > _SEND_MS:
                self._cut = True
                return False
        return True
