"""The counter of a chip: fuses, which only ever burn, tell an old copy of the flash from the last
one (ledger.md).

A ledger whose step is not 0 is bound to it: each write of it burns two fuses, begun and done.
Nothing undoes that. Which fuses these are differs from board to board (Base.fuses). Whatever is
wrong is ERR_LEDGER.
"""

from binascii import crc32
from struct import pack_into

from tern import wire
from tern.compat import const
from tern.frames import FrameError

_STEP = const(52)  # offset in a ledger
_CHECK = const(4)  # bytes of its check, at its end


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


class ChipCounter:
    """The counter of a `ledger` that was just loaded: write() writes it, and counts.

    write: a function of a path and the bytes of a ledger, which puts them there. Raises FrameError
    for a ledger that is not the last one of its counter.
    """

    def __init__(self, ledger, board, write):
        fuses = fuses_of(board)
        begun, done, total = count(fuses)
        step = ledger.step
        if step == begun + 1 and not ledger.state:  # new, and idle
            mark(fuses, step, 0)
            begun = step
        if step == begun > done:  # the power failed after it was written
            mark(fuses, step, 1)
        elif step != done:
            raise FrameError(wire.ERR_LEDGER, "not the last one of its counter", wire.OLD_LEDGER)
        self._ledger = ledger
        self._fuses = fuses
        self._begun = begun
        self._total = total
        self._write_file = write
        self._limit()

    def _limit(self):
        # After the last step nothing more can be paid for than is paid for.
        if self._begun == self._total:
            self._ledger.budget = self._ledger.spent

    def write(self, path, data):
        """Write the ledger `data` (memoryview) at `path` as that of the next step.

        Raises LedgerError and FrameError.
        """
        # First of all, so that no two ledgers have one step, even if the flash is restored between
        # them.
        self._begun += 1
        mark(self._fuses, self._begun, 0)
        end = len(data) - _CHECK
        pack_into("<H", data, _STEP, self._begun)
        pack_into("<I", data, end, crc32(data[:end]))
        self._write_file(path, data)
        mark(self._fuses, self._begun, 1)
        self._limit()
