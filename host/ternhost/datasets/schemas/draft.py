"""The draft of a schema: what a proposal collects about the columns of a table."""

from dataclasses import dataclass, field
from itertools import compress

from ternhost.datasets.base import Floats
from ternhost.datasets.schemas.columns import Column
from ternhost.datasets.tables.missing_marks import numbers_if_all_are
from ternhost.datasets.tables.reading import RawTable


@dataclass
class Draft:
    """A table, and what a proposal has decided about its columns so far."""

    table: RawTable
    label: str
    missing: tuple[str, ...]
    columns: list[Column] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)  # for leaving a column out, by its name
    notes: dict[tuple[str, ...], list[str]] = field(default_factory=dict)
    device: str = ""
    time: str = ""
    _numbers: dict[str, Floats | None] = field(default_factory=dict)  # that were read already

    def numbers(self, name: str) -> Floats | None:
        """Return the numbers of a column, as of `numbers_if_all_are`; they are read once."""
        if name not in self._numbers:
            self._numbers[name] = numbers_if_all_are(self.table, name, self.missing)
        return self._numbers[name]

    def present(self, name: str) -> list[str]:
        """Return the texts of a column that do not stand for a missing value."""
        is_missing = self.table.missing(name, self.missing)
        return list(compress(self.table.texts(name), ~is_missing))
