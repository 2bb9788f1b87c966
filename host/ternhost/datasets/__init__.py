"""Data sets: the records that devices hold, held-out records, and public rows.

Held-out records judge a model. Public rows are records that no device holds, and that need no
privacy. Every feature lies in [-1, 1] and is stored as on a device, Q1.14 in an int16: the integer
ONE = 2**14 stands for 1. The first feature is always 1 (the bias). The domain of an attribute,
which is scaled to [-1, 1], is fixed beforehand or published, since a domain learnt from the records
would disclose them without noise.
"""

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from ternhost.datasets import on_devices, own
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
from ternhost.datasets.holdings import Holdings
from ternhost.datasets.schemas.schema import SUFFIX, Schema
from ternhost.datasets.selection import EVERYTHING, Selection
from ternhost.datasets.shipped import bundled, synthetic
from ternhost.datasets.shipped.departures import flights_table
from ternhost.datasets.shipped.nycflights import flights, planned_flights
from ternhost.datasets.sources import Source
from ternhost.errors import UsageError
from ternhost.registry import Registry
from ternhost.text import one_of

__all__ = [
    "CLASSIFICATION",
    "DATASETS",
    "EVERYTHING",
    "MULTICLASS",
    "REGRESSION",
    "SOURCES",
    "TABLES",
    "Dataset",
    "Fixed",
    "Floats",
    "Holdings",
    "Indices",
    "Selection",
    "Source",
    "Table",
    "bundled",
    "expand",
    "flights",
    "flights_table",
    "held",
    "held_names",
    "held_out",
    "is_own",
    "load",
    "normalised",
    "on_devices",
    "own",
    "planned_flights",
    "schema_of",
    "synthetic",
    "task_of",
    "to_fixed",
]

_HERE = "ternhost.datasets.sources"
SOURCES: Registry[Source] = Registry(
    "data set",
    "tern.datasets",
    {
        "flights": f"{_HERE}:FLIGHTS",
        "flights-planned": f"{_HERE}:FLIGHTS_PLANNED",
        "diabetes": f"{_HERE}:DIABETES",
        "synthetic-linear": f"{_HERE}:SYNTHETIC_LINEAR",
        "synthetic-logistic": f"{_HERE}:SYNTHETIC_LOGISTIC",
        "breast-cancer": f"{_HERE}:BREAST_CANCER",
        "digits": f"{_HERE}:DIGITS",
        "iris": f"{_HERE}:IRIS",
        "wine": f"{_HERE}:WINE",
    },
)
DATASETS: Collection[str] = SOURCES.keys()  # data sets for training; a view, as of mechanisms
# Tables for collecting, not for training, by name.
TABLES: dict[str, Callable[[], Table]] = {"flights-table": flights_table}


def is_own(name: str) -> bool:
    """Return whether a value of --data names a table of the user's own, in a file or in memory.

    The name of a data set or of one of TABLES means that one, also if a file has the same name.
    """
    kind, _, _ = name.partition(":")
    return kind not in SOURCES and name not in TABLES and own.is_file(name)


def task_of(name: str, selection: Selection = EVERYTHING) -> str:
    """Return the task that suits the labels of a data set.

    name, selection: as of `load`. An unknown name counts as a classification; `load` refuses it
    later. Raises UsageError for a table of the user's own that cannot be read.
    """
    kind, _, _ = name.partition(":")
    if kind in SOURCES:
        return SOURCES[kind].task
    if is_own(name):
        return own.load(name, selection).schema.task
    return CLASSIFICATION


def schema_of(name: str, selection: Selection = EVERYTHING) -> Schema | None:
    """Return the schema of a table of the user's own, with all columns; None for other data.

    name, selection: as of `load`; or the name of a schema, whose records the devices know. Raises
    UsageError for a file that cannot be read.
    """
    if name.lower().endswith(SUFFIX):
        return Schema.read(name)
    if is_own(name):
        return own.load(name, selection).whole_schema
    return None


def held_names() -> tuple[str, ...]:
    """Return the names that `held` takes: those of data sets and of tables."""
    return (*DATASETS, *TABLES)


def held(name: str, selection: Selection = EVERYTHING) -> Dataset | Table:
    """Load the records that a device may hold: one of TABLES, or a data set (see `load`).

    Labels of more than two classes are the numbers of the classes, from 0. A table of the user's
    own without a label is one for collecting.
    """
    if name in TABLES:
        selection.require_no_columns(name)
        return TABLES[name]()
    kind, _, _ = name.partition(":")
    if kind in SOURCES and SOURCES[kind].positive:
        dataset = load(name, classes=True, selection=selection)
        if len(dataset.classes) > 2:
            return dataset
    elif is_own(name):
        records = own.load(name, selection)
        if not records.schema.label:
            return records.attributes()
        return records.dataset(classes=records.schema.task == MULTICLASS)
    return load(name, selection=selection)


def load(name: str, *, classes: bool = False, selection: Selection = EVERYTHING) -> Dataset:
    """Load a data set by its name, as `NAME:PATH`, which also says where its file is, or by a file.

    A file is a table of the user's own, with the schema beside it.

    classes: whether labels are the numbers of the classes, from 0. Without it, a data set of
    several classes gets the label 1 for some of them, and -1 for the rest. selection: which device
    holds which records, and which records judge models; by default as the data set says. Raises
    UsageError if there is no such data set, it has no classes, or its file is missing or malformed.
    """
    kind, colon, path = name.partition(":")
    if kind == on_devices.KIND:
        hint = f"name a data set, one of: {', '.join(DATASETS)}"
        raise UsageError(f"--data {name} names records that only the devices know", hint)
    if kind not in SOURCES:
        if is_own(name):
            return own.load(name, selection).dataset(classes=classes)
        if Path(name).suffix.lower() == SUFFIX:
            hint = (
                "name its table, such as my.csv; a program makes records by it: --program, --schema"
            )
            raise UsageError(f"{name} is a schema, which has no records", hint)
        SOURCES.require_package(kind)
        hint = f"{one_of(kind, DATASETS)}; or a file, such as my.csv"
        raise UsageError(f"there is no data set {name!r}", hint)
    source = SOURCES[kind]
    if colon and not source.has_file:
        hint = f"use the name alone: {kind}"
        raise UsageError(f"the data set {kind} has no file to name", hint)
    if classes and not source.positive:
        with_classes = [name for name, other in SOURCES.items() if other.positive]
        hint = f"one of: {', '.join(with_classes)}"
        raise UsageError(f"the data set {kind} does not name its classes", hint)

    selection.require_no_columns(kind)
    file = None
    if colon:
        file = Path(path).expanduser()
    dataset = source.read(file)
    if selection.held_out is not None:
        judging = held_out(len(dataset.labels), selection.held_out)
        dataset = dataset.divided(judging, np.setdiff1d(dataset.public, np.flatnonzero(judging)))
    if source.positive and not classes:
        return dataset.against_rest(*source.positive)
    return dataset
