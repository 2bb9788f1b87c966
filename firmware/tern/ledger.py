"""The ledger: a client's durable account of the epsilon, or rho, that it has spent.

See shared_specs/ledger.md.
"""

import os
from binascii import crc32
from struct import pack, pack_into, unpack_from

from tern.compat import MICROPYTHON, const, ticks_diff, ticks_ms

# The states of a ledger.
IDLE = const(0)  # no report was released yet
ANSWERED = const(1)  # the last round is paid for, and its report is kept, to be sent again
RESERVED = const(2)  # every round up to the last one may have been answered, and is paid for

# A file: these fields, the report, and a CRC-32 of all before it.
MAGIC = b"TLG3"
# magic, budget, spent, last round, its question, state, measure, n of report, step
FIELDS = "<4sIII32sBBHH"
MAX_BUDGET = const(1_000_000_000)  # millionths
EPSILON = const(0)  # measures of a budget: the epsilon of local differential privacy,
RHO = const(1)  # or the rho of zero-concentrated differential privacy

_BUDGET = const(4)  # offsets of fields in the file
_QUESTION = const(16)
_HEADER = const(54)  # bytes of all fields
_CHECK = const(4)  # bytes of the CRC-32
_SIZE = const(331)  # of the longest: _HEADER + _MAX_REPORT + _CHECK
_MIN_REPORT = const(18)  # a whole frame REPORT, with one byte of symbols
_MAX_REPORT = const(273)  # and with 256
_MAX_ROUND = const(0x3FFFFFFF)  # 2**30 - 1, a small int of MicroPython
_NO_QUESTION = bytes(32)  # where there is none, its digest is zeros

# A write that takes longer has erased a block of the flash, and most writes do not.
_QUICK_MS = const(1)
_LEAST_CYCLE = const(4)  # writes from one block to the next; fewer tell nothing
_MOST_CYCLE = const(40)  # if there are more, nobody waits for them

_fsync = getattr(os, "fsync", None)  # MicroPython's flush() reaches the medium by itself


class LedgerError(Exception):
    """The ledger is missing, unreadable, inconsistent or not writable.

    The client must not report.
    """


class Ledger:
    """One client's ledger at a time: load() it, then pay() for each report before it is sent.

    budget, spent: in millionths of the `measure`, EPSILON or RHO. round: the last one that is paid
    for.
    question, report: memoryviews of the digest of its question and of the frame that answered it;
    report is empty unless the state is ANSWERED. step: the step of the chip's counter to which the
    ledger is bound, 0 for none (tern.counter). While reserved(), the file is ahead of these fields,
    since it says that rounds to come are paid for: do not load it again.
    """

    def __init__(self, in_place=False, board=None):
        """in_place: whether the file is written over, instead of replaced by a new one.

        That is safe on LittleFS, which keeps a file's old content until a flush, so that one open
        file serves for all writes. board: has the counter to which a ledger may be bound; without
        it the counter is not looked at.
        """
        # The buffer of the file, from which it is written and into which it is read.
        self._view = view = memoryview(bytearray(_SIZE))
        pack_into("4s", view, 0, MAGIC)
        self._n = -1  # no report has views: see _fit()
        self.report = view[:0]
        # If a write fails, the whole old file or the whole new one remains.
        self._write_file = self._write_over if in_place else self._replace
        self._write = self._write_file  # takes a path and the bytes; load() may choose another one
        self._board = board
        # How many writes there were since one that has erased a block; how many before that one.
        # The second number is -1 while no such write was seen.
        self._writes = 0
        self._cycle = -1
        self._file = None
        self.close()
        self.budget = self.spent = self.round = self.state = self.measure = self.step = 0
        self.question = view[_QUESTION : _QUESTION + 32]
        if not MICROPYTHON:
            self._held = None  # what the file at `path` held when this process last saw it

    def load(self, path):
        """Read the ledger at `path`; nothing is written.

        Raises LedgerError for a file that is no ledger, is damaged or is of another version, and
        FrameError for a ledger that its counter refuses (tern.counter).
        """
        self.close()
        view = self._view
        try:
            with open(path, "rb") as file:
                size = file.readinto(view)
            magic, budget, spent, last_round, question, state, measure, report_bytes, step = (
                unpack_from(FIELDS, view, 0)
            )
            board = step and self._board  # to whose counter it is bound
            if board:
                from tern.counter import ChipCounter
        except (OSError, ImportError) as error:
            raise LedgerError("unreadable: %s" % error)
        if magic != MAGIC:
            raise LedgerError("of another version")

        end = _HEADER + report_bytes
        has_question = question != _NO_QUESTION
        if (
            size < end + _CHECK
            or pack("<I", crc32(view[:end])) != view[end : end + _CHECK]
            or not spent <= budget <= MAX_BUDGET
            or last_round > _MAX_ROUND
            or state > RESERVED
            or measure > RHO
            # What each state requires: only ANSWERED has a question and a report; IDLE has spent
            # nothing, and the others have both spent and a round.
            or (state == RESERVED and has_question)
            or not (
                _MIN_REPORT <= report_bytes <= _MAX_REPORT
                if state == ANSWERED
                else report_bytes == 0
            )
            or (spent or has_question if state == IDLE else not (spent and last_round))
        ):
            raise LedgerError("damaged")

        self.budget = budget
        self.spent = spent
        self.round = last_round
        self.state = state
        self.measure = measure
        self.step = step
        self._fit(report_bytes)
        if not MICROPYTHON:
            self._held = bytes(view[:size])
        self._write = self._write_file
        if board:
            self._write = ChipCounter(self, board, self._write_file).write
        self.path = path

    # Not a property: in a class that has one, MicroPython takes longer to set any attribute.
    def reserved(self):
        """Return whether the file says that rounds to come are paid for already."""
        return self._until > 0

    def pay(self, round_number, question, cost, report, ahead=1):
        """Pay `cost` millionths for `report`, the answer to `question` (32 bytes); then send it.

        Returns once the file is durable. report: empty if its draw failed, which ends the round.
        ahead: for how many reports one write pays, which spares the flash; after a power cut all of
        them count as spent. Raises LedgerError: then send nothing, and if the file could not be
        written, load it again.
        """
        path = self.path
        spent = self.spent
        left = self.budget - spent
        report_bytes = len(report)
        if (
            not path
            or not 0 < cost <= left
            or not self.round < round_number <= _MAX_ROUND
            or not (_MIN_REPORT <= report_bytes <= _MAX_REPORT or report_bytes == 0)
        ):
            raise LedgerError("not a payment")

        self.path = ""  # to be loaded again, unless all goes well
        # Whether an earlier write has paid for this round: for all rounds up to _until, and for a
        # spending of up to _paid.
        covered = round_number <= self._until and cost <= self._paid - spent
        if not covered:
            if self._until:
                self._until = self._paid = 0
            # No more reports than the budget and the numbers of rounds allow.
            if ahead > 1:
                ahead = min(ahead, left // cost, _MAX_ROUND - round_number + 1)
            if ahead > 1:
                covered = True
                # Reserve: write that all of these rounds are paid for, before the first of them.
                self._until = self.round = round_number + ahead - 1
                self._paid = self.spent = spent + ahead * cost
                self.state = RESERVED
                self._set(_NO_QUESTION, b"", 0)
                self._write(path, self._whole)

        # The fields say what this report makes of the ledger. The file gets them too, unless it is
        # already ahead of them.
        self.spent = spent + cost
        self.round = round_number
        self.state = ANSWERED
        if not report_bytes:
            question = _NO_QUESTION
            self.state = RESERVED
        self._set(question, report, report_bytes)
        if not covered:
            self._write(path, self._whole)
        self.path = path

    def _set(self, question, report, n):
        """Put the fields, with this question and a report of n bytes, into the buffer of the file."""
        if n != self._n:
            self._fit(n)
        view = self._view
        pack_into(
            self._layout,
            view,
            _BUDGET,
            self.budget,
            self.spent,
            self.round,
            question,
            self.state,
            self.measure,
            n,
            self.step,
            report if MICROPYTHON else bytes(report),
        )
        pack_into("<I", view, _HEADER + n, crc32(self._checked))

    def _fit(self, n):
        """Make the views of the buffer for a report of n bytes: the whole file, and parts of it.

        _set() calls it only for another length, so that nothing is allocated while all reports are
        as long.
        """
        view = self._view
        report = view[_HEADER : _HEADER + n]
        checked = view[: _HEADER + n]
        self._whole = view[: _HEADER + n + _CHECK]
        self._checked = checked
        self._layout = "<III32sBBHH%ds" % n  # from the budget on; see FIELDS
        self.report = report
        self._n = n  # last: now there was memory for all

    def _replace(self, path, data):
        """Write `data` to `path` by replacing the file. Raises LedgerError."""
        if MICROPYTHON:
            replace(path, data)
        else:
            self._held = exchange(path, bytes(data), self._held)

    def _write_over(self, path, data):
        """Write `data` over the file at `path`, which stays open. Raises LedgerError.

        It has few variables, since MicroPython would put more than 11 words of them on the heap.
        """
        try:
            if not self._file:
                self._file = open(path, "r+b")
            file = self._file
            start = ticks_ms()
            file.seek(0)
            if file.write(data) != len(data):
                raise OSError
            file.flush()
        except OSError:
            self.close()
            raise LedgerError("ledger not writable")
        if ticks_diff(ticks_ms(), start) > _QUICK_MS:
            # What came before the first of these writes is not known.
            self._cycle = self._writes if self._cycle >= 0 else 0
            self._writes = 0
        self._writes += 1

    def tend(self):
        """Write the file once more, as it is, if this erases a block that a report would wait for.

        To be called between two reports. LittleFS adds each write to a block; once that is full, it
        copies what counts to another one, which it erases first. The first call finds out after
        how many writes, by at most two such blocks. Raises LedgerError.
        """
        if not self._file or not self.path or self._until:
            return
        most = _MOST_CYCLE
        while self._cycle <= 0 and most:
            self._write_over(self.path, self._whole)
            most -= 1
        if self._cycle <= 0:  # not found out
            self._cycle = 1
        if self._writes == self._cycle > _LEAST_CYCLE:
            self._write_over(self.path, self._whole)

    def close(self):
        """Close the file, and forget what was reserved in it."""
        self.path = ""
        # What the file has paid for in advance: rounds up to this one, and spending up to this.
        self._until = self._paid = 0
        file = self._file
        self._file = None
        if file:
            try:
                file.close()
            except OSError:
                pass


def create(path, budget, last=0, step=0, measure=EPSILON):
    """Make a ledger file of `budget` millionths of `measure`, for rounds above `last`.

    step: the step of the chip's counter to which it is bound; 0: to none. Raises LedgerError, also
    if there is a ledger already, since a second one would allow to spend the budget again.
    """
    if not 0 < budget <= MAX_BUDGET or not 0 <= last <= _MAX_ROUND:
        raise LedgerError("budget or last round out of bounds")
    try:
        os.stat(path)
    except OSError:
        ledger = Ledger()
        ledger.budget = budget
        ledger.round = last
        ledger.measure = measure
        ledger.step = step
        ledger._set(_NO_QUESTION, b"", 0)
        ledger._write(path, ledger._whole)
        return
    raise LedgerError("there is a ledger already")


def replace(path, data):
    """Put `data` at `path` in one step: a power cut leaves the old file or the new one.

    Raises LedgerError.
    """
    new_path = path + ".new"
    try:
        if not MICROPYTHON:
            _close_to_others(new_path)
        with open(new_path, "wb") as file:
            if file.write(data) != len(data):
                raise OSError
            file.flush()
            if _fsync:
                _fsync(file.fileno())
        os.rename(new_path, path)
    except OSError as error:
        try:
            os.remove(new_path)
        except OSError:
            pass
        raise LedgerError("ledger not writable: %s" % error)


if not MICROPYTHON:  # a computer has other users, and other processes that may use the ledger
    try:
        import fcntl
    except ImportError:
        fcntl = None  # type: ignore[assignment]

    def exchange(path, data, held):
        """Replace the content of the file `path` by `data`, and return `data`.

        held: the content that the caller expects there; None if there should be no file. The folder
        is locked meanwhile, so that two processes do not answer from one ledger. Raises
        LedgerError, also where another process has written the ledger since.
        """
        if fcntl is None:
            replace(path, data)
            return data
        try:
            folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        except OSError as error:
            raise LedgerError("ledger not writable: %s" % error)
        try:
            # Not the ledger, which each write replaces by another file.
            fcntl.flock(folder, fcntl.LOCK_EX)
            if _content(path) != held:
                raise LedgerError("another process has answered from this ledger")
            replace(path, data)
            os.fsync(folder)  # a rename is durable when its folder is
        except OSError as error:
            raise LedgerError("ledger not writable: %s" % error)
        finally:
            os.close(folder)
        return data

    def _close_to_others(path):
        """Make the file at `path` readable and writable for its owner alone, whatever the umask.

        Keys and ledgers are their owner's; so is what is written in their place.
        """
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        os.chmod(path, 0o600)  # of one left over

    def _content(path):
        """Return the bytes of the ledger at `path`, or None if there is none."""
        try:
            with open(path, "rb") as file:
                return file.read(_SIZE)
        except FileNotFoundError:
            return None
