"""The examples, each as a user starts it, with small sizes; those that run beside tern on emulated boards."""

import json
import os
import subprocess
import sys
from array import array
from pathlib import Path

import numpy as np
import pytest

from tern.recorder import Recorder
from ternhost.privacy.accounting import Policy
from ternhost.provision.boards import new_keys, provision_board
from ternhost.reach.broker.mosquitto import free_port
from terntools.emulators.micropython import device_command, find_micropython

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run(directory, command, **environment):
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(directory, name, *argv):
    return run(directory, [sys.executable, EXAMPLES / name, *argv])


def test_all_are_named_where_they_are_listed():
    there = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".sh")}
    listed = (EXAMPLES / "README.md").read_text()
    tested = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert there
    assert all(f"[{name}]({name})" in listed and f'"{name}"' in tested for name in there)


def test_training_makes_a_picture(tmp_path):
    said = python(tmp_path, "train_and_plot.py", "--clients", "2000", "--picture", "mine.png")
    assert said.count("accuracy 0.") == 3
    assert (tmp_path / "mine.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 3


def test_means_on_boards(tmp_path):
    said = python(tmp_path, "collect_on_boards.py", "--fleet", "emulated:1")
    assert "13 intervals hold the true mean" in said
    assert "an epsilon of 4" in said


def test_a_mechanism_of_one_s_own(tmp_path):
    said = python(tmp_path, "own_mechanism.py", "--clients", "2000")
    assert "0 with probability 0.25" in said
    assert said.count("accuracy 0.") == 2


def test_an_algorithm_of_one_s_own_stops_when_it_knows_enough(tmp_path):
    wide = python(tmp_path, "own_algorithm.py", "--width", "0.3")
    narrow = python(tmp_path, "own_algorithm.py", "--width", "0.1")
    reports = [int(said.split("after ")[1].split(" reports")[0].replace(",", "")) for said in (wide, narrow)]
    assert reports[0] < reports[1] < 10_000


def test_a_first_fleet(tmp_path):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    said = run(tmp_path, [EXAMPLES / "first_fleet.sh", "mine"], PATH=path, PORT=str(free_port()))
    assert "100 reports of 18 bytes in 2 rounds" in said
    assert "fedsgd on flights, mqtt:mine" in said
    assert "collect on flights, mqtt:mine" in said


# Programs on boards

# Instead of a board's pins: an accelerometer that shakes while the button is held. Time goes by faster.
MACHINE = """
import asyncio
from struct import pack

asyncio.sleep_ms = lambda ms, sleep=asyncio.sleep_ms: sleep(0)
reads = 0
asked = {}


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
        asked[register] = value

    def readfrom_mem(self, device, register, n):
        global reads
        assert (device, register, n) == (0x68, 0x3B, 6)
        assert asked == {0x6B: b"\\0", 0x1C: b"\\x08"}
        reads += 1
        if reads > 64 * 20:
            raise SystemExit
        size = 100 if reads // 640 % 2 else 6000
        return pack(">hhh", (reads % 7 - 3) * size // 3, 8192, -size)
"""

FULL = pytest.param((), marks=pytest.mark.exhaustive, id="full")
# A larger epsilon makes up for fewer boards and rounds.
SMALL = pytest.param(("--boards", "10", "--rounds", "40", "--epsilon", "20"), id="small")


@pytest.mark.slow
@pytest.mark.parametrize("size", [SMALL, FULL])
def test_activity(tmp_path, size):
    """Issue 12: within 2 points of the host, and at least 80 % of the way from the majority to no privacy."""
    found = json.loads(python(tmp_path, "activity/run.py", *size, "--json"))
    assert found["epsilon_per_report"] == (20 if size else 4)
    assert found["reports"] == found["boards"] * found["rounds"]
    assert found["the_same_windows"] == found["live"]
    assert abs(found["live"] - found["host"]) < 0.05  # of other windows: five times what chance does
    # At full size .92 on average of 24 simulated runs, and .8 is 4.7 deviations below.
    assert found["of_the_way"] >= 0.8


@pytest.mark.slow
def test_thermostat(tmp_path):
    size = ("--boards", "5", "--epsilon", "20", "--hour-ms", "100", "--wake", "4")
    found = json.loads(python(tmp_path, "thermostat/run.py", *size, "--json"))
    assert found["reports"] == 5 * found["rounds"] == 5 * 24
    # The ratio is .35 on average, and .6 is 10 deviations above (100 simulated runs). At epsilon 4 it was 2.8.
    assert found["off"] < 0.6 * found["off_as_now"]


def test_minimal_records_what_it_sees(tmp_path):
    """On MicroPython, with a sensor of the test's; the library is the real one."""
    assert len((EXAMPLES / "minimal.py").read_text().splitlines()) <= 30
    board = tmp_path / "board"
    key = new_keys([1])[1]
    provision_board(board, 1, [key], np.zeros((1, 14), np.int16), Policy(4_000_000, 4_000_000))
    (board / "machine.py").write_text(MACHINE)
    search = os.pathsep.join([str(board), str(ROOT / "firmware"), ".frozen"])
    read, write = os.pipe()  # a port at which nobody says anything
    try:
        done = subprocess.run(
            device_command(find_micropython(), EXAMPLES / "minimal.py"),
            cwd=board,
            env={**os.environ, "MICROPYPATH": search},
            stdin=read,
            capture_output=True,
            timeout=60,
        )
    finally:
        os.close(read)
        os.close(write)
    assert done.returncode == 0, done.stderr
    recorder = Recorder(13)
    recorder.open(str(board))
    labels = set()
    row = array("h", bytes(28))
    for i in range(recorder.count):
        recorder.read(i, row)
        labels.add(row[13])
        assert row[12] == 16384
    assert recorder.count == 16
    assert labels == {-16384, 16384}
