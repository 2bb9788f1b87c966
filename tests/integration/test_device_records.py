"""`tern board records` writes a CSV to an emulated board, and reads its records as CSV."""

import numpy as np
import pytest
import rig

from ternhost.datasets import own
from terntools.boards import api, mpy, records
from terntools.boards.repl import Repl
from terntools.emulators import catalogue, flash_image

MODULES = ("tern", "tern.compat", "tern.ledger", "tern.recorder", "tern.storage", "tern.wire")
# Defines append(rows) on a board, as a program there adds records.
DEFINE_APPEND = """
from array import array
from tern.recorder import Recorder
def append(rows):
    book = Recorder(28)
    book.open("")
    for row in rows:
        book.append(array("h", row[:-1]), row[-1])
    book.close()
"""


def rows_of(seed, count):
    """So many records of 28 features and a label."""
    return rig.random_rows(seed, count, 28 + 1)


def recorder_files(machine):
    """The modules of a recorder, for a board."""
    sources = mpy.library(machine.processor)
    return {
        f"/lib/{mpy.file_of(name)}.mpy": mpy.compiled(sources[name], machine.processor, name)
        for name in MODULES
    }


@pytest.fixture
def port(tmp_path):
    """The port of a board with a recorder and without records."""
    flash_image.fill("rv32", tmp_path / "flash.bin", recorder_files)
    with catalogue.boot("rv32", tmp_path / "flash.bin") as machine:
        yield machine.url


def fill_board(port, path, rows):
    """Write rows to the board by `tern board records --data`; return how many it has taken."""
    path.write_text(records.csv_of(rows))
    return rig.tern("board", "records", port, "--data", path, "--json").json["filled"]


def test_a_program_goes_on_after_records_that_were_filled_in(port, tmp_path):
    """Records are the private data of a board. A user fills in 150 and then 20 from CSV files over
    the serial port, and the board's own program appends 16 more. Read back into a file, they are
    all there in this order.
    """
    first, second, appended = rows_of(1, count=150), rows_of(2, count=20), rows_of(3, count=16)
    assert fill_board(port, tmp_path / "first.csv", first) == 150
    assert fill_board(port, tmp_path / "second.csv", second) == 20
    with Repl(port) as repl:
        repl.run(f"{DEFINE_APPEND}append({appended.tolist()})")

    output = tmp_path / "all.csv"
    rig.tern("board", "records", port, "--output", output, code=0)

    expected = np.concatenate([first, second, appended])
    assert own.load(output).records().tolist() == expected.tolist()
    assert output.stat().st_mode & 0o077 == 0, "its owner alone may read it"


def test_a_program_adds_records_reads_them_and_removes_them(port, tmp_path):
    """`terntools.boards.api.records` does for a program what `tern board records` does."""
    rows = rows_of(1, count=20)
    assert api.records(port, add=rows).added == 20

    cleared = api.records(port, clear=True, output=tmp_path / "all.csv")

    assert (cleared.count, cleared.features, cleared.cleared) == (20, 28, True)
    assert own.load(tmp_path / "all.csv").records().tolist() == rows.tolist()
    assert api.records(port).count == 0
