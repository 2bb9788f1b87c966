"""The made-up raw file of the tutorial: what the reader and the description make of it."""

import runpy
import sys
from pathlib import Path

import pytest

from ternhost.datasets.schemas import describe
from ternhost.datasets.tables import reading

EXAMPLE = Path(__file__).parents[2] / "examples/air_quality.py"
HOMES, HOURS = 3, 200


def written(path, monkeypatch):
    """The path of a file that the example has written, of a few homes and hours."""
    words = [str(EXAMPLE), str(path), "--homes", str(HOMES), "--hours", str(HOURS)]
    monkeypatch.setattr(sys, "argv", words)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    return path


@pytest.fixture
def table(tmp_path, monkeypatch):
    """The table in such a file, read without any option."""
    return reading.read(written(tmp_path / "air.csv", monkeypatch))


def test_the_same_seed_writes_the_same_file(tmp_path, monkeypatch):
    one = written(tmp_path / "one.csv", monkeypatch)
    other = written(tmp_path / "other.csv", monkeypatch)
    assert one.read_bytes() == other.read_bytes()


def test_empty_lines_and_empty_last_cells_are_no_part_of_the_table(table):
    assert (len(table), table.columns[-1]) == (HOMES * HOURS, "Window")


def test_decimal_commas_are_read(table):
    humidities = table.numbers("AH", missing=["-200"])
    assert 0.3 < humidities[humidities == humidities].mean() < 2


def test_the_description_finds_the_mark_of_missing_values(table):
    assert describe.propose(table).schema.missing == ("", "-200")


def test_the_description_finds_the_label_and_all_seven_features(table):
    schema = describe.propose(table).schema
    assert (schema.label, len(schema.features)) == ("Window", 7)


def test_the_description_leaves_out_whose_records_they_are_and_when(table):
    assert describe.propose(table).schema.leave_out == ("Home", "Date", "Time")
