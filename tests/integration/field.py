"""Emulated boards in the field: the loader starts the program in their folders, and again whenever
it ends.
"""

import os
import struct
import threading
import time
from pathlib import Path

from tern.update import BOOT, BOOT_FIELDS
from terntools.boards import program
from terntools.emulators.unix_fleet import FIRMWARE, EmulatedBoard

LOADER = FIRMWARE / "trial" / "main.py"
NOWHERE = Path(os.devnull)  # the library is in /lib of the board

# A program of a product: it answers rounds and takes updates; its hello has its name.
PROGRAM = """
import os
from tern import frames, wire
from tern.boards.emulated import Board
from tern.client import Client
from tern.storage import CLIENTS, Clients
from tern.update import Update

board = Board(os.getcwd())
board.name = "NAME"
update = Update(board)
link = board.open_link()
link.admit(wire.UPDATE)
client = Client(board)
key = Clients(board.directory + "/" + CLIENTS).key
sent = False
while True:
    frame = link.receive(100)
    if sent:
        if update.restart:
            raise SystemExit
        update.confirm()
    if frame is None:
        continue
    sent = len(frame) > 0 and frame[0] == wire.HELLO_REQUEST
    if len(frame) and frame[0] == wire.UPDATE:
        n = update.take(frame, key, client.reply)
        link.send(client.reply, n)
        sent = update.restart
    else:
        client.respond(frame, link.send)
"""


def source(name):
    """The text of the program with this name."""
    return PROGRAM.replace("NAME", name)


def install(directory, name):
    """Put the program with this name and its library into /lib of a board, as `tern deploy` does."""
    path = directory / "first.py"
    path.write_text(source(name))
    for name, data in program.program_files(program.EMULATED, program.read(path)).items():
        target = directory / "lib" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    path.unlink()


def boot(directory):
    """(proven, state, number) of a board's boot.bin."""
    return struct.unpack_from(BOOT_FIELDS, (directory / BOOT).read_bytes())[1:]


class FieldBoard(EmulatedBoard):
    """A board whose loader starts again whenever its program ends; `restarts` counts how often."""

    def __init__(self, binary, directory):
        self.restarts, self._going = 0, True
        super().__init__(binary, directory, firmware=NOWHERE, program=LOADER)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _watch(self):
        while self._going:
            time.sleep(0.05)
            process = self._process
            if process and process.poll() is not None and self._going:
                self.restarts += 1
                self.start()

    def kill(self):
        """Cut the power, which comes back at once."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def close(self):
        self._going = False
        if hasattr(self, "_watcher"):
            self._watcher.join()
        super().close()
