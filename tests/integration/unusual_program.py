"""A program that says which of its records are unusual for its fleet, beside tern.

Its board keeps rows of D features, the constant first. It draws them when it starts for the first
time, and each board has others. Once there are limits, the file unusual.json has the round of the
limits, and the first unusual feature of each row (-1: none).
"""

import asyncio
import json
from array import array

from tern.app import App
from tern.boards.this import this_board
from tern.limits import Limits
from tern.model import Model
from tern.recorder import Recorder
from tern.storage import CLIENTS, Clients

D = 3
ROWS = 40
ONE = 16384

board = this_board()
recorder, model, limits = Recorder(D, capacity=64, hold=8), Model(), Limits()
node = App(board, recorder, model, limits=limits)


def rows_of(device):
    """Yield the rows of a device, with the label 0: numbers of a linear congruential generator."""
    state = 97 * device + 11
    for _ in range(ROWS):
        values = [ONE]
        for _ in range(D - 1):
            state = (75 * state + 74) % 65537
            values.append(state % (2 * ONE + 1) - ONE)
        values.append(0)  # the label
        yield array("h", values)


async def judge(rows):
    """Write unusual.json with each new limits."""
    judged = 0
    while True:
        if limits.ready and limits.round != judged:
            judged = limits.round
            found = [limits.unusual(row) for row in rows]
            with open(board.directory + "/unusual.json", "w") as file:
                json.dump({"round": judged, "unusual": found}, file)
        await asyncio.sleep_ms(50)


async def main():
    clients = Clients(board.directory + "/" + CLIENTS, 0)
    device = clients.first
    clients.close()
    rows = list(rows_of(device))
    if recorder.count == 0:
        for row in rows:
            recorder.append(row, 0)
        recorder.flush()
    task = asyncio.create_task(judge(rows))
    await node.run()
    task.cancel()


asyncio.run(main())
