"""A board of another package is served as tern's own are: tests/outside/own_board.py."""

import os
import subprocess
from pathlib import Path

from terntools.boards import mpy
from terntools.emulators.micropython import device_command, find_micropython

OUTSIDE = Path(__file__).parents[1] / "outside"
PROGRAM = """
import own_board
from tern.boards.this import this_board

print(this_board().name)
"""


def test_a_program_brings_the_board_that_it_runs_on():
    path = os.pathsep.join((str(mpy.FIRMWARE), str(OUTSIDE), ".frozen"))
    ran = subprocess.run(
        device_command(find_micropython(), "-c", PROGRAM),
        env={**os.environ, "MICROPYPATH": path},
        capture_output=True,
        text=True,
    )
    assert ran.stdout == "own board\n", ran.stderr
