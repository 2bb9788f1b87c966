"""The program of a board of the activity example: windows become records; a model names the
wearer's activity.

On a Pico W or an ESP32: tern board deploy BOARD --main main.py
Emulated, many times faster, in a board's directory:  micropython main.py . SEED [SPEED]

Nothing here waits for tern, and tern not for this. The wearer says what he or she does
(`person.activity`): so a window is recorded with a label. Before that, the model says what it takes
it for. How often it was right since it came is the board's live accuracy.
"""

import asyncio
import gc
import json
import sys
from array import array

from sensor import RATE, Person

import tern.softmax  # now, and not in the midst of the first round
import tern.sums  # noqa: F401
from tern.app import App
from tern.boards.this import this_board
from tern.features import Window
from tern.model import Model
from tern.recorder import Recorder

BOUT = 4  # windows of one activity, then comes another one
PRINT_EVERY = 100  # windows

board = this_board()
board.program = "activity 1"  # the host shows it
if sys.platform == "linux":
    seed = int(sys.argv[2])
    speed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
else:
    seed = int.from_bytes(board.unique_id()[-3:], "big")
    speed = 1

window = Window(128, hop=64)
recorder = Recorder(window.d, capacity=640, hold=8)  # of 28 bytes: six files of 4 KiB
model = Model()
node = App(board, recorder, model)
person = Person(seed)
row = array("h", bytes(2 * window.d))
figures = {"seed": seed, "windows": 0, "model": None, "judged": 0, "right": 0}


def whole(activity):
    """Judge and record a window of a single activity.

    The model is judged before it could learn from the window.
    """
    if figures["model"] != [model.round, model.final]:
        figures["model"] = [model.round, model.final]
        figures["judged"] = figures["right"] = 0
    if model.ready:
        figures["judged"] += 1
        figures["right"] += model.predict(row) == activity
    recorder.append(row, activity)
    figures["windows"] += 1
    if figures["windows"] % PRINT_EVERY == 0:
        tell()


def tell():
    """Write the figures to a file of the emulated board, or print them."""
    figures["answered"] = node.reports
    gc.collect()
    figures["heap_free"] = gc.mem_free()
    if sys.platform == "linux":
        with open(board.directory + "/accuracy.json", "w") as file:
            file.write(json.dumps(figures))
    else:
        print(json.dumps(figures))


async def live():
    """Sample RATE times a second, and change the activity now and then.

    Emulated, `speed` times as often. A window across two activities is not used.
    """
    samples_of_activity = windows = 0
    person.begin(person.choose())
    while True:
        for _ in range(speed):
            samples_of_activity += 1
            if window.push(*person.read()):
                window.features(row)
                if samples_of_activity >= window.n:
                    whole(person.activity)
                    windows += 1
                    if windows % BOUT == 0:
                        person.begin(person.choose())
                        samples_of_activity = 0
        await asyncio.sleep_ms(1000 // RATE)


async def main():
    """Live, and answer the host meanwhile."""
    answering = asyncio.create_task(node.run())
    try:
        await live()
    finally:
        answering.cancel()


asyncio.run(main())
