"""The loader on the emulated Pico, with a board's timer and reset, and programs that do not reach a
host.
"""

import struct
from binascii import crc32

import pytest

from tern import wire
from tern.update import BOOT_FIELDS, MAGIC
from terntools.boards import mpy
from terntools.boards.repl import GoneError, Repl
from terntools.emulators.pico import boot_pico

TELL = "with open('/ran', 'a') as file:\n    file.write('%s\\n')\n"
HANGS = "import time\nwhile True:\n    time.sleep(1)\n"
PATIENCE = 60.0  # seconds in which the emulated seconds of the trial pass


def boot(proven, state, number):
    data = struct.pack(BOOT_FIELDS, MAGIC, proven, state, number)
    return data + struct.pack("<I", crc32(data))


def test_a_program_that_hangs_is_reset_and_rolled_back(tmp_path):
    flash = tmp_path / "flash.bin"
    with boot_pico(flash, skip_idle=True) as board, Repl(board.url) as repl:
        repl.write_file("/lib/main.py", (TELL % "old").encode())
        repl.write_file("/lib2/main.py", (TELL % "new" + HANGS).encode())
        repl.write_file("/boot.bin", boot(0, wire.RESTARTING, 5))
        repl.write_file("/main.py", mpy.LOADER.read_bytes())
        with pytest.raises(GoneError):
            repl.execute("execfile('/main.py')", PATIENCE)
    with boot_pico(flash, skip_idle=True) as board, Repl(board.url) as repl:
        assert repl.read_file("/boot.bin") == boot(0, wire.ROLLED_BACK, 5)
        ran = repl.read_file("/ran").split()
        assert ran[:2] == [b"new", b"old"]
        assert set(ran[1:]) == {b"old"}
