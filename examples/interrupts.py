"""Sampling by a timer, 200 times a second, whatever tern and the other tasks are doing.

The rule: an interrupt fills a buffer that was there before, and sets a ThreadSafeFlag. It allocates
nothing, waits for nothing, and calls nothing of tern. A task waits for the flag and takes what has
come.

    tern board deploy BOARD --main examples/interrupts.py
"""

import asyncio
from array import array

from machine import I2C, Pin, Timer

from tern.app import App
from tern.boards.this import this_board
from tern.features import Window
from tern.model import Model
from tern.recorder import Recorder

HZ = 200
AXES = 3
ROOM = 64  # samples, 320 ms: longer than anything holds the tasks
ACCELEROMETER = 0x68  # an MPU6050 on the first I2C

ring = array("h", bytes(2 * AXES * ROOM))
raw = bytearray(2 * AXES)
taken = [0, 0]  # samples: by the interrupt, and by the task
came = asyncio.ThreadSafeFlag()


def start_sensor():
    """Wake the accelerometer; return the function that reads it into `raw`.

    Without an accelerometer that makes a saw-tooth.
    """
    i2c = I2C(0, scl=Pin(5), sda=Pin(4), freq=400_000)
    try:
        i2c.writeto_mem(ACCELEROMETER, 0x6B, b"\0")  # PWR_MGMT_1: awake
        i2c.writeto_mem(ACCELEROMETER, 0x1C, b"\x08")  # ACCEL_CONFIG: 4 g at full scale
        return lambda: i2c.readfrom_mem_into(ACCELEROMETER, 0x3B, raw)
    except OSError:

        def saw_tooth():
            raw[0] = raw[0] + 8 & 63

        return saw_tooth


def sample(_):
    """Put a sample of the sensor into the ring: the interrupt, which allocates nothing."""
    read()
    at = taken[0] % ROOM * AXES
    for axis in range(AXES):
        value = raw[2 * axis] << 8 | raw[2 * axis + 1]
        ring[at + axis] = value - (value >> 15 << 16)  # unsigned to int16
    taken[0] += 1
    came.set()


async def take():
    """Put the samples into the window, and each whole window into the recorder."""
    row = array("h", bytes(2 * window.d))
    while True:
        await came.wait()
        while taken[1] < taken[0]:
            at = taken[1] % ROOM * AXES
            taken[1] += 1
            if window.push(ring[at], ring[at + 1], ring[at + 2]):
                window.features(row)
                recorder.append(row, 16384 if not button.value() else -16384)


window = Window(128, hop=64)
recorder = Recorder(window.d)
model = Model()
node = App(this_board(), recorder, model)
button = Pin(14, Pin.IN, Pin.PULL_UP)  # held down while it happens: the label +1
read = start_sensor()


async def main():
    """Sample by the timer, and answer the host meanwhile."""
    # An ESP32 before MicroPython 1.29 needs a number: Timer(0, freq=HZ, ...)
    timer = Timer(freq=HZ, mode=Timer.PERIODIC, callback=sample)
    task = asyncio.create_task(take())
    try:
        await node.run()
    finally:
        timer.deinit()
        task.cancel()


asyncio.run(main())
