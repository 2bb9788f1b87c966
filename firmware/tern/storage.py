"""The files of a board, as in shared_specs/storage.md.

They are read one client and one record at a time, which takes few bytes of heap.
"""

import os
import struct

from tern.compat import const
from tern.ledger import replace
from tern.wire import ROUND

CLIENTS = "clients.bin"
RECORDS = "records.bin"
FLEET = "fleet.bin"
LEDGERS = "ledger"  # directory of the ledgers, each named by ledger_name()

# id, key, largest cost of a report, budget, first record, number of records, shapes
CLIENT = "<I32sIIIHH"
CLIENT_BYTES = const(52)
RECORDS_HEADER = "<4sHI"  # magic, d, records; then rows of d features and a label, int16 Q1.14
RECORDS_BYTES = const(10)
MAGIC = b"TRD1"
FLEET_FIELDS = (
    "<4s32sIHHIHH"  # magic, key, pause (s), slot (ms), reports paid at once, epoch, records, unit
)
FLEET_MAGIC = b"TFL3"
MAX_PAUSE = const(86400)
MAX_AHEAD = const(1000)
_SHAPES = const(0xFE)  # bit i: shape i of a card (cards.md), 1 .. 7


class StorageError(Exception):
    """A file of the board is missing or inconsistent."""


def ledger_name(device):
    """Return the path of a device's ledger within the board's directory."""
    return "%s/%08x" % (LEDGERS, device)


def read_fleet(path):
    """Return (key, pause, slot, ahead, epoch, records, unit) of the fleet.bin at `path`.

    Raises StorageError for a damaged file. Without one the key is None.

    key: the fleet's, and epoch: its number.
    pause: how many seconds a client waits after a report that it paid for.
    slot: after how many ms an answer is sent; 0: at once.
    ahead: for how many reports one write of a ledger pays.
    records: how many a client uses at most; 0: all.
    unit: the number of records of a run that is protected as a whole; 0: all of the client.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return None, 0, 0, 1, 0, 0, 0
    if len(data) != struct.calcsize(FLEET_FIELDS):
        raise StorageError("%s: wrong length" % path)
    magic, key, pause, slot, ahead, epoch, records, unit = struct.unpack(FLEET_FIELDS, data)
    if magic != FLEET_MAGIC or pause > MAX_PAUSE or not 1 <= ahead <= MAX_AHEAD:
        raise StorageError("%s: damaged, or of another version" % path)
    return key, pause, slot, ahead, epoch, records, unit


def write_fleet(path, key, epoch):
    """Put another key of the fleet, and its epoch, into the fleet.bin at `path`, in one step.

    All other fields stay. Raises StorageError and LedgerError.
    """
    _, pause, slot, ahead, _, records, unit = read_fleet(path)
    replace(
        path, struct.pack(FLEET_FIELDS, FLEET_MAGIC, key, pause, slot, ahead, epoch, records, unit)
    )


class _File:
    """A file of fixed rows that is read by seeking; a subclass has _start(), which checks it."""

    def __init__(self, path):
        """Open the file at `path`. Raises StorageError if it is missing or inconsistent."""
        try:
            self._size = os.stat(path)[6]
            self._file = open(path, "rb")
        except OSError as error:
            raise StorageError("no %s (%s)" % (path, error))
        try:
            self._start()  # type: ignore[attr-defined]
        except StorageError as error:
            self.close()
            raise StorageError("%s: %s" % (path, error))

    def close(self):
        self._file.close()

    def _read(self, offset, out, n):
        """Fill `out`, n bytes, from `offset` of the file on. Raises StorageError."""
        self._file.seek(offset)
        if self._file.readinto(out) != n:
            raise StorageError("cut short")


class Clients(_File):
    """The clients of a board; find() makes one of them current, whose fields are attributes.

    first: the id of the first client; count: how many there are, with successive ids. Of the
    current one, device: its id; key; largest: the largest cost of a report; budget, both in
    millionths; start and records: the index of its first record, and their number; shapes: a bit
    for each shape of cards that it allows, 0 for all; prefix: its key, and the first five bytes of
    a ROUND for it, with which its digests of questions begin.
    """

    def __init__(self, path, most=0):
        """Open clients.bin. most: how many records of each client are used at most; 0: all.

        Raises StorageError.
        """
        self._most = most
        super().__init__(path)

    def _start(self):
        """Check the length of the file, and load the first client. Raises StorageError."""
        self._row = bytearray(CLIENT_BYTES)
        self.first = 0
        self.count = self._size // CLIENT_BYTES
        if not self.count or self._size % CLIENT_BYTES:
            raise StorageError("wrong length")
        self._load(0)
        self.first = self.device
        if not self.first:
            raise StorageError("no device id")

    def _load(self, index):
        """Load client `index` into the attributes. Raises StorageError if its entry is damaged."""
        self._read(index * CLIENT_BYTES, self._row, CLIENT_BYTES)
        self.device, self.key, self.largest, self.budget, self.start, self.records, self.shapes = (
            struct.unpack(CLIENT, self._row)
        )
        if self.shapes & ~_SHAPES or (self.first and self.device != self.first + index):
            self.device = -1  # nobody's
            raise StorageError("damaged")
        self.prefix = self.key + bytes((ROUND,)) + self._row[:4]
        if self._most and self.records > self._most:
            self.records = self._most

    def find(self, device):
        """Select a client by its device id; return False if it is none of this board.

        This object then has the fields of that client, until another one is selected, and
        `address`, the bytes with which messages for it begin. Raises StorageError.
        """
        index = device - self.first
        if not 0 <= index < self.count:
            return False
        if device != self.device:  # otherwise it was selected the last time, too
            self._load(index)
        return True


class Records(_File):
    """The records of all clients in records.bin: `count` rows of `d` features and a label.

    Opening it raises StorageError.
    """

    def _start(self):
        """Read and check the header of the file. Raises StorageError."""
        header = bytearray(RECORDS_BYTES)
        self._read(0, header, RECORDS_BYTES)
        magic, self.d, self.count = struct.unpack(RECORDS_HEADER, header)
        self._row_bytes = 2 * (self.d + 1)
        if (
            magic != MAGIC
            or not self.d
            or self._size != RECORDS_BYTES + self._row_bytes * self.count
        ):
            raise StorageError("wrong header or length")

    def read(self, index, row):
        """Read record `index` into the array('h') `row` of d + 1. Raises StorageError."""
        if not 0 <= index < self.count:
            raise StorageError("no such record")
        size = self._row_bytes
        file = self._file
        file.seek(RECORDS_BYTES + size * index)  # as _read(), without a call for each record
        if file.readinto(row) != size:
            raise StorageError("cut short")
