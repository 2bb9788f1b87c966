"""All that can be seen of a board is the same whatever it holds, draws and computes, and however long that takes.

Each trace is the real firmware in a world with an emulated clock, on CPython and on 32-bit MicroPython.
"""

import itertools
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rig import FIRMWARE
from visible_program import SCENARIOS

from terntools.emulators.micropython import device_command

PROGRAM = Path(__file__).with_name("visible_program.py")
PATHS = [FIRMWARE, PROGRAM.parent, PROGRAM.parents[1], PROGRAM.parents[1] / "device"]
DATA = (  # records, their value, seed of the world, what fails
    (0, 0, 1, 0),
    (1, 16384, 2, 0),
    (7, -16384, 3, 0),
    (16, 0, 4, 0),
    (64, 9999, 5, 0),
    (2048, -16384, 6, 0),
    (2048, 16384, 7, 1),
    (64, 5, 8, 2),
)
# What happens in each scenario.
EXPECTED = {
    "program": {"REPORT": 6, "ERROR": 4, "HELLO": 2, "PUBACK": 13, "PINGREQ": 2},
    "program_at_port": {"REPORT": 6, "ERROR": 4, "HELLO": 3, "credit": 6},
    "serve": {"REPORT": 6, "ERROR": 4, "HELLO": 3, "credit": 6},
    "serve_over_broker": {"REPORT": 6, "ERROR": 4, "HELLO": 2, "PUBACK": 13, "PINGREQ": 2},
    "once": {"REPORT": 3, "HELLO": 5, "DISCONNECT": 4, "return": 4},
    "cut": {"REPORT": 11, "DISCONNECT": 11, "radio": 26},
    "update": {"UPDATED": 9, "REPORT": 1, "reset": 1},
}


def trace(interpreter, folder, scenario, data):
    """The lines that a board prints."""
    folder.mkdir()
    path = os.pathsep.join(map(str, PATHS))
    words = (PROGRAM, scenario, *map(str, data))
    command = (
        device_command(interpreter, *words, heap="1m") if interpreter else [sys.executable, *map(str, words)]
    )
    ended = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "MICROPYPATH": f"{path}{os.pathsep}.frozen"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.parametrize("on", ["cpython", "micropython"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_that_can_be_seen_depends_on_data_noise_flash_or_tasks(tmp_path, micropython, scenario, on):
    interpreter = micropython if on == "micropython" else None
    with ThreadPoolExecutor(2) as pool:
        traces = list(
            pool.map(lambda i: trace(interpreter, tmp_path / str(i), scenario, DATA[i]), range(len(DATA)))
        )
    kinds = Counter(line.split()[1] for line in traces[0])
    assert {kind: kinds[kind] for kind in EXPECTED[scenario]} == EXPECTED[scenario]
    for data, lines in zip(DATA, traces, strict=True):
        for number, pair in enumerate(itertools.zip_longest(traces[0], lines)):
            assert pair[0] == pair[1], (data, number, lines[max(0, number - 5) : number + 5])
