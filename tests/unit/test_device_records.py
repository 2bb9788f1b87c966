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


def rows(d, n):
    values = np.arange(n * (d + 1)).reshape(n, d + 1) * 37 % 32769 - 16384
    return values.astype(np.int16)


@pytest.mark.parametrize(("d", "n"), [(1, 1), (13, 145), (13, 146), (28, 300), (128, 31)])
def test_a_recorder_reads_the_segments_and_goes_on_with_them(tmp_path, d, n):
    written = rows(d, n)
    files = records.segments(written, last=9)
    assert all(len(data) <= recorder.SEGMENT_MOST for data in files.values())
    (tmp_path / recorder.SAMPLES).mkdir()
    for path, data in files.items():
        (tmp_path / path[1:]).write_bytes(data)
    book = Recorder(d, n + 8, 8, least=1)
    book.open(str(tmp_path))
    assert book.count == n
    row = np.zeros(d + 1, np.int16)
    for i in range(n):
        book.read(i, row)
        assert row.tolist() == written[i].tolist()
    for i in range(8):
        book.append([i] * d, i)
    book.close()
    files = {
        f"/samples/{path.name}": path.read_bytes() for path in (tmp_path / "samples").iterdir()
    }
    held = records.read(Files(files))
    assert held.rows.tolist() == written.tolist() + [[i] * (d + 1) for i in range(8)]
    assert held.last >= 10


def test_records_survive_a_csv(tmp_path):
    written = np.stack([np.arange(-16384, 16385), np.arange(16384, -16385, -1)], axis=1).astype(
        np.int16
    )
    path = tmp_path / "records.csv"
    path.write_text(records.csv_of(written))
    assert np.array_equal(own.read_csv(path), written)
    written = np.array([[16384, -8192, 0], [1, 2, 9]], np.int16)
    path.write_text(records.csv_of(written, classes=True))
    assert path.read_text() == "1,-0.5,0\n6.10352e-05,0.00012207,9\n"
    assert np.array_equal(own.read_csv(path, classes=True), written)


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
