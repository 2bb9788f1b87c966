"""Lock a board: the files of the lock, and whether the board supports them (storage.md)."""

import struct

from tern import update, wire
from ternhost.errors import UsageError
from terntools.boards import deploy, hiding, mpy
from terntools.boards.repl import Repl

LOCK = "/lock"  # main.py looks for it
BOOT = "/boot.py"

_BOOT_BYTES = struct.calcsize(update.BOOT_FIELDS) + 4  # of boot.bin, with its CRC-32


def files(network: bool) -> dict[str, bytes]:
    """The files that lock a board; network: its link is not its port."""
    # A Pico starts its USB only once boot.py has ended, and this one never ends.
    boot = {BOOT: b"import main\n"} if network else {}
    return {**boot, LOCK: b"locked\n"}


def check(repl: Repl, network: bool) -> None:
    """Raise UsageError where the lock would have no effect or shut out the host for good. network:
    as of `files`.
    """
    there = repl.hashes([deploy.MAIN, deploy.PROGRAM])
    loader = there.get(deploy.MAIN) == deploy.digest(mpy.LOADER.read_bytes())
    starts = deploy.PROGRAM if loader else deploy.MAIN
    if there.get(starts) != deploy.digest(mpy.MAIN.read_bytes()) or (
        loader and _starts_other(repl)
    ):
        text = f"the board on {repl.name} does not start main.py of this tern, and without it nothing is "
        text += "locked"
        raise UsageError(text, f"this replaces the board's program: tern deploy {repl.name}")
    hiding.require_none(repl, hiding.find(repl, repl.directory(deploy.LIBRARY)))
    if network and not deploy.Machine.of(repl).network:
        text = f"the board on {repl.name} has no network: locked, with a broker for its link, it could reach "
        text += "no host"
        raise UsageError(text, "leave out --broker")


def _starts_other(repl: Repl) -> bool:
    # Whether the loader starts what came in the field, or may, instead of what the desk has put
    # into /lib.
    path = "/" + update.BOOT
    if path not in repl.directory("/"):
        return False
    data = repl.read_file(path)
    return len(data) == _BOOT_BYTES and (
        data[4] != 0 or data[5] not in (wire.CONFIRMED, wire.ROLLED_BACK)
    )
