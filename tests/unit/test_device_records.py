"""`tern device records` reads and writes the records of a board and a CSV, without a board."""

import numpy as np
import pytest

from tern import recorder, storage
from tern.recorder import Recorder
from ternhost.datasets import own
from ternhost.errors import UsageError
from terntools.boards import records


class Files:
    """Stands in for a board at its prompt: files by their paths."""

    name = "a0"

    def __init__(self, files):
        self.files = files

    def directory(self, path):
        folder = path.rstrip("/") + "/"
        return {name: len(data) for name, data in self.files.items() if name.startswith(folder)}

    def read_file(self, path):
        return self.files[path]


def rows(features, count):
    """So many different records of features and a label, Q1.14."""
    size = features + 1
    values = np.arange(count * size).reshape(count, size) * 37 % 32769 - 16384
    return values.astype(np.int16)


def write_files(directory, files):
    """Write the files of a board, by their absolute paths, into a directory."""
    for path, data in files.items():
        target = directory / path.removeprefix("/")
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(data)


def files_in(directory):
    """The files of samples in a directory, by their absolute paths on a board."""
    return {f"/samples/{path.name}": path.read_bytes() for path in directory.glob("samples/*")}


@pytest.mark.parametrize(
    ("features", "count"),
    [(1, 1), (13, 145), (13, 146), (128, 31)],
    ids=["one record", "a full segment", "one more", "the widest records"],
)
def test_a_recorder_reads_written_segments_and_goes_on_after_them(tmp_path, features, count):
    written = rows(features, count)
    files = records.segments(written, last=9)
    assert max(len(data) for data in files.values()) <= recorder.SEGMENT_MOST
    write_files(tmp_path, files)

    book = Recorder(features, count + 8, 8, least=1)
    book.open(str(tmp_path))
    for i in range(count):
        row = np.zeros(features + 1, np.int16)
        book.read(i, row)
        assert row.tolist() == written[i].tolist()
    for i in range(8):
        book.append([i] * features, i)
    book.close()

    held = records.read(Files(files_in(tmp_path)))
    added = [[i] * (features + 1) for i in range(8)]
    assert held.rows.tolist() == written.tolist() + added
    assert held.last >= 10, "segments are numbered on from 9"


def test_records_survive_a_csv(tmp_path):
    rising = np.arange(-16384, 16385)  # every value of Q1.14
    written = np.stack([rising, -rising], axis=1).astype(np.int16)
    path = tmp_path / "records.csv"
    path.write_text(records.csv_of(written))
    assert np.array_equal(own.read_csv(path), written)


def test_a_torn_end_and_a_segment_that_was_only_begun_are_left_out():
    written = rows(13, 10)
    (segment,) = records.segments(written).values()
    files = {"/samples/1": segment + b"torn", "/samples/2": b"", "/samples/3": segment[:9]}
    assert records.read(Files(files)).rows.tolist() == written.tolist()
    assert records.read(Files({"/samples/2": b""})).rows is None


def test_without_a_recorder_the_records_are_read_from_records_bin():
    written = rows(3, 5)
    header = storage.MAGIC + bytes((3, 0, 5, 0, 0, 0))
    held = records.read(Files({"/records.bin": header + written.tobytes()}))
    assert held.rows.tolist() == written.tolist()
    assert held.source == "/records.bin"
    for bad in (
        b"",
        header,
        header + written.tobytes() + b"x",
        b"TRD2" + header[4:] + written.tobytes(),
    ):
        with pytest.raises(UsageError, match=r"/records[.]bin on the board is damaged"):
            records.read(Files({"/records.bin": bad}))


def test_a_damaged_segment_is_named():
    (four,) = records.segments(rows(4, 3)).values()
    (five,) = records.segments(rows(5, 3), last=1).values()
    with pytest.raises(UsageError, match="several sizes") as caught:
        records.read(Files({"/samples/1": four, "/samples/2": five}))
    assert "--clear" in caught.value.hint
    with pytest.raises(UsageError, match="/samples/7 on the board is damaged"):
        records.read(Files({"/samples/7": b"TRS1" + four[4:]}))
