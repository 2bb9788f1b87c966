"""Host and board make the same integers of the values of a column, by the same schema."""

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec import columns as spec

from tern.columns import Columns
from ternhost.datasets.own import of_table
from ternhost.datasets.schemas.schema import Categorical, Numeric, Schema, Steps
from ternhost.datasets.selection import EVERYTHING
from ternhost.datasets.tables.reading import RawTable
from ternhost.errors import UsageError

VECTORS = Path(__file__).parents[2] / "shared_specs/vectors/columns.json"
CASES = json.loads(VECTORS.read_text())
VALID_RECORDS = [case for case in CASES["records"] if case["result"] != "invalid"]
INVALID_RECORDS = [case for case in CASES["records"] if case["result"] == "invalid"]
MISSING = ""


def board_of(schema, folder):
    """The board's side of a schema, as its program opens it."""
    path = folder / "columns.json"
    path.write_bytes(schema.for_board())
    return Columns(str(path))


def column_of(entry):
    """The host's column that a board's column comes from."""
    name, *rest = entry
    if len(rest) == 1:
        return Categorical(name, tuple(rest[0]))
    first, last, times, per = rest
    return Numeric(name, Decimal(first) * per / times, Decimal(last) * per / times)


def schema_of(board_schema):
    """The schema that the columns.json of a vector comes from."""
    label, positive = board_schema["label"], board_schema["positive"]
    columns = [column_of(entry) for entry in board_schema["features"]]
    if label is not None:
        columns.append(column_of(label))
    return Schema(
        tuple(columns),
        label=label[0] if label else "",
        positive=label[1][positive] if positive is not None else "",
        missing=(MISSING, "-200", "?"),
        rows_with_missing=board_schema["rows_with_missing"],
    )


def table_of(schema, values):
    """A table whose first row has these values, and whose second row has some that are possible."""
    cells = []
    for column, value in zip(schema.columns, values, strict=True):
        possible = str(column.low) if isinstance(column, Numeric) else column.categories[0]
        cells.append([MISSING if value is None else str(value), possible])
    names = tuple(column.name for column in schema.columns)
    return RawTable("vector", names, tuple(cells), lines=(1, 2))


@pytest.mark.parametrize("case", CASES["bounds"], ids=lambda case: case["comment"])
def test_bounds_have_the_steps_of_the_vectors(case):
    column = Numeric("x", Decimal(case["low"]), Decimal(case["high"]))
    assert column.steps == Steps(case["first"], case["last"], case["times"], case["per"])


@pytest.mark.parametrize("case", VALID_RECORDS, ids=lambda case: case["comment"])
def test_a_row_of_a_table_is_the_record_of_the_vectors(case):
    schema = schema_of(case["schema"])
    own = of_table(table_of(schema, case["values"]), schema, EVERYTHING)
    expected = []
    if case["record"] is not None:
        expected.append(case["record"])
    assert own.records()[:-1].tolist() == expected


@pytest.mark.parametrize("case", INVALID_RECORDS, ids=lambda case: case["comment"])
def test_a_row_that_the_vectors_call_invalid_is_refused(case):
    schema = schema_of(case["schema"])
    with pytest.raises(UsageError):
        of_table(table_of(schema, case["values"]), schema, EVERYTHING)


@pytest.mark.parametrize("case", CASES["records"], ids=lambda case: case["comment"])
def test_a_board_gets_the_schema_of_the_vectors(case):
    assert json.loads(schema_of(case["schema"]).for_board()) == case["schema"]


@pytest.mark.parametrize(
    ("low", "high"),
    [("0", "1"), ("-1", "1"), ("-10", "40"), ("0", "65535"), ("0", "65536"), ("-3e7", "1e6")],
)
def test_host_and_board_agree_on_every_whole_number(low, high, tmp_path):
    """And on numbers a little beyond the bounds, which both clip."""
    column = Numeric("x", Decimal(low), Decimal(high))
    board = board_of(Schema((column,)), tmp_path)
    width = int(column.high - column.low)
    every = max(1, width // 20_000)
    numbers = list(range(int(column.low) - 3 * every, int(column.high) + 4 * every, every))
    row = board.row()
    for number, feature in zip(numbers, column.scale(numbers).tolist(), strict=True):
        assert board.record(row, number)
        assert row[0] == feature, number


# The low bound, and how far the high one is above it: not so close that boards cannot count.
bounds = st.tuples(st.decimals(-10_000, 10_000, places=3), st.decimals(1, 100_000, places=3))


@given(bounds, st.lists(st.floats(-3e5, 3e5), max_size=20))
@settings(max_examples=200, deadline=None)
def test_host_and_board_agree_on_floats(tmp_path_factory, low_and_width, numbers):
    """On a computer both have floats of double precision, and round alike."""
    low, width = low_and_width
    column = Numeric("x", low, low + width)
    board = board_of(Schema((column,)), tmp_path_factory.mktemp("board"))
    row = board.row()
    for number in [*numbers, float(low), float(low + width)]:
        board.record(row, number)
        assert row[0] == column.scale([number])[0]


@given(bounds, st.lists(st.decimals(-100_000, 200_000, places=4), max_size=20))
@settings(max_examples=200, deadline=None)
def test_the_host_is_at_most_one_step_from_the_exact_feature(low_and_width, numbers):
    """A table's cell becomes a double first; the specification counts with decimal numbers."""
    low, width = low_and_width
    column = Numeric("x", low, low + width)
    first, last, *_ = column.steps
    assert spec.bounds(low, low + width) == column.steps
    one_step = 2 * spec.ONE // (last - first) + 1
    scaled = column.scale([float(number) for number in numbers])
    exact = [spec.scaled(number, *column.steps) for number in numbers]
    assert (np.abs(scaled.astype(int) - exact) <= one_step).all()
