"""Schemas: what is refused and on which line, what is written and read again, and the scaling."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ternhost.datasets.own import of_table
from ternhost.datasets.schemas.schema import Categorical, Numeric, Schema
from ternhost.datasets.selection import EVERYTHING
from ternhost.datasets.tables import reading
from ternhost.errors import UsageError

ONE = 16384
TEXT = """label = "weather"
held_out = 0.2

[columns.temperature]
low = -10
high = 40
unit = "°C"

[columns.weather]
categories = ["rain", "sun"]
"""
TABLE = "temperature,weather\n-10,rain\n15,sun\n40,sun\n"


def schema_of(folder, text):
    """The schema in a file my.toml of this text."""
    path = folder / "my.toml"
    path.write_text(text, encoding="utf-8", newline="")
    return Schema.read(path)


def table_of(folder, text):
    path = folder / "my.csv"
    path.write_text(text)
    return reading.read(path)


# What is refused

WRONG = {
    "text as bound": ("low = -10", 'low = "-10"', 5),
    "truth value as bound": ("low = -10", "low = true", 5),
    "date as bound": ("low = -10", "low = 2026-11-29", 5),
    "nan as bound": ("low = -10", "low = nan", 5),
    "infinite bound": ("low = -10", "low = -inf", 5),
    "bound beyond all floats": ("high = 40", "high = 1e400", 5),
    "bound of a huge exponent": ("high = 40", "high = 1e99999999999999999999", 6),
    "bound of 5,000 digits": ("high = 40", f"high = {'9' * 5000}", 6),
    "low above high": ("low = -10", "low = 41", 5),
    "low equal to high": ("low = -10", "low = 40", 5),
    "bounds that no board can count": ("high = 40", "high = 900000000000000", 5),
    "no high bound": ("high = 40\n", "", 4),
    "unknown key of a column": ("high = 40", "hihg = 40", 6),
    "bounds beside categories": ('["rain", "sun"]', '["rain", "sun"]\nlow = 0', 11),
    "unit that is a number": ('unit = "°C"', "unit = 3", 7),
    "computed that is a number": ('unit = "°C"', "computed = 1", 7),
    "column without a table": ("[columns.temperature]", "[columns]\ntemperature = 3", 5),
    "unknown key": ("label =", "lable =", 1),
    "label that is no text": ('label = "weather"', "label = 2026-11-29", 1),
    "label that is no column": ('label = "weather"', 'label = "wind"', 1),
    "positive that is no class": ("held_out = 0.2", 'positive = "snow"', 2),
    "held-out of everything": ("held_out = 0.2", "held_out = 1", 2),
    "held-out truth value": ("held_out = 0.2", "held_out = true", 2),
    "held-out nan": ("held_out = 0.2", "held_out = nan", 2),
    "missing that is no list": ("held_out = 0.2", 'missing = "?"', 2),
    "category that is missing": ("held_out = 0.2", 'missing = ["sun"]', 10),
    "rows with missing": ("held_out = 0.2", 'rows_with_missing = "drop"', 2),
    "column that is also left out": ("held_out = 0.2", 'leave_out = ["temperature"]', 2),
    "categories twice": ('"rain", "sun"', '"sun", "sun"', 10),
    "categories of the same number": ('"rain", "sun"', "1, 1.0", 10),
    "categories that are truth values": ('"rain", "sun"', "true, false", 10),
    "categories that are dates": ('"rain", "sun"', "2026-11-29, 2026-11-30", 10),
    "categories that are lists": ('"rain", "sun"', '["rain"], ["sun"]', 10),
    "categories that are no list": ('["rain", "sun"]', '"rain"', 10),
    "single category": ('"rain", "sun"', '"rain"', 10),
    "200 categories": ('"rain", "sun"', ", ".join(map(str, range(200))), 10),
    "no TOML": ("low = -10", "low = = 10", 5),
    "deep lists": ("low = -10", f"low = {'[' * 50_000}", 5),
    "key twice": ("high = 40", "high = 40\nhigh = 41", 7),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_schema_is_refused_with_its_file_and_line(kind, tmp_path):
    part, other, line = WRONG[kind]
    assert part in TEXT
    with pytest.raises(UsageError, match=rf"my\.toml.*\bline {line}\b"):
        schema_of(tmp_path, TEXT.replace(part, other, 1))


def test_a_bound_with_a_decimal_comma_is_refused_with_what_to_write(tmp_path):
    with pytest.raises(UsageError) as refusal:
        schema_of(tmp_path, TEXT.replace("high = 40", "high = 40,5", 1))
    assert "decimal points" in refusal.value.hint


def test_a_schema_without_columns_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"my\.toml"):
        schema_of(tmp_path, "")


def test_a_schema_whose_only_column_is_the_label_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"my\.toml"):
        schema_of(tmp_path, 'label = "a"\n[columns.a]\ncategories = ["x", "y"]\n')


def test_a_schema_of_too_many_features_names_the_column_that_is_too_much(tmp_path):
    text = "".join(f"[columns.c{i}]\nlow = 0\nhigh = 1\n" for i in range(128))
    label = 'label = "y"\n[columns.y]\ncategories = ["a", "b"]\n'
    with pytest.raises(UsageError, match=r"line 385\b"):  # 3 for each column, and 3 before
        schema_of(tmp_path, label + text)


def test_a_schema_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "my.toml").write_bytes(TEXT.encode("utf-16"))
    with pytest.raises(UsageError, match=r"my\.toml"):
        Schema.read(tmp_path / "my.toml")


@pytest.mark.parametrize("key", ["device", "time"])
def test_a_column_that_the_table_does_not_have_is_named_with_its_line(key, tmp_path):
    schema = schema_of(tmp_path, TEXT.replace("held_out = 0.2", f'{key} = "home"'))
    with pytest.raises(UsageError, match=r"my\.toml, line 2: .*'home'"):
        of_table(table_of(tmp_path, TABLE), schema, EVERYTHING)


def test_a_feature_that_the_table_does_not_have_is_named_with_its_line(tmp_path):
    schema = schema_of(tmp_path, TEXT)
    with pytest.raises(UsageError, match=r"my\.toml, line 4: .*'temperature'"):
        of_table(table_of(tmp_path, TABLE.replace("temperature", "t")), schema, EVERYTHING)


def test_a_cell_that_is_no_category_is_named_with_its_line_and_column(tmp_path):
    schema = schema_of(tmp_path, TEXT)
    with pytest.raises(UsageError, match=r"my\.csv, line 3, column weather: 'snow'") as caught:
        of_table(table_of(tmp_path, TABLE.replace("15,sun", "15,snow")), schema, EVERYTHING)
    assert "add 'snow' to them (my.toml, line 10)" in caught.value.hint


# What is read


@pytest.mark.parametrize("text", ["\ufeff" + TEXT, TEXT.replace("\n", "\r\n"), "# ä\n" + TEXT])
def test_marks_of_editors_change_nothing(text, tmp_path):
    assert schema_of(tmp_path, text) == schema_of(tmp_path, TEXT)


def test_a_device_column_may_also_be_a_feature(tmp_path):
    schema = schema_of(tmp_path, TEXT.replace("held_out = 0.2", 'device = "temperature"'))
    own = of_table(table_of(tmp_path, TABLE), schema, EVERYTHING)
    assert own.owner_names == ("-10", "15", "40")


def test_categories_may_be_numbers(tmp_path):
    schema = schema_of(tmp_path, TEXT.replace('"rain", "sun"', "1, 2.0"))
    own = of_table(table_of(tmp_path, "temperature,weather\n0,1.0\n0,2\n"), schema, EVERYTHING)
    assert own.labels.tolist() == [0, 1]


def test_the_positive_class_may_be_a_number(tmp_path):
    text = TEXT.replace('"rain", "sun"', "1.0, 2").replace("held_out = 0.2", "positive = 1")
    assert schema_of(tmp_path, text).class_names == ("2", "1.0")


@pytest.mark.parametrize(
    "table",
    ["[columns.temperature]", "[ columns . temperature ]  # x", '[columns."temperature"]'],
)
def test_the_line_of_a_column_is_found_however_its_table_is_written(table, tmp_path):
    schema = schema_of(tmp_path, TEXT.replace("[columns.temperature]", table))
    assert schema.line_of("temperature", "high") == "my.toml, line 6"


def test_the_line_of_a_column_in_dotted_keys_is_found(tmp_path):
    text = 'columns."a b".low = 0\ncolumns."a b".high = 1\n'
    assert schema_of(tmp_path, text).line_of("a b", "high") == "my.toml, line 2"


def test_a_missing_category_has_features_of_0_if_rows_with_missing_values_stay(tmp_path):
    text = 'label = "y"\nrows_with_missing = "middle"\n[columns.y]\nlow = 0\nhigh = 1\n'
    text += '[columns.c]\ncategories = ["a", "b", "c"]\n'
    own = of_table(table_of(tmp_path, "c,y\na,0\n,1\n"), schema_of(tmp_path, text), EVERYTHING)
    assert own.features.tolist() == [[ONE, ONE, -ONE], [ONE, 0, 0]]


# What is written

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
BOUNDS = st.integers(-(10**9), 10**9).map(lambda number: Decimal(number).scaleb(-4))


@st.composite
def numeric_columns(draw, name="t"):
    low, high = sorted((draw(BOUNDS), draw(BOUNDS)))
    assume(low < high)
    try:
        return Numeric(name, low, high, draw(TEXTS), draw(st.booleans()))
    except UsageError:  # bounds that no board can count
        assume(False)


@st.composite
def schemas(draw):
    names = draw(st.lists(TEXTS, min_size=3, max_size=5, unique=True))
    label = Categorical(names[0], ("a\x7f", 'b"', "c\n"), draw(st.booleans()))
    left_out, *features = names[1:]
    columns = [draw(numeric_columns(name)) for name in features]
    return Schema(
        (*columns, label),
        label=names[0],
        positive=draw(st.sampled_from(["", 'b"'])),
        device=draw(st.sampled_from(["", left_out])),
        time=draw(st.sampled_from(["", left_out])),
        held_out=draw(st.none() | st.floats(1e-9, 0.999)),
        missing=draw(st.sampled_from([(), ("",), ("?", "-200")])),
        rows_with_missing=draw(st.sampled_from(["leave out", "middle"])),
        leave_out=(left_out,),
    )


@given(schema=schemas())
def test_a_schema_that_is_written_is_read_as_the_same(schema, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "written.toml"
    schema.write(path)
    assert Schema.read(path) == schema


@given(schema=schemas())
def test_comments_change_nothing_in_a_schema(schema):
    text = schema.toml({(): ["a note\nof two lines"]})
    assert Schema.of_text(text) == schema


# Scaling


@given(column=numeric_columns(), values=st.lists(st.floats(-1e6, 1e6), min_size=2))
def test_scaling_is_monotone(column, values):
    assert (np.diff(column.scale(np.sort(values)).astype(int)) >= 0).all()


@given(column=numeric_columns(), values=st.lists(st.floats(allow_nan=False)))
def test_scaled_values_lie_from_minus_1_to_1(column, values):
    assert (np.abs(column.scale(values).astype(int)) <= ONE).all()


@given(column=numeric_columns())
def test_bounds_that_are_whole_numbers_of_steps_become_minus_1_and_1(column):
    steps = column.steps
    for bound, step in ((column.low, steps.low), (column.high, steps.high)):
        assume(bound * steps.times / steps.per == step)
    assert column.scale([float(column.low), float(column.high)]).tolist() == [-ONE, ONE]


@given(column=numeric_columns())
def test_every_number_of_a_column_fits_a_small_int_of_a_board(column):
    assert max(map(abs, column.steps)) < 2**30
    assert column.steps.high - column.steps.low < 2**16


def test_bounds_may_be_numbers_of_any_type():
    assert Numeric("x", -10, 0.1) == Numeric("x", Decimal(-10), Decimal("0.1"))


@pytest.mark.parametrize("bound", ["warm", None, float("nan")])
def test_a_bound_that_is_no_number_is_refused(bound):
    with pytest.raises(UsageError):
        Numeric("x", 0, bound)
