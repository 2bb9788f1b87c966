"""The serial link of a device: frames over a pair of byte streams, such as a board's USB or UART
console.

Reading a console blocks until all bytes are there. So the link asks only for bytes that must come:
one, then those that COBS, the code of frames, announces. After every CREDIT bytes the device sends
an empty frame, a credit for the host to send as many more, so that the host never fills the port's
small buffer. In a program with other tasks, receive(0) reads and writes byte by byte, as a poll
allows, and reads nothing before the last frame is out.
"""

import select
import sys

from tern import frames, wire
from tern.compat import const, ticks_diff, ticks_ms
from tern.octets import cobs_decode, cobs_encode, still_to_come

_SEND_MS = const(5000)  # a host that takes longer for a frame has gone, or takes the rest later
_TASK_MS = const(3)  # the same for receive(0), which must not block other tasks
_AT_ONCE = const(64)  # bytes read by one receive(0); a power of two that divides CREDIT


def open_link(board, largest=wire.MAX_FRAME):
    """Return the link on the board's console. largest: bytes of a frame."""
    return Serial(sys.stdin.buffer, sys.stdout.buffer, sys.stdin, sys.stdout, board.locked, largest)


class Serial:
    """Frames over `source` (readinto) and `sink` (write)."""

    console = True  # its port is the board's console

    def __init__(self, source, sink, poll_source, poll_sink, locked, largest=wire.MAX_FRAME):
        """source, sink: the streams. poll_source, poll_sink: what to poll for each of them, such as
        sys.stdin for sys.stdin.buffer.

        locked: whether nobody may interrupt the program. largest: bytes of the longest frame.
        """
        self._locked = locked
        self._source = source
        self._sink = sink
        self._poll = select.poll()
        self._poll.register(poll_source, select.POLLIN)
        self._room = select.poll()
        self._room.register(poll_sink, select.POLLOUT)
        # What is read: bytes as they come, the state of the decoder (see frames), the frame, and a
        # view of it, which is kept since the next frame may be as long.
        self._state = frames.receiver_state(largest)
        self._frame = memoryview(bytearray(largest))
        self._last = self._frame[:0]
        self._chunk = bytearray(wire.AT_ONCE)
        # What is written: a coded frame, which ends with a zero; _coded[_at:_end] is left of it.
        self._coded = bytearray(frames.cobs_size(largest))
        self._at = self._end = 1
        self._taken = 0  # bytes read since the last credit
        self._wait = -1  # the last time-out: 0 in a task

    def receive(self, timeout_ms=-1):
        """Return the next frame, a memoryview until the next call; empty if it was damaged.

        Returns None after `timeout_ms` (-1: never). With 0 neither this nor send() waits. Raises
        EOFError when the other end has gone, and KeyboardInterrupt for a carriage return and Ctrl-C
        instead of a frame.
        """
        self._wait = timeout_ms
        state = self._state
        chunk = self._chunk
        frame = self._frame
        try:
            if self._at < self._end and not self._push() and not timeout_ms:
                return None
            while True:
                count = cobs_decode(chunk, state, frame)
                if count != frames.MORE:
                    if not count:  # an empty frame
                        continue
                    if count != len(self._last):
                        self._last = frame[: max(count, 0)]  # empty if the frame is damaged
                    return self._last

                # Read on: as many bytes as must come. None means an interrupt.
                count = still_to_come(state, frame)
                if not count and not self._locked:
                    raise KeyboardInterrupt
                if timeout_ms >= 0 and not self.ready(timeout_ms):
                    return None
                # In a task (timeout_ms: 0) just one byte, which is there; else `count`, of which
                # readinto() takes no more than the chunk holds.
                count = self._source.readinto(chunk, (timeout_ms and count) or 1)
                if not count:
                    raise EOFError
                # The next bytes of the decoder are chunk[:count].
                state[0] = 0
                state[1] = count
                count += self._taken
                # Give the host a credit for the bytes that were read: an empty frame.
                if count >= wire.CREDIT:
                    count -= wire.CREDIT
                    self._at = self._end - 1  # the zero that ended the last frame, once more
                    self._push()
                self._taken = count
                # In a task, 64 bytes are enough for one call: _AT_ONCE - 1 is a mask.
                if not (timeout_ms or count & _AT_ONCE - 1):
                    return None
        except OSError:  # a pty whose other end was closed
            raise EOFError

    def ready(self, timeout_ms):
        """Wait until a byte has come, for `timeout_ms` (-1: for ever); return whether one has."""
        return any(self._poll.ipoll(timeout_ms))

    def close(self):
        """The port stays open: it is the board's console."""

    disconnect = close

    def admit(self, kind):
        """Every frame is passed as it is."""

    def waiting(self):
        """Return how many bytes of the last answer are still to be written."""
        return self._end - self._at

    def send(self, frame, n):
        """Send frame[:n]; return whether all of it is written.

        In a task, later calls of receive(0) write the rest. A HELLO restarts the count of credits,
        since the host begins anew after it.
        """
        if self._at < self._end and not self._push():  # the frame before
            return False
        if frame[0] == wire.HELLO:
            self._taken = 0
        self._at = 0
        self._end = cobs_encode(frame, n, self._coded)
        return self._push()

    def _push(self):
        """Write on what is left; return whether all is written then.

        In a task, only as far as the sink takes it and for 3 ms.
        """
        wait = self._wait
        start = ticks_ms()
        while wait or any(self._room.ipoll(0)):
            # All that is left, or, in a task, one byte, since more might block.
            left = self._end - self._at
            written = self._sink.write(self._coded, self._at, (wait and left) or 1) or 0
            self._at += written
            if written == left:
                return True
            if ticks_diff(ticks_ms(), start) > (_SEND_MS if wait else _TASK_MS):
                break
        return False
