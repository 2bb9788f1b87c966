"""The file of a schema: its keys, what their values must be, and how it is written.

Every message about a value names its line.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from ternhost.datasets.schemas.columns import Categorical, Column, Numeric
from ternhost.datasets.schemas.toml_text import TomlText, key_text, text_of
from ternhost.errors import UsageError
from ternhost.text import visible

# The keys of the file but for the columns, each with an example of its value.
EXAMPLES = {
    "label": '"activity"',
    "positive": '"walking"',
    "device": '"home"',
    "time": '"t"',
    "held_out": "0.1",
    "missing": '["", "?"]',
    "rows_with_missing": '"leave out"',
    "leave_out": '["id", "note"]',
}
COLUMNS = "columns"
# What each key means, for the reference: those above, then those of the table of a column.
MEANINGS = {
    "label": "the column that models predict; without it, there is nothing to learn",
    "positive": "the class that is +1 for a model of two classes; the second of two by default",
    "device": "the column that says which device a record belongs to, as --by does",
    "time": "the column that orders the records of a device, as --time does",
    "held_out": "the share of the records that judge the model, as --held-out does; 0.1 by default",
    "missing": "how missing values are written; an empty cell by default",
    "rows_with_missing": 'what becomes of a row with a missing value: it is left out, or "middle": '
    "a missing number becomes the middle of its bounds",
    "leave_out": "columns that are no features",
}
MEANINGS_OF_COLUMN = {
    "low": "the public bound that becomes -1",
    "high": "the public bound that becomes 1",
    "unit": "the unit of the numbers, for people",
    "categories": "all categories of the column, which are public, in place of low and high",
    "computed": "true if the bounds or categories come from the records, so that they are not private",
}
_NUMERIC_KEYS = ("low", "high", "unit", "computed")
_CATEGORICAL_KEYS = ("categories", "computed")
_EXAMPLE_OF_BOUND = {"low": "0", "high": "10"}
_EXAMPLE_OF_COLUMN = 'low = 0 and high = 10, or categories = ["a", "b"]'

Notes = Mapping[tuple[str, ...], Sequence[str]]  # lines of comments, by the keys that they precede


def fields_of(file: TomlText) -> dict[str, Any]:
    """Return the fields of a `Schema`, by the values of its file.

    Raises UsageError for unknown keys and for values of another kind, with their lines.
    """
    values = file.values()
    for key in values:
        if key not in EXAMPLES and key != COLUMNS:
            text = f"{file.where(key)}: there is no key {key!r}"
            known = f"the keys are: {', '.join(EXAMPLES)}"
            raise UsageError(
                text, f"{known}; columns stand in tables such as [columns.temperature]"
            )

    fields: dict[str, Any] = {}
    for key, value in values.items():
        if key == COLUMNS:
            continue
        if key in ("missing", "leave_out"):
            fields[key] = _texts(file, value, key)
        elif key == "held_out":
            if not _is_number(value):
                raise _other_kind(file, value, key)
            fields[key] = float(value)
        elif key == "positive" and _is_number(value):
            fields[key] = str(value)  # such as a class 1
        elif isinstance(value, str):
            fields[key] = value
        else:
            raise _other_kind(file, value, key)
    fields[COLUMNS] = _columns(file, values.get(COLUMNS, {}))
    return fields


def _columns(file: TomlText, tables: Any) -> tuple[Column, ...]:
    """Make the columns of their tables in the file. Raises UsageError."""
    if not isinstance(tables, dict) or not tables:
        text = f"{file.where(COLUMNS)}: the schema has no columns"
        raise UsageError(text, "each column has a table, such as [columns.temperature]")
    columns: list[Column] = []
    for name, entries in tables.items():
        where = file.where(COLUMNS, name)
        if not isinstance(entries, dict):
            text = f"{where}: the column {name} needs a table of its own"
            raise UsageError(text, f"[columns.{key_text(name)}] and below it {_EXAMPLE_OF_COLUMN}")
        columns.append(_column(file, name, entries))
    return tuple(columns)


def _column(file: TomlText, name: str, entries: Mapping[str, Any]) -> Column:
    """Make a column of its table in the file. Raises UsageError."""
    path = (COLUMNS, name)
    is_categorical = "categories" in entries
    known = _CATEGORICAL_KEYS if is_categorical else _NUMERIC_KEYS
    for key in entries:
        if key not in known:
            text = f"{file.where(*path, key)}: {name} cannot have {key!r}"
            if is_categorical and key in _NUMERIC_KEYS:
                text += " beside categories"
            raise UsageError(text, f"it can have: {', '.join(known)}")
    computed = entries.get("computed", False)
    if not isinstance(computed, bool):
        raise UsageError(f"{file.where(*path, 'computed')}: computed must be true or false")
    unit = entries.get("unit", "")
    if not isinstance(unit, str):
        raise _other_kind(file, unit, *path, "unit", example='"°C"')

    if is_categorical:
        categories = _texts(file, entries["categories"], *path, "categories")
        return _made(file, (*path, "categories"), lambda: Categorical(name, categories, computed))
    low = _bound(file, name, entries, "low")
    high = _bound(file, name, entries, "high")
    return _made(file, (*path, "low"), lambda: Numeric(name, low, high, unit, computed))


def _bound(file: TomlText, name: str, entries: Mapping[str, Any], key: str) -> Decimal:
    """Return a bound of a numeric column. Raises UsageError."""
    path = (COLUMNS, name, key)
    if key not in entries:
        raise UsageError(f"{file.where(*path)}: {name} has no {key}", f"add {_EXAMPLE_OF_COLUMN}")
    if not _is_number(entries[key]):
        raise _other_kind(file, entries[key], *path, example=_EXAMPLE_OF_BOUND[key])
    return Decimal(entries[key])


def _made(file: TomlText, path: tuple[str, ...], make: Callable[[], Column]) -> Column:
    """Return the column that `make` makes; an error of it names the line of `path`."""
    try:
        return make()
    except UsageError as error:
        raise UsageError(f"{file.where(*path)}: {error.message}", error.hint) from error


def _texts(file: TomlText, values: Any, *path: str) -> tuple[str, ...]:
    """Return a list of the file as texts; numbers are written as in a table. Raises UsageError."""
    if not isinstance(values, list):
        raise _other_kind(file, values, *path, example='["a", "b"]')
    texts = []
    for value in values:
        if not isinstance(value, str) and not _is_number(value):
            text = f"{file.where(*path)}: {text_of(value)} is no text"
            raise UsageError(text, "write it in quotes, as it stands in the table")
        texts.append(str(value))
    return tuple(texts)


def _is_number(value: Any) -> bool:
    """Return whether a value of the file is a finite number, and no truth value."""
    if isinstance(value, Decimal):
        return value.is_finite()
    return isinstance(value, int) and not isinstance(value, bool)


def _other_kind(file: TomlText, value: Any, *path: str, example: str = "") -> UsageError:
    """Return the error for a value of another kind than that of its key.

    path: the keys that lead to it.
    """
    key = path[-1]
    shown = text_of(value)
    text = f"{file.where(*path)}: {key} cannot be {shown}"
    return UsageError(text, f"such as {key} = {example or EXAMPLES[key]}")


def lines_of(values: Mapping[str, Any], columns: Sequence[Column], notes: Notes) -> list[str]:
    """Return the lines of the file of a schema.

    values: by their keys. columns: in their order. notes: lines of comments, by the keys of what
    they stand above; those of (), which come first; and those of a key that has no value, at its
    place.
    """
    lines = _comment(notes.get((), ()))
    for key in EXAMPLES:
        lines += _comment(notes.get((key,), ()))
        if key in values:
            lines.append(f"{key} = {text_of(values[key])}")
    for column in columns:
        lines.append("")
        lines += _comment(notes.get((COLUMNS, column.name), ()))
        lines += _lines_of_column(column)
    return lines


def _lines_of_column(column: Column) -> list[str]:
    """Return the table of a column."""
    lines = [f"[{COLUMNS}.{key_text(column.name)}]"]
    if isinstance(column, Categorical):
        lines.append(f"categories = {text_of(column.categories)}")
    else:
        lines.append(f"low = {text_of(column.low)}")
        lines.append(f"high = {text_of(column.high)}")
        if column.unit:
            lines.append(f"unit = {text_of(column.unit)}")
    if column.computed:
        lines.append("computed = true")
    return lines


def _comment(lines: Sequence[str]) -> list[str]:
    """Return lines as comments; an empty one stays empty."""
    comment = []
    for line in lines:
        comment.append(f"# {visible(line)}" if line else "")
    return comment
