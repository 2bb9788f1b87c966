"""A board type is a file of the device library: tests/outside/own_board.py."""

import os
import shutil
import subprocess
from pathlib import Path

from terntools.boards import mpy
from terntools.emulators.micropython import device_command, find_micropython

BOARD = Path(__file__).parents[1] / "outside/own_board.py"
PROGRAM = "from tern.boards.this import this_board; print(this_board().name)"


def test_a_board_is_served_by_the_module_that_is_named_after_its_platform(tmp_path):
    """To support another board, it suffices to add a file to the device library, named after the
    sys.platform of its MicroPython. Here that is linux, the platform of the emulated device.
    """
    library = shutil.copytree(mpy.LIBRARY, tmp_path / "tern")
    shutil.copy(BOARD, library / "boards/linux.py")  # sys.platform of the emulated device

    # The program asks the library for its board, and prints its name.
    ran = subprocess.run(
        device_command(find_micropython(), "-c", PROGRAM),
        env={**os.environ, "MICROPYPATH": f"{tmp_path}:.frozen"},
        capture_output=True,
        text=True,
    )
    assert ran.stdout == "own board\n", ran.stderr
