"""The counter of a chip: fuses, which only ever burn, tell an old copy of the flash from the last
one (ledger.md).

A ledger whose step is not 0 is bound to it: each write of it burns two fuses, begun and done.
Nothing undoes that. Which fuses these are differs from board to board (Base.fuses). Whatever is
wrong is ERR_LEDGER.
"""

from binascii import crc32
from struct import pack_into, unpack_from

from tern import wire
from tern.compat import const
from tern.frames import FrameError

_STEP = const(52)  # offset in a ledger


def fuses_of(board):
    """Return the fuses of a board. Raises FrameError if it has none."""
    fuses = board.fuses()
    if not fuses:
        raise FrameError(wire.ERR_LEDGER, "a board without fuses for a counter")
    return fuses


def count(fuses):
    """Return (last step begun, last step done, number of steps).

    Raises FrameError if a later fuse is burnt.
    """
    begun = done = 0
    total = fuses.count // 2
    while begun < total and fuses.is_burnt(2 * begun):
        begun += 1
        if fuses.is_burnt(2 * begun - 1):
            done = begun
    if any(fuses.is_burnt(n) for n in range(2 * begun, fuses.count)):
        raise FrameError(wire.ERR_LEDGER, "the fuses hold something else")
    return begun, done, total


def mark(fuses, step, done):
    """Burn a fuse of `step`: begun (done 0) or done (1). Raises FrameError if it did not burn."""
    n = 2 * step - 2 + done
    if n < fuses.count:
        fuses.burn(n)
    if n >= fuses.count or not fuses.is_burnt(n):
        raise FrameError(wire.ERR_LEDGER, "a fuse did not burn")


def attach_counter(ledger, board):
    """Compare `ledger`, which was just loaded, with its counter, and have each write count.

    Raises FrameError.
    """
    fuses = fuses_of(board)
    begun, done, total = count(fuses)
    (step,) = unpack_from("<H", ledger._view, _STEP)
    if step == begun + 1 and not ledger.state:  # new, and idle
        mark(fuses, step, 0)
        begun = step
    if step == begun > done:  # the power failed after it was written
        mark(fuses, step, 1)
    elif step != done:
        raise FrameError(wire.ERR_LEDGER, "not the last one of its counter", wire.OLD_LEDGER)

    def limit():
        if begun == total:  # nothing more can be paid for than is paid for
            ledger.budget = ledger.spent

    def write(path):
        nonlocal begun
        # First of all, so that no two ledgers have one step, even if the flash is restored between
        # them.
        begun += 1
        mark(fuses, begun, 0)
        pack_into("<H", ledger._view, _STEP, begun)
        pack_into("<I", ledger._view, len(ledger._checked), crc32(ledger._checked))
        ledger._write_alone(path)
        mark(fuses, begun, 1)
        limit()

    limit()
    ledger._write = write
