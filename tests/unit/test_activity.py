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


@pytest.fixture(scope="module")
def people(sensor):
    """Windows of 30 people: activity, 12 features, the constant."""
    return [windows_of(sensor, seed, 30) for seed in range(1, 31)]


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


@pytest.mark.slow
def test_activities_overlap_as_in_wisdm(people):
    """A model without privacy classifies 80 to 92 % of new people's windows correctly; it takes
    stairs for walking.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import confusion_matrix

    known, new = np.concatenate(people[:20]), np.concatenate(people[20:])
    model = LogisticRegression(C=100, fit_intercept=False, max_iter=5000)
    model.fit(known[:, 1:] / 16384, known[:, 0])
    predicted = model.predict(new[:, 1:] / 16384)
    walking, jogging, upstairs, downstairs = range(4)
    table = confusion_matrix(new[:, 0], predicted, labels=range(6))
    recall = table.diagonal() / table.sum(axis=1)
    assert 0.80 < (predicted == new[:, 0]).mean() < 0.92
    assert recall[jogging] > 0.95
    assert max(recall[upstairs], recall[downstairs]) < 0.85
    stairs = table[[upstairs, downstairs]].sum(axis=0)
    assert stairs[walking] > 0.7 * (stairs.sum() - stairs[upstairs] - stairs[downstairs])


def test_the_default_scale_suits_a_worn_sensor(people):
    """No feature is lost to clipping, and none is squeezed into a corner."""
    rows = np.concatenate(people)[:, 1:-1] / 16384
    assert ((np.abs(rows) >= 1).mean(axis=0) < 0.4).all()
    kinds = rows.reshape(len(rows), 3, 4)
    spread = kinds.std(axis=(0, 1))
    assert (spread[1:] > 0.3).all()  # deviation, jerk, crossings
    assert (np.abs(kinds[..., 1:].mean(axis=(0, 1))) < 0.6).all()
