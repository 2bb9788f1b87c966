"""Records in a CSV file of one's own: rows of features and then the label, in [-1, 1]."""

import csv
import math
from pathlib import Path

import numpy as np

from tern.fixed import ONE
from tern.wire import MAX_DIMENSION
from ternhost.datasets.base import CLASSIFICATION, MULTICLASS, REGRESSION, Dataset, Fixed, held_out
from ternhost.errors import UsageError

_LEAST = 50  # records of a data set: a tenth of them judges models
_ROW = "a row is a record: its features, then its label"


def own(path: Path, *, classes: bool = False) -> Dataset:
    """The records of a file as a data set.

    Labels of -1 and 1 tell two classes; with `classes`, whole numbers from 0 on are those of
    several; all others are numbers to predict. Raises UsageError.
    """
    try:
        names, rows = _read(path, classes)
    except UsageError as error:
        text = f"no CSV file of records, or one out of range: {error}"
        raise UsageError(text, error.hint) from error
    if len(rows) < _LEAST:
        raise UsageError(f"{path} has too few records", f"{_LEAST} rows or more")
    if not classes and has_labels_0_and_1(rows):
        hint = "-1 and 1 tell two classes; or use --model softmax"
        raise UsageError(f"{path} has labels of 0 and 1", hint)

    if not names:
        names = [f"x{i}" for i in range(rows.shape[1])]
    features, labels = rows[:, :-1], rows[:, -1]
    task = REGRESSION
    class_names: tuple[str, ...] = ()
    if classes:
        task = MULTICLASS
        count = max(2, int(labels.max()) + 1)
        class_names = tuple(str(number) for number in range(count))
    elif np.isin(labels, (-ONE, ONE)).all():
        task = CLASSIFICATION
    return Dataset(
        name=path.name,
        task=task,
        feature_names=tuple(names[:-1]),
        features=features,
        labels=labels,
        held_out=held_out(len(rows)),
        classes=class_names,
    )


def has_labels_0_and_1(rows: Fixed) -> bool:
    """Whether the labels are 0, or 0 and 1: not what is usual here, -1 and 1."""
    labels = set(rows[:, -1].tolist())
    return 0 in labels and labels <= {0, ONE}


def read_csv(path: str | Path, *, classes: bool = False, most: int | None = None) -> Fixed:
    """Records of a CSV file (features, then label, in [-1, 1]) as int16 Q1.14.

    classes: labels are numbers of classes, from 0. most: only the first so many values of each row,
    and no fewer. A first row of names and empty lines are skipped. Raises UsageError, which names
    the line.
    """
    _, rows = _read(path, classes, most)
    return rows


def _read(path: str | Path, classes: bool, most: int | None = None) -> tuple[list[str], Fixed]:
    """The names, if there are any, and the records, as `read_csv`."""
    names: list[str] = []
    records: list[list[float]] = []
    width = most
    try:
        # Without -sig a byte order mark would make the first row one of names.
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            for number, row in enumerate(rows, 1):
                if number == 1 and not any(map(_is_number, row)):
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
    units = np.full(len(records[0]), ONE)
    if classes:
        units[-1] = 1
    return names, np.rint(np.array(records) * units).astype(np.int16)


def _record(row: list[str], where: str, width: int | None, classes: bool) -> list[float]:
    """The values of a row. width: how many there must be; None: 2 or more. Raises UsageError."""
    fits = len(row) >= 2 if width is None else len(row) == width
    if not fits:
        text = f"{where} must have {width or '2 or more'} values, not {len(row)}"
        raise UsageError(text, hint=_ROW)
    if classes and not (row[-1].strip().isdigit() and int(row[-1]) < MAX_DIMENSION):
        number = f"the number of a class, 0 to {MAX_DIMENSION - 1}"
        raise UsageError(f"{where}: the label must be {number}, not {row[-1].strip()}")
    numbers = row[:-1] if classes else row
    for cell in numbers:
        if not _is_number(cell):
            raise UsageError(f"{where}: {cell!r} is not a number", hint=_ROW)
        if abs(float(cell)) > 1:
            hint = "scale each feature by bounds that you fix beforehand"
            raise UsageError(f"{where}: values must be in [-1, 1], not {cell.strip()}", hint)
    return [float(cell) for cell in row]


def _is_number(cell: str) -> bool:
    try:
        return not math.isnan(float(cell))
    except ValueError:
        return False
