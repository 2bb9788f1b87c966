"""Runs on a board: answers ROUNDs through the firmware's Client and Slotted, and measures when each answer is sent."""

import os
import time

from tern.boards.this import this_board
from tern.client import Client
from tern.links.slot import Slotted

DIRECTORY = "/slot"
_ERROR = 0x84


class Link:
    """A link that has received its frames already, and keeps the times of its answers."""

    console = False

    def __init__(self):
        self.answers = []

    def receive(self, timeout_ms=-1):
        self._start = time.ticks_us()
        return self.frame

    def send(self, frame, n):
        taken = time.ticks_diff(time.ticks_us(), self._start)
        self.answers.append((frame[0], frame[9] if frame[0] == _ERROR else 0, taken))
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
    """Answer `frames` on a board that has just been switched on: (type, code, microseconds from the frame) of each.

    files: path -> rows. beat: send them at multiples of this time (ms), 0: at once. task: use receive(0) and sleep in
    between, as a task of a program does.
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
