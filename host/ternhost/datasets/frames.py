"""Tables that a Python program hands over: data frames, columns by name, and arrays.

They become the same table of texts as a file (`reading.RawTable`), so that the same rules hold.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from ternhost.datasets.tables.reading import RawTable, names_of
from ternhost.errors import UsageError
from ternhost.options import shown

FEATURES, LABEL = "feature{}", "label"  # names of the columns of arrays
TRUE, FALSE = "True", "False"
_NAME = "the table"
_MISSING = ("NAType", "NaTType", "MaskedConstant")  # types of missing values in pandas and NumPy
_NO_ARRAY = "give numbers, or a data frame or a dict of columns; pandas.read_csv reads a file"
_TAKEN = "a data frame, a dict of columns, or a pair of arrays: features (n x f) and labels (n)"


@dataclass(frozen=True)
class MemoryTable(RawTable):
    """A table in memory, whose rows are counted from 1 in messages.

    - categories: those of columns whose types say that they have some, by column
    - text_columns: the columns that have a text
    """

    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    text_columns: frozenset[str] = frozenset()

    def categories_of(self, column: str) -> tuple[str, ...]:
        texts = self.texts(column)
        if column in self.categories:
            return self.categories[column]
        if column in self.text_columns and not _are_numbers(texts):
            return tuple(sorted(set(texts) - {""}))
        return ()

    @property
    def how_to_describe(self) -> str:
        return "ternhost.describe(...) writes bounds for it: Data(..., schema=SCHEMA)"


def table_of(records: Any, name: str = _NAME) -> MemoryTable:
    """Return records as a table of texts.

    records: a data frame of pandas or polars, a dict of columns, or a pair of arrays. name: for
    messages. Raises UsageError for anything else, and for columns that are not one value a row.
    """
    return _table(columns_of(records, name), name)


def columns_of(records: Any, name: str = _NAME) -> list[tuple[str, Any]]:
    """Return the name and the values of each column of records. Raises UsageError.

    records, name: as of `table_of`.
    """
    try:
        if isinstance(records, Mapping):
            columns = [(key, records[key]) for key in records]
        elif is_frame(records):
            columns = _columns_of_frame(records)
        else:
            columns = _columns_of_arrays(records)
    except UsageError:
        raise
    except Exception as error:  # of an object of the user's own
        raise UsageError(f"{name} cannot be read: {error}", f"give {_TAKEN}") from error
    names = names_of([column_name(key) for key, _ in columns], len(columns), name)
    return [(column, values) for column, (_, values) in zip(names, columns, strict=True)]


def is_frame(records: Any) -> bool:
    """Return whether records are a data frame, whose columns have names."""
    return hasattr(records, "columns") and hasattr(records, "__getitem__")


def _columns_of_frame(frame: Any) -> list[tuple[Any, Any]]:
    """Return the name and the values of each column of a data frame, by position.

    Names may occur twice, which `columns_of` refuses.
    """
    by_position = getattr(frame, "iloc", None)
    if by_position is None:  # a frame of polars
        return [(name, frame[name]) for name in frame.columns]
    return [(name, by_position[:, position]) for position, name in enumerate(frame.columns)]


def _columns_of_arrays(records: Any) -> list[tuple[Any, Any]]:
    """Return the columns of a pair of arrays: those of the features, and that of the labels."""
    is_pair = isinstance(records, tuple | list) and len(records) == 2
    if not is_pair:
        raise UsageError(f"records must be {_TAKEN}, not {_kind(records)}")
    features, labels = (np.ma.asanyarray(part) for part in records)
    if features.ndim != 2 or labels.ndim != 1 or len(features) != len(labels):
        shapes = f"{features.shape} and {labels.shape}"
        hint = "features must be n x f, and labels n"
        raise UsageError(f"the arrays have the shapes {shapes}", hint)
    columns: list[tuple[Any, Any]] = []
    for position in range(features.shape[1]):
        columns.append((FEATURES.format(position), features[:, position]))
    return [*columns, (LABEL, labels)]


def _table(columns: Sequence[tuple[str, Any]], name: str) -> MemoryTable:
    """Return named columns as a table. Raises UsageError."""
    cells: dict[str, list[str]] = {}
    categories: dict[str, tuple[str, ...]] = {}
    text_columns = set()
    for column, values in columns:
        cells[column] = _cells(values, f"column {column} of {name}")
        if _has_a_text(values):
            text_columns.add(column)
        known = _categories(values)
        if known:
            categories[column] = known
    lengths = {len(texts) for texts in cells.values()}
    if len(lengths) > 1:
        raise UsageError(f"the columns of {name} have different lengths: {sorted(lengths)}")
    if not lengths or lengths == {0}:
        raise UsageError(f"{name} holds no records")
    return MemoryTable(
        name=name,
        columns=tuple(cells),
        cells=tuple(cells.values()),
        lines=range(1, lengths.pop() + 1),
        place="row",
        categories=categories,
        text_columns=frozenset(text_columns),
    )


def column_name(key: Any) -> str:
    """Return the name of a column as a text; the levels of a name of several are joined by "/".

    It is empty for a missing name. Raises UsageError for a name that is no text, number or date.
    """
    if isinstance(key, tuple):
        return "/".join(column_name(level) for level in key if level != "")
    return cell_of(key)


def _cells(values: Any, what: str) -> list[str]:
    """Return the values of a column as texts. what: the column, for messages."""
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
        hint = "give a list, also for a single row: [21.5]"
        raise UsageError(f"{what} must be a sequence of values, not {_kind(values)}", hint)
    if getattr(values, "ndim", 1) != 1:
        raise UsageError(f"{what} must have one value in each row")
    if not isinstance(values, list | tuple):
        values = values.tolist() if hasattr(values, "tolist") else list(values)
    if set(map(type, values)) <= {float}:  # as most columns: this is four times as fast
        return ["" if math.isnan(value) else repr(value) for value in values]
    try:
        return [cell_of(value) for value in values]
    except UsageError as error:
        raise UsageError(f"{what}: {error}", error.hint) from error


def cell_of(value: Any) -> str:
    """Return a value as the text of a cell, which is empty for a missing one.

    Raises UsageError for a value that is neither a text nor a number, a bool, a date or missing.
    """
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool | np.bool_):
        return TRUE if value else FALSE
    if value is None or type(value).__name__ in _MISSING:
        return ""
    try:
        if isinstance(value, Integral):
            return str(int(value))
        if isinstance(value, Real | Decimal):
            number = float(value)
            return "" if math.isnan(number) else repr(number)
        return str(value.isoformat())
    except (ArithmeticError, ValueError):
        raise UsageError(f"{shown(value)} is no number") from None
    except (AttributeError, TypeError):
        raise UsageError(f"{shown(value)} is no text, number, bool or date") from None


def _has_a_text(values: Any) -> bool:
    """Return whether a column has a text."""
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind not in "OSTU":
        return False
    return any(isinstance(value, str) for value in values)


def _categories(values: Any) -> tuple[str, ...]:
    """Return the categories of a column whose type says that it has some; empty for others."""
    dtype = getattr(values, "dtype", None)
    declared = getattr(dtype, "categories", None)
    if declared is not None and hasattr(declared, "tolist"):
        return tuple(cell_of(category) for category in declared.tolist())
    if _has_only_bools(values):
        return (FALSE, TRUE)
    return ()


def _has_only_bools(values: Any) -> bool:
    """Return whether a column holds bools, by its type, or in a list by its values."""
    dtype = getattr(values, "dtype", None)
    if dtype is not None:
        return str(dtype).lower() in ("bool", "boolean")
    if not isinstance(values, list | tuple):
        return False
    return len(values) > 0 and all(isinstance(value, bool) for value in values)


def _are_numbers(texts: Sequence[str]) -> bool:
    """Return whether all texts are numbers."""
    try:
        np.asarray(texts).astype(np.float64)
    except ValueError:
        return False
    return True


def numbers_of(records: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return what a program hands over as an array of bools, integers or floats.

    Raises UsageError for anything else: texts, missing values, and rows of different lengths.
    """
    try:
        array: Any = np.ma.asanyarray(records)
        if array.dtype == object:
            array = array.astype(np.float64)
    except Exception as error:  # of an object of the user's own
        raise UsageError(f"this is no array of numbers: {error}", _NO_ARRAY) from error
    if np.ma.getmaskarray(array).any():
        raise UsageError("the array has masked values", "leave out the rows with missing values")
    if array.dtype.kind not in "biuf":
        raise UsageError(f"this is no array of numbers, but of {array.dtype}", _NO_ARRAY)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise UsageError("a number is not finite", "leave out the rows with missing values")
    return np.asarray(array)


def _kind(value: Any) -> str:
    """Return the type of a value in words."""
    return type(value).__name__
