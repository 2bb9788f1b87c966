"""Lock a board: the files of the lock, and whether the board supports them (storage.md)."""

import struct

from tern import update, wire
from ternhost.errors import UsageError
from terntools.boards import file_changes, hiding, machines, mpy, software
from terntools.boards.repl import Repl

LOCK = "/lock"  # main.py looks for it
BOOT = "/boot.py"

_BOOT_BYTES = struct.calcsize(update.BOOT_FIELDS) + 4  # of boot.bin, with its CRC-32


def files(network: bool) -> dict[str, bytes]:
    """Return the files that lock a board, by path.

    network: whether the board reaches its host by a network, and not by its port.
    """
    if not network:
        return {LOCK: b"locked\n"}
    # A Pico starts its USB only once boot.py has ended. This one starts the board's program and
    # never ends, so the board has no port.
    return {BOOT: b"import main\n", LOCK: b"locked\n"}


def check(repl: Repl, network: bool) -> None:
    """Raise UsageError if a lock would have no effect, or shut out the host for good.

    network: as in `files`.
    """
    if not _starts_our_main(repl):
        raise UsageError(
            f"the board on {repl.name} does not start main.py of this tern, and without it nothing "
            "is locked",
            hint=f"this replaces the board's program: tern board deploy {repl.name}",
        )
    hiding.require_none(repl, hiding.find(repl, repl.files.sizes(software.LIBRARY)))
    if network and not machines.Machine.of(repl).network:
        raise UsageError(
            f"the board on {repl.name} has no network: locked, with a broker for its link, it "
            "could reach no host",
            hint="leave out --broker",
        )


def _starts_our_main(repl: Repl) -> bool:
    """Return whether the board starts main.py of this tern, directly or through the loader."""
    digests = repl.files.digests([software.MAIN, software.PROGRAM])
    our_main = file_changes.digest(mpy.MAIN.read_bytes())
    loader = file_changes.digest(mpy.LOADER.read_bytes())
    has_loader = digests.get(software.MAIN) == loader
    if not has_loader:
        return digests.get(software.MAIN) == our_main
    return digests.get(software.PROGRAM) == our_main and not _may_start_update(repl)


def _may_start_update(repl: Repl) -> bool:
    """Return whether the loader may start a program of an update, and not the one in /lib.

    The loader is the main.py of a board that takes updates. The board's boot.bin says which folder
    it starts, and whether an update is under way. A boot.bin of another size is not read: the
    loader ignores it, too, and starts /lib.
    """
    path = "/" + update.BOOT
    if path not in repl.files.sizes("/"):
        return False
    data = repl.files.read(path)
    if len(data) != _BOOT_BYTES:
        return False
    proven_folder = data[4]  # whose program is known to work; 0 stands for /lib
    state = data[5]  # of the last update: in the end it is confirmed, or rolled back
    return proven_folder != 0 or state not in (wire.CONFIRMED, wire.ROLLED_BACK)
