"""The counter of a chip: fuses that tell an old copy of the flash from the last one (ledger.md).

Without it, somebody who restores an old copy of the flash restores a spent budget. A fuse only ever
burns; nothing undoes that. A ledger whose step is not 0 is bound to the counter: each write of it
is a step, which burns two fuses, one before the write and one after. Which fuses these are differs
from board to board (Base.fuses). Whatever is wrong is refused as ERR_LEDGER.
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
    """Return (last step begun, last step done, number of steps) of a counter.

    Step i, from 1 on, has two fuses: 2 i - 2 is burnt when it begins, and 2 i - 1 when it is done.
    Raises FrameError if a later fuse is burnt, since then the fuses serve for something else.
    """
    begun = done = 0
    total = fuses.count // 2
    while begun < total and fuses.is_burnt(2 * begun):  # step begun + 1 has begun
        begun += 1
        if fuses.is_burnt(2 * begun - 1):
            done = begun
    # Steps begin in order, so all fuses after the last one begun are whole.
    if any(fuses.is_burnt(n) for n in range(2 * begun, fuses.count)):
        raise FrameError(wire.ERR_LEDGER, "the fuses hold something else")
    return begun, done, total


def mark(fuses, step, done):
    """Burn the fuse that says that `step` has begun (done: 0) or is done (1), and check it.

    Raises FrameError if it did not burn, or if the counter has no such fuse.
    """
    fuse = 2 * step - 2 + done
    if fuse < fuses.count:
        fuses.burn(fuse)
    if fuse >= fuses.count or not fuses.is_burnt(fuse):
        raise FrameError(wire.ERR_LEDGER, "a fuse did not burn")


class ChipCounter:
    """The counter of a ledger that was just loaded; write() writes the ledger and counts a step."""

    def __init__(self, ledger, board, write):
        """Check that `ledger` is the last one that the counter of `board` has counted.

        write: a function that writes a path and the bytes of a ledger to flash. A new ledger begins
        its first step. If the power failed after a file was written, but before its step was done,
        the step is completed. Raises FrameError if the ledger is not the last one.
        """
        fuses = fuses_of(board)
        begun, done, total = count(fuses)
        step = ledger.step
        if step == begun + 1 and not ledger.state:  # a new ledger, whose state is IDLE
            mark(fuses, step, 0)
            begun = step
        # The file has the step that was begun, but it is not marked as done: the power failed.
        if step == begun > done:
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
        """Take away the rest of the budget once the last step is begun.

        After it nothing could be written, so nothing more may be paid for.
        """
        if self._begun == self._total:
            self._ledger.budget = self._ledger.spent

    def write(self, path, data):
        """Write the ledger `data` (memoryview) at `path` as that of the next step.

        Raises LedgerError and FrameError. The step begins before the write, so that no two ledgers
        have one step, even if the flash is restored between them.
        """
        self._begun += 1
        mark(self._fuses, self._begun, 0)
        end = len(data) - _CHECK
        pack_into("<H", data, _STEP, self._begun)
        pack_into("<I", data, end, crc32(data[:end]))
        self._write_file(path, data)
        mark(self._fuses, self._begun, 1)
        self._limit()
