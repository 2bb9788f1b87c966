"""A program that makes records of the values of its sensors by a schema, beside tern."""

import asyncio

from tern.app import App
from tern.boards.this import this_board
from tern.columns import Columns
from tern.model import Model
from tern.recorder import Recorder

HOURS = 48
WEATHER = ("rain", "sun", "snow", "sun")

columns = Columns()
recorder = Recorder(columns.d, capacity=64)
row = columns.row()
board = this_board()
board.name = f"{columns.d} features"
node = App(board, recorder, Model())


def record(hour):
    """Record what the sensors measured in an hour; a thermometer that fails gives None."""
    temperature = None if hour % 16 == 5 else hour / 4 - 3
    weather = WEATHER[hour % 4]
    late = "yes" if weather == "snow" else "no"
    if columns.record(row, temperature=temperature, weather=weather, late=late):
        recorder.append(row, row[columns.d])


async def main():
    answering = asyncio.create_task(node.run())
    if recorder.count == 0:  # the first start
        for hour in range(HOURS):
            record(hour)
            await asyncio.sleep_ms(0)
        recorder.flush()
    await answering


asyncio.run(main())
