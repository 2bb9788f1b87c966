"""Public rows: the features of records, without labels, that are nobody's secret."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tern.fixed import ONE
from ternhost.datasets import Dataset, Indices
from ternhost.datasets.base import CONSTANT
from ternhost.datasets.own import read_csv
from ternhost.errors import UsageError
from ternhost.learn.parameters import Floats
from ternhost.text import counted

HELP = (
    "public rows without labels: a CSV file of the records' features, a number of public rows of the data set, and "
    "after these of records that no device gets, or none"
)
METAVAR = "FILE|N|none"


@dataclass(frozen=True)
class PublicRows:
    """rows: n x d real numbers, None without any. reserved: positions in the data set of those that
    are its records. name: in words.
    """

    rows: Floats | None = None
    reserved: Indices = field(default_factory=lambda: np.arange(0))
    name: str = ""


def named(text: str, dataset: Dataset | None, d: int, seed: int) -> PublicRows:
    """The public rows of d features each that `METAVAR` stands for. Raises UsageError."""
    if text in ("", "none"):
        return PublicRows()
    if not text.isdecimal():
        constant = dataset is None or dataset.feature_names[0] == CONSTANT
        return PublicRows(_enough(read(Path(text), d, constant), d), name=f"the rows of {text}")
    if dataset is None:
        raise UsageError("--public needs a file where only the devices know the records")
    order = np.random.default_rng([seed, 7]).permutation(dataset.training)
    reserved = np.append(dataset.public, order[: len(order) // 3])[: int(text)]
    rows = _enough(dataset.features[reserved] / ONE, d)
    return PublicRows(rows, reserved, f"{len(rows):,} public rows of {dataset.name}")


def _enough(rows: Floats, d: int) -> Floats:
    """Raises UsageError for fewer rows than features: no second moment of these."""
    if len(rows) < d:
        raise UsageError(
            f"{counted(len(rows), 'public row')} for {d} features",
            f"{d} or more, better 300, or none",
        )
    return rows


def read(path: Path, d: int, constant: bool = True) -> Floats:
    """Rows of d features each from a CSV file; a label after them is left out. constant: the first
    feature is the constant 1. Raises UsageError.
    """
    rows: Floats = read_csv(path, most=d) / ONE
    if constant and (other := np.flatnonzero(rows[:, 0] != 1)).size:
        text = (
            f"{path}, record {other[0] + 1}: the first of the {d} features must be the constant 1"
        )
        raise UsageError(text, "write 1 before the features of each row")
    return rows
