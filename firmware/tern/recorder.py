"""Records that the program itself collects, kept in flash in a ring of small files. See shared_specs/storage.md."""

import os
from array import array
from struct import pack, unpack

from tern.compat import const
from tern.storage import RECORDS_BYTES, RECORDS_HEADER, StorageError
from tern.wire import MAX_DIMENSION

SAMPLES = "samples"  # directory of the segments
SEGMENT_MAGIC = (
    b"TRS1"  # of a header that is otherwise that of records.bin, with the segment's number for the count
)
SEGMENT_MOST = const(4096)  # an erase block

# Before it appends LittleFS copies what the block holds already: a flush takes the longer the more that is.
_USUAL = const(1536)
_MOST = const(65535)
_FULL = const(28)  # ENOSPC

# Of a segment: its number, its records, the name of its file
_ROWS = const(1)
_NAME = const(2)


class Recorder:
    """The newest `capacity` records of `d` features (int16 Q1.14, the constant one included) and a label.

    append() keeps `hold` of them in RAM, then writes them at once; these are what a power cut can lose. Where the
    flash is full, the oldest go early.

    least: a client of fewer records answers as if it had one of zeros; flushes: writes since the program began;
    lost: records since then that the flash did not take, or that went early.
    """

    def __init__(self, d, capacity=256, hold=8, least=None):
        """No input or output yet. least: `hold` where it is None. Raises ValueError."""
        row = 2 * (d + 1)
        self.least = hold if least is None else least
        if (
            not 1 <= d <= MAX_DIMENSION
            or not 1 <= hold <= capacity <= _MOST
            or not 1 <= self.least <= capacity
            or RECORDS_BYTES + hold * row > SEGMENT_MOST
        ):
            raise ValueError(
                "d must be 1 to 128, hold and least 1 to capacity, and hold records 4,086 bytes at most"
            )
        self.d = d
        self.capacity = capacity
        self.hold = hold
        self.flushes = self.lost = 0
        self._row = row
        self._per = max(hold, (_USUAL - RECORDS_BYTES) // row // hold * hold)  # records of a segment
        self._new = array("h", bytes(hold * row))
        self._folder = None
        self._file = None  # the one that is open, of the segment _opened
        self._forget()

    def open(self, directory):
        """Find what is there; a power cut cannot have halved it. Raises StorageError, and OSError."""
        self._folder = folder = directory + "/" + SAMPLES + "/"
        self._forget()
        segments = []
        try:
            names = os.listdir(folder[:-1])
        except OSError:
            os.mkdir(folder[:-1])
            names = []
        for name in names:
            segment = [0, 1, name]
            file = self._open(segment)
            header = file.read(RECORDS_BYTES)
            segment[_ROWS] = rows = (file.seek(0, 2) - RECORDS_BYTES) // self._row
            if rows > 0:  # else it was only begun
                magic, d, segment[0] = unpack(RECORDS_HEADER, header)
                if magic != SEGMENT_MAGIC or d != self.d:
                    raise StorageError(
                        "%s%s: damaged, or not of %d features; clear() removes all" % (folder, name, self.d)
                    )
                self._total += rows
                segments.append(segment)
        segments.sort()
        self._segments = segments

    def _forget(self):
        self._shut()
        self._segments = None  # the oldest first
        self._total = self._held = 0

    @property
    def count(self):
        """How many records in flash count, capacity at most."""
        return min(self._total, self.capacity)

    def append(self, row, label):
        """Take a record: array('h') of d features, and a label: Q1.14, or the number of a class.

        Allocates nothing, but where it flushes: with every `hold`th record.
        """
        new = self._new
        d = self.d
        at = self._held * (d + 1)
        for j in range(d):
            new[at + j] = row[j]
        new[at + d] = label
        self._held += 1
        if self._held == self.hold:
            self.flush()

    def flush(self):
        """Write what is held in RAM. Where the flash takes nothing, `lost` tells. Raises StorageError before open()."""
        n = self._held
        self._held = 0
        full = False
        while n:
            try:
                if full:
                    os.remove(self._folder + self._take_oldest())
                self._write(n)
                self.flushes += 1
                n = 0
            except OSError as error:
                self._shut()
                full = error.errno == _FULL and len(self._segments) > 1
                if full:
                    self.lost += self._segments[0][_ROWS]
                else:
                    self.lost += n
                    n = 0

    def _write(self, n):
        segments = self._segments
        if segments is None:
            raise StorageError("open() comes first")
        if not segments or segments[-1][_ROWS] + n > self._per:
            # The next segment takes the file of the oldest, once none of its records counts any more. LittleFS is
            # quicker with few names that stay, and puts the new content in the place of the old one in one step.
            self._shut()
            number = segments[-1][0] + 1 if segments else 1
            name = "%x" % number
            if segments and self._total - segments[0][_ROWS] >= self.capacity:
                name = self._take_oldest()
            segments.append([number, 0, name])
        last = segments[-1]
        file = self._open(last)
        if last[_ROWS]:
            file.seek(RECORDS_BYTES + self._row * last[_ROWS])
        else:
            file.write(pack(RECORDS_HEADER, SEGMENT_MAGIC, self.d, last[0]))
        if file.write(memoryview(self._new)[: n * (self.d + 1)]) != n * self._row:
            raise OSError(_FULL)
        file.flush()
        last[_ROWS] += n
        self._total += n

    def _take_oldest(self):
        # Its records count no more. Returns the name of its file.
        _, rows, name = self._segments.pop(0)
        self._total -= rows
        return name

    def read(self, index, row):
        """Read record `index`, 0 .. count - 1, the oldest first, into the array('h') `row` of d + 1.

        Where the ring has moved on since the caller asked for count: another record. Zeros where there are fewer than
        `least`. Raises StorageError and OSError.
        """
        count = self.count
        if count < self.least:
            for j in range(len(row)):
                row[j] = 0
            return
        index = index % count + self._total - count
        for segment in self._segments:
            if index < segment[_ROWS]:
                break
            index -= segment[_ROWS]
        file = self._open(segment)
        file.seek(RECORDS_BYTES + self._row * index)
        if file.readinto(row) != self._row:
            raise StorageError("samples: cut short")

    def _open(self, segment):
        # One file for reading and writing: LittleFS shows another one nothing that comes later.
        if segment is not self._opened:
            self._shut()
            self._file = open(self._folder + segment[_NAME], "r+b" if segment[_ROWS] else "w+b")
            self._opened = segment
        return self._file

    def clear(self):
        """Remove all records, those in RAM as well. Raises OSError."""
        self._forget()
        for name in os.listdir(self._folder[:-1]):
            os.remove(self._folder + name)
        self._segments = []

    def close(self):
        """Write what is held in RAM, and close the file. The next record opens it again."""
        self.flush()
        self._shut()

    def _shut(self):
        self._opened = None
        if self._file:
            try:
                self._file.close()
            except OSError:
                pass
            self._file = None
