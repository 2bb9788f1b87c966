"""The ledger: a client's durable account of the epsilon that it has spent. See shared_specs/ledger.md."""

import hashlib
import os
import struct

from tern.compat import const

IDLE = const(0)  # states: nothing done yet;
DEBITED = const(1)  # the last round is paid for, its report is not recorded;
REPORTED = const(2)  # its report is recorded;
RESERVED = const(3)  # every round up to the last one may have been answered, and is paid for

MAGIC = b"TLG1"
FIELDS = "<4sIII32sBBH"  # magic, budget, spent, last round, its question, state, reserved, report length
MAX_BUDGET = const(1_000_000_000)  # micro-epsilon

_HEADER = const(52)
_CHECK = const(8)
_MIN_REPORT = const(18)
_MAX_REPORT = const(273)
_MAX_ROUND = const(0x3FFFFFFF)
_NO_QUESTION = bytes(32)

_fsync = getattr(os, "fsync", None)  # MicroPython's flush() reaches the medium by itself


class LedgerError(Exception):
    """The ledger is missing, unreadable, inconsistent or not writable: the client must not report."""


class Ledger:
    """One client's ledger at a time: load() it, then debit() and record(), each durable when it returns.

    budget, spent: micro-epsilon; round, question: of the last round; state; report: a memoryview of the last report.
    Where several reports are paid for at once, the file is ahead of these, and is not to be loaded again.
    """

    def __init__(self, in_place=False):
        """in_place: on the board's file system (LittleFS) a file that is written over is the old one until it is
        flushed, and the new one from then on. So one open file serves for all writes, without a new one and a rename.
        """
        self._bytes = bytearray(_HEADER + _MAX_REPORT + _CHECK)
        self._view = memoryview(self._bytes)
        self._in_place = in_place
        self._file = None
        self._until = self._paid = 0  # what is reserved: rounds up to this one, and spending up to this
        self.path = ""
        self.budget = self.spent = self.round = 0
        self.question = _NO_QUESTION
        self.state = IDLE
        self.report = self._view[:0]

    def load(self, path):
        """Read the ledger at `path`. Raises LedgerError."""
        self.close()
        try:
            with open(path, "rb") as file:
                size = file.readinto(self._bytes)
        except OSError as error:
            raise LedgerError("ledger unreadable: %s" % error)
        if size < _HEADER + _CHECK:
            raise LedgerError("ledger cut short")
        magic, budget, spent, last, question, state, reserved, n = struct.unpack_from(FIELDS, self._bytes, 0)
        end = _HEADER + n + _CHECK
        if size < end or self._check(_HEADER + n) != self._view[_HEADER + n : end]:
            raise LedgerError("ledger damaged")
        if (
            magic != MAGIC
            or not spent <= budget <= MAX_BUDGET
            or last > _MAX_ROUND
            or state > RESERVED
            or (state == RESERVED and question != _NO_QUESTION)
            or reserved
            or not (_MIN_REPORT <= n <= _MAX_REPORT if state == REPORTED else n == 0)
            or ((spent or last or question != _NO_QUESTION) if state == IDLE else not (spent and last))
        ):
            raise LedgerError("ledger inconsistent")
        self.budget = budget
        self.spent = spent
        self.round = last
        self.question = question
        self.state = state
        self.report = self._view[_HEADER : _HEADER + n]
        self.path = path

    @property
    def reserved(self):
        """Whether the file is ahead of what was released."""
        return self._until > 0

    def debit(self, round_number, question, cost, ahead=1):
        """Begin `round_number`, which asks `question` (32 bytes), and pay `cost` micro-epsilon. Raises LedgerError.

        ahead: for how many reports to pay at once, so that the later ones, and their records, need no write. Whoever
        loads the ledger after a power cut finds all of that spent, and all of these rounds over.
        """
        if cost < 1 or self.spent + cost > self.budget or not self.round < round_number <= _MAX_ROUND:
            raise LedgerError("not a debit")
        if ahead > 1:
            self._reserve(round_number, cost, ahead)
            self.spent += cost
            self.round = round_number
            self.question = question
            self.state = DEBITED
            self.report = self._view[:0]
        else:
            self._write(self.budget, self.spent + cost, round_number, question, DEBITED, b"")

    def pay(self, round_number, question, cost, report, ahead=1):
        self.debit(round_number, question, cost, ahead)
        if report:
            self.record(report)

    def _reserve(self, round_number, cost, ahead):
        spent = self.spent
        if round_number > self._until or spent + cost > self._paid:
            until = min(_MAX_ROUND, round_number + ahead - 1)
            paid = min(self.budget, spent + ahead * cost)
            self._write(self.budget, paid, until, _NO_QUESTION, RESERVED, b"")
            self.spent = spent
            self._until = until
            self._paid = paid

    def record(self, report):
        """Keep `report`, the frame that answers the round debited last. Raises LedgerError."""
        if self.state != DEBITED or not _MIN_REPORT <= len(report) <= _MAX_REPORT:
            raise LedgerError("not a report")
        if self._until:
            n = _HEADER + len(report)
            self._bytes[_HEADER:n] = report
            self.report = self._view[_HEADER:n]
            self.state = REPORTED
        else:
            self._write(self.budget, self.spent, self.round, self.question, REPORTED, report)

    def _check(self, n):
        return hashlib.sha256(self._view[:n]).digest()[:_CHECK]

    def _write(self, budget, spent, last, question, state, report):
        # Whatever goes wrong, the file at `path` is the old one or the new one, whole.
        path = self.path
        if not path:
            raise LedgerError("no ledger loaded")
        self.path = ""  # to be loaded again, unless all goes well
        n = _HEADER + len(report)
        struct.pack_into(FIELDS, self._bytes, 0, MAGIC, budget, spent, last, question, state, 0, len(report))
        self._bytes[_HEADER:n] = report
        self._bytes[n : n + _CHECK] = self._check(n)
        if self._in_place:
            self._write_over(path, self._view[: n + _CHECK])
        else:
            replace(path, self._view[: n + _CHECK])
        self.report = self._view[_HEADER:n]
        self.path = path
        self.spent = spent
        self.round = last
        self.question = question
        self.state = state

    def _write_over(self, path, data):
        try:
            if not self._file:
                self._file = open(path, "r+b")
            self._file.seek(0)
            if self._file.write(data) != len(data):
                raise OSError("short write")
            self._file.flush()
        except OSError as error:
            self.close()
            raise LedgerError("ledger not writable: %s" % error)

    def close(self):
        """Forget what was loaded."""
        self.path = ""
        self._until = self._paid = 0
        file = self._file
        self._file = None
        if file:
            try:
                file.close()
            except OSError:
                pass


def create(path, budget):
    """Make a fresh ledger with `budget` micro-epsilon for life. Raises LedgerError, also where there is one already."""
    if not 0 < budget <= MAX_BUDGET:
        raise LedgerError("budget out of bounds")
    try:
        os.stat(path)
    except OSError:
        ledger = Ledger()
        ledger.path = path
        ledger._write(budget, 0, 0, _NO_QUESTION, IDLE, b"")
        return
    raise LedgerError("there is a ledger already")


def replace(path, data):
    """Put a file that holds `data` in the place of `path`, in one step that a power cut cannot halve.

    Raises LedgerError; the old file is then still there.
    """
    new = path + ".new"
    try:
        with open(new, "wb") as file:
            if file.write(data) != len(data):
                raise OSError("short write")
            file.flush()
            if _fsync:
                _fsync(file.fileno())
        os.rename(new, path)
    except OSError as error:
        try:
            os.remove(new)
        except OSError:
            pass
        raise LedgerError("ledger not writable: %s" % error)
