"""A board whose files and random bytes are known, so that it answers the same on every device."""

import os
import struct

from scratch import read, write
from streams import Replay

from tern import wire
from tern.boards.emulated import Board
from tern.client import Client
from tern.entropy import EntropyError
from tern.host_frames import HELLO_NAMES

ALIKE = (  # fields that are the same on all devices with the same files
    "nonce",
    "version",
    "first",
    "clients",
    "largest",
    "credit",
    "budget",
    "spent",
    "epoch",
    "records",
    "measure",
    "unit",
)

_PIECE = 256  # bytes of a file that are compared at once


class Known(Replay):
    """The given random bytes of a board, and a failure after them."""

    state = wire.CTR_DRBG

    def refill(self):
        self.state = wire.FAILED
        raise EntropyError("the bytes are used up")

    def end_report(self):
        """Keep the rest for the next report."""


def start(folder, random):
    """Return the Client of the board in `folder`; its draws take the bytes of `random` in order."""
    board = Board(folder)
    board.generator = lambda: Known(random)
    return Client(board)


def put(folder, files):
    """Write `files` (bytes by name, None for none) into `folder`, which is empty."""
    os.mkdir(folder + "/ledger")
    for name in files:
        if files[name] is not None:
            write(folder + "/" + name, files[name])


def get(folder, name):
    """Return the bytes of a file, or None if there is no such file."""
    try:
        return read(folder + "/" + name)
    except OSError:
        return None


def holds(folder, name, data):
    """Return whether a file has these bytes, or, for None, whether there is no such file.

    It reads the file in pieces, since a small board has no room for a large file beside `data`.
    Raises OSError if there should be a file, and there is none.
    """
    if data is None:
        return get(folder, name) is None
    with open(folder + "/" + name, "rb") as file:
        for at in range(0, len(data) + 1, _PIECE):
            if file.read(_PIECE) != data[at : at + _PIECE]:
                return False
    return True


def hello_of(answer):
    """Return the ALIKE fields of a HELLO by name, and `entropy`: whether there is any."""
    values = struct.unpack_from(wire.HELLO_FIELDS, answer, 1)
    fields = {}
    for name in ALIKE:
        fields[name] = values[HELLO_NAMES.index(name)]
    fields["entropy"] = values[HELLO_NAMES.index("entropy")] > 0
    return fields
