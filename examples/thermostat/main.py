"""The program of a thermostat board: a reading a minute, a record every five, tern once an hour,
else asleep.

On a Pico W or an ESP32: tern board deploy BOARD --main main.py Emulated, an hour in a moment, in a
board's directory:  micropython main.py . SEED [MILLISECONDS_OF_AN_HOUR [WAKE]]

Light sleep keeps the RAM, and with it the last ten readings. The board learns how the temperature
will have changed in ten minutes. It prints two mean errors since the model came: its own, and the
error of predicting no change.
"""

import json
import sys
import time

from readings import CHANGE, ONE, D, Readings
from room import Room

from tern.app import App
from tern.boards.this import this_board
from tern.model import Model
from tern.recorder import Recorder

EVERY = 5  # minutes, from one record to the next: neighbours hardly differ

board = this_board()
board.program = "thermostat 1"  # the host shows it
if sys.platform == "linux":
    seed = int(sys.argv[2])
    hour_ms = int(sys.argv[3]) if len(sys.argv) > 3 else 3600_000
    wake = int(sys.argv[4]) if len(sys.argv) > 4 else 1
else:
    seed = int.from_bytes(board.unique_id()[-3:], "big")
    hour_ms = 3600_000
    wake = 1  # hours from one wake of the radio to the next

recorder = Recorder(D, capacity=576, hold=8)  # two days
model = Model()
node = App(board, recorder, model)
room = Room(seed)
readings = Readings()
figures = {"seed": seed, "hours": 0, "model": None, "judged": 0, "off": 0, "off_as_now": 0}


def reading():
    """Take the reading of a minute, and record what is now known of the one ten minutes ago.

    The model is judged before it could learn from the record.
    """
    room.step()
    label = readings.push(room.minute, room.inside, room.outside, room.duty)
    if label is None or room.minute % EVERY:
        return
    if model.ready:
        if figures["model"] != [model.round, model.final]:
            figures.update(
                {"model": [model.round, model.final], "judged": 0, "off": 0, "off_as_now": 0}
            )
        figures["judged"] += 1
        figures["off"] += abs(model.predict(readings.then) - label) * CHANGE // ONE
        figures["off_as_now"] += abs(label) * CHANGE // ONE
    recorder.append(readings.then, label)


def rest(ms):
    """Sleep, with the RAM kept."""
    if sys.platform == "linux":
        time.sleep(ms / 1000)
    else:
        import machine

        machine.lightsleep(ms)


while True:
    for _ in range(60 * wake):
        reading()
        rest(hour_ms // 60)
    node.once()
    figures["hours"] += wake
    figures["answered"] = node.reports
    if sys.platform == "linux":
        with open(board.directory + "/error.json", "w") as file:
            file.write(json.dumps(figures))
    else:
        print(json.dumps(figures))
