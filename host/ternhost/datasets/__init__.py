"""Data sets: what each device of a fleet holds, and what is held out to judge a model by.

Every feature lies in [-1, 1] and is kept as the device keeps it, Q1.14 in an int16; the first one is constantly 1 (the
bias). Domains are fixed beforehand or published: in use, nothing may be learnt from the records without noise.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ternhost.datasets import bundled, images, ipums, motions, synthetic, vehicle, wisdm
from ternhost.datasets.base import (
    CLASSIFICATION,
    MULTICLASS,
    REGRESSION,
    Dataset,
    Fixed,
    Floats,
    Indices,
    Table,
    expand,
    held_out,
    normalised,
    to_fixed,
)
from ternhost.datasets.departures import flights_table
from ternhost.datasets.holdings import Holdings
from ternhost.datasets.nycflights import flights
from ternhost.datasets.planned import planned_flights
from ternhost.errors import UsageError

__all__ = [
    "CLASSIFICATION", "DATASETS", "FILES", "MULTICLASS", "REGRESSION", "Dataset", "Fixed", "Floats", "Holdings",
    "Indices", "Table", "expand", "flights", "flights_table", "held_out", "load", "normalised",
    "planned_flights", "to_fixed",
]  # fmt: skip

# What can be trained on as it is, by name.
_WITHOUT_FILES: dict[str, Callable[[], Dataset]] = {
    "flights": flights,
    "flights-planned": planned_flights,
    "breast-cancer": lambda: bundled.breast_cancer().against_rest("benign"),
    "diabetes": bundled.diabetes,
    "digits": lambda: bundled.digits().against_rest("1", "3", "5", "7", "9"),
    "iris": lambda: bundled.iris().against_rest("virginica"),
    "wine": lambda: bundled.wine().against_rest("class_0"),
    "synthetic-linear": synthetic.linear,
    "synthetic-logistic": synthetic.logistic,
}
# The same, of a file that a person has to get: each takes its path, or None to look for it.
FILES: dict[str, Callable[[Path | None], Dataset]] = {
    "basic-motions": lambda path: motions.motions(path).against_rest("Running", "Badminton"),
    "wisdm": lambda path: wisdm.wisdm(path).against_rest("Walking"),
    "ipums": lambda path: ipums.ipums(path).above_mean(ipums.INCOME),
    "vehicle": lambda path: vehicle.vehicle(path).against_rest("3"),
    "mnist": lambda path: images.mnist(path).against_rest("1", "3", "5", "7", "9"),
    "fashion-mnist": lambda path: images.fashion_mnist(path).against_rest("sandal", "sneaker", "ankle boot"),
}
DATASETS = (*_WITHOUT_FILES, *FILES)


def load(name: str) -> Dataset:
    """The data set of that name, or `NAME:PATH` with the place of its file.

    Raises UsageError if there is none of that name, or its file is missing or not in its format.
    """
    kind, colon, path = name.partition(":")
    if kind in FILES:
        return FILES[kind](Path(path).expanduser() if colon else None)
    if kind not in _WITHOUT_FILES:
        raise UsageError(f"there is no data set {name!r}", hint=f"one of: {', '.join(DATASETS)}")
    if colon:
        raise UsageError(f"the data set {kind} has no file to name", hint=f"ask for {kind}")
    return _WITHOUT_FILES[kind]()
