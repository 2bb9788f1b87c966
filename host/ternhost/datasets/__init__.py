"""Data sets: the records that devices hold, held-out records that judge a model, and public rows,
nobody's records.

Every feature lies in [-1, 1] and is stored as on a device, Q1.14 in an int16. The first feature is
always 1 (the bias). Domains are fixed beforehand or published, since a domain learnt from the
records would be a release without noise.
"""

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
    "CLASSIFICATION",
    "DATASETS",
    "FILES",
    "HELD",
    "MULTICLASS",
    "REGRESSION",
    "TABLES",
    "Dataset",
    "Fixed",
    "Floats",
    "Holdings",
    "Indices",
    "Table",
    "expand",
    "flights",
    "flights_table",
    "held",
    "held_out",
    "load",
    "normalised",
    "planned_flights",
    "task_of",
    "to_fixed",
]

# Data sets for training that need no file, by name.
_WITHOUT_FILES: dict[str, Callable[[], Dataset]] = {
    "flights": flights,
    "flights-planned": planned_flights,
    "diabetes": bundled.diabetes,
    "synthetic-linear": synthetic.linear,
    "synthetic-logistic": synthetic.logistic,
}
# Data sets of several classes, with the classes that a two-class model tells from the rest.
_CLASSES: dict[str, tuple[str, ...]] = {
    "breast-cancer": ("benign",),
    "digits": ("1", "3", "5", "7", "9"),
    "iris": ("virginica",),
    "wine": ("class_0",),
}
# The same for files that users must get themselves. A reader takes the path of the file, or None to
# search for it.
_CLASSES_OF_FILES: dict[str, tuple[Callable[[Path | None], Dataset], tuple[str, ...]]] = {
    "basic-motions": (motions.motions, ("Running", "Badminton")),
    "wisdm": (wisdm.wisdm, ("Walking",)),
    "wisdm-records": (wisdm.records, ("Walking",)),
    "vehicle": (vehicle.vehicle, ("3",)),
    "vehicle-6": (partial(vehicle.vehicle, last=6), ("3",)),
    "mnist": (partial(images.load, "mnist"), ("1", "3", "5", "7", "9")),
    "fashion-mnist": (partial(images.load, "fashion-mnist"), ("sandal", "sneaker", "ankle boot")),
}
FILES = (*_CLASSES_OF_FILES, "ipums", "ipums-regression")
_REGRESSION = ("diabetes", "synthetic-linear", "ipums-regression")
DATASETS = (*_WITHOUT_FILES, *_CLASSES, *FILES)
# Tables for collecting, not for training, by name.
TABLES: dict[str, Callable[[], Table]] = {"flights-table": flights_table}
HELD = (*DATASETS, *TABLES)


def task_of(name: str) -> str:
    """The task of the data set that `load` returns for this name or `NAME:PATH`, without loading
    it.
    """
    return REGRESSION if name.partition(":")[0] in _REGRESSION else CLASSIFICATION


def held(name: str, *, classes: bool = False) -> Dataset | Table:
    """The records that a device may hold: one of TABLES, or a data set (see `load`)."""
    return TABLES[name]() if name in TABLES else load(name, classes=classes)


def load(name: str, *, classes: bool = False) -> Dataset:
    """The data set of that name; `NAME:PATH` also says where its file is.

    classes: count the classes from 0 in the labels. Without it, the labels tell some classes (1)
    from the rest (-1). Raises UsageError if there is no such data set, it has no classes to count,
    or its file is missing or malformed.
    """
    kind, colon, path = name.partition(":")
    if kind not in DATASETS:
        raise UsageError(f"there is no data set {name!r}", hint=f"one of: {', '.join(DATASETS)}")
    if colon and kind not in FILES:
        raise UsageError(
            f"the data set {kind} has no file to name", hint=f"use the name alone: {kind}"
        )
    if classes and kind not in (*_CLASSES, *_CLASSES_OF_FILES):
        several = ", ".join((*_CLASSES, *_CLASSES_OF_FILES))
        raise UsageError(
            f"the data set {kind} does not name its classes", hint=f"one of: {several}"
        )
    file = Path(path).expanduser() if colon else None
    if kind in ("ipums", "ipums-regression"):
        table = ipums.ipums(file, dataset=kind)
        return (table.regression if kind in _REGRESSION else table.above_mean)(ipums.INCOME)
    if kind in _WITHOUT_FILES:
        return _WITHOUT_FILES[kind]()
    if kind in _CLASSES:
        dataset, positive = bundled.multiclass(kind), _CLASSES[kind]
    else:
        read, positive = _CLASSES_OF_FILES[kind]
        dataset = read(file)
    return dataset if classes else dataset.against_rest(*positive)
