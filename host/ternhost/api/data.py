"""Records of the user's own, as a program hands them to a run: a file, a data frame, or arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ternhost.api import arguments
from ternhost.datasets import frames, in_memory
from ternhost.datasets.in_memory import InMemory
from ternhost.datasets.schemas import describe as proposals
from ternhost.datasets.schemas.schema import Schema
from ternhost.datasets.tables import reading
from ternhost.datasets.tables.reading import RawTable
from ternhost.errors import UsageError
from ternhost.learn.data_options import DataOptions
from ternhost.options import OptionGroup, shown
from ternhost.options import options_of as options_of_class

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    Columns = Mapping[str, Sequence[Any] | npt.NDArray[Any]]
    Arrays = tuple[npt.ArrayLike, npt.ArrayLike]
    Records: TypeAlias = str | Path | pd.DataFrame | Columns | Arrays
    AnyData: TypeAlias = "Data | Records"

_HELD_OUT = next(each for each in options_of_class(DataOptions) if each.name == "held_out")


@dataclass(frozen=True, eq=False)
class Data:
    """Records, whose they are, and what their columns mean.

    - records: the name of a data set, the path of a table, a data frame of pandas, a dict of
      columns, or a pair of arrays: features (n x f) and labels (n)
    - by: the column that says which device a record belongs to
    - time: the column that orders the records of a device
    - held_out: the share of the records that judge the model, and that no device holds
    - label: the column that models predict; by default the schema's, or else the last one
    - schema: a `Schema`, or the path of its file; by default the one beside the table. Without a
      schema all numbers must lie in [-1, 1]; bools and texts are categories

    Records in memory stay there: a run keeps no copy of them. Only emulated boards store their
    records, as real ones do.
    """

    records: Records
    by: str = ""
    time: str = ""
    held_out: float | None = None
    label: str = ""
    schema: Schema | str | Path | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for a value of another type."""
        for name in ("by", "time", "label"):
            value: Any = getattr(self, name)
            if not isinstance(value, str):
                raise UsageError(f"{name} must be the name of a column, not {shown(value)}")
        given: Any = self.schema
        if given is not None and not isinstance(given, Schema | str | os.PathLike):
            raise UsageError(f"schema must be a Schema or its file, not {type(given).__name__}")
        object.__setattr__(self, "held_out", _HELD_OUT.normalised(self.held_out))

    def __repr__(self) -> str:
        parts = [_in_words(self.records)]
        for each in fields(self)[1:]:
            value = getattr(self, each.name)
            if value not in ("", None):
                shown_value = value.name if isinstance(value, Schema) else value
                parts.append(f"{each.name}={shown_value!r}")
        return f"Data({', '.join(parts)})"

    def options(self) -> Mapping[str, Any]:
        """Return the options of a run that this object sets, by name. Raises UsageError.

        A table in memory is kept under a name for the life of the process.
        """
        named: dict[str, Any] = {"data": self._name()}
        for option in ("by", "time", "held_out"):
            value = getattr(self, option)
            if value not in ("", None):
                named[option] = value
        return named

    def in_memory(self) -> InMemory | None:
        """Return the table, if it must be kept in memory; None for the name of a data set or a file.

        Raises UsageError if it cannot be read.
        """
        schema = self.schema
        if isinstance(schema, str | os.PathLike):
            schema = Schema.read(arguments.path(schema, "schema"))
        if _is_path(self.records) and schema is None:
            if not self.label:
                return None
            schema = Schema.beside(_path_of(self.records))
        return InMemory.of(_table_of(self.records), schema, self.label)

    def _name(self) -> str:
        """Return the value of --data. Raises UsageError."""
        held = self.in_memory()
        if held is not None:
            return in_memory.keep(held)
        records: Any = self.records
        if isinstance(records, str):  # the name of a data set may have any form
            return records
        return arguments.path(records, "data")


def as_data(data: Any) -> Data:
    """Return what a program hands over as data. Raises UsageError."""
    if isinstance(data, Data):
        return data
    return Data(data)


def describe(data: AnyData) -> Schema:
    """Propose a schema for a table, as `tern data describe` does.

    data: as of `train`, but no name of a data set. Its bounds and categories come from the records
    themselves, so that they are not private: they are marked as computed. Write the schema to a
    file and edit that, or replace columns, with bounds that are public::

        schema = ternhost.describe(frame)
        schema.write("my.toml")

    The label is the last column, unless a column has a usual name such as "label" or "y". Name
    another one with `Data`: ``ternhost.describe(Data(frame, label="fails"))``.

    Raises UsageError for a table that cannot be read.
    """
    given = as_data(data)
    schema = proposals.propose(_table_of(given.records), given.label).schema
    by, time = given.by or schema.device, given.time or schema.time
    columns = tuple(column for column in schema.columns if column.name not in (by, time))
    return replace(schema, columns=columns, device=by, time=time)


def options_of(data: Any) -> Mapping[str, Any]:
    """Return the options that name the records of a run; none for None. Raises UsageError."""
    if data is None:
        return {}
    return as_data(data).options()


def replaced(learner: OptionGroup, data: Any) -> OptionGroup:
    """Return a learner with the records that stand beside it. Raises UsageError.

    learner: its options. data: None: the learner's own.
    """
    named = options_of(data)
    if not named:
        return learner
    if not isinstance(learner, OptionGroup):
        raise UsageError(f"{type(learner).__name__} is no learner")
    options = {each.name: each for each in options_of_class(learner)}
    for name, value in named.items():
        if name not in options:
            raise UsageError(f"{type(learner).__name__} takes no {name}", "leave it out")
        own_value = getattr(learner, name)
        if own_value not in (options[name].default, value):
            text = f"{name} is {own_value} in the learner, and {value} beside it"
            raise UsageError(text, "give it once")
    return replace(learner, **named)


def _is_path(records: Any) -> bool:
    """Return whether records are the path of a table, or the name of a data set."""
    return isinstance(records, str | os.PathLike)


def _path_of(records: Any) -> Path:
    """Return the path of a table. Raises UsageError for one that is no text."""
    return Path(arguments.path(records, "records")).expanduser()


def _table_of(records: Any) -> RawTable:
    """Return the table in a file or in the memory of the program. Raises UsageError.

    records: as of `Data`, but no name of a data set.
    """
    if _is_path(records):
        return reading.read(_path_of(records))
    return frames.table_of(records)


def _in_words(records: Any) -> str:
    """Return what records are, in a few words."""
    if _is_path(records):
        return repr(str(records))
    if isinstance(records, Mapping):
        return f"<{len(records)} columns>"
    shape = getattr(records, "shape", None)
    if shape is not None and len(shape) == 2:
        return f"<{type(records).__name__} of {shape[0]} rows and {shape[1]} columns>"
    if isinstance(records, tuple | list) and len(records) == 2:
        return "<arrays of features and labels>"
    return f"<{type(records).__name__}>"
