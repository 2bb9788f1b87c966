"""How experiments run: cells on any number of cores give the same rows, and finished cells are
kept.
"""

import json
import multiprocessing
import os

import pytest
from harness.cells import add, fail

from ternhost.errors import UsageError
from ternhost.planning.cells import FILE_NAME, Cell, FinishedCells, run_cells

OPTIONS = {"experiment": "sums", "seed": 1}


def cells_that_add(count):
    """Cells that add 0.5 to 0, 1, 2, ..., for two tables by turns."""
    return [Cell(f"table{i % 2}", add, {"x": i, "y": 0.5}, cost=1 + i) for i in range(count)]


def quiet(message):
    pass


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_are_in_the_order_of_their_cells_whichever_process_runs_them(workers):
    results = run_cells(cells_that_add(9), FinishedCells(None, OPTIONS), quiet, workers)
    assert [row["sum"] for row in results["table0"]] == [0.5, 2.5, 4.5, 6.5, 8.5]
    assert [row["sum"] for row in results["table1"]] == [1.5, 3.5, 5.5, 7.5]
    processes = {row["process"] for row in results["table0"] + results["table1"]}
    assert (os.getpid() in processes) == (workers == 1)
    assert not multiprocessing.active_children()


def test_a_finished_cell_is_not_run_again(tmp_path):
    """An experiment is made of cells, whose results are appended to a file. After an interruption
    only the missing ones run; a line that was cut off counts as missing.
    """
    first = run_cells(cells_that_add(3), FinishedCells(tmp_path, OPTIONS), quiet, 1)
    with (tmp_path / FILE_NAME).open("a") as file:
        file.write('{"cell": "cut o')  # by a loss of power
    messages = []
    second = run_cells(cells_that_add(4), FinishedCells(tmp_path, OPTIONS), messages.append, 2)

    assert messages == ["3 of 4 parts", "4 of 4 parts, about 0 s left"]
    assert second["table0"] == first["table0"]
    head, *lines = [json.loads(line) for line in (tmp_path / FILE_NAME).read_text().splitlines()]
    assert head == {"asked": OPTIONS}
    assert [line["cell"] for line in lines] == [cell.key for cell in cells_that_add(4)]


def test_another_experiment_in_the_same_directory_is_refused(tmp_path):
    FinishedCells(tmp_path, OPTIONS)
    with pytest.raises(UsageError, match=r"another seed \(1, not 2\)"):
        FinishedCells(tmp_path, {**OPTIONS, "seed": 2})


@pytest.mark.parametrize("workers", [1, 2])
def test_a_cell_that_fails_ends_the_experiment_and_the_others_are_kept(workers, tmp_path):
    """What the cells before have computed is on file, for the next attempt."""
    cells = [*cells_that_add(3), Cell("t", fail, {"x": 7}, cost=0.2)]
    with pytest.raises(UsageError, match="7 is wrong"):
        run_cells(cells, FinishedCells(tmp_path, OPTIONS), quiet, workers)
    assert FinishedCells(tmp_path, OPTIONS).rows.keys() >= {
        cell.key for cell in cells_that_add(3)[:1]
    }
    assert not multiprocessing.active_children()
