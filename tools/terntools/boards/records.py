"""The records on a board, for its owner at the desk: read, removed, and put there.

See shared_specs/storage.md.
"""

import csv
import io
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from tern import recorder, storage, wire
from tern.fixed import ONE
from ternhost.errors import RefusedError, UsageError
from ternhost.provision.boards import Rows
from ternhost.text import counted
from terntools.boards.repl import FileProgress, Repl

FOLDER = "/" + recorder.SAMPLES
MOST = 0xFFFF  # records of a device
_PATH = "/" + storage.RECORDS
_ANEW = "remove them all with --clear"


@dataclass(frozen=True)
class Held:
    """The records of a board."""

    rows: Rows | None  # the oldest first; None: no records
    source: str | None  # the folder or file that holds them
    last: int = 0  # the last segment's number


@contextmanager
def opened(port: str) -> Iterator[Repl]:
    """The board on `port` at its prompt; its program restarts after.

    Raises DeviceError, RefusedError if locked.
    """
    with ExitStack() as stack:
        try:
            repl = stack.enter_context(Repl(port, visits=True))
        except RefusedError as error:
            text = f"the board on {port} is locked: its records cannot be read"
            raise RefusedError(text, error.hint) from error
        yield repl


def read(repl: Repl, progress: FileProgress | None = None) -> Held:
    """Read the board's records: its segments, or records.bin if there are none.

    Raises UsageError if they are damaged.
    """
    segments_by_number = _read_segments(repl, progress)
    if not segments_by_number:
        if _PATH not in repl.directory("/"):
            return Held(None, None)
        return Held(_provisioned(repl.read_file(_PATH)), _PATH)

    if len({rows.shape[1] for _, rows in segments_by_number}) > 1:
        raise UsageError(f"the segments on {repl.name} hold records of several sizes", hint=_ANEW)
    last_number, _ = segments_by_number[-1]
    rows = np.concatenate([rows for _, rows in segments_by_number])
    return Held(rows, FOLDER, last_number)


def _read_segments(repl: Repl, progress: FileProgress | None) -> list[tuple[int, Rows]]:
    """Read the segments that hold records: the number and the rows of each, by number."""
    sizes = repl.directory(FOLDER)
    segments_by_number: list[tuple[int, Rows]] = []
    bytes_read = 0
    for path, size in sizes.items():
        number, rows = _segment(path, repl.read_file(path))
        bytes_read += size
        if progress:
            progress(bytes_read, sum(sizes.values()))
        if len(rows):
            segments_by_number.append((number, rows))
    segments_by_number.sort(key=lambda segment: segment[0])
    return segments_by_number


def _segment(path: str, data: bytes) -> tuple[int, Rows]:
    """Return the number of a segment and its whole records; none of a file that was only begun.

    Raises UsageError for a damaged one.
    """
    if len(data) < recorder.SEGMENT_BYTES:
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
    raise UsageError(f"{_PATH} on the board is damaged", hint="provision it again: tern provision")


def _rows(data: bytes, start: int, features: int) -> Rows:
    """Return the whole records from `start` on, as an array with a row for each."""
    # A record has its features and a label, two bytes each.
    count = (len(data) - start) // (2 * features + 2)
    return np.frombuffer(data, "<i2", count * (features + 1), start).reshape(count, features + 1)


def segments(rows: Rows, last: int = 0) -> dict[str, bytes]:
    """Return files of segments that hold `rows`, by path on the board.

    last: number of the last segment that is there.
    """
    features = rows.shape[1] - 1
    records_per_segment = (recorder.SEGMENT_MOST - recorder.SEGMENT_BYTES) // (2 * features + 2)
    files = {}
    for number, start in enumerate(range(0, len(rows), records_per_segment), last + 1):
        rows_of_segment = rows[start : start + records_per_segment]
        header = struct.pack(
            recorder.SEGMENT_HEADER, recorder.SEGMENT_MAGIC, features, number, len(rows_of_segment)
        )
        # A recorder uses shorter names for its own files.
        files[f"{FOLDER}/{0x10000 + number:x}"] = header + rows_of_segment.astype("<i2").tobytes()
    return files


def csv_of(rows: Rows, *, classes: bool = False) -> str:
    """Return the records as CSV, in the form that `own.read_csv` takes: decimals in [-1, 1].

    classes: the label is the number of a class.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows.tolist():
        cells = [f"{value / ONE:.6g}" for value in row]
        if classes:
            cells[-1] = str(row[-1])
        writer.writerow(cells)
    return text.getvalue()


def check_fits(rows: Rows) -> None:
    """Raise UsageError if a device cannot hold so many records, or such large ones."""
    if not 1 <= len(rows) <= MOST or not 1 <= rows.shape[1] - 1 <= wire.MAX_DIMENSION:
        size = f"{counted(len(rows), 'record')} of {counted(rows.shape[1] - 1, 'feature')}"
        raise UsageError(
            f"a device cannot hold {size}",
            hint=f"at most {MOST} records of 1 to {wire.MAX_DIMENSION} features, the constant one "
            "included",
        )
