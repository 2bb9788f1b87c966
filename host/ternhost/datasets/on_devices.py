"""The records that only the devices know, as the option --data names them.

The text is `devices:FEATURES`, `devices:FEATURES:CLASSES` or the name of a schema, such as my.toml.
Any other text is the name of a data set (`datasets.load`).
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tern.wire import MAX_DIMENSION
from ternhost.datasets import in_memory
from ternhost.datasets.base import CLASSIFICATION, CONSTANT, MULTICLASS, ColumnUnit, Table
from ternhost.datasets.schemas.columns import Categorical, Numeric
from ternhost.datasets.schemas.schema import SUFFIX, Schema
from ternhost.errors import UsageError
from ternhost.text import whole_number

KIND = "devices"
_HINT = "such as devices:29, or devices:29:3 for labels of 3 classes"


class DeviceRecords(NamedTuple):
    """What the host knows of records that are on the devices alone.

    - features: how many a record has, the constant included
    - classes: how many labels tell apart, if they are numbers of classes, from 0; else None
    - task: what suits the labels: one of CLASSIFICATION, REGRESSION and MULTICLASS
    - feature_names: the constant's is the first; empty if they have none
    - class_names: as of `Dataset.classes`
    """

    features: int
    classes: int | None
    task: str = CLASSIFICATION
    feature_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()


def parse(data: str) -> DeviceRecords | None:
    """Read a value of --data. Returns None for the name of a data set.

    Raises UsageError for a text that begins with `devices` and says no numbers after it, or numbers
    that no device can have.
    """
    if data.lower().endswith(SUFFIX):
        return _of_schema(Schema.read(data))
    kind, _, numbers = data.partition(":")
    if kind != KIND:
        return None
    features_text, colon_of_classes, classes_text = numbers.partition(":")
    features = _number(data, features_text, "features", least=1)
    classes = None
    if colon_of_classes:
        classes = _number(data, classes_text, "classes", least=2)
    task = CLASSIFICATION
    if classes is not None:
        task = MULTICLASS
    return DeviceRecords(features, classes, task)


def attributes(data: str) -> tuple[Table, int] | None:
    """Return the attributes that devices can report of records which only they know.

    The result is a table without rows, and the number of features that come before the attributes
    in a record: 1 for the constant, or 0. It is None for the name of a data set. A program makes
    records to collect from by a schema without a label; then there may be categories. All other
    features are numbers.

    data: a value of --data. Raises UsageError, also if there is no attribute.
    """
    known = parse(data)
    if known is None:
        return None
    units: tuple[ColumnUnit | None, ...] = ()
    if data.lower().endswith(SUFFIX):
        schema = Schema.read(data)
        if not schema.label:
            return _to_collect_from(data, schema), 0
        units = tuple(column.column_unit for column in schema.features)
    names = known.feature_names[1:]
    if not names:
        names = tuple(f"feature {number}" for number in range(1, known.features))
    if not names:
        raise UsageError(f"--data {data} has no feature beside the constant", _HINT)
    nobody_knows = np.zeros((0, len(names)), np.int16)
    return Table(data, names, nobody_knows, units=_known(units)), 1


def _to_collect_from(data: str, schema: Schema) -> Table:
    """Return the columns of a schema without a label, as a table without rows."""
    numeric = [column for column in schema.columns if isinstance(column, Numeric)]
    categorical = [column for column in schema.columns if isinstance(column, Categorical)]
    codes = None
    if categorical:
        codes = np.zeros((0, len(categorical)), np.int16)
    return Table(
        name=data,
        numeric_names=tuple(column.name for column in numeric),
        numeric=np.zeros((0, len(numeric)), np.int16),
        categorical_names=tuple(column.name for column in categorical),
        codes=codes,
        categories=tuple(column.categories for column in categorical),
        units=_known([column.column_unit for column in numeric]),
    )


def _known(units: Iterable[ColumnUnit | None]) -> tuple[ColumnUnit, ...]:
    """Return the units of the columns that have one."""
    return tuple(unit for unit in units if unit is not None)


def _of_schema(schema: Schema) -> DeviceRecords:
    """Return what a schema tells of records that boards make by it."""
    names = (CONSTANT, *schema.feature_names)
    classes = None
    if schema.task == MULTICLASS:
        classes = len(schema.classes)
    return DeviceRecords(len(names), classes, schema.task, names, schema.class_names)


def _number(data: str, text: str, what: str, least: int) -> int:
    """Read the number of features or of classes. Raises UsageError.

    data: the whole text, for the message. what: the word for what is counted. least: the smallest
    possible number.
    """
    number = whole_number(text)
    if number is None:
        raise UsageError(f"--data {data} does not say the number of {what}", _HINT)
    if not least <= number <= MAX_DIMENSION:
        must = f"a device takes {least} to {MAX_DIMENSION} {what}"
        raise UsageError(f"--data {data} has {number:,} {what}, and {must}", _HINT)
    return number


def in_words(data: str | None) -> str:
    """Return a value of --data in words: the name of a data set, or that there is none.

    A schema is not read: a run may be shown where its file is not.
    """
    if not data or data.lower().endswith(SUFFIX) or data.partition(":")[0] == KIND:
        return "records of the devices"
    if in_memory.is_name(data):
        return "a table in memory"
    return data
