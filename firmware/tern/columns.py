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

# Of a numeric column: its name, then the first and the last step of its bounds, then digits.
_LOW = const(1)
_HIGH = const(2)
_DIGITS = const(3)


class Columns:
    """Makes the features of a record, and its label, of the values of a schema's columns.

    d: the number of features, the constant included.
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
        self._takes_middle = schema["missing"] == "middle"
        self.d = 1
        for i in range(self._feature_columns):
            column = self._columns[i]
            self.d += len(column[1]) - 1 if _is_categorical(column) else 1

    def row(self) -> "array[int]":
        """Return a new row for record(): d features, then the label if the schema has one."""
        return array("h", bytes(2 * self.d + (2 if self._label else 0)))

    def record(self, row: "array[int]", *values: "Value", **named: "Value") -> bool:
        """Write the record of these values into `row`; return False if it is to be left out.

        Each column of the schema has one value: a number, a text, or None if it is missing. Values
        come in the schema's order, with the label last, or by the names of their columns.

        row: array('h'), gets the constant 1, then the features in Q1.14, then the label in Q1.14 or
        as the number of its class. Raises ValueError for values that do not fit the columns, and
        IndexError if the row is too short.
        """
        count = len(self._columns)
        is_complete = self._write(row, count, values, named)
        if self._label:
            value = self._value(count - 1, count, values, named)
            if value is None:
                return False
            row[self.d] = _label_of(self._label, value)
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
        if _is_categorical(label):
            classes = label[1]
            if len(classes) == 2:
                return classes[prediction > 0]
            return classes[prediction]
        # The label's place between its bounds, from -1 to 1, becomes twice its steps.
        low = label[_LOW]
        high = label[_HIGH]
        steps = (prediction * (high - low) / _ONE + low + high) / 2
        return steps / 10 ** label[_DIGITS]

    def _write(self, row, count, values, named):
        """Write the constant and the features; return whether none is missing.

        Middle values may take the place of missing ones. count: of the values that should be there.
        """
        if len(values) + len(named) != count:
            self._refuse(count, values, named)
        is_complete = True
        row[0] = _ONE
        at = 1
        for i in range(self._feature_columns):
            column = self._columns[i]
            value = self._value(i, count, values, named)
            if value is None:
                is_complete = is_complete and self._takes_middle
            if not _is_categorical(column):
                row[at] = 0 if value is None else _scaled(column, value)
                at += 1
                continue
            chosen = -1 if value is None else _category(column, value)
            for j in range(len(column[1]) - 1):
                row[at] = 0 if value is None else _ONE if j == chosen else -_ONE
                at += 1
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
        if value != value:  # nan, which a division of sensor values may give
            return None
        return value

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


def _category(column, value):
    """Return the number of a category. Raises ValueError if the schema does not have it."""
    name = str(value)
    for number in range(len(column[1])):
        if column[1][number] == name:
            return number
    text = column[0] + " has no category " + name
    raise ValueError(text)


def _label_of(column, value):
    """Return the label: -1 or 1 (Q1.14) for two classes, else the class's number, or a number."""
    if not _is_categorical(column):
        return _scaled(column, value)
    number = _category(column, value)
    if len(column[1]) > 2:
        return number
    return _ONE if number else -_ONE


def _scaled(column, value):
    """Return a number as Q1.14: the low bound becomes -1, the high one 1; rounded down."""
    low = column[_LOW]
    high = column[_HIGH]
    step = min(max(_steps(column, value), low), high)
    return ((step - low) - (high - step)) * _ONE // (high - low)


def _steps(column, value):
    """Return the number of steps that is nearest to a value, to an even one if two are.

    Beyond the bounds it may be another number beyond them. Raises ValueError for a text that is no
    number.
    """
    if isinstance(value, str):
        value = _number(column, value)
    low = column[_LOW]
    high = column[_HIGH]
    digits = column[_DIGITS]
    power = 10 ** abs(digits)
    if isinstance(value, int):
        return _steps_of_integer(value, low, high, -power if digits < 0 else power)
    steps = value / power if digits < 0 else value * power
    # Round only what is within the bounds: an infinite number cannot be rounded.
    if steps >= high:
        return high
    return low if steps <= low else round(steps)


def _steps_of_integer(value, low, high, power):
    """Return what _steps() does for an int, exactly.

    power: how many steps there are in 1, or if it is negative, how many times 1 is in a step.
    """
    if power < 0:
        steps = value // -power
        rest = value + steps * power
        # If it is exactly half a step, the even neighbour is nearest.
        return steps + (2 * rest + (steps & 1) > -power)
    if value > high // power:
        return high
    if value < -(-low // power):  # low / power rounded up
        return low
    return value * power


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
