"""Each example as a user starts it, but with small sizes; the programs for boards run on emulated
ones.
"""

import json
import os
import re
import subprocess
import sys
from array import array
from pathlib import Path

import numpy as np
import pytest

from tern.fixed import ONE
from tern.recorder import Recorder
from ternhost.privacy.accounting import Policy
from ternhost.privacy.guarantee import Guarantee
from ternhost.provision.boards import new_keys, provision_board
from ternhost.reach.broker.mosquitto import free_port
from terntools.emulators.micropython import device_command, find_micropython

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run(directory, command, **environment):
    options = {"cwd": directory, "env": {**os.environ, **environment}, "start_new_session": True}
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=500, check=False, **options
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def python(directory, name, *argv):
    return run(directory, [sys.executable, EXAMPLES / name, *argv])


def test_training_makes_a_picture(tmp_path):
    printed = python(tmp_path, "train_and_plot.py", "--clients", "2000", "--picture", "mine.png")
    assert printed.count("accuracy 0.") == 3
    assert (tmp_path / "mine.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 3


def test_boards_estimate_means_with_intervals(tmp_path):
    printed = python(tmp_path, "collect_on_boards.py", "--fleet", "emulated:1")
    assert "13 intervals hold the true mean" in printed
    assert "this run protects a device with all of its records with epsilon 4" in printed


def test_a_user_defined_mechanism_trains(tmp_path):
    printed = python(tmp_path, "own_mechanism.py", "--clients", "2000")
    assert "0 with probability 0.1" in printed
    assert printed.count("accuracy 0.") == 2


def test_a_user_defined_algorithm_stops_when_its_interval_is_narrow(tmp_path):
    def reports_needed(width):
        printed = python(tmp_path, "own_algorithm.py", "--width", width)
        (number,) = re.findall(r"after ([\d,]+) reports", printed)
        return int(number.replace(",", ""))

    assert reports_needed("0.3") < reports_needed("0.1") < 10_000  # all of its clients


def test_the_first_fleet_trains_and_collects(tmp_path):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    printed = run(tmp_path, [EXAMPLES / "first_fleet.sh", "mine"], PATH=path, PORT=str(free_port()))
    assert "100 reports of 18 bytes in 2 rounds" in printed
    assert re.search(r"finished +fedsgd", printed)
    assert re.search(r"finished +values", printed)


# Programs on boards

# Stands in for a board's pins: an accelerometer that shakes while a button is held. No sleep takes
# any time.
MACHINE = """
import asyncio
from struct import pack

asyncio.sleep_ms = lambda ms, sleep=asyncio.sleep_ms: sleep(0)
reads = 0
registers = {}


class Pin:
    IN = OUT = PULL_UP = 0

    def __init__(self, number, *_):
        self.number = number

    def __call__(self, on):
        pass

    def value(self):
        return reads // 640 % 2  # 0: held


class I2C:
    def __init__(self, *_, **__):
        pass

    def writeto_mem(self, device, register, value):
        registers[register] = value

    def readfrom_mem(self, device, register, n):
        global reads
        assert (device, register, n) == (0x68, 0x3B, 6)
        assert registers == {0x6B: b"\\0", 0x1C: b"\\x08"}
        reads += 1
        if reads > 64 * 20:
            raise SystemExit
        size = 100 if reads // 640 % 2 else 6000
        return pack(">hhh", (reads % 7 - 3) * size // 3, 8192, -size)
"""

FEATURES = 13  # of a record of the minimal example, the constant included


@pytest.mark.slow
def test_activity_boards_protect_runs_of_a_minute_and_use_the_model_that_they_get(tmp_path):
    """In this example, 3 emulated boards train a recogniser of activities on windows of a motion
    sensor. What is private is any minute of windows, 47 of them, with epsilon 20 for the board's
    whole life. At the end the boards have the trained model, and recognise activities with it.
    """
    size = ("--boards", "3", "--windows", "94", "--run-epsilon", "20")
    result = json.loads(python(tmp_path, "activity/run.py", *size, "--json"))

    guarantee = Guarantee.from_json(result["guarantee"])
    assert guarantee.unit == 47  # windows of a minute
    assert 0.9 * 20 < guarantee.bounds.epsilon <= 20, "most of --run-epsilon is used"
    assert result["reports"] == result["boards"] * result["rounds"]
    assert result["heap_free"] > 40_000, "bytes for the rest of a program"
    assert result["live"] == result["the_same_windows"], "boards predict as the host does"


@pytest.mark.slow
@pytest.mark.exhaustive
def test_activity_boards_learn(tmp_path):
    result = json.loads(python(tmp_path, "activity/run.py", "--json"))
    # On other windows, by five times the deviation by chance.
    assert abs(result["live"] - result["host"]) < 0.05
    assert result["live"] > 0.75  # the mean of 12 simulated runs is .807, with a deviation of .008


@pytest.mark.exhaustive
def test_thermostats_learn_to_be_wrong_less_often(tmp_path):
    size = ("--boards", "5", "--epsilon", "20", "--hour-ms", "100", "--wake", "4")
    result = json.loads(python(tmp_path, "thermostat/run.py", *size, "--json"))
    assert result["reports"] == 5 * result["rounds"] == 5 * 24
    # The ratio is .35 on average, and .6 is 10 deviations above (100 simulated runs). At epsilon 4
    # it was 2.8.
    assert result["off"] < 0.6 * result["off_as_now"]


def test_the_minimal_example_records_samples_with_labels(tmp_path):
    """The example runs on MicroPython with the real library. Its sensor is simulated (MACHINE): 20
    batches of 64 samples, while a button, the label, is held half of the time. The example makes
    records of features and a label of them, and keeps them in the files of the board.
    """
    board, key = tmp_path / "board", new_keys([1])[1]
    no_record = np.zeros((1, FEATURES + 1), np.int16)
    provision_board(board, 1, [key], no_record, Policy(4_000_000, 4_000_000))
    (board / "machine.py").write_text(MACHINE)

    run_without_a_host(EXAMPLES / "minimal.py", board)

    recorder = Recorder(FEATURES)
    recorder.open(str(board))
    assert recorder.count == 16
    labels = set()
    row = array("h", [0] * (FEATURES + 1))  # one record: features, the first of them 1, and a label
    for number in range(recorder.count):
        recorder.read(number, row)
        constant, *_, label = row
        assert constant == ONE
        labels.add(label)
    assert labels == {-ONE, ONE}, "the button was held, and was not"


def run_without_a_host(program, board):
    """Run a program of a board on MicroPython in its directory, at a port where nobody asks."""
    search = os.pathsep.join([str(board), str(ROOT / "firmware"), ".frozen"])
    options = {"env": {**os.environ, "MICROPYPATH": search}, "capture_output": True, "timeout": 60}
    silent_port, host_end = os.pipe()
    try:
        command = device_command(find_micropython(), program)
        ended = subprocess.run(command, cwd=board, stdin=silent_port, **options)
    finally:
        os.close(silent_port)
        os.close(host_end)
    assert ended.returncode == 0, ended.stderr
