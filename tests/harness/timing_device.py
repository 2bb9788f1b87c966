"""Runs on the emulated device: answers a round for each client, through the firmware's own loop, and times the answers.

Arguments: the board's directory, whose fleet.bin says how long the slot is; `serve`, or `task`: by receive(0) and
sleeps, as an application does. Prints microseconds from round to report, a
line a client, in their order.
"""

import gc
import sys
import time
from array import array

from tern import client, supervisor, wire
from tern.boards.emulated import Board
from tern.host_frames import encode_round
from tern.storage import CLIENTS, Clients

D = 128
_LONGEST = 65535


class TimedLink:
    """A link that makes the rounds itself and notes when each is answered."""

    console = False

    def __init__(self, directory, card):
        self._clients = Clients(directory + "/" + CLIENTS)
        self._card = card
        self._out = bytearray(wire.MAX_FRAME)
        self._parameters = array("h", (0 for _ in range(D)))
        self._answered = 0
        self.delays = array("H", (0 for _ in range(self._clients.count)))

    def receive(self, timeout_ms=-1):
        if self._answered == self._clients.count:
            raise EOFError
        device = self._clients.first + self._answered
        self._clients.find(device)
        key = self._clients.key
        n = encode_round(self._out, key, device, 1, wire.LINEAR, self._parameters, self._card, D, -14)
        frame = memoryview(self._out)[:n]
        gc.collect()
        self._start = time.ticks_us()
        return frame

    def send(self, frame, n):
        delay = time.ticks_diff(time.ticks_us(), self._start)
        assert frame[0] == wire.REPORT, bytes(frame[:n])
        self.delays[self._answered] = min(delay, _LONGEST)
        self._answered += 1
        return True

    def close(self):
        pass


directory = sys.argv[1]
with open(directory + "/card", "rb") as file:
    link = TimedLink(directory, file.read())


class TimedBoard(Board):
    def open_link(self):
        return link


def task(board):
    slotted = board.link()
    one = client.Client(board)
    try:
        while True:
            frame = slotted.receive(0)
            if frame is None:
                time.sleep_ms(5)
            else:
                one.respond(frame, slotted.send)
    except EOFError:
        pass


client.work_ms = lambda *work: 0  # this machine needs far less than a Pico, for which that is a bound
(task if sys.argv[2] == "task" else supervisor.serve)(TimedBoard(directory))
for delay in link.delays:
    print(delay)
