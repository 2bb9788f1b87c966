"""Records of a program's values: the vectors, every step of a column, what is refused, and heap."""

import json
from array import array

import scratch
from checks import raises, taken_by
from spec.columns import scaled
from vectors import cases

from tern.columns import Columns

TEMPERATURE = ["temperature", -10000, 40000, 1000, 1]
WEATHER = ["weather", ["rain", "sun", "snow"]]
LATE = ["late", ["no", "yes"]]
ONE = 16384


def columns_of(features, label=None, positive=None, missing="leave out", marks=()):
    """Columns with this schema. positive: the number of the class that is +1."""
    path = scratch.folder() + "/columns.json"
    schema = {
        "features": features,
        "label": label,
        "positive": positive,
        "missing": list(marks),
        "rows_with_missing": missing,
    }
    scratch.write(path, json.dumps(schema).encode())
    return Columns(path)


def feature_of(column, value):
    """The one feature of a value of a numeric column."""
    columns = columns_of([column])
    row = columns.row()
    assert columns.record(row, value)
    return row[0]


def record(columns, values, named):
    """Write these values into a new row."""
    return columns.record(columns.row(), *values, **named)


def test_vectors_of_records():
    for case in cases("columns.json", "records"):
        schema = case["schema"]
        parts = [
            schema[name]
            for name in ("features", "label", "positive", "rows_with_missing", "missing")
        ]
        columns = columns_of(*parts)
        row = columns.row()
        if case["result"] == "invalid":
            raises(ValueError, columns.record, row, *case["values"])
            continue
        is_complete = columns.record(row, *case["values"])
        assert is_complete == (case["record"] is not None), case["comment"]
        if is_complete:
            assert list(row) == case["record"], (case["comment"], list(row))


def test_every_whole_number_between_the_bounds_has_its_feature():
    # The bounds are one to many steps apart, below and above zero; numbers beyond them are clipped.
    for first, last in ((0, 1), (-1, 1), (-3, 4), (-700, -1), (1000, 1300), (0, 255)):
        column = ["n", first, last, 1, 1]
        columns = columns_of([column])
        row = columns.row()
        for value in range(first - 5, last + 6):
            columns.record(row, value)
            assert row[0] == scaled(value, first, last, 1, 1), (first, last, value)


def test_the_ends_of_65535_steps_are_exact():
    for first in (-65535, -32768, -1, 0, 1, 1 << 20):
        last = first + 65535
        column = ["n", first, last, 1, 1]
        values = [first - 1, first, first + 1, last - 1, last, last + 1, (first + last) // 2]
        for value in values:
            assert feature_of(column, value) == scaled(value, first, last, 1, 1), (first, value)
        assert feature_of(column, first) == -ONE
        assert feature_of(column, last) == ONE


def test_whole_numbers_are_rounded_to_the_nearest_step():
    """Where a step is 10 or more, a number half-way between two steps goes to the even one."""
    column = ["n", -30, 30, 1, 100]
    columns = columns_of([column])
    row = columns.row()
    for value in range(-3100, 3100):
        columns.record(row, value)
        assert row[0] == scaled(value, -30, 30, 1, 100), value


def test_a_float_is_at_most_one_step_off():
    """A board has single-precision floats, which hold 21.37 only nearly."""
    for column in (TEMPERATURE, ["n", -3277, 3276, 1, 10], ["n", -ONE, ONE, ONE, 1]):
        _, first, last, times, per = column
        widest = 2 * ONE // (last - first) + 1  # one step, as a feature
        columns = columns_of([column])
        row = columns.row()
        for step in range(first, last, 97):
            columns.record(row, step * per / times)
            assert abs(row[0] - scaled(step, first, last, 1, 1)) <= widest, (column, step)


def test_floats_that_are_no_numbers_are_clipped_or_missing():
    assert feature_of(TEMPERATURE, float("inf")) == ONE
    assert feature_of(TEMPERATURE, float("-inf")) == -ONE
    columns = columns_of([TEMPERATURE])
    assert not columns.record(columns.row(), float("nan"))


def test_values_come_by_name_in_any_order():
    columns = columns_of([TEMPERATURE, WEATHER], LATE, 1)
    assert columns.d == 4
    by_name, in_order, mixed = columns.row(), columns.row(), columns.row()
    assert columns.record(by_name, weather="sun", late="yes", temperature="21.5")
    assert columns.record(in_order, "21.5", "sun", "yes")
    assert columns.record(mixed, "21.5", late="yes", weather="sun")
    assert list(by_name) == list(in_order) == list(mixed)
    assert list(by_name) == [ONE, scaled("21.5", -10000, 40000, 1000, 1), -ONE, ONE, ONE]


def test_features_for_a_prediction_need_no_label():
    columns = columns_of([TEMPERATURE, WEATHER], LATE, 1)
    row, record = array("h", bytes(2 * columns.d)), columns.row()
    assert columns.features(row, 20, "rain")
    assert columns.record(record, 20, "rain", "no")
    assert list(row) == list(record)[:-1]


def test_values_that_do_not_fit_the_columns_are_refused_by_name():
    """The message names the column, or the category, also on a board, where texts are scarce."""
    columns = columns_of([TEMPERATURE, WEATHER], LATE, 1)
    for word, values, named in (
        ("humidity", (20, "sun", "no"), {"humidity": 3}),
        ("humidity", (20, "sun"), {"humidity": 3}),
        ("late", (20, "sun"), {}),
        ("weather", (20,), {"late": "no"}),
        ("fog", (20, "fog", "no"), {}),
        ("maybe", (20, "sun", "maybe"), {}),
        ("warm", ("warm", "sun", "no"), {}),
        ("temperature", ("", "sun", "no"), {}),
        ("3", (20, "sun", "no", 1), {}),
    ):
        error = raises(ValueError, record, columns, values, named)
        assert word in str(error), (word, error)
    raises(IndexError, columns.record, array("h", [0]), 20, "sun", "no")


def test_a_prediction_has_the_name_of_its_class_or_its_unit():
    two = columns_of([TEMPERATURE], LATE, 1)
    assert [two.meaning(label) for label in (-ONE, ONE)] == ["no", "yes"]
    turned = columns_of([TEMPERATURE], LATE, 0)
    assert [turned.meaning(label) for label in (-ONE, ONE)] == ["yes", "no"]
    one_of_three = columns_of([TEMPERATURE], WEATHER, 1)
    assert [one_of_three.meaning(label) for label in (-ONE, ONE)] == ["the rest", "sun"]
    three = columns_of([TEMPERATURE], WEATHER)
    assert [three.meaning(label) for label in (0, 1, 2)] == ["rain", "sun", "snow"]
    number = columns_of([WEATHER], TEMPERATURE)
    assert [number.meaning(label) for label in (-ONE, 0, ONE)] == [-10, 15, 40]
    coarse = columns_of([WEATHER], ["load", 0, 30, 1, 100])
    assert coarse.meaning(ONE) == 3000
    raises(ValueError, columns_of([WEATHER]).meaning, ONE)


def test_a_record_takes_little_memory():
    """Whole numbers and texts by their order allocate nothing but the tuple of the arguments."""
    columns = columns_of([TEMPERATURE, WEATHER], LATE, 1)
    row = columns.row()
    columns.record(row, 20, "sun", "no")
    in_order = taken_by(lambda: columns.record(row, 20, "sun", "no"))
    by_name = taken_by(lambda: columns.record(row, temperature=20, weather="sun", late="no"))
    print("a record in order:", in_order, "bytes, by name:", by_name, "bytes")
    assert in_order <= 128
    assert by_name <= 256
