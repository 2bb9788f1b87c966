"""A program that appends records beside tern, and may lose its power at any time.

A record holds the number of the board's life and its own number in that life. LIFE.log gets a byte
before each append.
"""

import asyncio
import sys
from array import array

from tern.app import App, sleep_ms
from tern.boards.this import this_board
from tern.model import Model
from tern.recorder import Recorder

D = 6
life = int(sys.argv[1])
recorder = Recorder(D, capacity=200, hold=8)
node = App(this_board(), recorder, Model(every=1))


async def record():
    row = array("h", bytes(2 * D))
    row[0] = life
    with open(str(life) + ".log", "wb") as log:
        while True:
            row[1] += 1
            log.write(b".")
            log.flush()
            recorder.append(row, 16384)
            await sleep_ms(3)


async def main():
    recording = asyncio.create_task(record())
    await node.run()
    recording.cancel()


asyncio.run(main())
