"""How experiments run: cells on any number of cores give the same rows, and finished cells are
kept.
"""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest
from harness.cells import add, fail

from ternhost.cli import main
from ternhost.errors import StorageError, UsageError
from ternhost.planning.cells import KEPT, Cell, Kept, tables

OPTIONS = {"experiment": "sums", "seed": 1}


def sums(count):
    return [Cell(f"table{i % 2}", add, {"x": i, "y": 0.5}, cost=1 + i) for i in range(count)]


def quiet(message):
    pass


def test_rows_are_in_the_order_of_their_cells_whichever_process_runs_them(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    before = dict(os.environ)
    here, beside = (tables(sums(9), Kept(None, OPTIONS), quiet, workers) for workers in (1, 2))
    expected = {"table0": [0.5, 2.5, 4.5, 6.5, 8.5], "table1": [1.5, 3.5, 5.5, 7.5]}
    for results in (here, beside):
        assert {name: [row["sum"] for row in rows] for name, rows in results.items()} == expected
    assert {row["process"] for rows in here.values() for row in rows} == {os.getpid()}
    assert os.getpid() not in {row["process"] for rows in beside.values() for row in rows}
    assert {row["threads"] for rows in beside.values() for row in rows} == {
        "1"
    }  # of linear algebra in each
    assert dict(os.environ) == before
    assert not multiprocessing.active_children()


def test_a_finished_cell_is_not_run_again(tmp_path):
    messages = []
    first = tables(sums(4)[:3], Kept(tmp_path, OPTIONS), quiet, 1)
    with (tmp_path / KEPT).open("a") as file:
        file.write('{"cell": "cut o')  # by a loss of power
    second = tables(sums(4), Kept(tmp_path, OPTIONS), messages.append, 2)
    assert second["table0"] == first["table0"]
    assert messages == ["3 of 4 parts", "4 of 4 parts, about 0 s left"]
    lines = [json.loads(line) for line in (tmp_path / KEPT).read_text().splitlines()]
    assert lines[0] == {"asked": OPTIONS}
    assert [line["cell"] for line in lines[1:]] == [cell.key for cell in sums(4)]
    assert tables(sums(4), Kept(tmp_path, OPTIONS), quiet, 1) == second
    changed = tables([Cell("table0", add, {"x": 0, "y": 3})], Kept(tmp_path, OPTIONS), quiet, 1)
    assert [row["sum"] for row in changed["table0"]] == [3], "other arguments are another cell"


def test_another_experiment_in_the_same_directory_is_refused(tmp_path):
    Kept(tmp_path, OPTIONS)
    with pytest.raises(UsageError, match=r"another seed \(1, not 2\)"):
        Kept(tmp_path, {**OPTIONS, "seed": 2})
    with pytest.raises(UsageError, match=r"another tern \(None, not 2\)"):
        Kept(tmp_path, {**OPTIONS, "tern": 2})
    head = json.dumps({"asked": {**OPTIONS, "tern": 2}})
    (tmp_path / KEPT).write_text(head + "\n")
    with pytest.raises(UsageError, match=r"another tern \(2, not None\)"):
        Kept(tmp_path, OPTIONS)
    rows = ('\n{"cell": "t", "rows": 5}', '\n{"cell": "t", "rows": [5]}')
    for wrong in ("[1]", '{"asked": null}', *(head + row for row in rows)):
        (tmp_path / KEPT).write_text(wrong + "\n")
        with pytest.raises(UsageError, match="not a record"):
            Kept(tmp_path, OPTIONS)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        Kept(tmp_path / "file" / "below", OPTIONS)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_cell_that_fails_ends_the_experiment_and_the_others_are_kept(workers, tmp_path):
    cells = [*sums(3), Cell("t", fail, {"x": 7}, cost=0.2), Cell("t", fail, {"x": 7}, cost=0.1)]
    with pytest.raises(UsageError, match="7 is wrong") as caught:
        tables(cells, Kept(tmp_path, OPTIONS), quiet, workers)
    assert caught.value.hint == "take another"
    assert Kept(tmp_path, OPTIONS).rows.keys() >= {cell.key for cell in sums(3)[:1]}
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_an_interrupted_experiment_goes_on_and_leaves_no_process(tmp_path):
    path = tmp_path / "out" / KEPT
    words = [
        "experiment",
        "zhao",
        "--figure",
        "9",
        "--dataset",
        "synthetic-logistic",
        "--quick",
        "--runs",
        "3",
        "--output",
        str(path.parent),
    ]

    def interrupted(number, lines):
        """The exit code and the messages of a run that got this signal after this number of lines."""
        command = [sys.executable, "-m", "ternhost", *words, "--workers", "2"]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        end_at = time.monotonic() + 60
        while not path.exists() or path.read_bytes().count(b"\n") < lines:
            assert time.monotonic() < end_at
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(number)
        _, messages = process.communicate(
            timeout=60
        )  # the pipe closes when its last process has ended
        return process.returncode, messages

    code, messages = interrupted(signal.SIGINT, 3)
    assert code == 130
    assert f"--output {path.parent} to resume" in messages
    assert "Traceback" not in messages
    first = path.read_bytes()
    first = first[: first.rindex(b"\n") + 1]
    interrupted(signal.SIGKILL, first.count(b"\n") + 2)
    second = path.read_bytes()
    assert second.startswith(first)
    assert main([*words, "--workers", "1"]) == 0
    assert path.read_bytes().startswith(second[: second.rindex(b"\n") + 1])
    assert (path.parent / "figure.png").exists()
