"""Data sets: what each device of a fleet holds, and what is held out to judge a model by.

Every feature lies in [-1, 1] and is kept as the device keeps it, Q1.14 in an int16; the first one is constantly 1 (the
bias). Domains are fixed beforehand or published: in use, nothing may be learnt from the records without noise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
from ternhost.datasets.nycflights import flights, planned_flights
from ternhost.errors import UsageError

__all__ = [
    "CLASSIFICATION", "DATASETS", "FILES", "HELD", "MULTICLASS", "REGRESSION", "TABLES", "Dataset", "Fixed", "Floats",
    "Holdings", "Indices", "Table", "expand", "flights", "flights_table", "held", "held_out", "load", "normalised",
    "planned_flights", "task_of", "to_fixed",
]  # fmt: skip

# Sets to train on without a file, by name.
_WITHOUT_FILES: dict[str, Callable[[], Dataset]] = {
    "flights": flights,
    "flights-planned": planned_flights,
    "diabetes": bundled.diabetes,
    "synthetic-linear": synthetic.linear,
    "synthetic-logistic": synthetic.logistic,
}
# Sets of several classes, and the classes that two-class models tell from the rest.
_CLASSES: dict[str, tuple[str, ...]] = {
    "breast-cancer": ("benign",),
    "digits": ("1", "3", "5", "7", "9"),
    "iris": ("virginica",),
    "wine": ("class_0",),
}
# The same for files that a person has to get: each reader takes its path, or None to look for it.
_CLASSES_OF_FILES: dict[str, tuple[Callable[[Path | None], Dataset], tuple[str, ...]]] = {
    "basic-motions": (motions.motions, ("Running", "Badminton")),
    "wisdm": (wisdm.wisdm, ("Walking",)),
    "vehicle": (vehicle.vehicle, ("3",)),
    "mnist": (partial(images.load, "mnist"), ("1", "3", "5", "7", "9")),
    "fashion-mnist": (partial(images.load, "fashion-mnist"), ("sandal", "sneaker", "ankle boot")),
}
FILES = (*_CLASSES_OF_FILES, "ipums", "ipums-regression")
_OF_NUMBERS = ("diabetes", "synthetic-linear", "ipums-regression")  # their labels are numbers
DATASETS = (*_WITHOUT_FILES, *_CLASSES, *FILES)
# Tables to collect from, but not to train on, by name.
TABLES: dict[str, Callable[[], Table]] = {"flights-table": flights_table}
HELD = (*DATASETS, *TABLES)


def task_of(name: str) -> str:
    """The task of the data set of that name (or `NAME:PATH`) as `load` gives it, without loading it."""
    return REGRESSION if name.partition(":")[0] in _OF_NUMBERS else CLASSIFICATION


def held(name: str, *, classes: bool = False) -> Dataset | Table:
    """Records for a trial: the data set of that name (`load`), or one of TABLES."""
    return TABLES[name]() if name in TABLES else load(name, classes=classes)


def load(name: str, *, classes: bool = False) -> Dataset:
    """The data set of that name, or `NAME:PATH` with the place of its file.

    Where it has several classes, its labels tell some from the rest; with `classes` they count them from 0. Raises
    UsageError if there is none of that name, it has no such classes, or its file is missing or not in its format.
    """
    kind, colon, path = name.partition(":")
    if kind not in DATASETS:
        raise UsageError(f"there is no data set {name!r}", hint=f"one of: {', '.join(DATASETS)}")
    if colon and kind not in FILES:
        raise UsageError(f"the data set {kind} has no file to name", hint=f"ask for {kind}")
    if classes and kind not in (*_CLASSES, *_CLASSES_OF_FILES):
        several = ", ".join((*_CLASSES, *_CLASSES_OF_FILES))
        raise UsageError(f"the data set {kind} does not say which classes it has", hint=f"one of: {several}")
    file = Path(path).expanduser() if colon else None
    if kind == "ipums":
        return ipums.ipums(file).above_mean(ipums.INCOME)
    if kind == "ipums-regression":
        return ipums.ipums(file, dataset=kind).regression(ipums.INCOME)
    if kind in _WITHOUT_FILES:
        return _WITHOUT_FILES[kind]()
    if kind in _CLASSES:
        whole, positive = bundled.multiclass(kind), _CLASSES[kind]
    else:
        read, positive = _CLASSES_OF_FILES[kind]
        whole = read(file)
    return whole if classes else whole.against_rest(*positive)
