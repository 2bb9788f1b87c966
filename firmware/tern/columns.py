"""Records made of a program's values by the schema of its data, with the integers of the host.

The schema is a file columns.json in the board's directory (shared_specs/storage.md). `tern board
deploy --schema` makes it from the schema that describes the data of the fleet. How a value becomes
features is specified in shared_specs/arithmetic.md (Columns).

No number exceeds the 31 bits of MicroPython's small ints, as long as the bounds and the step of a
column fit them: a value is clipped before it is multiplied. What is then scaled is the difference
of its distances from both bounds, below 2**16 in size, and 2**14 times that is below 2**30.
"""

import json
from array import array

from tern.compat import TYPE_CHECKING, const

if TYPE_CHECKING:
    Value = int | float | str | None

_ONE = const(16384)

# Of a numeric column: its name, its bounds in steps, and how a value is counted in steps, which is
# value * times / per; one of the two is 1.
_LOW = const(1)
_HIGH = const(2)
_TIMES = const(3)
_PER = const(4)

_REST = "the rest"  # stands for all classes but the positive one, as on the host


class Columns:
    """Makes the features of a record, and its label, of the values of a schema's columns.

    If the schema has no label, the records are made to collect from: a column of categories is one
    feature then, the number of the category. d: the number of features.
    """

    def __init__(self, path: str = "columns.json") -> None:
        """Read the schema. Raises OSError if there is none, and ValueError for a damaged one.

        path: the default is in the directory in which programs of boards start.
        """
        with open(path, "rb") as file:
            schema = json.load(file)
        # The columns of features come first, and then that of the label, if there is one.
        self._columns = schema["features"]
        self._feature_columns = len(self._columns)
        self._label = schema["label"]
        if self._label:
            self._columns.append(self._label)
        self._positive = schema["positive"]  # the number of the class that is +1, or None
        self._missing = schema["missing"]  # numbers and texts that stand for a missing value
        self._takes_middle = schema["rows_with_missing"] == "middle"
        self._codes = 0  # where the numbers of categories begin, if there is no label
        self.d = 1 if self._label else 0
        for i in range(self._feature_columns):
            column = self._columns[i]
            if not _is_categorical(column):
                self._codes += 1
                self.d += 1
            elif self._label:
                self.d += len(column[1]) - 1  # a feature for each category but the last
            else:
                self.d += 1

    def row(self) -> "array[int]":
        """Return a new row for record(): d features, and then a label, which is 0 if there is none."""
        return array("h", bytes(2 * self.d + 2))

    def record(self, row: "array[int]", *values: "Value", **named: "Value") -> bool:
        """Write the record of these values into `row`; return False if it is to be left out.

        Each column of the schema has one value: a number, a text, or None if it is missing. Values
        come in the schema's order, with the label last, or by the names of their columns.

        row: array('h'), gets the constant 1, then the features in Q1.14, then the label in Q1.14 or
        as the number of its class. Without a label, it gets the numbers in Q1.14, and then the
        numbers of categories. Raises ValueError for values that do not fit the columns, and
        IndexError if the row is too short.
        """
        count = len(self._columns)
        is_complete = self._write(row, count, values, named)
        if self._label:
            value = self._value(count - 1, count, values, named)
            if value is None:
                return False
            row[self.d] = self._label_of(value)
        return is_complete

    def features(self, row: "array[int]", *values: "Value", **named: "Value") -> bool:
        """Write the features of these values into `row`, for a prediction, and no label.

        Otherwise as record(), but the label has no value.
        """
        return self._write(row, self._feature_columns, values, named)

    def meaning(self, prediction: int) -> "str | float":
        """Return what a label, or a prediction of the model, stands for.

        It is the name of a class, or a number in the unit of the label's column. Raises ValueError
        if the schema has no label.
        """
        label = self._label
        if not label:
            text = "the schema has no label"
            raise ValueError(text)
        if not _is_categorical(label):
            # The label's place between its bounds, from -1 to 1, becomes twice its steps.
            low = label[_LOW]
            high = label[_HIGH]
            steps = (prediction * (high - low) / _ONE + low + high) / 2
            return steps * label[_PER] / label[_TIMES]
        classes = label[1]
        positive = self._positive
        if positive is None:
            return classes[prediction]
        if prediction > 0:
            return classes[positive]
        return classes[1 - positive] if len(classes) == 2 else _REST

    def _write(self, row, count, values, named):
        """Write the features; return whether none is missing.

        The middle may take the place of a missing one. count: of the values that should be there.
        """
        if len(values) + len(named) != count:
            self._refuse(count, values, named)
        is_complete = True
        at = 0
        at_code = self._codes
        if self._label:
            row[0] = _ONE
            at = 1
        for i in range(self._feature_columns):
            column = self._columns[i]
            value = self._value(i, count, values, named)
            if value is None and not self._takes_middle:
                is_complete = False
            if not _is_categorical(column):
                row[at] = 0 if value is None else _scaled(column, value)
                at += 1
                continue
            code = -1 if value is None else _category(column, value)
            if self._label:
                at = _write_category(row, at, code, len(column[1]) - 1)
                continue
            # The number of a category has no middle.
            is_complete = is_complete and code >= 0
            row[at_code] = code
            at_code += 1
        return is_complete

    def _value(self, index, count, values, named):
        """Return the value of a column, None if it is missing. Raises ValueError if it has none.

        index: of the column. count: of the values that should be there.
        """
        if index < len(values):
            value = values[index]
        elif self._columns[index][0] in named:
            value = named[self._columns[index][0]]
        else:
            self._refuse(count, values, named)
        if value is None or value != value:  # nan, which a division of sensor values may give
            return None
        for mark in self._missing:
            if _is_same(value, mark):
                return None
        return value

    def _label_of(self, value):
        """Return the label of a value: -1 or 1 if one class is positive, a class's number, or Q1.14."""
        if not _is_categorical(self._label):
            return _scaled(self._label, value)
        number = _category(self._label, value)
        if self._positive is None:
            return number
        return _ONE if number == self._positive else -_ONE

    def _refuse(self, count, values, named):
        """Raise ValueError that says which value is one too many, or which one lacks.

        count: of the values that should be there.
        """
        names = [column[0] for column in self._columns[:count]]
        for name in named:
            if name not in names:
                text = "there is no column " + name
                raise ValueError(text)
        for name in names[len(values) :]:
            if name not in named:
                text = "there is no value for " + name
                raise ValueError(text)
        text = "there are only %d columns" % count
        raise ValueError(text)


def _is_categorical(column):
    return len(column) == 2


def _write_category(row, at, code, count):
    """Write `count` features of a category into row[at:]; return the index behind them.

    code: the number of the category; -1 if it is missing: then the features are in the middle.
    """
    for j in range(count):
        if code < 0:
            row[at] = 0
        else:
            row[at] = _ONE if j == code else -_ONE
        at += 1
    return at


def _is_same(value, other):
    """Return whether two values are the same text, or the same number, such as "1" and "1.0"."""
    if value == other:
        return True
    if not isinstance(value, str) and not isinstance(other, str):
        return False
    try:
        return float(value) == float(other)
    except ValueError:  # one of them is no number
        return False


def _category(column, value):
    """Return the number of a category. Raises ValueError if the schema does not have it."""
    categories = column[1]
    name = str(value)
    for number in range(len(categories)):
        if categories[number] == name:
            return number
    for number in range(len(categories)):
        if _is_same(categories[number], name):
            return number
    text = column[0] + " has no category " + name
    raise ValueError(text)


def _scaled(column, value):
    """Return a number as Q1.14: the low bound becomes -1, the high one 1; rounded down."""
    low = column[_LOW]
    high = column[_HIGH]
    steps = min(max(_steps(column, value), low), high)
    return ((steps - low) - (high - steps)) * _ONE // (high - low)


def _steps(column, value):
    """Return the number of steps that is nearest to a value, to an even one if two are.

    Beyond the bounds it may be another number beyond them. Raises ValueError for a text that is no
    number.
    """
    if isinstance(value, str):
        value = _number(column, value)
    low = column[_LOW]
    high = column[_HIGH]
    times = column[_TIMES]
    per = column[_PER]
    if not isinstance(value, int):
        steps = value * times / per
        # Round only what is within the bounds: an infinite number cannot be rounded.
        if steps >= high:
            return high
        return low if steps <= low else round(steps)
    if per > 1:
        steps = value // per
        rest = value - steps * per
        # If it is exactly half a step, the even neighbour is nearest.
        return steps + (2 * rest + (steps & 1) > per)
    # Compare before multiplying, so that the product stays a small int.
    if value > high // times:
        return high
    return low if value < -(-low // times) else value * times  # -(-a // b) is a / b rounded up


def _number(column, text):
    """Return the number that a text has. Raises ValueError."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        text = column[0] + " is no number: " + text
        raise ValueError(text)
