"""Reads the records of a user's CSV file: rows of features and then the label, in [-1, 1]."""

import csv
import math
from pathlib import Path

import numpy as np

from tern.fixed import ONE
from tern.wire import MAX_DIMENSION
from ternhost.datasets.base import CLASSIFICATION, MULTICLASS, REGRESSION, Dataset, Fixed, held_out
from ternhost.errors import UsageError

CLASS = "class"  # names the last column of a file whose labels are numbers of classes
_LEAST = 50  # the fewest records of a data set, of which a tenth judges models
_ROW = "a row is a record: its features, then its label"


def own(path: Path, *, classes: bool = False) -> Dataset:
    """Load a CSV file of records as a data set.

    classes: whether labels are whole numbers of classes, from 0. Without it, labels of -1 and 1
    alone tell two classes, and any others are numbers to predict. Raises UsageError.
    """
    try:
        names, rows = _read(path, classes)
    except UsageError as error:
        text = f"the records cannot be used: {error}"
        raise UsageError(text, error.hint) from error
    if len(rows) < _LEAST:
        raise UsageError(f"{path} has too few records", f"{_LEAST} rows or more")
    if not classes and has_labels_0_and_1(rows):
        hint = "write -1 and 1 for two classes, or use --model softmax"
        raise UsageError(f"{path} has labels of 0 and 1", hint)

    if not names:
        names = [f"x{i}" for i in range(rows.shape[1])]
    features = rows[:, :-1]
    labels = rows[:, -1]
    task = REGRESSION
    class_names: list[str] = []
    if classes:
        task = MULTICLASS
        count = max(2, int(labels.max()) + 1)
        class_names = [str(number) for number in range(count)]
    elif np.isin(labels, (-ONE, ONE)).all():
        task = CLASSIFICATION
    return Dataset(
        name=path.name,
        task=task,
        feature_names=tuple(names[:-1]),
        features=features,
        labels=labels,
        held_out=held_out(len(rows)),
        classes=tuple(class_names),
    )


def has_labels_0_and_1(rows: Fixed) -> bool:
    """Return whether all labels are 0 or 1, and some are 0.

    Two classes have the labels -1 and 1 here. So such a file was probably made for other programs.
    """
    labels = set(rows[:, -1].tolist())
    return 0 in labels and labels <= {0, ONE}


def has_class_numbers(path: str | Path) -> bool:
    """Return whether the labels in a CSV file of records are numbers of classes, from 0.

    They are if the last column is named "class", or if a label is a whole number above 1, which no
    other label may be. The result is False for a file that `read_csv` refuses.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            labels = [row[-1].strip() for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error):
        return False
    is_named_class = bool(labels) and labels[0] == CLASS
    return is_named_class or any(label.isdecimal() and int(label) > 1 for label in labels)


def read_csv(path: str | Path, *, classes: bool = False, most: int | None = None) -> Fixed:
    """Read the records of a CSV file as integers: a row for each, Q1.14, the label last.

    The file has values in [-1, 1]; a first row of names and empty lines are skipped. classes:
    whether labels are numbers of classes, from 0. most: how many values of each row are read; every
    row must have as many. None: all values, and every row must have as many as the first. Raises
    UsageError, which names the line.
    """
    _, rows = _read(path, classes, most)
    return rows


def _read(path: str | Path, classes: bool, most: int | None = None) -> tuple[list[str], Fixed]:
    """Return the names in the first row, if it has any, and the records of a CSV file.

    The arguments are those of `read_csv`.
    """
    names: list[str] = []
    records: list[list[float]] = []
    width = most  # how many values a row must have; None until the first row says it
    try:
        # Without -sig a byte order mark would make the first row one of names.
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            for number, row in enumerate(rows, 1):
                has_numbers = any(_is_number(cell) for cell in row)
                if number == 1 and not has_numbers:
                    names = row
                elif row:
                    where = f"{path}, line {rows.line_num}"
                    record = _record(row[:most], where, width, classes)
                    records.append(record)
                    width = len(record)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        text = f"{path} is no CSV file in UTF-8"
        raise UsageError(text, hint="save it as CSV, in UTF-8") from error
    if not records:
        raise UsageError(f"{path} holds no records", hint=_ROW)

    factors = np.full(len(records[0]), ONE)  # from real numbers to Q1.14
    if classes:
        factors[-1] = 1  # the label is a whole number already
    return names, np.rint(np.array(records) * factors).astype(np.int16)


def _record(row: list[str], where: str, width: int | None, classes: bool) -> list[float]:
    """Return the values of a row of a CSV file, after checking them.

    where: file and line, for messages. width: how many values there must be; None: 2 or more.
    classes: whether the label is the number of a class. Raises UsageError.
    """
    fits = len(row) == width
    expected = f"{width}"
    if width is None:
        fits = len(row) >= 2
        expected = "2 or more"
    if not fits:
        text = f"{where} must have {expected} values, not {len(row)}"
        raise UsageError(text, hint=_ROW)

    cells_in_range = row  # those that must be in [-1, 1]
    if classes:
        *cells_in_range, label = row
        is_class = label.strip().isdigit() and int(label) < MAX_DIMENSION
        if not is_class:
            number = f"the number of a class, 0 to {MAX_DIMENSION - 1}"
            raise UsageError(f"{where}: the label must be {number}, not {label.strip()}")
    for cell in cells_in_range:
        if not _is_number(cell):
            raise UsageError(f"{where}: {cell!r} is not a number", hint=_ROW)
        if abs(float(cell)) > 1:
            hint = "scale each feature by bounds that you fix beforehand"
            raise UsageError(f"{where}: values must be in [-1, 1], not {cell.strip()}", hint)
    return [float(cell) for cell in row]


def _is_number(cell: str) -> bool:
    """Return whether a text is a number, and not nan."""
    try:
        return not math.isnan(float(cell))
    except ValueError:
        return False
