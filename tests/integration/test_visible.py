"""All that can be seen of a board is the same whatever it holds, draws and computes, and however
long that takes.

Each trace is the real firmware in a world with an emulated clock, on CPython and on 32-bit
MicroPython.
"""

import itertools
import os
import subprocess
import sys
from ast import literal_eval
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

import pytest
from rig import FIRMWARE
from visible_program import SCENARIOS
from world import LATENCY_MS, SLOT_MS

from terntools.emulators.micropython import device_command

PROGRAM = Path(__file__).with_name("visible_program.py")
PATHS = [FIRMWARE, PROGRAM.parent, PROGRAM.parents[1], PROGRAM.parents[1] / "device"]
# Boards: the number of their records, the value of these, the seed of all times of work, and what
# fails, by its number in visible_program.FAILURES.
BOARDS = (
    (0, 0, 1, 0),
    (1, 16384, 2, 0),
    (7, -16384, 3, 0),
    (16, 0, 4, 0),
    (64, 9999, 5, 0),
    (2048, -16384, 6, 0),
    (2048, 16384, 7, 1),  # reading records from flash
    (64, 5, 8, 2),  # writing records to flash
)
PUBLIC = [
    (13, 1),
    (13, 1),
    (5, 2),
    (13, 1),
    (5, 3),
    (2, 0),
    (12, 4),
]  # ERRORs to QUESTIONS: code, detail
PORT = [*PUBLIC, (1, 0), (1, 0)]
BY_LEDGER = [(10, 0)] * 10 + [(2, 0), (12, 4), (10, 0)]
# What happens in each scenario: how often, and the ERRORs.
EXPECTED = {
    "program": ({"REPORT": 6, "HELLO": 2, "PUBACK": 16, "PINGREQ": 2}, PUBLIC),
    "program_at_port": ({"REPORT": 6, "HELLO": 3, "LED": 39, "credit": 8}, PORT),
    "busy_at_port": (
        {"REPORT": 2, "HELLO": 2, "LED": 13, "credit": 0},
        [(13, 1), (13, 1), (13, 2)],
    ),
    "serve": ({"REPORT": 6, "HELLO": 3, "LED": 37, "credit": 8}, PORT),
    "serve_over_broker": ({"REPORT": 6, "HELLO": 2, "PUBACK": 16, "PINGREQ": 2}, PUBLIC),
    "serve_several": ({"REPORT": 9, "HELLO": 2}, [(13, 1)] * 6),
    "serve_none": (
        {"REPORT": 0, "HELLO": 3},
        [(12, 0)] * 10 + [(2, 0), (12, 0), (12, 0), (1, 0), (1, 0)],
    ),
    "once": ({"REPORT": 4, "HELLO": 6, "DISCONNECT": 5, "resolve": 2, "leave": 1, "return": 6}, []),
    "sums": ({"REPORT": 9, "HELLO": 2}, [(17, 2)]),
    "sums_of_all": ({"REPORT": 3, "HELLO": 2}, []),
    "sums_served": ({"REPORT": 9, "HELLO": 2}, [(17, 2)]),
    "sums_once": ({"REPORT": 3, "HELLO": 4, "return": 4}, [(17, 2)]),
    "update": ({"UPDATED": 9, "REPORT": 1, "reset": 1}, []),
    "absent_program": (
        {"REPORT": 3, "HELLO": 3, "connect": 6, "CONNECT": 4, "close": 5},
        [(13, 1)],
    ),
    "absent_serve": ({"REPORT": 3, "HELLO": 3, "connect": 6, "CONNECT": 4, "close": 5}, [(13, 1)]),
    "cut_once": ({"REPORT": 12, "DISCONNECT": 12, "connect": 15, "return": 12}, []),
    "cut_program": ({"REPORT": 12, "HELLO": 15}, []),
    "cut_serve": ({"REPORT": 12, "HELLO": 15}, []),
    "cut_update": ({"UPDATED": 63, "REPORT": 12, "HELLO": 12, "reset": 6}, [(4, 42), (4, 63)]),
    "faulty_ledger": ({"REPORT": 0, "PUBACK": 16}, [(13, 1), *BY_LEDGER]),
    "faulty_ledger_served": ({"REPORT": 0, "credit": 8}, [(13, 1), *BY_LEDGER, (1, 0), (1, 0)]),
    "faulty_records": ({"HELLO": 0}, [(12, 0)] * 15 + [(1, 0), (1, 0), (12, 0)]),
    "faulty_update": ({"UPDATED": 1, "REPORT": 2}, []),
    "full": ({"console": 1}, []),
    "heap": ({"HELLO": 4}, []),
}
LOOK_MS = 8  # of a wake
# A link begins after a slot, and a poll or a look; a wake ends when it is late, at a multiple of
# the slot.
MOMENTS = {
    "program": ("625 radio True",),
    "absent_program": ("625 radio True",),
    "serve_over_broker": ("500 radio True",),
    "absent_serve": ("500 radio True",),
    "once": ("508 radio True", "9500 return False"),
}


def trace(interpreter, folder, scenario, data):
    """The lines that a board prints."""
    folder.mkdir()
    SCENARIOS[scenario][1](str(folder), *data[:2])
    path = os.pathsep.join(map(str, PATHS))
    words = [str(PROGRAM), scenario]
    if scenario != "heap":  # they are on the heap, too
        words += map(str, data[2:])
    command = (
        device_command(interpreter, *words, heap="1m") if interpreter else [sys.executable, *words]
    )
    env = {**os.environ, "PYTHONPATH": path, "MICROPYPATH": f"{path}{os.pathsep}.frozen"}
    ended = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def errors(lines):
    """The (code, detail) of each ERROR of a trace."""
    found = [literal_eval(line.split(maxsplit=3)[3]) for line in lines if " ERROR " in line]
    return [(frame[9], int.from_bytes(frame[10:14], "little")) for frame in found]


def require_public_moments(lines):
    """A wake ends whole slots after the last question came, or else after it saw that its
    connection was accepted.
    """
    for line in lines:
        ms, kind, *what = line.split(maxsplit=2)
        if kind == "radio" and what == ["True"]:
            last = SLOT_MS
        elif kind == "CONNECT":
            accepted = last + -(-(int(ms) + 2 * LATENCY_MS - last) // LOOK_MS) * LOOK_MS
        elif kind == "HELLO":
            last = max(last, accepted)
        elif (kind, what) == ("LED", ["True"]):
            last = int(ms)
        elif kind in ("DISCONNECT", "return") or (kind, what) == ("radio", ["False"]):
            assert (int(ms) - last) % SLOT_MS == 0, line


@pytest.mark.parametrize(
    "on", [pytest.param("cpython", marks=pytest.mark.exhaustive), "micropython"]
)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_that_can_be_seen_depends_on_data_noise_flash_or_tasks(
    tmp_path, micropython, scenario, on, sampled
):
    """A scenario is what a host does with a board. In each, boards with any records, random
    numbers, times of work and failing flash print a line for each event that can be seen from
    outside: a frame, a connection, a light, with its time. Line by line, all boards show the same
    as the first one.
    """
    interpreter = micropython if on == "micropython" else None
    boards = sampled(BOARDS, 4)
    folders = [tmp_path / str(number) for number in range(len(boards))]

    with ThreadPoolExecutor(2) as pool:
        traces = pool.map(trace, repeat(interpreter), folders, repeat(scenario), boards)
        expected, *others = traces

    assert_as_listed(scenario, expected)  # in EXPECTED: the scenario has taken place
    if "once" in scenario:  # the board sleeps between two wakes
        require_public_moments(expected)
    for board, lines in zip(boards[1:], others, strict=True):
        for number, (wanted, seen) in enumerate(itertools.zip_longest(expected, lines)):
            lines_around = lines[max(0, number - 5) : number + 5]
            assert seen == wanted, (board, number, lines_around)


def assert_as_listed(scenario, lines):
    """Assert that what the tables above list of this scenario happens in a trace."""
    kinds = Counter(line.split()[1] for line in lines)
    counts, refused = EXPECTED[scenario]
    assert {kind: kinds[kind] for kind in counts} == counts
    assert errors(lines) == refused
    assert set(MOMENTS.get(scenario, ())) <= set(lines)
