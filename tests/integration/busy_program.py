"""A program that runs a task 100 times a second beside tern, and measures how late the task is at
most.
"""

import asyncio
import time
from array import array

import tern.local  # before the first round: an import takes 40 ms
import tern.softmax  # noqa: F401
from tern.app import App
from tern.boards.this import this_board
from tern.model import Model
from tern.recorder import Recorder

D = 13
PERIOD_MS = 10
EVERY = 8  # runs of the task: then it appends a record
# ms: the largest delay of a run after no flush of records to flash, and of a run after one; the
# number of runs
late = array("i", (0, 0, 0))


async def task():
    row = array("h", range(D))
    due = time.ticks_ms()
    wrote = 0
    while True:
        behind = time.ticks_diff(time.ticks_ms(), due)
        late[wrote] = max(late[wrote], behind)
        wrote = 0
        late[2] += 1
        if late[2] % EVERY == 0:
            flushes = recorder.flushes
            recorder.append(row, 16384)
            wrote = recorder.flushes - flushes
        due = time.ticks_add(due, PERIOD_MS)
        await asyncio.sleep_ms(max(0, time.ticks_diff(due, time.ticks_ms())))


async def main():
    beside = asyncio.create_task(task())
    await node.run()
    beside.cancel()


recorder = Recorder(D, capacity=64)
node = App(this_board(), recorder, Model())
asyncio.run(main())
