"""Records that the program itself collects, kept in flash in a ring of small files. See shared_specs/storage.md."""

import os
from array import array
from struct import pack_into, unpack

from tern.compat import TYPE_CHECKING, const
from tern.storage import RECORDS_BYTES, RECORDS_HEADER, StorageError
from tern.wire import MAX_DIMENSION

if TYPE_CHECKING:
    from typing import Any

SAMPLES = "samples"  # directory of the segments
SEGMENT_MAGIC = b"TRS1"  # of a header like that of records.bin, with the segment's number for the count
SEGMENT_MOST = const(4096)  # an erase block

_START = const(5)  # int16s of the header
_MOST = const(65535)
_FULL = const(28)  # ENOSPC

# A segment: its number, its records, the path of its file
_ROWS = const(1)
_PATH = const(2)


class Recorder:
    """The newest `capacity` records of `d` features (int16 Q1.14, the constant one included) and a label. RAM: 4 KiB.

    append() writes `hold` records at once; a power cut loses those in RAM. If the flash is full, the oldest go early.
    least: with fewer records, a client answers as if it held one of zeros. flushes: writes since the program began.
    lost: records since then that went early, or that the flash did not take.
    """

    def __init__(self, d: int, capacity: int = 256, hold: int = 8, least: "int | None" = None) -> None:
        """Do no input or output yet. least: None for `hold`. Raises ValueError."""
        self.least = least = hold if least is None else least
        most = (SEGMENT_MOST - RECORDS_BYTES) // (2 * abs(d) + 2)
        if (
            not 0 < d <= MAX_DIMENSION
            or not 0 < hold <= min(most, capacity)
            or not 0 < least <= capacity <= _MOST
        ):
            form = (
                "d must be 1 to 128, capacity at most 65535, least 1 to capacity, hold 1 to capacity and %d"
            )
            raise ValueError(form % most)
        self._most = min(most, capacity + hold - 1) // hold * hold  # records of a segment
        self._bytes = 2 * d + 2  # of a record
        self.d = d
        self.capacity = capacity
        self.hold = hold
        self.flushes = self.lost = 0
        # The segment that grows, as in its file: LittleFS takes six times as long to append to a file as to write it.
        self._image = array("h", bytes(RECORDS_BYTES + self._most * self._bytes))
        self._folder: "str" = None
        self._file = None  # that of the segment _opened
        self._forget()

    def _forget(self):
        self._shut()
        self._segments = None  # the oldest first
        self._total = 0  # records in them
        self._rows = self._held = 0  # records in _image that are in flash, and that are not yet

    def open(self, directory: str) -> None:
        """Find the records in `directory`. Raises StorageError, and OSError."""
        self._forget()
        self._folder = folder = directory + "/" + SAMPLES
        segments = []
        total = 0
        try:
            os.mkdir(folder)
        except OSError:  # it is there
            pass
        for name in os.listdir(folder):
            segment: "list[Any]" = [0, 1, folder + "/" + name]
            file = self._open(segment)
            segment[_ROWS] = rows = (file.seek(0, 2) - RECORDS_BYTES) // self._bytes
            if rows > 0:  # else it was only begun
                file.seek(0)
                magic, d, segment[0] = unpack(RECORDS_HEADER, file.read(RECORDS_BYTES))
                if magic != SEGMENT_MAGIC or d != self.d:
                    form = "%s: damaged, or not of %d features; clear() removes all"
                    raise StorageError(form % (segment[_PATH], self.d))
                total += rows
                segments.append(segment)
        segments.sort()
        while segments and total - segments[0][_ROWS] > self.capacity:  # it was larger
            total -= segments[0][_ROWS]
            os.remove(segments.pop(0)[_PATH])
        if segments:
            last = segments[-1]
            rows = last[_ROWS]
            if rows + self.hold <= self._most:
                self._rows = rows
                file = self._open(last)
                file.seek(0)
                file.readinto(memoryview(self._image)[: _START + rows * (self.d + 1)])
        self._shut()
        self._total = total
        self._segments = segments

    @property
    def count(self) -> int:
        return min(self._total, self.capacity)

    def append(self, row: "array[int]", label: int) -> None:
        """Take a record of d features (array('h')); label: Q1.14, or a class. Only every `hold`th call allocates."""
        image = self._image
        d = self.d
        at = _START + (self._rows + self._held) * (d + 1)
        for j in range(d):
            image[at + j] = row[j]
        image[at + d] = label
        self._held += 1
        if self._held == self.hold:
            self.flush()

    def flush(self) -> None:
        """Write the records in RAM; `lost` counts those that do not fit. Raises StorageError before open()."""
        n = self._held
        self._held = 0
        while n:
            try:
                self._write(n)
                self.flushes += 1
                return
            except OSError as error:
                self._shut()
                if error.errno != _FULL or len(self._segments) < 2:
                    self.lost += n
                    return
            oldest = self._take_oldest()
            self.lost += oldest[_ROWS]
            try:
                os.remove(oldest[_PATH])
            except OSError:
                pass

    def _write(self, n):
        segments = self._segments
        if segments is None:
            raise StorageError("open() comes first")
        if not segments or (not self._rows and segments[-1][_ROWS]):
            # The next segment takes the file of the oldest one: LittleFS is quicker with few names that stay.
            number = segments[-1][0] + 1 if segments else 1
            path = "%s/%x" % (self._folder, number)
            if segments and self._total - segments[0][_ROWS] >= self.capacity:
                path = self._take_oldest()[_PATH]
            segments.append([number, 0, path])
        last = segments[-1]
        rows = self._rows + n
        pack_into(RECORDS_HEADER, self._image, 0, SEGMENT_MAGIC, self.d, last[0])
        file = self._open(last, "r+b" if last[_ROWS] else "wb")
        file.seek(0)
        data = memoryview(self._image)[: _START + rows * (self.d + 1)]
        if file.write(data) != 2 * len(data):
            raise OSError(_FULL)
        file.flush()
        last[_ROWS] = rows
        self._total += n
        self._rows = rows if rows + self.hold <= self._most else 0

    def _take_oldest(self):
        # Its records count no more.
        oldest = self._segments.pop(0)
        self._total -= oldest[_ROWS]
        return oldest

    def read(self, index: int, row: "array[int]") -> None:
        """Read record `index`, 0 .. count - 1, the oldest first, into the array('h') `row` of d + 1.

        Below `least` records it is zeros; it is a later one if the oldest have gone. Raises StorageError and OSError.
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
        file.seek(RECORDS_BYTES + self._bytes * index)
        if file.readinto(row) != self._bytes:
            raise StorageError("samples: cut short")

    def _open(self, segment, mode="rb"):
        # One at a time: LittleFS shows an open file nothing that another one writes.
        if segment is not self._opened or mode != self._mode:
            self._shut()
            self._file = open(segment[_PATH], mode)
            self._opened = segment
            self._mode = mode
        return self._file

    def clear(self) -> None:
        """Remove all records, those in RAM as well. Raises OSError."""
        self._forget()
        for name in os.listdir(self._folder):
            os.remove(self._folder + "/" + name)
        self._segments = []

    def close(self) -> None:
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
