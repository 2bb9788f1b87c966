"""Runs on a board: answers ROUNDs through the firmware's Client and Slotted, and measures when each
answer is sent.
"""

import asyncio
import os
import time

from tern import app
from tern.boards.this import this_board
from tern.client import Client
from tern.links.slot import Slotted
from tern.model import Model
from tern.recorder import Recorder

DIRECTORY = "/slot"
_ERROR = 0x84


class Link:
    """A link that has received its frames already, and keeps the times of its answers: each since
    the one before.
    """

    console = False

    def __init__(self):
        self.answers = []
        self._last = 0

    def receive(self, timeout_ms=-1):
        self._last = self._last or time.ticks_us()
        return self.frame

    def send(self, frame, n):
        # The time of the call: that to find room for variables on the heap depends on what is
        # there.
        return self._keep(time.ticks_us(), frame)

    def _keep(self, now, frame):
        self.answers.append(
            (frame[0], frame[9] if frame[0] == _ERROR else 0, time.ticks_diff(now, self._last))
        )
        self._last = now
        return True

    def close(self):
        pass


def _receive(link, task):
    if not task:
        return link.receive()
    while (frame := link.receive(0)) is None:
        time.sleep_ms(5)
    return frame


def write(path, rows):
    """Make a file of rows: (bytes, how often)."""
    with open(DIRECTORY + "/" + path, "wb") as file:
        for row, count in rows:
            for _ in range(count):
                file.write(row)


def answers(files, beat, frames, task=False):
    """Answer `frames` on a board that has just been switched on: (type, code, microseconds since
    the last) of each.

    files: path -> rows. beat: send them at multiples of this time (ms), 0: at once. task: use
    receive(0) and sleep in between, as a task of a program does.
    """
    if DIRECTORY[1:] not in os.listdir("/"):
        os.mkdir(DIRECTORY)
        os.mkdir(DIRECTORY + "/ledger")
    for path, rows in files.items():
        write(path, rows)
    board = this_board()
    board.directory = DIRECTORY
    client = Client(board)
    link = Link()
    slotted = Slotted(link, beat, board.led) if beat else link
    for frame in frames:
        link.frame = memoryview(frame)
        client.respond(_receive(slotted, task), slotted.send)
    _receive(slotted, task)  # sends the last
    client.close()
    return link.answers


class Script:
    """A link of a program: frames arrive at their times, and whatever leaves is an event with its
    time.

    end_ms: when it ends, 0 for never.
    """

    console = False

    def __init__(self, frames, end_ms):
        self.frames = list(frames)
        self.end_ms = end_ms
        self.start = None
        self.events = []

    def see(self, now, what):
        if self.start is None:
            self.start = now
        self.events.append((what, time.ticks_diff(now, self.start)))

    def admit(self, kind):
        pass

    def receive(self, timeout_ms):
        if self.start is None:
            self.see(time.ticks_us(), "begin")
        ms = time.ticks_diff(time.ticks_us(), self.start) // 1000
        if self.frames and ms >= self.frames[0][0]:
            return memoryview(self.frames.pop(0)[1])
        if self.end_ms and ms > self.end_ms:
            raise EOFError
        return None

    def send(self, frame, n):
        return self._sent(time.ticks_us(), frame, n)  # as Link.send

    def _sent(self, now, frame, n):
        self.see(now, (frame[0], n) if frame[0] != _ERROR else (frame[0], frame[9], frame[10]))
        return True

    def waiting(self):
        return 0

    def disconnect(self):
        self.see(time.ticks_us(), "leave")

    def close(self):
        pass


class Timed(Slotted):
    """A slotted link; work: microseconds from each frame to its answer, before that waits for its
    moment.
    """

    def __init__(self, link, slot_ms, led):
        super().__init__(link, slot_ms, led)
        self.work = []

    def receive(self, timeout_ms):
        frame = super().receive(timeout_ms)
        self._came = time.ticks_us()
        return frame

    def send(self, frame, n):
        self.work.append(time.ticks_diff(time.ticks_us(), self._came))
        return super().send(frame, n)


def wake(folder, d, slot, frames, end_ms):
    """One wake of a program: (events as (what, microseconds), microseconds of work for each frame).

    end_ms: with it the program runs, and its link ends then.
    """
    return _played(folder, Recorder(d, capacity=2048, hold=8), slot, Script(frames, end_ms), 6000)


def asked(folder, shape, slot, frames, enough_ms):
    """As wake(): a program with a recorder of this shape (d, capacity, hold) is asked these
    questions in one wake.
    """
    return _played(
        folder, Recorder(*shape), slot, Script([(0, frame) for frame in frames], 0), enough_ms
    )


def _played(folder, recorder, slot, link, once_ms):
    board = this_board()
    board.directory = folder
    node = app.App(board, recorder, Model())
    timed = Timed(link, slot, board.led)
    board.link = lambda: timed
    if link.end_ms:
        asyncio.run(node.run())
    else:
        node.once(once_ms)
    link.see(time.ticks_us(), "return")
    return link.events, timed.work
