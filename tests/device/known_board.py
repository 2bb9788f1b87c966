"""A board whose files and random bytes are known: what it answers is then the same on every device."""

import os
import struct

from streams import Replay

from tern import wire
from tern.boards.emulated import Board
from tern.client import Client
from tern.entropy import EntropyError

HELLO_NAMES = (
    "nonce", "version", "schema", "first", "clients", "largest", "credit", "budget", "epoch", "heap", "records",
    "exceptions", "restarts", "entropy", "assessed", "release", "n",
)  # fmt: skip
HELLO_TOLD = (  # alike by all
    "nonce", "version", "first", "clients", "largest", "credit", "budget", "epoch", "records",
)  # fmt: skip


class Known(Replay):
    """The random bytes of a board, until they end."""

    state = wire.CTR_DRBG

    def refill(self):
        self.state = wire.FAILED
        raise EntropyError("the bytes are used up")

    def end_report(self):
        """What is left is for the next report."""


def start(folder, random):
    """Return the Client of the board in `folder`, whose draws take `random` (bytes) in order."""
    board = Board(folder)
    board.generator = lambda: Known(random)
    return Client(board)


def put(folder, files):
    """Write `files` (bytes by name, None for none) into `folder`, which is empty."""
    os.mkdir(folder + "/ledger")
    for name in files:
        if files[name] is None:
            continue
        with open(folder + "/" + name, "wb") as file:
            file.write(files[name])


def get(folder, name):
    """Return the bytes of a file, None where there is none."""
    try:
        with open(folder + "/" + name, "rb") as file:
            return file.read()
    except OSError:
        return None


def answers_of(client, frame):
    """Return every frame (bytes) that `client` answers."""
    found = []
    client.respond(memoryview(frame), lambda reply, n: found.append(bytes(reply[:n])))
    return found


def hello_of(answer):
    """Return what a HELLO says that all devices with the same files say alike, and whether there is entropy."""
    values = struct.unpack_from(wire.HELLO_FIELDS, answer, 1)
    told = {}
    for i in range(len(HELLO_NAMES)):
        if HELLO_NAMES[i] in HELLO_TOLD:
            told[HELLO_NAMES[i]] = values[i]
    told["entropy"] = values[HELLO_NAMES.index("entropy")] > 0
    return told
