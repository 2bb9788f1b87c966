"""An interrupt that comes before main.py has turned Ctrl-C off gets no prompt from a locked board.

An ESP32 sees Ctrl-C at any time, and its MicroPython raises it at a jump of the program. QEMU's
machine looks for input only now and then: so main.py begins with some calls here, in which it does.
"""

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
# What takes an early Ctrl-C in main.py.
TAKES_KEY = b"for _ in (0, 1):"
PROGRAMS = {"main.py": mpy.MAIN, "the loader": mpy.FIRMWARE / "trial" / "main.py"}


def interrupted(program, folder, files):
    """What a board prints that starts with this program while somebody presses Ctrl-C."""
    flash_image.write(
        "rv32",
        folder / "flash.bin",
        {"/main.py": LONG_CALLS + SHORT_CALLS + program.read_bytes(), **files},
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
def test_files_with_the_names_of_modules_do_not_open_a_locked_board(tmp_path, program):
    """A root may hold files of the user's that MicroPython finds before its own modules."""
    hiding = {"/lock": b"", "/os.py": b"raise SystemExit\n", "/machine.py": b"raise SystemExit\n"}
    assert END not in interrupted(PROGRAMS[program], tmp_path, hiding)


def test_a_main_py_that_does_not_expect_an_early_key_would_give_its_prompt(tmp_path):
    """So the key does come early."""
    text = PROGRAMS["main.py"].read_bytes()
    assert TAKES_KEY in text
    unprepared = tmp_path / "main.py"
    unprepared.write_bytes(text.replace(TAKES_KEY, b"for _ in ():"))
    assert END in interrupted(unprepared, tmp_path, {"/lock": b""})
