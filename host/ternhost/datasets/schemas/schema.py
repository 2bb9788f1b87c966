"""Schemas: what the columns of a table mean, and how they become features of records.

A schema is the file my.toml beside the table my.csv. The host scales the table by it, and boards
scale what their sensors measure by the same file (`Schema.for_board`; tern.columns). How a column
becomes features is in `ternhost.datasets.schemas.columns`.
"""

import json
import math
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from tern.wire import MAX_DIMENSION
from ternhost.datasets.base import CLASSIFICATION, MULTICLASS, REGRESSION, REST
from ternhost.datasets.schemas import schema_file
from ternhost.datasets.schemas.columns import Categorical, Column, Numeric, Steps, normal
from ternhost.datasets.schemas.schema_file import COLUMNS, Notes
from ternhost.datasets.schemas.toml_text import TomlText, key_text
from ternhost.errors import UsageError
from ternhost.files import storage_errors, write_file

__all__ = ["LEAVE_OUT", "MIDDLE", "SUFFIX", "Categorical", "Column", "Numeric", "Schema", "Steps"]

SUFFIX = ".toml"
LEAVE_OUT, MIDDLE = "leave out", "middle"  # what becomes of rows with a missing value
_NO_NOTES: Notes = {}


@dataclass(frozen=True)
class Schema:
    """What the columns of a table mean. The module's text and the guide say what each key is for.

    - columns: the features in their order, and the label among them
    - label: the name of the column that models predict; empty for a table to collect from
    - positive: the class that is +1 for a model of two classes; empty: the second of two
    - device, time, held_out: as in `Selection`
    - missing: the texts that stand for a missing value
    - rows_with_missing: LEAVE_OUT or MIDDLE
    - leave_out: the names of columns that are not used
    - text: that of the file, for messages about its lines; empty if there is no file
    - name: that of the file
    """

    columns: tuple[Column, ...]
    label: str = ""
    positive: str = ""
    device: str = ""
    time: str = ""
    held_out: float | None = None
    missing: tuple[str, ...] = ("",)
    rows_with_missing: str = LEAVE_OUT
    leave_out: tuple[str, ...] = ()
    text: str = field(default="", compare=False, repr=False)
    name: str = field(default="the schema", compare=False)

    def __post_init__(self) -> None:
        """Raise UsageError for a schema that contradicts itself, with the line to change."""
        self._check_names()
        if self.rows_with_missing not in (LEAVE_OUT, MIDDLE):
            text = f"{self.place_of('rows_with_missing')}: rows_with_missing is neither of the two"
            raise UsageError(text, f'rows_with_missing = "{LEAVE_OUT}", or = "{MIDDLE}"')
        if self.held_out is not None and not 0 < self.held_out < 1:
            text = f"{self.place_of('held_out')}: held_out must be above 0 and below 1"
            raise UsageError(f"{text}, and is {self.held_out:g}", "such as held_out = 0.1")
        self._check_positive()
        self._check_features()
        self._check_missing()

    def _check_names(self) -> None:
        """Raise UsageError for a column that is there twice or left out, and for no label column."""
        names = [column.name for column in self.columns]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"{self.line_of(name)}: there are two columns {name}")
            if name in self.leave_out:
                text = (
                    f"{self.place_of('leave_out')}: {name} is left out, and has a table of its own"
                )
                raise UsageError(text, f"delete it here, or delete {_table(name)}")
        if self.label and self.label not in names:
            text = f"{self.place_of('label')}: the label {self.label} has no {_table(self.label)}"
            raise UsageError(text, f"one of: {', '.join(names)}; or add the table")

    def _check_positive(self) -> None:
        """Raise UsageError if the positive class is none; name it as its label's column does."""
        if not self.positive:
            return
        place = self.place_of("positive")
        if not self.classes:
            text = f"{place}: there are no classes of which {self.positive!r} could be one"
            hint = "name a label whose column has categories, or leave positive out"
            raise UsageError(text, hint)
        for name in self.classes:
            if normal(name) == normal(self.positive):
                object.__setattr__(self, "positive", name)  # such as 1 for 1.0
                return
        text = f"{place}: {self.positive!r} is no class of {self.label}"
        raise UsageError(text, f"one of: {', '.join(self.classes)}")

    def _check_features(self) -> None:
        """Raise UsageError if there is no feature, or more than a record can have."""
        if not self.features:
            hint = "add a table such as [columns.temperature] for each feature"
            raise UsageError(f"{self.name} leaves no column as a feature", hint)
        count = 1  # the constant
        for column in self.features:
            count += len(column.features) if self.label else 1
            if count > MAX_DIMENSION:
                text = f"{self.line_of(column.name)}: with {column.name} there are {count} features"
                hint = f"a record has at most {MAX_DIMENSION}, the constant included: leave columns out"
                raise UsageError(text, hint)

    def _check_missing(self) -> None:
        """Raise UsageError if a category also stands for a missing value."""
        for column in self.columns:
            if not isinstance(column, Categorical):
                continue
            for category in column.categories:
                if category in self.missing:
                    place = self.line_of(column.name, "categories")
                    text = f"{place}: {category!r} is a category, and stands for a missing value"
                    raise UsageError(text, "delete it here, or from missing")

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that become features: all but the label."""
        return tuple(column for column in self.columns if column.name != self.label)

    @property
    def label_column(self) -> Column | None:
        """The column of the label; None if there is none."""
        for column in self.columns:
            if column.name == self.label:
                return column
        return None

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes that labels tell apart; empty if labels are numbers."""
        column = self.label_column
        if isinstance(column, Categorical):
            return column.categories
        return ()

    @property
    def task(self) -> str:
        """What suits the labels: one of CLASSIFICATION, REGRESSION and MULTICLASS."""
        if not self.classes:
            return REGRESSION
        if self.positive or len(self.classes) == 2:
            return CLASSIFICATION
        return MULTICLASS

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes in the form of `Dataset.classes`."""
        if self.task != CLASSIFICATION:
            return self.classes
        positive = self.positive or self.classes[1]
        rest = [name for name in self.classes if name != positive]
        return (rest[0] if len(rest) == 1 else REST, positive)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features, without that of the constant."""
        return tuple(name for column in self.features for name in column.features)

    @classmethod
    def beside(cls, table: Path) -> Self | None:
        """Return the schema beside a table, my.toml beside my.csv; None if there is none.

        Raises UsageError for a schema that is wrong.
        """
        path = table.with_suffix(SUFFIX)
        if not path.is_file():
            return None
        return cls.read(path)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a schema from its file. Raises UsageError with the line that is wrong."""
        file = TomlText.read(Path(path))
        return cls(**schema_file.fields_of(file), text=file.text, name=file.name)

    @classmethod
    def of_text(cls, text: str, name: str = "the schema") -> Self:
        """Return the schema in the text of a file. name: for messages. Raises UsageError."""
        return cls(**schema_file.fields_of(TomlText(name, text)), text=text, name=name)

    def write(self, path: str | Path) -> None:
        """Write or replace the file of the schema. Raises StorageError."""
        with storage_errors("name a place that you may write to", path):
            write_file(Path(path), self.toml().encode())

    def toml(self, notes: Notes = _NO_NOTES) -> str:
        """Return the text of the file of the schema. notes: as of `schema_file.lines_of`."""
        values: dict[str, Any] = {}
        for each in fields(self):
            if each.name not in schema_file.EXAMPLES:
                continue
            value = getattr(self, each.name)
            has_comment = (each.name,) in notes
            # A default needs no line, but for one that a comment explains.
            if value != each.default or (value and has_comment):
                values[each.name] = value
        return "\n".join([*schema_file.lines_of(values, self.columns, notes), ""])

    @property
    def _positive_code(self) -> int | None:
        """The number of the class whose label is 1; None if labels do not tell two classes apart."""
        if self.task != CLASSIFICATION:
            return None
        return self.classes.index(self.class_names[1])

    @cached_property
    def _file(self) -> TomlText:
        return TomlText(self.name, self.text)

    def line_of(self, column: str, key: str = "") -> str:
        """Return the place of a column in the file, for messages, such as "my.toml, line 7".

        key: that of the value in the column's table; empty for the table itself.
        """
        return self._file.where(COLUMNS, column, key)

    def place_of(self, *keys: str) -> str:
        """Return the place of the first of some keys that are in no table, or else the file's name.

        An example is "my.toml, line 1" for label.
        """
        for key in keys:
            place = self._file.where(key)
            if place != self.name:
                return place
        return self.name

    def for_board(self) -> bytes:
        """Return the file columns.json of a board, whose program makes records by this schema."""
        label = self.label_column
        content = {
            "features": [column.for_board() for column in self.features],
            "label": label and label.for_board(),
            "positive": self._positive_code,
            "missing": [_as_measured(mark) for mark in self.missing if mark],
            "rows_with_missing": self.rows_with_missing,
        }
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _as_measured(mark: str) -> float | str:
    """Return a mark of missing values as a program has it: a number, if it is one, else a text."""
    try:
        number = float(mark)
    except ValueError:
        return mark
    if not math.isfinite(number):
        return mark
    return int(number) if number.is_integer() else number


def _table(name: str) -> str:
    """Return the head of a column's table in the file."""
    return f"[columns.{key_text(name)}]"
