"""Public rows: the features of records, without labels, that are nobody's secret."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tern.fixed import ONE
from ternhost.datasets import Dataset, Indices
from ternhost.errors import UsageError
from ternhost.learn.parameters import Floats

HELP = (
    "public rows without labels: a CSV file of the records' features, a number of public rows of the data set, and "
    "after these of records that no device gets, or none"
)
METAVAR = "FILE|N|none"


@dataclass(frozen=True)
class PublicRows:
    """rows: n x d real numbers, None without any. reserved: positions in the data set of those that are its records.
    name: in words."""

    rows: Floats | None = None
    reserved: Indices = field(default_factory=lambda: np.arange(0))
    name: str = ""


def named(text: str, dataset: Dataset | None, d: int, seed: int) -> PublicRows:
    """The public rows of d features each that `METAVAR` stands for. Raises UsageError."""
    if text in ("", "none"):
        return PublicRows()
    if not text.isdecimal():
        return PublicRows(read(Path(text), d), name=f"the rows of {text}")
    if dataset is None:
        raise UsageError("--public needs a file where only the devices know the records")
    order = np.random.default_rng([seed, 7]).permutation(dataset.training)
    reserved = np.append(dataset.public, order[: len(order) // 3])[: int(text)]
    return PublicRows(
        dataset.features[reserved] / ONE, reserved, f"{len(reserved):,} public rows of {dataset.name}"
    )


def read(path: Path, d: int) -> Floats:
    """Rows of d features each (the constant among them) from a CSV file; a label after them is left out. Raises
    UsageError."""
    try:
        rows: Floats = np.loadtxt(path, delimiter=",", usecols=range(d), ndmin=2)
        fits = len(rows) > 1 and np.abs(rows).max() <= 1
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    except ValueError:
        fits = False
    if not fits:
        hint = "a row for each record, without a head"
        raise UsageError(f"{path} must have rows of {d} features within [-1, 1], as the records have", hint)
    return rows
