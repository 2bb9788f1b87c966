"""`tern board records` reads and writes the records of a board and a CSV, without a board."""

import numpy as np
import pytest

from tern import recorder, storage
from tern.recorder import Recorder
from ternhost.datasets import own
from ternhost.errors import UsageError
from terntools.boards import records


class Board:
    """Stands in for a board at its prompt."""

    name = "a0"

    def __init__(self, content):
        self.files = Files(content)


class Files:
    """Stands in for the files of a board. content: the bytes of each file by its path."""

    def __init__(self, content):
        self.content = content

    def sizes(self, path):
        folder = path.rstrip("/") + "/"
        return {name: len(data) for name, data in self.content.items() if name.startswith(folder)}

    def read(self, path):
        return self.content[path]


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
    """A board keeps its records in numbered files of limited size, segments; its Recorder appends
    to them. The host writes such segments, the Recorder reads each record back and appends eight,
    and the host reads all of them.
    """
    written = rows(features, count)
    files = records.segments(written, last=9)
    assert max(len(data) for data in files.values()) <= recorder.SEGMENT_MOST
    write_files(tmp_path, files)

    on_board = Recorder(features, count + 8, 8, least=1)  # with room for eight more
    on_board.open(str(tmp_path))
    for i in range(count):
        row = np.zeros(features + 1, np.int16)  # the features and the label
        on_board.read(i, row)
        assert row.tolist() == written[i].tolist()
    for i in range(8):
        on_board.append([i] * features, i)
    on_board.close()

    held = records.read(Board(files_in(tmp_path)))
    added = [[i] * (features + 1) for i in range(8)]
    assert held.rows.tolist() == written.tolist() + added
    assert held.last >= 10, "segments are numbered on from 9"


def test_records_survive_a_csv(tmp_path):
    rising = np.arange(-16384, 16385)  # every value of Q1.14
    written = np.stack([rising, -rising], axis=1).astype(np.int16)
    path = tmp_path / "records.csv"
    path.write_text(records.csv_of(written))
    assert np.array_equal(own.load(path).records(), written)


def test_a_torn_end_and_a_segment_that_was_only_begun_are_left_out():
    written = rows(13, 10)
    (segment,) = records.segments(written).values()
    files = {"/samples/1": segment + b"torn", "/samples/2": b"", "/samples/3": segment[:9]}
    assert records.read(Board(files)).rows.tolist() == written.tolist()
    assert records.read(Board({"/samples/2": b""})).rows is None


def test_without_a_recorder_the_records_are_read_from_records_bin():
    """A board that appends no records has them in one file: a header and a row of 16-bit integers
    for each. Files that are empty, without rows, longer than the header says, or of another format
    are refused.
    """
    written = rows(features=3, count=5)
    header = storage.MAGIC + bytes((3, 0, 5, 0, 0, 0))  # three features, five records

    held = records.read(Board({"/records.bin": header + written.tobytes()}))
    assert held.rows.tolist() == written.tolist()
    assert held.source == "/records.bin"

    for damaged in (
        b"",
        header,
        header + written.tobytes() + b"x",
        b"TRD2" + header[4:] + written.tobytes(),
    ):
        with pytest.raises(UsageError, match=r"/records[.]bin on the board is damaged"):
            records.read(Board({"/records.bin": damaged}))


def test_a_damaged_segment_is_named():
    """Segments are the numbered files in which a board keeps its records. Those of records with
    four and with five features do not belong together, and one of another format is damaged.
    """
    (of_four,) = records.segments(rows(features=4, count=3)).values()
    (of_five,) = records.segments(rows(features=5, count=3), last=1).values()

    with pytest.raises(UsageError, match="several sizes") as caught:
        records.read(Board({"/samples/1": of_four, "/samples/2": of_five}))
    assert "--clear" in caught.value.hint

    with pytest.raises(UsageError, match="/samples/7 on the board is damaged"):
        records.read(Board({"/samples/7": b"TRS1" + of_four[4:]}))
