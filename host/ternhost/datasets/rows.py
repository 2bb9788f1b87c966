"""Rows of features for a model, of what a program hands over: arrays, or tables of named columns.

Whether numbers are in fixed point, in [-1, 1], or in the units of the columns is decided by their
type and by the names of the columns. Where it is unclear, that is an error.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tern.fixed import ONE
from ternhost.datasets import frames, own
from ternhost.datasets.base import CONSTANT, to_fixed
from ternhost.datasets.frames import FALSE, TRUE, MemoryTable
from ternhost.datasets.schemas.columns import Categorical
from ternhost.datasets.schemas.schema import Schema
from ternhost.datasets.tables.reading import RawTable
from ternhost.errors import UsageError

Whole = npt.NDArray[np.integer[Any]]

_NAME = "the rows"
_BOTH_WAYS = f"numbers in [-1, 1] as floats, or Q1.14, where {ONE} is 1, as an array of int16"
_OF_BOOLS = {TRUE: ("true", "1", "yes"), FALSE: ("false", "0", "no")}


@dataclass(frozen=True)
class RowForm:
    """The form of the rows that a model takes.

    - count: of features, the constant among them
    - names: of the features; empty if they are not known
    - schema: of the table that the model was trained on; None if there was none
    """

    count: int
    names: Sequence[str] = ()
    schema: Schema | None = None

    @property
    def has_constant(self) -> bool:
        """Whether the first feature is known to be the constant 1."""
        return bool(self.names) and self.names[0] == CONSTANT

    def fixed(self, rows: Any) -> Whole:
        """Return rows (n x count) in Q1.14.

        rows: an array, n x count, or one without the constant: integers of the type int16 are in
        Q1.14, and floats and bools are numbers, clipped to [-1, 1]. Or a data frame or a dict of
        columns, which are found by their names, in any order and without the constant; they are
        in the units of the schema, if there is one.
        Raises UsageError for rows of another form, and for integers that may be either.
        """
        if isinstance(rows, Mapping) or frames.is_frame(rows):
            if self.schema is not None:
                return self._by_schema(frames.table_of(rows, _NAME), self.schema)
            return self._by_name(rows)
        array = np.atleast_2d(frames.numbers_of(rows))
        if array.ndim != 2:
            raise UsageError(f"rows must be n x {self.count}, not {array.shape}")
        return self._complete(self._in_fixed_point(array))

    def _complete(self, fixed: Whole) -> Whole:
        """Return rows with the constant, if it was left out. Raises UsageError for another width."""
        if fixed.shape[1] == self.count - 1 and self.has_constant:
            constant = np.full((len(fixed), 1), ONE, np.int16)
            return np.concatenate([constant, fixed], axis=1)
        if fixed.shape[1] != self.count:
            text = f"the model has {self.count} features, not rows of {fixed.shape[1]}"
            raise UsageError(text, "the label is not among them")
        return fixed

    def _in_fixed_point(self, array: npt.NDArray[Any]) -> Whole:
        """Return rows in Q1.14, by the type of the array. Raises UsageError where that is unclear."""
        if array.dtype == np.int16:
            return array
        if array.dtype.kind in "bf":
            self._require_scaled(array)
            return to_fixed(array)
        if not array.size:
            return array.astype(np.int16)
        lowest, highest = int(array.min()), int(array.max())
        if lowest >= -1 and highest <= 1:
            raise UsageError("whole numbers from -1 to 1 may be Q1.14 or not", f"give {_BOTH_WAYS}")
        if lowest < -ONE or highest > ONE:
            text = f"whole numbers from {lowest} to {highest} are no features in Q1.14"
            raise UsageError(text, f"give {_BOTH_WAYS}")
        if self.has_constant and (array[:, 0] != ONE).any():
            text = "whole numbers may be Q1.14 or not: the constant, which comes first, is not"
            raise UsageError(f"{text} {ONE} in all rows", f"give {_BOTH_WAYS}")
        return array.astype(np.int16)

    def _require_scaled(self, array: npt.NDArray[Any]) -> None:
        """Raise UsageError for numbers that seem to be in the units of a schema.

        They would else be clipped to [-1, 1] without a word.
        """
        if self.schema is not None and np.abs(array.astype(np.float64)).max(initial=0) > 1:
            names = ", ".join(column.name for column in self.schema.features)
            text = (
                "the array has numbers beyond [-1, 1], so they seem to be in the units of columns"
            )
            raise UsageError(text, f"give a data frame or a dict with these columns: {names}")

    def _by_schema(self, table: MemoryTable, schema: Schema) -> Whole:
        """Return the rows of a table in the units of a schema. Raises UsageError."""
        needed = [column.name for column in schema.features]
        others = {schema.label, schema.device, schema.time, *schema.leave_out}
        # pandas makes columns without a value of the separators at the end of lines.
        given = [name for name in table.columns if name in needed or any(table.texts(name))]
        _require_columns(given, needed, others)
        of_features = own.with_empty_as_missing(own.without_label(schema))
        spelled = _spelled(_only(table, needed), of_features)
        own_rows = own.of_table(spelled, of_features)
        if len(own_rows.features) < len(table):
            left = set(table.lines) - set(own_rows.table.lines)
            text = f"{_NAME}, row {min(left)} has a missing value"
            hint = "leave such rows out: frame.dropna()"
            marks = [repr(mark) for mark in schema.missing if mark]
            if marks:
                hint += f"; the schema counts {' and '.join(marks)} as missing, too"
            raise UsageError(text, hint)
        own.require_in_range(own_rows.table, of_features)
        features = own_rows.features
        if self.names and not self.has_constant:
            features = features[:, 1:]
        return self._complete(features)

    def _by_name(self, frame: Any) -> Whole:
        """Return rows of columns that have the names of the features. Raises UsageError."""
        if not self.names:
            text = "this model does not know the names of its features"
            raise UsageError(text, f"give an array, n x {self.count}")
        needed = [name for name in self.names if name != CONSTANT]
        columns = dict(frames.columns_of(frame, _NAME))
        _require_columns(tuple(columns), needed, {CONSTANT})
        arrays = [frames.numbers_of(columns[name]) for name in needed]
        are_whole = all(array.dtype.kind in "iu" for array in arrays)
        if are_whole:
            return self._of_whole_columns(arrays)
        for name, array in zip(needed, arrays, strict=True):
            is_whole = array.dtype.kind in "iu"
            if is_whole and np.abs(array).max(initial=0) > 1:
                text = f"the column {name} has whole numbers beyond [-1, 1], and others have floats"
                raise UsageError(text, f"give all columns in one way: {_BOTH_WAYS}")
        return self._complete(to_fixed(np.stack(arrays, axis=1).astype(np.float64)))

    def _of_whole_columns(self, arrays: Sequence[npt.NDArray[Any]]) -> Whole:
        """Return rows of columns of whole numbers, without the constant. Raises UsageError."""
        without_names = replace(self, names=())  # there is no constant to judge the numbers by
        fixed = without_names._in_fixed_point(np.stack(arrays, axis=1))
        return self._complete(fixed)


def _require_columns(given: Sequence[str], needed: Sequence[str], others: Collection[str]) -> None:
    """Raise UsageError unless a table has the needed columns, and no unknown ones.

    others: further columns that it may have.
    """
    missing = [name for name in needed if name not in given]
    unknown = [name for name in given if name not in needed and name not in others]
    hint = f"the model has: {', '.join(needed)}"
    if missing:
        raise UsageError(f"{_NAME} lack the columns {', '.join(missing)}", hint)
    if unknown:
        raise UsageError(f"{_NAME} have unknown columns: {', '.join(unknown)}", hint)


def _only(table: MemoryTable, names: Sequence[str]) -> MemoryTable:
    """Return a table of these columns, in this order."""
    return replace(table, columns=tuple(names), cells=tuple(table.texts(name) for name in names))


def _spelled(table: RawTable, schema: Schema) -> RawTable:
    """Return a table whose bools are written as the categories of the schema are.

    pandas reads the texts true and false as bools.
    """
    cells = list(table.cells)
    for position, column in enumerate(schema.columns):
        if not isinstance(column, Categorical) or not set(cells[position]) <= {TRUE, FALSE, ""}:
            continue
        spelling = {"": ""}
        for text, ways in _OF_BOOLS.items():
            alike = [name for name in column.categories if name.lower() in ways]
            spelling[text] = alike[0] if len(alike) == 1 else text
        cells[position] = [spelling[text] for text in cells[position]]
    return replace(table, cells=tuple(cells))
