"""A program that computes features of a sensor's samples and records them, beside tern."""

import asyncio
from array import array

from tern.app import App
from tern.boards.this import this_board
from tern.features import Window
from tern.model import Model
from tern.recorder import Recorder
from tern.storage import CLIENTS

SAMPLES = 16


def sample(device, number):
    """What the sensor of a device measures: a rectangular wave, which differs by device."""
    height = 700 * device
    return height if number % 4 < 2 else -height // 2


def device_of(path):
    """The number of the only device in the file of clients."""
    with open(path, "rb") as file:
        return int.from_bytes(file.read(4), "little")


async def main():
    window = Window(SAMPLES, hop=SAMPLES, axes=1)
    recorder = Recorder(window.d, capacity=16, hold=1)  # a single record is enough to answer
    answering = asyncio.create_task(App(this_board(), recorder, Model()).run())
    if recorder.count == 0:  # the first start
        row = array("h", bytes(2 * window.d))
        device = device_of(CLIENTS)
        for number in range(SAMPLES):
            if window.push(sample(device, number)):
                window.features(row)
                recorder.append(row, 0)
            await asyncio.sleep_ms(1)  # a sample comes now and then
    await answering


if __name__ == "__main__":
    asyncio.run(main())
