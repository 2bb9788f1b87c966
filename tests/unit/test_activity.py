"""The activity example's sensor: it is the same on MicroPython, people differ, and activities are
about as hard to classify as in WISDM. The default scale of a Window suits a worn accelerometer.
"""

import importlib
import os
import subprocess
import sys
from array import array
from pathlib import Path

import numpy as np
import pytest

from tern.features import Window
from terntools.emulators.micropython import device_command, find_micropython

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "activity"
PROGRAM = """
import sys
from array import array
from sensor import Person, windows
from tern.features import Window

window = Window(128, length=True)
row = array("h", bytes(2 * window.d))
for activity in windows(Person(int(sys.argv[1]), int(sys.argv[2])), window, row, 6):
    print(activity, *row)
"""


@pytest.fixture(scope="module")
def sensor():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLE)
        yield importlib.import_module("sensor")
    del sys.modules["sensor"]


def windows_of(sensor, seed, bouts, day=0, **options):
    """A row for each window of a person: its activity, then its features."""
    window = Window(128, **options)
    row = array("h", bytes(2 * window.d))
    activities = sensor.windows(sensor.Person(seed, day), window, row, bouts)
    return np.array([(activity, *row) for activity in activities])


def test_a_board_computes_the_same_windows_of_a_person(sensor, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    env = {
        **os.environ,
        "MICROPYPATH": os.pathsep.join([str(ROOT / "firmware"), str(EXAMPLE), ".frozen"]),
    }
    for seed, day in ((1, 0), (77, 3)):
        command = device_command(find_micropython(), tmp_path / "program.py", str(seed), str(day))
        printed = subprocess.run(
            command, env=env, capture_output=True, text=True, check=True
        ).stdout
        board = np.array([line.split() for line in printed.splitlines()], int)
        assert (board == windows_of(sensor, seed, 6, day, length=True)).all()
