"""The records on a board, for its owner at the desk: read, removed, and put there.

See shared_specs/storage.md.
"""

import csv
import io
import operator
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from tern import recorder, storage, wire
from tern.fixed import ONE
from ternhost.datasets import own
from ternhost.datasets.base import are_class_numbers
from ternhost.datasets.holdings import MOST_RECORDS
from ternhost.errors import RefusedError, UsageError
from ternhost.provision.boards import Rows
from ternhost.text import counted
from terntools.boards.files import FileProgress
from terntools.boards.repl import Repl

FOLDER = "/" + recorder.SAMPLES
_PATH = "/" + storage.RECORDS
_ANEW = "remove them all with --clear"


@dataclass(frozen=True)
class BoardRecords:
    """The records that a board has."""

    rows: Rows | None  # the oldest first; None: no records
    source: str | None  # the folder or file that they are in; None: no records
    last: int = 0  # the number of the last segment, the newest file of collected records


@contextmanager
def opened(port: str) -> Iterator[Repl]:
    """Stop the program of the board on `port`, and start it again when the context ends.

    Yields the board's raw REPL. Raises DeviceError, and RefusedError if the board is locked.
    """
    with ExitStack() as stack:
        try:
            repl = stack.enter_context(Repl(port, visits=True))
        except RefusedError as error:
            text = f"the board on {port} is locked: its records cannot be read"
            raise RefusedError(text, error.hint) from error
        yield repl


def read(repl: Repl, progress: FileProgress | None = None) -> BoardRecords:
    """Read the board's records.

    They are those that its program has collected, in files called segments, or else those that it
    was provisioned with, in records.bin. Raises UsageError if they are damaged.
    """
    segments_by_number = _read_segments(repl, progress)
    if not segments_by_number:
        if _PATH not in repl.files.sizes("/"):
            return BoardRecords(None, None)
        return BoardRecords(_provisioned(repl.files.read(_PATH)), _PATH)

    last_number, _ = segments_by_number[-1]
    rows_of_segments = [rows for _, rows in segments_by_number]
    widths = {rows.shape[1] for rows in rows_of_segments}
    if len(widths) > 1:
        raise UsageError(f"the segments on {repl.name} hold records of several sizes", hint=_ANEW)
    return BoardRecords(np.concatenate(rows_of_segments), FOLDER, last_number)


def _read_segments(repl: Repl, progress: FileProgress | None) -> list[tuple[int, Rows]]:
    """Read the segments of the board that have records.

    Returns the number and the records of each, sorted by number.
    """
    sizes = repl.files.sizes(FOLDER)
    total_bytes = sum(sizes.values())
    rows_by_number: list[tuple[int, Rows]] = []
    bytes_read = 0
    for path, size in sizes.items():
        number, rows = _segment(path, repl.files.read(path))
        bytes_read += size
        if progress:
            progress(bytes_read, total_bytes)
        if len(rows):
            rows_by_number.append((number, rows))
    rows_by_number.sort(key=operator.itemgetter(0))
    return rows_by_number


def _segment(path: str, data: bytes) -> tuple[int, Rows]:
    """Parse a segment, and return its number and its complete records.

    A segment is a file with a header and then records. The board may have been switched off while
    it wrote the last record, which is then left out; a file without a whole header has no records.

    path: for messages. data: the content of the file. Raises UsageError if the file is damaged.
    """
    if len(data) < recorder.SEGMENT_BYTES:  # the size of the header
        return 0, np.zeros((0, 2), np.int16)
    magic, features, number, count = struct.unpack_from(recorder.SEGMENT_HEADER, data)
    if magic != recorder.SEGMENT_MAGIC or not features:
        raise UsageError(f"{path} on the board is damaged", hint=_ANEW)
    return number, _rows(data, recorder.SEGMENT_BYTES, features)[:count]


def _provisioned(data: bytes) -> Rows:
    """Return the records in records.bin. Raises UsageError if it is damaged."""
    if len(data) >= storage.RECORDS_BYTES:
        magic, features, count = struct.unpack_from(storage.RECORDS_HEADER, data)
        # A record has its features and a label, two bytes each.
        size = storage.RECORDS_BYTES + 2 * count * (features + 1)
        if magic == storage.MAGIC and features and len(data) == size:
            return _rows(data, storage.RECORDS_BYTES, features)
    raise UsageError(
        f"{_PATH} on the board is damaged", hint="provision it again: tern board provision"
    )


def _rows(data: bytes, start: int, features: int) -> Rows:
    """Return the records in the bytes from `start` on, as an array with a row for each.

    Bytes that are less than a record are left out at the end.
    """
    columns = features + 1  # a record has its features and a label, two bytes each
    count = (len(data) - start) // (2 * columns)
    values = np.frombuffer(data, "<i2", count=count * columns, offset=start)
    return values.reshape(count, columns)


def segments(rows: Rows, last: int = 0) -> dict[str, bytes]:
    """Return segments with these records, as files by their path on the board.

    A segment is a file of a limited size, with a header and then records, as tern.recorder writes
    it. Segments are numbered from 1. last: the number of the last segment that is on the board
    already; 0 for none.
    """
    columns = rows.shape[1]  # each is a number of 2 bytes
    room_bytes = recorder.SEGMENT_MOST - recorder.SEGMENT_BYTES
    records_per_segment = room_bytes // (2 * columns)
    files = {}
    number = last
    for start in range(0, len(rows), records_per_segment):
        number += 1
        rows_of_segment = rows[start : start + records_per_segment]
        features = columns - 1
        header = struct.pack(
            recorder.SEGMENT_HEADER, recorder.SEGMENT_MAGIC, features, number, len(rows_of_segment)
        )
        # The name has five hexadecimal digits, such as 10001. A recorder gives its own files shorter
        # names, so that none of them has this one.
        path = f"{FOLDER}/{0x10000 + number:x}"
        files[path] = header + rows_of_segment.astype("<i2").tobytes()
    return files


def csv_of(rows: Rows) -> str:
    """Return records as CSV, as ternhost.datasets.own reads it: decimal numbers in [-1, 1].

    A first row names the columns. If the labels are numbers of classes, they are whole numbers.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    has_classes = are_class_numbers(rows[:, -1])
    feature_names = [f"x{number}" for number in range(rows.shape[1] - 1)]
    writer.writerow([*feature_names, own.CLASS_CODE if has_classes else "label"])
    for row in rows.tolist():
        cells = [f"{value / ONE:.6g}" for value in row]
        if has_classes:
            cells[-1] = str(row[-1])
        writer.writerow(cells)
    return text.getvalue()


def check_fits(rows: Rows) -> None:
    """Raise UsageError if a device cannot hold so many records, or such large ones."""
    features = rows.shape[1] - 1  # the last column is the label
    fits = 1 <= len(rows) <= MOST_RECORDS and 1 <= features <= wire.MAX_DIMENSION
    if not fits:
        size = f"{counted(len(rows), 'record')} of {counted(features, 'feature')}"
        raise UsageError(
            f"a device cannot hold {size}",
            hint=f"at most {MOST_RECORDS} records of 1 to {wire.MAX_DIMENSION} features, the constant one "
            "included",
        )
