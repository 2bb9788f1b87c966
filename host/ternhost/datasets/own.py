"""A data set in a CSV file of one's own: rows as `tern provision --records` takes them, features and then the label."""

import csv
from pathlib import Path

import numpy as np

from ternhost.datasets.base import CLASSIFICATION, MULTICLASS, REGRESSION, Dataset, held_out, to_fixed
from ternhost.errors import UsageError

_LEAST = 50  # records, of which a tenth judges models


def own(path: Path, *, classes: bool = False) -> Dataset:
    """The records of a file: labels of -1 and 1 tell two classes, with `classes` whole numbers from 0 on are those of
    several, and all others are numbers to predict. A first row of names is skipped. Raises UsageError."""
    hint = f"{_LEAST} rows or more, each of features and then the label, in [-1, 1]"
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
        named = bool(rows) and not any(cell.strip().lstrip("+-.")[:1].isdigit() for cell in rows[0])
        values = np.array(rows[named:], np.float64)
    except (OSError, ValueError, csv.Error) as error:
        raise UsageError(f"{path} is no CSV file of records: {error}", hint) from error
    if values.ndim != 2 or len(values) < _LEAST or values.shape[1] < 2:
        raise UsageError(f"{path} has too few records, or no features", hint)
    features, labels = values[:, :-1], values[:, -1]
    whole = bool(np.isin(labels, np.arange(128)).all())
    if not np.abs(features).max() <= 1 or (not whole if classes else not np.abs(labels).max() <= 1):
        raise UsageError(f"{path} has values that are out of range", hint)
    task = CLASSIFICATION if np.isin(labels, (-1, 1)).all() else REGRESSION
    if not classes and whole and task == REGRESSION:
        raise UsageError(
            f"{path} has labels of 0 and 1", "-1 and 1 tell two classes; or name --model softmax"
        )
    names = tuple(rows[0][:-1]) if named else tuple(f"x{i}" for i in range(features.shape[1]))
    each = path.name, MULTICLASS if classes else task, names, to_fixed(features)
    several = tuple(map(str, range(max(2, int(labels.max()) + 1)))) if classes else ()
    codes = labels.astype(np.int16) if classes else to_fixed(labels)
    return Dataset(*each, codes, held_out(len(values)), several)
