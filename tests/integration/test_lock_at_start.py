"""An interrupt that comes before main.py has turned Ctrl-C off gets no prompt from a locked board.

An ESP32 sees Ctrl-C at any time, and its MicroPython raises it at a jump of the program. QEMU's machine looks for
input only now and then: so main.py begins with some calls here, in which it does."""

import time
from contextlib import suppress

import pytest
import serial

from ternhost.reach.ports.link import open_port
from terntools.boards import mpy
from terntools.emulators import catalogue, flash_image

LONG_CALLS = b"from hashlib import sha256\ndata = bytes(30000)\n" + b"sha256(data)\n" * 100
SHORT_CALLS = b"def nothing():\n    pass\n" + b"nothing()\n" * 300
SECONDS = 10  # that the key is pressed, unless the board ends before
END = b"Traceback"  # a program has ended: after this there is a prompt
PROGRAMS = {"main.py": mpy.MAIN, "the loader": mpy.FIRMWARE / "trial" / "main.py"}


def interrupted(program, folder, files):
    """What a board prints that starts with this program while somebody presses Ctrl-C."""
    flash_image.write(
        "rv32", folder / "flash.bin", {"/main.py": LONG_CALLS + SHORT_CALLS + program.read_bytes(), **files}
    )
    printed = b""
    with catalogue.boot("rv32", folder / "flash.bin") as board, open_port(board.url) as port:
        port.timeout = 0.01
        end = time.monotonic() + SECONDS
        with suppress(serial.SerialException):  # a reset hangs up
            while time.monotonic() < end and END not in printed:
                port.write(b"\x03")
                printed += port.read(port.in_waiting or 1)
    return printed


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_locked_board_gives_no_prompt(tmp_path, program):
    assert END not in interrupted(PROGRAMS[program], tmp_path, {"/lock": b""})


def test_a_board_without_a_lock_gives_its_prompt(tmp_path):
    assert END in interrupted(PROGRAMS["main.py"], tmp_path, {})
