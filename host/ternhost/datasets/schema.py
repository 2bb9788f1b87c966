"""Schemas: what the columns of a table mean, and how they become features of records.

A schema is the file my.toml beside the table my.csv. The host scales the table by it, and boards
scale what their sensors measure by the same file (`Schema.for_board`; tern.columns).

A numeric column has public bounds, low and high, which become -1 and 1. All computing is in
integers. A value v is counted in steps of the column: V = round(v * times / per), clipped to whole
numbers L .. H, which are the bounds in steps. Then the feature is (2 V - L - H) 2**14 // (H - L),
in Q1.14. The step is a power of ten, the smallest one for which H - L is below 2**16; for the
bounds -1 and 1 it is 2**-14 itself, so that such values are kept as they are.
"""

import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tern.fixed import ONE
from tern.wire import MAX_DIMENSION
from ternhost.datasets.base import (
    CLASSIFICATION,
    MULTICLASS,
    REGRESSION,
    REST,
    Fixed,
    expand,
)
from ternhost.datasets.reading import RawTable
from ternhost.errors import UsageError

SUFFIX = ".toml"
LEAVE_OUT, MIDDLE = "leave out", "middle"  # what becomes of rows with a missing value
_MOST_STEPS = 65_535  # of a column, so that no product on a board exceeds 31 bits
_LARGEST_BOUND = Decimal("1e15")
_KEYS: dict[str, Any] = {
    "label": str,
    "positive": str,
    "device": str,
    "time": str,
    "held_out": (int, Decimal),
    "missing": list,
    "rows_with_missing": str,
    "leave_out": list,
    "columns": dict,
}


class Steps(NamedTuple):
    """How a value becomes a whole number of steps: round(value * times / per), then clipped."""

    low: int
    high: int
    times: int
    per: int


@dataclass(frozen=True)
class Numeric:
    """A column of numbers.

    - low, high: its public bounds, in the unit of the column
    - unit: in words, for people
    - computed: whether the bounds come from the records themselves, so that they are not private
    """

    name: str
    low: Decimal
    high: Decimal
    unit: str = ""
    computed: bool = False

    def __post_init__(self) -> None:
        """Raise UsageError for bounds that are no interval."""
        for bound in (self.low, self.high):
            if not bound.is_finite() or abs(bound) > _LARGEST_BOUND:
                raise UsageError(f"the bounds of {self.name} must be numbers below 1e15 in size")
        if self.low >= self.high:
            text = (
                f"the bounds of {self.name} are {self.low} and {self.high}: low must be below high"
            )
            raise UsageError(text)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features that the column becomes."""
        return (self.name,)

    @cached_property
    def steps(self) -> Steps:
        """How values are counted in steps."""
        if self.low == -1 and self.high == 1:
            return Steps(-ONE, ONE, ONE, 1)
        # The smallest power of ten for which there are not too many steps.
        exponent = math.floor(((self.high - self.low) / _MOST_STEPS).log10())
        while True:
            step = Decimal(1).scaleb(exponent)
            low = math.floor(self.low / step)
            high = math.ceil(self.high / step)
            if high - low <= _MOST_STEPS:
                break
            exponent += 1
        return Steps(low, high, times=10 ** max(0, -exponent), per=10 ** max(0, exponent))

    def scale(self, values: npt.ArrayLike) -> Fixed:
        """Return values (n) as features (n) in Q1.14; nan becomes the middle of the bounds, 0."""
        numbers = np.asarray(values, np.float64)
        steps = self.steps
        counted = np.clip(np.rint(numbers * steps.times / steps.per), steps.low, steps.high)
        is_known = ~np.isnan(counted)
        whole = np.where(is_known, counted, 0).astype(np.int64)
        scaled = (2 * whole - steps.low - steps.high) * ONE // (steps.high - steps.low)
        return np.where(is_known, scaled, 0).astype(np.int16)

    def for_board(self) -> list[Any]:
        """Return the column as a board reads it (storage.md)."""
        return [self.name, *self.steps]


@dataclass(frozen=True)
class Categorical:
    """A column of categories, whose names are public.

    - categories: all of them; a category's number is its position
    - computed: whether they come from the records themselves, so that they are not private
    """

    name: str
    categories: tuple[str, ...]
    computed: bool = False

    def __post_init__(self) -> None:
        """Raise UsageError for categories that cannot be told apart, or are too many."""
        if len(set(self.categories)) < len(self.categories) or len(self.categories) < 2:
            raise UsageError(f"{self.name} needs two or more different categories")
        if len(self.categories) > MAX_DIMENSION:
            text = f"{self.name} has {len(self.categories)} categories"
            raise UsageError(text, f"at most {MAX_DIMENSION}; leave the column out if it is a name")

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features that the column becomes: one for each category but the last."""
        return tuple(f"{self.name}={category}" for category in self.categories[:-1])

    def codes(self, table: RawTable, missing: Sequence[str] = ()) -> Fixed:
        """Return the number of the category in each row of a table (n); -1 for a missing one.

        Texts that are the same number, such as 1 and 1.0, are the same category. Raises UsageError
        for a text that is no category, with its line.
        """
        code_of = {_normal(category): code for code, category in enumerate(self.categories)}
        code_of |= dict.fromkeys(missing, -1)
        codes = np.empty(len(table), np.int16)
        for row, text in enumerate(table.texts(self.name)):
            code = code_of.get(text)
            if code is None:
                code = code_of.get(_normal(text))
            if code is None:
                where = table.where(row, self.name)
                hint = f"its categories are: {', '.join(self.categories)}"
                raise UsageError(f"{where}: {text!r} is no category", hint)
            codes[row] = code
        return codes

    def expand(self, codes: npt.ArrayLike) -> Fixed:
        """Return the numbers of categories (n) as features (n x categories - 1) in Q1.14."""
        return expand(codes, len(self.categories))

    def for_board(self) -> list[Any]:
        """Return the column as a board reads it (storage.md)."""
        return [self.name, list(self.categories)]


Column = Numeric | Categorical


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
        """Raise UsageError for a schema that contradicts itself."""
        names = [column.name for column in self.columns]
        if self.label and self.label not in names:
            text = (
                f"{self.name}: the label {self.label} has no table [columns.{toml_key(self.label)}]"
            )
            raise UsageError(text, f"it has: {', '.join(names)}")
        if self.rows_with_missing not in (LEAVE_OUT, MIDDLE):
            text = f'{self.name}: rows_with_missing must be "{LEAVE_OUT}" or "{MIDDLE}"'
            raise UsageError(text)
        if self.positive:
            classes = self.classes
            if self.positive not in classes:
                text = f"{self.name}: positive = {self.positive!r} is no class of {self.label!r}"
                raise UsageError(text, f"its classes are: {', '.join(classes) or 'none'}")
        if not self.features:
            raise UsageError(f"{self.name} leaves no column as a feature")

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
        """Return the schema beside a table, my.toml beside my.csv; None if there is none."""
        path = table.with_suffix(SUFFIX)
        return cls.read(path) if path.is_file() else None

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a schema from its file. Raises UsageError with the line that is wrong."""
        file = Path(path)
        try:
            text = file.read_text(encoding="utf-8-sig")
            values = tomllib.loads(text, parse_float=Decimal)
        except OSError as error:
            raise UsageError(f"cannot read {file}: {error.strerror}") from error
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, ArithmeticError, ValueError) as error:
            raise UsageError(f"{file} is no TOML: {error}") from error
        return cls(**_fields(values, file.name), text=text, name=file.name)

    @property
    def _positive_code(self) -> int | None:
        """The number of the class whose label is 1; None if labels do not tell two classes apart."""
        if self.task != CLASSIFICATION:
            return None
        return self.classes.index(self.class_names[1])

    def line_of(self, column: str, key: str = "") -> str:
        """Return the place of a column in the file, for messages, such as "my.toml, line 7".

        key: that of the value in the column's table; empty for the table itself.
        """
        header = f"[columns.{toml_key(column)}]"
        number = 0
        for line_number, line in enumerate(self.text.splitlines(), 1):
            if line.strip() == header:
                number = line_number
            elif number and line.lstrip().startswith("["):
                break
            elif number and key and re.match(rf"\s*{key}\s*=", line):
                return f"{self.name}, line {line_number}"
        if number:
            return f"{self.name}, line {number}"
        return self.name

    def for_board(self) -> bytes:
        """Return the file columns.json of a board, whose program makes records by this schema."""
        label = self.label_column
        content = {
            "features": [column.for_board() for column in self.features],
            "label": label and label.for_board(),
            "positive": self._positive_code,
            "missing": self.rows_with_missing,
        }
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _fields(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the fields of a schema, by the values of its file. name: that of the file.

    Raises UsageError for unknown keys and values of another kind.
    """
    for key, value in values.items():
        if key not in _KEYS:
            text = f"{name} has an unknown key {key!r}"
            raise UsageError(text, f"the keys are: {', '.join(_KEYS)}")
        if isinstance(value, bool) or not isinstance(value, _KEYS[key]):
            raise UsageError(f"{name}: {key} has a value of another kind: {value!r}")
    columns = []
    for column_name, entries in values.get("columns", {}).items():
        columns.append(_column(column_name, entries, name))
    schema_fields: dict[str, Any] = {**values, "columns": tuple(columns)}
    if "held_out" in values:
        schema_fields["held_out"] = float(values["held_out"])
    for key in ("missing", "leave_out"):
        if key in values:
            schema_fields[key] = _texts(values[key], f"{name}: {key}")
    return schema_fields


def _column(column: str, entries: Any, name: str) -> Column:
    """Make a column of its table in the file. name: that of the file. Raises UsageError."""
    where = f"{name}, [columns.{toml_key(column)}]"
    if not isinstance(entries, dict):
        raise UsageError(f"{where} must be a table, such as low = 0 and high = 10")
    computed = entries.get("computed", False)
    if not isinstance(computed, bool):
        raise UsageError(f"{where}: computed must be true or false")
    try:
        if "categories" in entries:
            _require_keys(entries, {"categories", "computed"}, where)
            return Categorical(
                column, _texts(entries["categories"], f"{where}: categories"), computed
            )
        _require_keys(entries, {"low", "high", "unit", "computed"}, where)
        bounds = []
        for key in ("low", "high"):
            value = entries.get(key)
            if isinstance(value, bool) or not isinstance(value, int | Decimal):
                text = f"{where} needs low and high, or categories"
                raise UsageError(text, "low = 0 and high = 10, or categories = [...]")
            bounds.append(Decimal(value))
        return Numeric(column, bounds[0], bounds[1], str(entries.get("unit", "")), computed)
    except UsageError as error:
        if str(error).startswith(where):
            raise
        raise UsageError(f"{where}: {error}", error.hint) from error


def _require_keys(entries: Mapping[str, Any], known: set[str], where: str) -> None:
    """Raise UsageError for a key that is not known."""
    for key in entries:
        if key not in known:
            raise UsageError(
                f"{where} has an unknown key {key!r}", f"known: {', '.join(sorted(known))}"
            )


def _texts(values: Any, what: str) -> tuple[str, ...]:
    """Return a list of a file as texts; numbers are written as in a table. Raises UsageError."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise UsageError(f'{what} must be a list, such as ["a", "b"]')
    return tuple(str(value) for value in values)


def _normal(text: str) -> str:
    """Return a text, and a number in its shortest form: "1" for "1.0"."""
    try:
        return f"{float(text):.17g}"
    except ValueError:
        return text


def toml_key(name: str) -> str:
    """Return the name of a column as a key in TOML: in quotes if it has other characters."""
    if re.fullmatch(r"[A-Za-z0-9_-]+", name):
        return name
    return json.dumps(name, ensure_ascii=False)
