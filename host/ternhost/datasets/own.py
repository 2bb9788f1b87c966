"""Records of the user's own: a table, and the schema that describes it, become a data set.

Without a schema, all features must be numbers in [-1, 1] already, and the label comes last.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tern.fixed import ONE
from tern.wire import MAX_DIMENSION
from ternhost.datasets import in_memory
from ternhost.datasets.base import (
    CLASSIFICATION,
    CONSTANT,
    MULTICLASS,
    REGRESSION,
    ColumnUnit,
    Dataset,
    Fixed,
    Floats,
    Indices,
    Table,
    are_class_numbers,
    are_whole,
    held_out,
    to_fixed,
)
from ternhost.datasets.frames import FALSE, LABEL, TRUE
from ternhost.datasets.schemas.columns import ordered
from ternhost.datasets.schemas.schema import (
    LEAVE_OUT,
    MIDDLE,
    SUFFIX,
    Categorical,
    Column,
    Numeric,
    Schema,
)
from ternhost.datasets.selection import EVERYTHING, Selection
from ternhost.datasets.tables import reading
from ternhost.datasets.tables.number_style import is_number
from ternhost.datasets.tables.reading import RawTable
from ternhost.datasets.tables.times import times_of
from ternhost.errors import UsageError

ENDINGS = (".csv", ".tsv", ".txt", ".data", ".dat")  # of names that mean files, there or not
CLASS_CODE = "class_code"  # names the column of labels that count classes from 0
_HELD_OUT = 0.1
_ONE, _MINUS_ONE = Decimal(1), Decimal(-1)


def is_file(name: str) -> bool:
    """Return whether a value of --data names a table of the user's own, in a file or in memory."""
    if in_memory.is_name(name):
        return True
    ending = Path(name).suffix.lower()
    return ending in ENDINGS or (ending != SUFFIX and os.path.isfile(name))


@dataclass(frozen=True)
class OwnData:
    """A table of the user's own, with its schema applied.

    - features, labels: n x d and n, as of `Dataset`; labels of classes are the classes' numbers
    - owners: for each record the number of its device, from 0; None if no column says it
    - whole: the table with all rows of the file, of which `table` lacks those with missing values
    - has_constant: whether tern has added the constant 1, as the first feature
    """

    table: RawTable
    schema: Schema
    selection: Selection
    features: Fixed
    labels: npt.NDArray[np.int16] | None
    owners: Indices | None
    owner_names: tuple[str, ...]
    whole: RawTable
    has_constant: bool = True

    @property
    def missing_rows(self) -> int:
        """How many rows of the file are left out, since a value in them is missing."""
        return len(self.whole) - len(self.table)

    def dataset(self, *, classes: bool) -> Dataset:
        """Return the records as a data set for models.

        classes: whether labels are the numbers of the classes; without it, labels of two classes
        are -1 and 1. Raises UsageError if models cannot be trained on them.
        """
        schema = self.schema
        column = schema.label_column
        if column is None or self.labels is None:
            text = f"{schema.name} names no label, so that there is nothing to learn"
            raise UsageError(text, 'add label = "COLUMN", or use: tern collect')
        task = MULTICLASS
        if isinstance(column, Numeric):
            task = REGRESSION
        if task == REGRESSION and classes:
            text = f"softmax regression predicts classes, and the label {column.name} is a number"
            raise UsageError(text, "leave out --model softmax, or give the label categories")
        dataset = Dataset(
            name=self.table.name,
            task=task,
            feature_names=self.feature_names,
            features=self.features,
            labels=self.labels,
            held_out=self._held_out(),
            classes=schema.classes,
            owners=self.owners,
            owner_names=self.owner_names,
            label_unit=column.column_unit,
            units=self.units,
        )
        if task == REGRESSION or classes:
            return dataset
        return dataset.against_rest(self.positive)

    def _held_out(self) -> npt.NDArray[np.bool_]:
        """Return which records judge models (n). Raises UsageError if all do, or none."""
        share = self.selection.held_out or self.schema.held_out or _HELD_OUT
        name = self.table.name
        judging = held_out(len(self.table), share)
        if judging.all() or not judging.any():
            left = "to learn from" if judging.all() else "to judge a model with"
            text = f"{name} has {len(judging)} records, of which --held-out {share:g} leaves none {left}"
            raise UsageError(text, "use another share, or more records")
        return judging

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features of a record."""
        if not self.has_constant:
            return self.schema.feature_names
        return (CONSTANT, *self.schema.feature_names)

    @property
    def whole_schema(self) -> Schema:
        """The schema with all columns of the table: those that it does not name are left out."""
        schema = self.schema
        named = {column.name for column in schema.columns}
        named |= {*schema.leave_out, schema.device, schema.time}
        others = [column for column in self.table.columns if column not in named]
        return replace(schema, leave_out=(*schema.leave_out, *others))

    def records(self) -> Fixed:
        """Return all records as devices hold them: n x (d + 1), the label last.

        Without a label, they are records to collect from, whose label is 0.
        """
        labels = self.labels
        if labels is None:
            table = self.attributes()
            return table.records(table.training)
        if self.schema.task == CLASSIFICATION:
            code = self.schema.classes.index(self.positive)
            labels = np.where(labels == code, ONE, -ONE).astype(np.int16)
        return np.concatenate([self.features, labels[:, None]], axis=1)

    @property
    def positive(self) -> str:
        """The class that is +1 for a model of two classes. Raises UsageError if nothing says it."""
        schema = self.schema
        if schema.task == CLASSIFICATION:
            return schema.class_names[1]
        text = f"{self.table.name} has {len(schema.classes)} classes, and the model tells two apart"
        hint = (
            f'use --model softmax, or name one: positive = "{schema.classes[0]}" in {schema.name}'
        )
        raise UsageError(text, hint)

    def attributes(self) -> Table:
        """Return all columns, the label's among them, as a table for collecting."""
        table = self.table
        numeric: list[Numeric] = []
        scaled = [np.zeros((len(table), 0), np.int16)]  # as there may be no column of numbers
        categorical: list[Categorical] = []
        codes = []
        for column in self.schema.columns:
            if isinstance(column, Categorical):
                categorical.append(column)
                codes.append(_codes(table, column, self.schema))
            else:
                numeric.append(column)
                scaled.append(_features(table, column, self.schema))
        return Table(
            name=table.name,
            numeric_names=tuple(column.name for column in numeric),
            numeric=np.concatenate(scaled, axis=1),
            categorical_names=tuple(column.name for column in categorical),
            codes=np.stack(codes, axis=1) if codes else None,
            categories=tuple(column.categories for column in categorical),
            owners=self.owners,
            owner_names=self.owner_names,
            units=self.units,
        )

    @property
    def units(self) -> tuple[ColumnUnit, ...]:
        """The units of the columns of numbers, the label's among them."""
        units = [column.column_unit for column in self.schema.columns]
        return tuple(unit for unit in units if unit is not None)


def load(path: str | Path, selection: Selection = EVERYTHING) -> OwnData:
    """Read a table and the schema beside it, or take a table in memory by its name.

    The result is kept until either file changes. Raises UsageError.
    """
    if in_memory.is_name(str(path)):
        return _held(str(path), selection, versions(path))
    return _load(Path(path).expanduser(), selection, versions(path))


def versions(path: str | Path) -> tuple[object, ...]:
    """Return what changes when a table or the schema beside it is written, as a key of caches."""
    if in_memory.is_name(str(path)):
        return (in_memory.named(str(path)).digest,)
    file = Path(path).expanduser()
    return _version(file), _version(file.with_suffix(SUFFIX))


@lru_cache(maxsize=4)
def _load(file: Path, selection: Selection, _versions: object) -> OwnData:
    """Read a table and the schema beside it. The versions make the cache forget old files."""
    schema = Schema.beside(file)
    names = [column.name for column in schema.columns] if schema else []
    return of_table(reading.read(file, names=names), schema, selection)


@lru_cache(maxsize=4)
def _held(name: str, selection: Selection, _versions: object) -> OwnData:
    """Apply what is known of a table in memory. The versions make the cache forget an old one."""
    held = in_memory.named(name)
    schema = held.schema
    if schema is None:
        return of_table(held.table, None, selection, label=held.label)
    schema = with_empty_as_missing(schema)
    if held.label:
        schema = replace(schema, label=held.label)
    return of_table(held.table, schema, selection)


def with_empty_as_missing(schema: Schema) -> Schema:
    """Return a schema for a table in memory, whose missing values are empty cells.

    pandas reads the marks of a file, such as NA, and the mark itself is lost.
    """
    if "" in schema.missing:
        return schema
    return replace(schema, missing=("", *schema.missing))


def _version(file: Path) -> tuple[int, int] | None:
    """Return what changes when a file is written; None if there is no file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def is_of_a_board(table: RawTable) -> bool:
    """Return whether a table holds the records of a board, as `tern board records` writes them.

    Its features are called x0, x1 and so on, and then there is a label.
    """
    *names, label = table.columns
    expected = [f"x{number}" for number in range(len(names))]
    has_names = len(names) > 0 and names == expected
    return table.has_header and has_names and label in (LABEL, CLASS_CODE)


def of_table(
    table: RawTable, schema: Schema | None, selection: Selection = EVERYTHING, label: str = ""
) -> OwnData:
    """Apply a schema to a table; None: the one that a table in [-1, 1] needs. Raises UsageError.

    label: as of `plain_schema`, for a table without a schema.
    """
    has_constant = schema is not None or not is_of_a_board(table)
    if schema is None:
        schema = plain_schema(table, selection, label)
    _require_columns(table, schema)
    by = selection.by or schema.device
    time = selection.time or schema.time
    used = _without_missing(table, schema, by, time)
    owners, owner_names = _owners(used, by)
    own = OwnData(
        table=used,
        schema=schema,
        selection=selection,
        features=_all_features(used, schema, has_constant=has_constant),
        labels=_labels(used, schema),
        owners=owners,
        owner_names=owner_names,
        whole=table,
        has_constant=has_constant,
    )
    return _ordered(own, time)


def _all_features(table: RawTable, schema: Schema, *, has_constant: bool) -> Fixed:
    """Return the features of a table's rows (n x d). Raises UsageError if they are too many.

    has_constant: whether the constant 1 comes first, before the features of the columns.
    """
    columns = []
    if has_constant:
        columns.append(np.full((len(table), 1), ONE, np.int16))
    for column in schema.features:
        columns.append(_features(table, column, schema))
    features = np.concatenate(columns, axis=1)
    if schema.label and features.shape[1] > MAX_DIMENSION:
        text = f"{table.name} has {features.shape[1]} features, the constant included"
        raise UsageError(text, f"a device holds at most {MAX_DIMENSION}: leave columns out")
    return features


def _require_columns(table: RawTable, schema: Schema) -> None:
    """Raise UsageError for a column of the schema that the table does not have."""
    places = {column.name: schema.line_of(column.name) for column in schema.columns}
    if schema.device:
        places.setdefault(schema.device, schema.place_of("device"))
    if schema.time:
        places.setdefault(schema.time, schema.place_of("time"))
    for name, place in places.items():
        if name not in table.columns:
            hint = f"its columns are: {', '.join(table.columns)}"
            raise UsageError(f"{place}: {table.name} has no column {name!r}", hint)


def plain_schema(table: RawTable, selection: Selection = EVERYTHING, label: str = "") -> Schema:
    """Return the schema of a table that has none: numbers in [-1, 1], and the label last.

    A first column that is 1 in every row is the constant, which tern adds by itself. A table of the
    records of a board (`is_of_a_board`) is taken as it is. Columns of a data frame that are no
    numbers are categories. Columns that name devices or times are no features.

    label: the name of the label's column; empty for the last one. Raises UsageError.
    """
    leave_out = [name for name in (selection.by, selection.time) if name]
    names = [name for name in table.columns if name not in leave_out]
    if label:
        table.texts(label)  # raises UsageError if there is no such column
    elif names:
        label = names[-1]
    names = [name for name in names if name != label]
    if not names:
        text = f"{table.name} has too few columns"
        raise UsageError(text, "a row is a record: its features, then its label")
    has_constant = _is_constant(table, names[0])
    if has_constant and not is_of_a_board(table):
        leave_out.append(names.pop(0))
    columns: list[Column] = []
    for name in names:
        columns.append(_plain_feature(table, name))
    columns.append(_plain_label(table, label))
    return Schema(tuple(columns), label=label, leave_out=tuple(leave_out), name=table.name)


def _plain_feature(table: RawTable, name: str) -> Column:
    """Return the column of a feature of a table without a schema. Raises UsageError."""
    categories = table.categories_of(name)
    if categories == (FALSE, TRUE):
        return Categorical(name, (TRUE, FALSE))  # so that the feature is 1 for True
    try:
        if categories:
            return Categorical(name, categories)
        table.numbers(name)
    except UsageError as error:
        remedies = [remedy for remedy in (error.hint, table.how_to_describe) if remedy]
        raise UsageError(error.message, "; ".join(remedies)) from error
    _in_range(table, name)
    return Numeric(name, _MINUS_ONE, _ONE)


def public_features(table: RawTable, d: int, *, constant: bool) -> Fixed:
    """Return the features of public rows (n x d), which have no labels, or labels to leave out.

    table: its first columns are the features, in [-1, 1].
    constant: whether the first feature is the constant 1, which the table may leave out.
    Raises UsageError for a table of another width, or with a value out of range.
    """
    columns = list(table.columns)
    has_constant = _is_constant(table, columns[0])
    wanted = d
    if constant and not has_constant:
        wanted = d - 1
    if len(columns) < wanted:
        text = f"{table.name} has {len(columns)} columns, and not the {wanted} features of the run"
        raise UsageError(text)
    features = []
    if wanted < d:
        features.append(np.full(len(table), ONE, np.int16))
    for name in columns[:wanted]:
        features.append(to_fixed(_in_range(table, name)))
    return np.stack(features, axis=1)


def public_features_by(schema: Schema, table: RawTable, *, constant: bool) -> Fixed:
    """Return the features of public rows (n x d) by the schema of a run.

    constant: whether the constant 1 is the first feature.

    Rows with a missing value are left out, or get the middle of the bounds, as the schema says.
    Raises UsageError for a value beyond the bounds -1 and 1, which mean that values are scaled.
    """
    of_features = without_label(schema)
    require_in_range(table, of_features)
    features = of_table(table, of_features).features
    if not constant:
        return features[:, 1:]
    return features


def without_label(schema: Schema) -> Schema:
    """Return the schema of rows that have features alone: no label, and nothing of their devices."""
    return replace(
        schema, columns=schema.features, label="", positive="", device="", time="", held_out=None
    )


def _is_constant(table: RawTable, name: str) -> bool:
    """Return whether all values of a column are the number 1, however that is written."""
    try:
        return bool((table.numbers(name) == 1).all())
    except UsageError:  # it has something that is no number
        return False


def require_in_range(table: RawTable, schema: Schema) -> None:
    """Raise UsageError for numbers out of [-1, 1] in columns with these bounds, which scale nothing.

    Such columns are those of tables without a schema of their own.
    """
    for column in schema.columns:
        if isinstance(column, Numeric) and column.is_unscaled:
            _in_range(table, column.name, schema.missing)


def _in_range(table: RawTable, name: str, missing: Sequence[str] = ()) -> Floats:
    """Return the numbers of a column, which must lie in [-1, 1]. Raises UsageError.

    missing: the texts that stand for a missing value, which is nan.
    """
    numbers = table.numbers(name, missing)
    wrong = np.flatnonzero(np.abs(numbers) > 1)
    if wrong.size:
        row = int(wrong[0])
        text = f"{table.where(row, name)}: {table.texts(name)[row]} is not in [-1, 1]"
        raise UsageError(text, table.how_to_describe)
    return numbers


def _plain_label(table: RawTable, name: str) -> Column:
    """Return the column of the label of a table without a schema."""
    classes = ordered(set(table.texts(name)) - {""})
    categories = table.categories_of(name)
    if categories:
        return Categorical(name, categories)
    try:
        numbers = table.numbers(name, missing=("",))
        numbers = numbers[~np.isnan(numbers)]
    except UsageError:
        if len(classes) > MAX_DIMENSION:
            raise
        return Categorical(name, classes)
    if np.isin(numbers, (-1, 1)).all():
        return Categorical(name, ("-1", "1"))
    if are_whole(numbers) and are_class_numbers(numbers):
        first = 1
        if name == CLASS_CODE or (numbers == 0).any():
            first = 0
        last = max(first + 1, int(numbers.max()))
        return Categorical(name, tuple(str(code) for code in range(first, last + 1)))
    _in_range(table, name)
    return Numeric(name, _MINUS_ONE, _ONE)


def _without_missing(table: RawTable, schema: Schema, by: str, time: str) -> RawTable:
    """Return the table without the rows that have a missing value which must not be missing.

    by, time: the columns of devices and of times, which have no middle; empty if there are none.
    """
    is_complete = np.ones(len(table), bool)
    # A number that stands for a missing measurement may be a device or a time.
    words = ["", *(text for text in schema.missing if not is_number(text))]
    for name in filter(None, (by, time)):
        is_complete &= ~table.missing(name, words)
    for column in schema.columns:
        # A table without a label is collected from, and a category that is missing has no number.
        needs_category = isinstance(column, Categorical) and not schema.label
        leaves_out = schema.rows_with_missing == LEAVE_OUT or needs_category
        if leaves_out or column.name == schema.label:
            is_complete &= ~table.missing(column.name, schema.missing)
    if not is_complete.any():
        hint = f'look at missing in {schema.name}, or write there: rows_with_missing = "{MIDDLE}"'
        raise UsageError(f"a value is missing in every row of {table.name}", hint)
    if is_complete.all():
        return table
    return table.rows(np.flatnonzero(is_complete))


def _features(table: RawTable, column: Column, schema: Schema) -> Fixed:
    """Return the features that a column becomes: n x their number."""
    if isinstance(column, Categorical):
        return column.expand(_codes(table, column, schema))
    return column.scale(table.numbers(column.name, schema.missing))[:, None]


def _codes(table: RawTable, column: Categorical, schema: Schema) -> Fixed:
    """Return the number of the category in each row (n). Raises UsageError with its line."""
    place = schema.line_of(column.name, "categories")
    return column.codes(table, schema.missing, place)


def _labels(table: RawTable, schema: Schema) -> Fixed | None:
    """Return the labels (n): the numbers of classes, or numbers in Q1.14; None if there are none."""
    column = schema.label_column
    if column is None:
        return None
    if isinstance(column, Categorical):
        return _codes(table, column, schema)
    return column.scale(table.numbers(column.name, schema.missing))


def _owners(table: RawTable, by: str) -> tuple[Indices | None, tuple[str, ...]]:
    """Return the number of each record's device, and the names of the devices.

    by: the column that names devices; empty if none does. Devices are numbered as they occur first.
    """
    if not by:
        return None, ()
    number_by_name: dict[str, int] = {}
    owners = []
    for name in table.texts(by):
        if name not in number_by_name:
            number_by_name[name] = len(number_by_name)
        owners.append(number_by_name[name])
    return np.array(owners, np.int64), tuple(number_by_name)


def _ordered(own: OwnData, time: str) -> OwnData:
    """Return the same records ordered by device, and within a device by time. time: the column."""
    keys: list[npt.NDArray[np.generic]] = []
    if time:
        keys.append(times_of(own.table, time))
    if own.owners is not None:
        keys.append(own.owners)
    if not keys:
        return own
    order = np.lexsort(keys)
    return replace(
        own,
        table=own.table.rows(order),
        features=own.features[order],
        labels=None if own.labels is None else own.labels[order],
        owners=None if own.owners is None else own.owners[order],
    )
