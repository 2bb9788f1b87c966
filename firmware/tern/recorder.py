"""Records that the program itself collects, kept in flash in a ring of small files.

See shared_specs/storage.md (samples).

The file system is LittleFS. A file holds a segment, a number of successive records. When the
newest segment is full, the file of the oldest one is used for the next. All files are there from
the first start, each in a block of its own, so that nothing that others can see, such as the room
on the flash or the heap, tells how many records there are.
"""

import os
from array import array
from struct import pack_into, unpack

from tern.compat import const
from tern.storage import StorageError
from tern.wire import MAX_DIMENSION

SAMPLES = "samples"  # directory of the segments
SEGMENT_MAGIC = b"TRS2"
SEGMENT_HEADER = (
    "<4sHIH"  # magic, d, number, records; then rows of d features and a label, int16 Q1.14
)
SEGMENT_BYTES = const(12)
SEGMENT_MOST = const(4096)  # an erase block

_START = const(6)  # int16s of the header, SEGMENT_BYTES / 2
# The least int16s of a file: LittleFS keeps a file of up to 512 bytes within its folder, and these
# are 520, which get a block of their own.
_LEAST = const(260)
_MOST = const(65535)  # records
_MOST_NUMBER = const(0x3FFFFFFE)  # of a segment: a later one has a larger number
_SPARE = const(4)  # blocks for all other files


class Recorder:
    """The newest `capacity` records of `d` features (int16 Q1.14, with the constant) and a label.

    append() writes `hold` records at once; a power cut loses those in RAM. The recorder takes 4 KiB
    of RAM. least: with fewer records, a client answers as if it held one of zeros. flushes: how
    many times records were written since the program began. lost: how many records the flash did
    not take, or did not return, since then; a report takes zeros in the place of the latter.
    patient: if True, append() leaves it to tend() to write.
    """

    def __init__(
        self, d: int, capacity: int = 256, hold: int = 8, least: "int | None" = None
    ) -> None:
        """Allocate the buffers, without input or output. Raises ValueError.

        For the parameters see the class. least: None for `hold`.
        """
        self.least = least = hold if least is None else least
        # The records that fit a block; abs() only keeps a negative d, refused below, from dividing
        # by 0.
        most = (SEGMENT_MOST - SEGMENT_BYTES) // (2 * abs(d) + 2)
        if (
            not 0 < d <= MAX_DIMENSION
            or not 0 < hold <= min(most, capacity)
            or not 0 < least <= capacity <= _MOST
        ):
            form = (
                "d must be 1 to 128, capacity at most 65535, least 1 to capacity, "
                "hold 1 to capacity and %d"
            )
            raise ValueError(form % most)

        # Records of a segment: a multiple of `hold`, since that many are written at once.
        self._most = most = min(most, capacity + hold - 1) // hold * hold
        # As many files as `capacity` records take, rounded up, and one more: the oldest one is cut
        # off when the next segment begins.
        self._files = (capacity - 1) // most + 2
        self._bytes = 2 * d + 2  # of a record
        self.d = d
        self.capacity = capacity
        self.hold = hold
        self.patient = False
        self.flushes = self.lost = 0
        # The segment that grows, as in its file: LittleFS takes six times as long to append to a
        # file as to write it.
        self._image = array("h", bytes(max(2 * _LEAST, SEGMENT_BYTES + most * self._bytes)))

        # Of each file, in the order of the ring: its name, a number; the number of its segment (a
        # later one has a larger number); and how many records it has.
        self._names = array("I", bytes(4 * self._files))
        self._numbers = array("I", bytes(4 * self._files))
        self._rows = array("H", bytes(2 * self._files))
        self._folder: "str" = None
        self._file = None  # the one at place _opened
        self._forget()

    def _forget(self):
        """Forget the files and the records, as before open()."""
        self._shut()
        self._found = False  # whether the files are known
        self._total = 0  # records in all files: _gone old ones, which no longer count,
        self.count = self._gone = 0  # and `count` valid ones
        self._at = self._number = 0  # of the newest segment: its place in the ring, and its number
        # The place of the segment of the last take(), and the number of records in older segments.
        self._taken = self._before = 0
        self._held = 0  # records in _image that are not in flash yet
        self._grown = 0  # records in _image that are; 0: the next one begins a segment

    def open(self, directory: str) -> None:
        """Find the records in `directory`, and make the files that are missing.

        Raises StorageError, and OSError.
        """
        self._forget()
        self._folder = directory + "/" + SAMPLES
        try:
            os.mkdir(self._folder)
        except OSError:  # it is there
            pass
        self._find()

    def _find(self):
        """Find the segments in the folder, and load the one that grows into `_image`.

        Files that are missing are made, and those beyond `_files` removed. Raises StorageError and
        OSError.
        """
        segments = []
        for name in os.listdir(self._folder):
            path = self._folder + "/" + name
            with open(path, "rb") as file:
                header = file.read(SEGMENT_BYTES)
                size = file.seek(0, 2)  # to the end, which tells the size
            if len(header) < SEGMENT_BYTES:  # a power cut came while the file was made
                os.remove(path)
                continue
            magic, d, number, rows = unpack(SEGMENT_HEADER, header)
            if (
                (magic, d) != (SEGMENT_MAGIC, self.d)
                or number > _MOST_NUMBER
                # A name is a number of 32 bits in hex, without zeros in front: so it is opened.
                or name.strip("0123456789abcdef")
                or name != "%x" % (int(name, 16) & 0xFFFFFFFF)
            ):
                raise StorageError(
                    "%s: damaged, or not of %d features; clear() removes all" % (path, self.d)
                )
            # The number of the segment, its records, and the file's name. After a power cut the
            # header may tell of records that the file does not have.
            segments.append(
                (number, min(rows, (size - SEGMENT_BYTES) // self._bytes), int(name, 16))
            )

        # The oldest first. There are too many if the capacity was larger before: the oldest ones
        # go.
        segments.sort()
        while len(segments) > self._files:
            os.remove("%s/%x" % (self._folder, segments.pop(0)[2]))
        # New files count as the oldest, so that they are used first.
        if len(segments) < self._files:
            segments = self._created([segment[2] for segment in segments]) + segments

        for at in range(self._files):
            self._number, self._rows[at], self._names[at] = segments[at]
            self._numbers[at] = self._number
        self._at = at
        self._set_total(sum(self._rows))
        # Load the newest segment, if it can still grow.
        try:
            file = self._open(at)
            file.seek(0)
            file.readinto(
                self._image
            )  # all of it, so that the time does not tell how many rows it has
            if self._rows[at] < self._most:
                self._grown = self._rows[at]
        except OSError:  # then the next records begin another segment
            pass
        self._shut()
        self._found = True

    def _created(self, names):
        """Make the files that are missing; return their empty segments as _find() has them.

        names: the numbers by which the existing files are named. Raises StorageError if the flash
        has no room for all of them.
        """
        image = self._image
        missing = self._files - len(names)
        block, _, _, free = os.statvfs(self._folder)[:4]
        # Each file takes a block, or more if blocks are smaller than a segment.
        if block * free < missing * max(block, 2 * len(image)) + _SPARE * block:
            raise StorageError("no room on the flash for %d records" % self.capacity)
        pack_into(SEGMENT_HEADER, image, 0, SEGMENT_MAGIC, self.d, 0, 0)
        segments: "list[tuple[int, int, int]]" = []
        for name in range(self._files):
            if name not in names and len(segments) < missing:
                with open("%s/%x" % (self._folder, name), "wb") as file:
                    file.write(memoryview(image)[:_LEAST])
                segments.append((0, 0, name))
        return segments

    def append(self, row: "array[int]", label: int) -> None:
        """Add a record: its d features (array('h')) and its label, in Q1.14 or a class's number.

        It is written to flash once there are `hold` new records, or the segment is full. Only a
        call that writes allocates memory.
        """
        # The image has the segment as int16s: the header, then rows of d features and a label.
        image = self._image
        d = self.d
        rows = self._grown + self._held
        at = _START + rows * (d + 1)
        for j in range(d):
            image[at + j] = row[j]
        image[at + d] = label
        self._held += 1
        if rows + 1 == self._most or (self._held >= self.hold and not self.patient):
            self.flush()

    def tend(self) -> None:
        """Write the records in RAM if there are `hold` of them; for a `patient` recorder.

        Raises as flush().
        """
        if self._held >= self.hold:
            self.flush()

    def flush(self) -> None:
        """Write the records in RAM; `lost` counts those that the flash does not take.

        Raises StorageError before open().
        """
        n = self._held
        self._held = 0
        if not self._folder:
            raise StorageError("open() comes first")
        try:
            if n:
                self._write(n)
                self.flushes += 1
        except (OSError, StorageError):
            self._shut()
            self.lost += n

    def _write(self, n):
        """Write the segment in `_image`, with n new records, to its file.

        Raises OSError, and StorageError if the files had to be found first.
        """
        if not self._found:
            # Finding them loads a segment into the image, over the new records.
            self._find()
            raise StorageError("what was read from the flash is written over them")
        rows = self._grown + n
        at = self._at
        number = self._number
        # A segment that begins takes the next place in the ring, the file of the oldest segment:
        # LittleFS is quicker with few names that stay.
        if not self._grown:
            at = (at + 1) % self._files
            number += 1
            if number > _MOST_NUMBER:
                raise StorageError("no larger number")

        # The whole segment is written: LittleFS keeps the old content until flush(), so that a
        # power cut leaves either the old segment or the new one.
        pack_into(SEGMENT_HEADER, self._image, 0, SEGMENT_MAGIC, self.d, number, rows)
        file = self._open(at, "r+b" if self._grown else "wb")
        file.seek(0)
        data = memoryview(self._image)[: max(_LEAST, _START + rows * (self.d + 1))]
        if file.write(data) != 2 * len(data):  # `data` counts int16s, write() bytes
            raise OSError(28)  # ENOSPC
        file.flush()

        # Only now do the new records count, and those of the oldest segment no longer.
        total = self._total + rows - self._rows[at]
        self._rows[at] = rows
        self._at = at
        self._number = self._numbers[at] = number
        self._set_total(total)
        self._grown = (
            rows % self._most
        )  # 0 if the segment is full: the next record begins another one

    def read(self, index: int, row: "array[int]") -> None:
        """Read record `index` into the array('h') `row` of d + 1 numbers.

        index: 0 .. count - 1, from the oldest on. The row is zeros if there are fewer records than
        `least`, or if the flash fails. If old records have gone since the caller saw `count`, it is
        a later record.
        """
        if self.count < self.least or self.take(index, row) < 0:
            for j in range(len(row)):
                row[j] = 0

    def take(self, index: int, row: "array[int]") -> int:
        """Read as read(), whatever `least` is; return the record's place, or -1 if the flash fails.

        A place is a number that a record keeps for ever, so that it stays in the same unit of
        privacy (arithmetic.md, Sums of units).
        """
        # The remainder keeps an index in bounds that has become too large. Then the index is
        # counted from the first record of the segment of the last take(), where the next one mostly
        # is.
        index = index % self.count + self._gone - self._before
        at = self._taken
        if not 0 <= index < self._rows[at]:
            index = self._moved(index)
            at = self._taken
        try:
            file = self._open(at)
            file.seek(SEGMENT_BYTES + self._bytes * index)
            if file.readinto(row) == self._bytes:
                # Numbers begin at 1, and a full segment has _most records.
                return (self._numbers[at] - 1) * self._most + index
        except OSError:
            self._shut()
        self.lost += 1
        return -1

    def _moved(self, index):
        """Move on to the segment that a record is in; return the record's index in that segment.

        index: the record's, counted from the first record of the segment of the last take(). It is
        negative for an older segment. Reports take records in order, so a report passes each
        segment once, however many records it takes.
        """
        rows = self._rows
        at = self._taken
        before = self._before
        while index < 0:  # to the segment before
            at = (at - 1) % self._files
            before -= rows[at]
            index += rows[at]
        while index >= rows[at]:  # to the next one
            before += rows[at]
            index -= rows[at]
            at = (at + 1) % self._files
        self._taken = at
        self._before = before
        return index

    def _set_total(self, total):
        """Note how many records the files hold; the newest `capacity` of them are valid.

        The next take() begins its search at the newest segment.
        """
        self._total = total
        self.count = min(total, self.capacity)
        self._gone = total - self.count
        self._taken = self._at
        self._before = total - self._rows[self._at]

    def work_ms(self, count: int, passes: int) -> int:
        """Return an upper bound, in ms on a Pico, on what reading records adds to a report.

        count: records of a pass. passes: how often they are read. The bound depends on public
        numbers alone (storage.md, Slot); the constants were measured.
        """
        files = self._files
        # The records may begin within a segment: one more than they fill, rounded up.
        opened = passes * min(files, (count - 1) // self._most + 2)
        # The more files a folder has, the longer one is looked for, and LittleFS looks at all to
        # find free blocks.
        return opened * (5 + (files >> 5)) + files

    def _open(self, at, mode="rb"):
        """Return the open file of the segment at place `at` of the ring; mode: as for open().

        Only one is open at a time: LittleFS shows an open file nothing that another one writes.
        """
        if at != self._opened or mode != self._mode:
            self._shut()
            self._file = open("%s/%x" % (self._folder, self._names[at]), mode)
            self._opened = at
            self._mode = mode
        return self._file

    def clear(self) -> None:
        """Remove all records, those in RAM as well. Raises OSError."""
        self._forget()
        for name in os.listdir(self._folder):
            os.remove(self._folder + "/" + name)
        self._find()

    def close(self) -> None:
        """Write the records in RAM, and close the file."""
        self.flush()
        self._shut()

    def _shut(self):
        """Close the file that is open, if any."""
        self._opened = None
        if self._file:
            try:
                self._file.close()
            except OSError:
                pass
            self._file = None
