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
    """The records of a file as a data set: labels of -1 and 1 tell two classes, with `classes`
    whole numbers from 0 on are those of several, and all others are numbers to predict. Raises
    UsageError.
    """
    try:
        names, rows = _read(path, classes)
    except UsageError as error:
        raise UsageError(
            f"no CSV file of records, or one out of range: {error}", error.hint
        ) from error
    if len(rows) < _LEAST:
        raise UsageError(f"{path} has too few records", f"{_LEAST} rows or more")
    labels = rows[:, -1]
    if not classes and has_labels_0_and_1(rows):
        raise UsageError(
            f"{path} has labels of 0 and 1", "-1 and 1 tell two classes; or use --model softmax"
        )
    task = CLASSIFICATION if np.isin(labels, (-ONE, ONE)).all() else REGRESSION
    names = names or [f"x{i}" for i in range(rows.shape[1])]
    several = tuple(map(str, range(max(2, int(labels.max()) + 1)))) if classes else ()
    each = path.name, MULTICLASS if classes else task, tuple(names[:-1]), rows[:, :-1]
    return Dataset(*each, labels, held_out(len(rows)), several)


def has_labels_0_and_1(rows: Fixed) -> bool:
    """Whether the labels are 0, or 0 and 1: not what is usual here, -1 and 1."""
    labels = set(rows[:, -1].tolist())
    return 0 in labels and labels <= {0, ONE}


def read_csv(path: str | Path, *, classes: bool = False, most: int | None = None) -> Fixed:
    """Records of a CSV file (features, then label, in [-1, 1]) as int16 Q1.14.

    Raises UsageError, which names the line.

    classes: labels are numbers of classes, from 0. most: only the first so many values of each row,
    and no fewer. A first row of names and empty lines are skipped.
    """
    return _read(path, classes, most)[1]


def _read(path: str | Path, classes: bool, most: int | None = None) -> tuple[list[str], Fixed]:
    # The names, if there are any, and the records.
    names: list[str] = []
    values: list[list[float]] = []
    try:
        # Without -sig a byte order mark would make the first row one of names.
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            for number, row in enumerate(rows, 1):
                if number == 1 and not any(map(_is_number, row)):
                    names = row
                elif row:
                    width = most or (len(values[0]) if values else None)
                    values.append(
                        _record(row[:most], f"{path}, line {rows.line_num}", width, classes)
                    )
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(
            f"{path} is no CSV file in UTF-8", hint="save it as CSV, in UTF-8"
        ) from error
    if not values:
        raise UsageError(f"{path} holds no records", hint=_ROW)
    units = np.full(len(values[0]), ONE)
    if classes:
        units[-1] = 1
    return names, np.rint(np.array(values) * units).astype(np.int16)


def _record(row: list[str], where: str, width: int | None, classes: bool) -> list[float]:
    if len(row) != (width or max(2, len(row))):
        raise UsageError(
            f"{where} must have {width or '2 or more'} values, not {len(row)}", hint=_ROW
        )
    if classes and not (row[-1].strip().isdigit() and int(row[-1]) < MAX_DIMENSION):
        number = f"the number of a class, 0 to {MAX_DIMENSION - 1}"
        raise UsageError(f"{where}: the label must be {number}, not {row[-1].strip()}")
    for cell in row[:-1] if classes else row:
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
