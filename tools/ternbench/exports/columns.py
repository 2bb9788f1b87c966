"""Chooses the columns of a table that hold time, current, voltage, power and marker."""

import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

from ternbench.exports import titles, units
from ternbench.exports.titles import MARKER, Title
from ternbench.exports.units import CURRENT, POWER, TIME, VOLTAGE, Unit
from ternbench.traces import Floats
from ternhost.datasets.tables.number_style import COMMA, POINT, tells_decimal_mark
from ternhost.datasets.tables.reading import RawTable
from ternhost.datasets.tables.table_rows import MISSING
from ternhost.errors import UsageError
from ternhost.options import shown
from ternhost.text import counted

DECIMAL_MARKS = {"point": (POINT, COMMA), "comma": (COMMA, POINT)}
"""What users call decimal marks: the mark, and the one that then groups thousands."""

_EXAMPLES = {TIME: "ms", CURRENT: "mA", VOLTAGE: "V", POWER: "mW"}
_UNIT_AFTER = re.compile(r"(.*\S)\s+in\s+(\S+)")
_NO_UNIT = frozenset({"", "-", "1", "bool", "bit", "logic"})  # in a row of units


@dataclass(frozen=True)
class Column:
    """A column that was chosen for a quantity: its title, and its unit if that is known.

    is_unit_stated: the user names the unit, whatever the title says.
    """

    name: str
    unit: Unit | None = None
    is_unit_stated: bool = False


class Titles:
    """What the titles of a table say, and which column holds a quantity.

    table: its rows without a row of units.
    """

    def __init__(
        self,
        table: RawTable,
        known: Mapping[str, Title] | None = None,
        decimal: str | None = None,
        claimed: Mapping[str, str] | None = None,
    ) -> None:
        """Read the titles, and a row of units below them if there is one.

        known: what the titles of a maker's program mean, by title. decimal: the decimal mark that the
        user names, a key of DECIMAL_MARKS. claimed: the columns that the user names, by
        their quantities. They hold nothing else: the marker is no supply, although it may be in volts.
        """
        self._is_mark_stated = decimal is not None
        if decimal is not None:
            mark, thousands = DECIMAL_MARKS[decimal]
            table = replace(table, decimal=mark, thousands=thousands)
        below = _units_below(table)
        if below:
            table = table.rows(range(1, len(table)))
        self.table = table
        self._titles: list[Title] = []
        for position, name in enumerate(table.columns):
            title = titles.parse(name, below[position] if below else "")
            if titles.are_channels(name, table.columns):
                title = replace(title, unit=None, unclear=name[-1:])
            self._titles.append((known or {}).get(name, title))
        self._claimed: dict[str, str] = {}
        for quantity, value in (claimed or {}).items():
            match = _UNIT_AFTER.fullmatch(value)
            found = self._find(value) or (self._find(match[1]) if match else None)
            if found is not None:
                self._claimed[found.name] = quantity

    def at_rows(self, rows: Sequence[int]) -> "Titles":
        """Return the same titles over some rows of the table only."""
        titles = copy(self)
        titles.table = self.table.rows(rows)
        return titles

    def inputs(self) -> dict[str, tuple[str, int]]:
        """Return the inputs in columns of bits: for each the column, and the place of its bit."""
        places: dict[str, tuple[str, int]] = {}
        for title in self._titles:
            for place, name in enumerate(title.inputs):
                places.setdefault(name, (title.name, place))
        return places

    def has(self, name: str) -> bool:
        """Return whether there is a column or an input with a name."""
        return self._find(name) is not None or name in self.inputs()

    def of(self, quantity: str) -> list[Title]:
        """Return the titles of the columns that hold a quantity, without limits and the like.

        A column that the user names for another quantity does not hold this one.
        """
        titles = [
            title for title in self._titles if title.quantity == quantity and not title.is_other
        ]
        return [title for title in titles if self._claimed.get(title.name, quantity) == quantity]

    def named(self, quantity: str, value: str) -> Column:
        """Return the column that the user names for a quantity, as in current="Strom in mA".

        Raises UsageError if there is no such column, or if its unit remains open.
        """
        title = self._find(value)
        unit = title.unit if title is not None else None
        if title is None:
            match = _UNIT_AFTER.fullmatch(value)
            if match:
                title = self._find(match[1])
                unit = units.parse(match[2])
                if title is not None and (unit is None or unit.quantity != quantity):
                    text = f"{quantity}={value}: {shown(match[2])} is no unit of a {quantity}"
                    raise UsageError(text, hint=f"such as {self._setting(quantity, title)}")
        if title is None:
            hint = f"its columns are: {', '.join(self.table.columns)}"
            raise UsageError(f"{self.table.name} has no column {shown(value)}", hint)
        if unit is not None and unit.quantity != quantity:
            unit = None
        return Column(title.name, unit, is_unit_stated=unit is not title.unit)

    def automatic(self, quantity: str) -> Column | None:
        """Return the only column that holds a quantity; None if there is none.

        Raises UsageError if several qualify.
        """
        candidates = self.of(quantity)
        if not candidates:
            return None
        if len(candidates) > 1:
            names = ", ".join(title.name for title in candidates)
            text = f"{self.table.name} has {len(candidates)} columns of {quantity}: {names}"
            raise UsageError(text, hint=f"name one: {self._setting(quantity, candidates[0])}")
        return Column(candidates[0].name, candidates[0].unit)

    def require_unit(self, quantity: str, column: Column) -> Unit:
        """Return the unit of a column. Raises UsageError if it is not known."""
        if column.unit is not None:
            return column.unit
        title = self._find(column.name)
        assert title is not None
        problem = f"names no unit of its {quantity}"
        if title.unit is not None:
            problem = f"is in {title.unit.symbol}, which is no unit of a {quantity}"
        elif title.unclear:
            problem = f"has the unit {shown(title.unclear)}, which is not understood"
        hint = f"name the unit, such as {self._setting(quantity, title)}"
        small_letters = units.parse(title.unclear.lower())
        if small_letters is not None and small_letters.quantity == quantity:
            named = f"{title.name} in {small_letters.symbol}"
            hint = f"if it is {small_letters.symbol}, name the unit: {setting(quantity, named)}"
        raise UsageError(f"{self.table.name}: column {shown(column.name)} {problem}", hint)

    def numbers(self, name: str) -> Floats:
        """Return the numbers of a column; nan stands for a missing one.

        Raises UsageError for other cells, and if nothing tells whether 12,345 is 12 or 12345.
        """
        cells = self.table.texts(name)
        if not self._is_mark_stated:
            self._require_decimal_mark(name, cells)
        missing = {cell for cell in cells if cell.lower() in MISSING}
        return self.table.numbers(name, missing)

    def _require_decimal_mark(self, name: str, cells: Sequence[str]) -> None:
        """Raise UsageError if a mark in the numbers of a column may group thousands as well."""
        marks = [mark for mark in (POINT, COMMA) if any(mark in cell for cell in cells)]
        # Where commas separate cells, a point groups no thousands.
        is_usual = marks == [POINT] and self.table.separator == COMMA
        if len(marks) != 1 or is_usual or any(map(tells_decimal_mark, self.table.cells)):
            return
        cell = next(cell for cell in cells if marks[0] in cell)
        text = (
            f"{self.table.name}: in column {shown(name)}, the mark in {shown(cell)} may be decimal "
            "or group thousands"
        )
        raise UsageError(text, hint="say which mark is decimal: decimal=point or decimal=comma")

    def missing(self, quantity: str) -> UsageError:
        """Return the error of a table without a column of a quantity."""
        names = ", ".join(self.table.columns)
        text = f"{self.table.name} has no column of {quantity} among {names}"
        if not self.table.has_header:
            text = f"{self.table.name} has no titles; its columns are called {names}"
        hint = f"name it: {quantity}=COLUMN in {_EXAMPLES.get(quantity, 'UNIT')}"
        if quantity == MARKER:
            hint = "record the board's marker pin as a digital input, and name its column: marker=COLUMN"
        others = [title for title in self._titles if title.quantity == quantity]
        if others:
            hint = f"if it is this one, name it: {self._setting(quantity, others[0])}"
        return UsageError(text, hint)

    def _find(self, name: str) -> Title | None:
        """Return the title with a name, whose capital letters need not fit if it is the only one."""
        name = " ".join(name.split())
        for title in self._titles:
            if title.name == name:
                return title
        alike = [title for title in self._titles if title.name.lower() == name.lower()]
        return alike[0] if len(alike) == 1 else None

    def _setting(self, quantity: str, title: Title) -> str:
        """Return the setting of --meter that chooses a column, with an example of a unit."""
        value = title.name
        has_unit = title.unit is not None and title.unit.quantity == quantity
        if quantity != MARKER and not has_unit:
            value += f" in {_EXAMPLES[quantity]}"
        if title.inputs:
            value = title.inputs[0]
        return setting(quantity, value)


def setting(word: str, value: str) -> str:
    """Return a setting of --meter as users write it, with quotes if the value has a comma."""
    if "," in value:
        return f'{word}="{value}"'
    return f"{word}={value}"


def _units_below(table: RawTable) -> Sequence[str]:
    """Return the units in the first row of a table, by column; empty if this row is no row of units."""
    if not table.has_header or len(table) < 2:
        return ()
    cells = [column[0].strip() for column in table.cells]
    texts = [cell.strip("()[]{}<> ") for cell in cells]
    if not any(units.parse(text.lower()) for text in texts):
        return ()
    if any(re.search(r"\d", text) for text in texts if text not in _NO_UNIT):
        return ()
    return [text if text.lower() not in _NO_UNIT else "" for text in texts]


def require_rows(table: RawTable) -> None:
    """Raise UsageError for a table without enough rows to be a recording."""
    if len(table) < 2:
        text = f"{table.name} has {counted(len(table), 'sample')}"
        raise UsageError(text, hint="export a whole recording")
