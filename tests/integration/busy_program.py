"""A program with a task of its own, 100 times a second, beside tern: how late is it at most?"""

import asyncio
import time
from array import array

from tern.app import App
from tern.boards.this import this_board
from tern.model import Model
from tern.recorder import Recorder

D = 13
PERIOD_MS = 10
late = array("i", (0, 0, 0))  # ms at most; times; ms of the last start


async def task():
    row = array("h", range(D))
    due = time.ticks_ms()
    while True:
        behind = time.ticks_diff(time.ticks_ms(), due)
        late[0] = max(late[0], behind)
        late[1] += 1
        if late[1] % 64 == 0:
            recorder.append(row, 16384)
        due = time.ticks_add(due, PERIOD_MS)
        await asyncio.sleep_ms(max(0, time.ticks_diff(due, time.ticks_ms())))


async def main():
    own = asyncio.create_task(task())
    await node.run()
    own.cancel()


recorder = Recorder(D, capacity=64)
node = App(this_board(), recorder, Model())
asyncio.run(main())
