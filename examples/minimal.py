# A Pico W with an MPU6050 (GP4, GP5), a lamp (GP15), and a button (GP14) to hold for the label +1.
import asyncio
from array import array
from struct import unpack

from machine import I2C, Pin

from tern.app import App
from tern.boards.this import this_board
from tern.features import Window
from tern.model import Model
from tern.recorder import Recorder

i2c, lamp, button = I2C(0, sda=Pin(4), scl=Pin(5)), Pin(15, Pin.OUT), Pin(14, Pin.IN, Pin.PULL_UP)
i2c.writeto_mem(0x68, 0x6B, b"\0")  # awake
i2c.writeto_mem(0x68, 0x1C, b"\x08")  # 4 g at full scale
window, recorder, model, row = Window(128, hop=64), Recorder(13), Model(), array("h", bytes(26))


async def main():
    node = asyncio.create_task(App(this_board(), recorder, model).run())  # beside all the rest
    while not node.done():
        if window.push(*unpack(">hhh", i2c.readfrom_mem(0x68, 0x3B, 6))):
            window.features(row)
            lamp(model.ready and model.predict(row) > 0)  # what the fleet has learned so far
            recorder.append(row, -16384 if button.value() else 16384)
        await asyncio.sleep_ms(20)


asyncio.run(main())
