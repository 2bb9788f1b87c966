"""`tern device records`: it reads the records of an emulated board as CSV, and writes a CSV to it."""

from contextlib import contextmanager

import numpy as np
import pytest
import rig

from tern import storage
from ternhost.datasets import own
from terntools.boards import mpy, records
from terntools.boards.repl import Repl
from terntools.emulators import catalogue, flash_image

MODULES = ("tern", "tern.compat", "tern.ledger", "tern.recorder", "tern.storage", "tern.wire")
# Appends records of D features; returns the microseconds of each that is flushed: every eighth.
COLLECT = """
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


def expected(d, first, end):
    """The rows that `collect` appends: features, and a label."""
    return [
        [(i * 31 + 7 * j) % 16385 - 8192 for j in range(d)] + [16384 - i] for i in range(first, end)
    ]


def recorder_files(machine):
    """The modules of a recorder, for a board."""
    sources = mpy.library(machine.processor)
    files = {}
    for name in MODULES:
        compiled = mpy.compiled(sources[name], machine.processor, name, optimise=True)
        files[f"/lib/{mpy.file_of(name)}.mpy"] = compiled
    return files


@contextmanager
def booted(name, folder):
    """The port of an emulated board with a recorder."""
    flash_image.fill(name, folder / "flash.bin", recorder_files)
    with catalogue.boot(name, folder / "flash.bin", skip_idle=True) as machine:
        yield machine.url


def collect(url, d, first, end):
    """Append these rows on a board; return the microseconds of each flush."""
    with Repl(url) as repl:
        repl.run(f"D = {d}" + COLLECT)
        spent = repl.evaluate(f"collect({first}, {end})", timeout=300)
        repl.run("book.close()")
    return spent


def device_records(url, *words):
    return rig.tern("device", "records", url, *words, "--json").json


def csv_file(folder, d, count):
    path = folder / f"{count}.csv"
    path.write_text(records.csv_of(np.array(expected(d, 0, count), np.int16)))
    return path


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    with booted("rv32", tmp_path_factory.mktemp("recording")) as url:
        yield url


@pytest.fixture
def board(port):
    """The port of a board without records."""
    with Repl(port) as repl:
        repl.remove_tree(records.FOLDER)
        repl.remove("/" + storage.RECORDS)
        repl.soft_reset()
    return port


def test_a_program_goes_on_after_records_that_were_filled_in(board, tmp_path):
    for count in (150, 20):
        filled = device_records(board, "--fill", csv_file(tmp_path, 28, count))
        assert filled["filled"] == count
    collect(board, 28, 0, 16)
    output = tmp_path / "collected.csv"
    device_records(board, "--output", output)
    rows = own.read_csv(output).tolist()
    assert rows == expected(28, 0, 150) + expected(28, 0, 20) + expected(28, 0, 16)
