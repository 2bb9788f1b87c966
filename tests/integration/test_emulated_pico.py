"""The emulated Pico behaves as a Pico towards a host: serial port, flash, resets, power cuts."""

import struct
import subprocess
from binascii import crc32
from pathlib import Path

import pytest

from tern import wire
from tern.update import BOOT_FIELDS, MAGIC
from ternhost import cache
from ternhost.errors import UsageError
from terntools.boards import mpy
from terntools.boards.prompt_errors import GoneError
from terntools.boards.repl import Repl
from terntools.emulators import catalogue
from terntools.emulators import pico as pico_machine
from terntools.emulators.pico import boot_pico


def ask(url, code, expression):
    with Repl(url) as repl:
        repl.run(code)
        return repl.evaluate(f"({expression})")


def test_the_fast_core_computes_the_same_as_rp2040js(pytestconfig):
    """The emulated Pico has a processor core of our own, for speed. From random states it executes
    all 2**16 instruction words (but for those that the program below leaves out) as the emulator
    rp2040js does.
    """
    machine = cache.find_entry(pico_machine.MACHINE)
    states = 60 if pytestconfig.getoption("exhaustive") else 2
    command = ["node", Path(__file__).with_name("pico_core.mjs"), machine, str(states)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout
    assert int(ended.stdout) > 0.9 * states * 2**16


def test_a_power_cut_loses_only_a_file_that_was_never_closed(tmp_path):
    """As on a real Pico: its file system keeps every file that was closed, and nothing of one that
    was being written.
    """
    flash = tmp_path / "flash.bin"
    first = boot_pico(flash)
    with Repl(first.url) as repl:
        repl.files.write("/kept.txt", b"x" * 5000)
        repl.run("file = open('/open.txt', 'w')\nfile.write('never closed')")
        first.cut_power()

    with boot_pico(flash) as again:
        size = "os.stat(%s)[6]"
        assert ask(again.url, "import os", size % "'/kept.txt'") == 5000
        not_empty = f"[name for name in os.listdir('/') if {size % 'name'}]"
        assert "open.txt" not in ask(again.url, "", not_empty)


@pytest.mark.parametrize(("board", "kib"), [("pico", 1408), ("rv32", 2048)])
def test_the_flash_of_another_kind_of_board_is_left_alone(tmp_path, board, kib):
    """QEMU's machines have 1408 KiB of flash; a Pico has 2048 KiB."""
    flash = tmp_path / "other.bin"
    content = bytes(range(256)) * 4 * kib
    flash.write_bytes(content)
    with pytest.raises(UsageError, match=r"other.bin does not have the size of this board's flash"):
        catalogue.boot(board, flash)
    assert flash.read_bytes() == content


MEASURE = """
import os, time
def measure():
    start = time.ticks_us()
    data = os.urandom(64)
    x = 0.0
    for byte in data:
        x += byte / 3
    return time.ticks_diff(time.ticks_us(), start), data
"""


def test_a_seed_repeats_a_run_to_the_microsecond():
    """Of an emulated Pico, two runs with one seed get the same random bytes and take the same time;
    another seed gives other bytes.
    """
    times_us, random_bytes = [], []
    for seed in (1, 1, 2):
        with boot_pico(seed=seed) as pico:
            us, data = ask(pico.url, MEASURE, "measure()")
            times_us.append(us)
            random_bytes.append(data)

    first, again, other = random_bytes
    assert first == again != other
    assert times_us[0] == times_us[1] > 0


# The loader on the emulated Pico, with a board's timer and reset, and programs that do not reach a


# Programs that add a word to the file /ran; and one that hangs.
TELL = "with open('/ran', 'a') as file:\n    file.write('%s\\n')\n"
HANGS = "import time\nwhile True:\n    time.sleep(1)\n"
SECONDS_FOR_THE_TRIAL = 60.0  # of a new program, whose time is emulated


def boot_file(proven, state, number):
    """The content of /boot.bin: the proven folder (0: /lib, 1: /lib2), and the state and number of
    the package in the other one.
    """
    data = struct.pack(BOOT_FIELDS, MAGIC, proven, state, number)
    return data + struct.pack("<I", crc32(data))


def test_a_program_that_hangs_is_reset_and_rolled_back(tmp_path):
    """An update is tried once: the loader, main.py of the board, starts the new program in /lib2
    under a timer. This one hangs, so the timer resets the board, and from then on the loader starts
    the old program in /lib.
    """
    flash = tmp_path / "flash.bin"
    with boot_pico(flash, skip_idle=True) as board, Repl(board.url) as repl:
        repl.files.write("/lib/main.py", (TELL % "old").encode())
        repl.files.write("/lib2/main.py", (TELL % "new" + HANGS).encode())
        repl.files.write("/boot.bin", boot_file(proven=0, state=wire.RESTARTING, number=5))
        repl.files.write("/main.py", mpy.LOADER.read_bytes())

        with pytest.raises(GoneError):  # the reset ends the serial port
            repl.execute("execfile('/main.py')", SECONDS_FOR_THE_TRIAL)

    with boot_pico(flash, skip_idle=True) as board, Repl(board.url) as repl:
        rolled_back = boot_file(proven=0, state=wire.ROLLED_BACK, number=5)
        assert repl.files.read("/boot.bin") == rolled_back
        tried_first, *later = repl.files.read("/ran").split()
        assert tried_first == b"new"
        assert set(later) == {b"old"}
