"""What `tern device records` makes of files of a board and of a CSV, without a board."""

import numpy as np
import pytest

from tern import recorder, storage
from tern.recorder import Recorder
from ternhost.cli import main
from ternhost.errors import USAGE, UsageError
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


def on_board(files, folder):
    (folder / recorder.SAMPLES).mkdir()
    for path, data in files.items():
        (folder / path[1:]).write_bytes(data)


@pytest.mark.parametrize(("d", "n"), [(1, 1), (13, 145), (13, 146), (28, 300), (128, 31)])
def test_segments_are_what_a_recorder_reads(tmp_path, d, n):
    wanted = rows(d, n)
    files = records.segments(wanted, last=9)
    assert all(len(data) <= recorder.SEGMENT_MOST for data in files.values())
    on_board(files, tmp_path)
    book = Recorder(d, n + 8, 8, least=1)
    book.open(str(tmp_path))
    assert book.count == n
    row = np.zeros(d + 1, np.int16)
    for i in range(n):
        book.read(i, row)
        assert row.tolist() == wanted[i].tolist()
    for i in range(8):
        book.append([i] * d, i)
    book.close()
    files = {f"/samples/{path.name}": path.read_bytes() for path in (tmp_path / "samples").iterdir()}
    held = records.read(Files(files))
    assert held.rows.tolist() == wanted.tolist() + [[i] * (d + 1) for i in range(8)]
    assert held.last >= 10


def test_a_csv_of_records_is_read_as_the_same(tmp_path):
    wanted = np.stack([np.arange(-16384, 16385), np.arange(16384, -16385, -1)], axis=1).astype(np.int16)
    path = tmp_path / "records.csv"
    path.write_text(records.csv_of(wanted))
    assert np.array_equal(records.read_csv(path), wanted)
    wanted = np.array([[16384, -8192, 0], [1, 2, 9]], np.int16)
    path.write_text(records.csv_of(wanted, classes=True))
    assert path.read_text() == "1,-0.5,0\n6.10352e-05,0.00012207,9\n"
    assert np.array_equal(records.read_csv(path, classes=True), wanted)


def test_a_torn_end_and_a_file_that_was_only_begun():
    wanted = rows(13, 10)
    (segment,) = records.segments(wanted).values()
    held = records.read(
        Files({"/samples/1": segment + b"torn", "/samples/2": b"", "/samples/3": segment[:9]})
    )
    assert held.rows.tolist() == wanted.tolist()
    assert records.read(Files({"/samples/2": b""})).rows is None


def test_records_bin_where_no_program_collects():
    wanted = rows(3, 5)
    header = storage.MAGIC + bytes((3, 0, 5, 0, 0, 0))
    held = records.read(Files({"/records.bin": header + wanted.tobytes()}))
    assert held.rows.tolist() == wanted.tolist()
    assert held.source == "/records.bin"
    for bad in (b"", header, header + wanted.tobytes() + b"x", b"TRD2" + header[4:] + wanted.tobytes()):
        with pytest.raises(UsageError, match=r"/records[.]bin on the board is damaged"):
            records.read(Files({"/records.bin": bad}))


def test_damaged_segments_are_named():
    (four,) = records.segments(rows(4, 3)).values()
    (five,) = records.segments(rows(5, 3), last=1).values()
    with pytest.raises(UsageError, match="several sizes") as caught:
        records.read(Files({"/samples/1": four, "/samples/2": five}))
    assert "--clear" in caught.value.hint
    with pytest.raises(UsageError, match="/samples/7 on the board is damaged"):
        records.read(Files({"/samples/7": b"TRS2" + four[4:]}))


def test_a_csv_that_fits_no_board_is_refused_before_any_board_is_asked(tmp_path, capsys):
    path = tmp_path / "records.csv"
    path.write_text("1,2\n")
    assert main(["device", "records", "/dev/none", "--fill", str(path)]) == USAGE
    assert "values must be in [-1, 1], not 2" in capsys.readouterr().err
    path.write_text(",".join(["0"] * 130) + "\n")
    assert main(["device", "records", "/dev/none", "--fill", str(path)]) == USAGE
    assert "1 records of 129 features do not fit a device" in capsys.readouterr().err
