"""`tern device records` on an emulated board: it reads collected records as CSV, and writes a CSV
to the board.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tern import storage
from ternhost.cli import main
from ternhost.datasets import own
from terntools.boards import deploy, mpy, records
from terntools.boards.repl import Repl
from terntools.emulators import catalogue, flash_image
from terntools.emulators.process import EmulatedMachine

Capsys = pytest.CaptureFixture[str]
_MODULES = ("tern", "tern.compat", "tern.ledger", "tern.recorder", "tern.storage", "tern.wire")
_COLLECT = """
import time
from array import array
from tern.recorder import Recorder
def row(i):
    return array("h", [(i * 31 + 7 * j) % 16385 - 8192 for j in range(D)])
def collect(first, end):
    spent = []
    for i in range(first, end):
        values = row(i)
        start = time.ticks_us()
        book.append(values, 16384 - i)
        spent.append(time.ticks_diff(time.ticks_us(), start))
    return spent[7::8]
book = Recorder(D)
book.open("")
"""


def recorder_of(machine: deploy.Machine) -> dict[str, bytes]:
    """The recorder's modules."""
    sources = mpy.library(machine.processor)
    return {
        f"/lib/{mpy.file_of(name)}.mpy": mpy.compiled(
            sources[name], machine.processor, name, optimise=True
        )
        for name in _MODULES
    }


@contextmanager
def booted(name: str, folder: Path, files: flash_image.Files) -> Iterator[EmulatedMachine]:
    """An emulated board that holds these files."""
    flash_image.fill(name, folder / "flash.bin", files)
    with catalogue.boot(name, folder / "flash.bin", skip_idle=True) as machine:
        yield machine


def collect(url: str, d: int, first: int, end: int) -> list[int]:
    with Repl(url) as repl:
        repl.run(f"D = {d}" + _COLLECT)
        spent: list[int] = repl.evaluate(f"collect({first}, {end})", timeout=300)
        repl.run("book.close()")
    return spent


def expected(d: int, first: int, end: int) -> list[list[int]]:
    return [
        [(i * 31 + 7 * j) % 16385 - 8192 for j in range(d)] + [16384 - i] for i in range(first, end)
    ]


def run(capsys: Capsys, *arguments: object) -> dict[str, object]:
    capsys.readouterr()
    assert main(["device", "records", *map(str, arguments), "--json"]) == 0
    result: dict[str, object] = json.loads(capsys.readouterr().out)
    return result


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedMachine]:
    """A board with the modules of a recorder."""
    with booted("rv32", tmp_path_factory.mktemp("recording"), recorder_of) as machine:
        yield machine


@pytest.fixture
def board(recording: EmulatedMachine) -> EmulatedMachine:
    """This board without records."""
    with Repl(recording.url) as repl:
        repl.remove_tree(records.FOLDER)
        repl.remove("/" + storage.RECORDS)
        repl.soft_reset()
    return recording


COLLECTED = 300  # appended to the Recorder; it keeps its capacity of 256 or some more


@pytest.fixture
def collected(board: EmulatedMachine) -> str:
    """The port of a board whose program has collected records of 13 features."""
    collect(board.url, 13, 0, COLLECTED)
    return board.url


def test_provisioned_records_are_printed_as_csv(board: EmulatedMachine, capsys: Capsys) -> None:
    with Repl(board.url) as repl:
        record = b"\x00\x40\x00\xe0\x00\x40"  # two features and a label
        repl.write_file("/" + storage.RECORDS, b"TRD1" + bytes((2, 0, 1, 0, 0, 0)) + record)
    assert main(["device", "records", board.url]) == 0
    printed = capsys.readouterr()
    assert printed.out == "1,-0.5,1\n"
    assert "1 record of 2 features in /records.bin" in printed.err


def test_collected_records_are_written_for_their_owner_alone(
    collected: str, tmp_path: Path, capsys: Capsys
) -> None:
    output = tmp_path / "collected.csv"
    result = run(capsys, collected, "--output", output)
    assert (result["source"], result["features"]) == ("/samples", 13)
    assert output.stat().st_mode & 0o077 == 0
    rows = own.read_csv(output).tolist()
    assert len(rows) >= 256
    assert rows == expected(13, COLLECTED - len(rows), COLLECTED)


def test_records_are_removed_filled_in_and_collected_on(
    collected: str, tmp_path: Path, capsys: Capsys
) -> None:
    run(capsys, collected, "--clear")
    assert run(capsys, collected)["records"] == 0
    filled = run(capsys, collected, "--fill", _csv(tmp_path, 28, 150))
    assert filled["filled"] == 150
    filled = run(capsys, collected, "--fill", _csv(tmp_path, 28, 20))
    assert (filled["filled"], filled["records"]) == (20, 150)
    collect(collected, 28, 0, 16)
    output = tmp_path / "collected.csv"
    run(capsys, collected, "--output", output)
    rows = own.read_csv(output).tolist()
    assert rows == expected(28, 0, 150) + expected(28, 0, 20) + expected(28, 0, 16)


def _csv(folder: Path, d: int, n: int) -> Path:
    path = folder / f"{n}.csv"
    path.write_text(records.csv_of(np.array(expected(d, 0, n), np.int16)))
    return path


@pytest.mark.parametrize(
    ("d", "mean_ms", "within_5_ms"),
    [pytest.param(13, 4, 0.85, marks=pytest.mark.exhaustive), (28, 5, 0.5)],
)
def test_a_flush_takes_a_few_milliseconds(
    tmp_path: Path, d: int, mean_ms: int, within_5_ms: float
) -> None:
    """In simulated time, the same in every run.

    In the longest ones LittleFS compacts the folder.
    """
    with booted("pico", tmp_path, recorder_of) as pico:
        spent = sorted(collect(pico.url, d, 0, 1600)[50:])
    median, mean = spent[len(spent) // 2], sum(spent) // len(spent)
    print(f"d {d}: median {median} us, mean {mean} us, longest {spent[-1]} us")
    assert median < 3_000
    assert sum(spent) < 1000 * mean_ms * len(spent)
    assert spent[int(len(spent) * within_5_ms)] < 5_000
    assert spent[-1] < 25_000
