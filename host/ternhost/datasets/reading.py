"""Reads tables that people have: text files of rows and columns, and data frames of Python.

A table is kept as text, cell by cell, with the line of the file that each row came from. So every
message can name the line, the column and the cell that it is about.
"""

import csv
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ternhost.errors import UsageError

Floats = npt.NDArray[np.float64]

_SEPARATORS = ",;\t|"
_SAMPLE = 100  # rows from which the form of a file is guessed
_SHOWN = 40  # characters of a cell in a message


@dataclass(frozen=True)
class RawTable:
    """A table whose cells are texts.

    - name: that of the file, for messages
    - columns: the names of the columns, each of which occurs once
    - cells: for each column, the n texts in it, without blanks around them
    - lines: for each of the n rows, the line of the file on which it begins, from 1
    - has_header: whether the file names its columns; otherwise they are called x0, x1 and so on
    - decimal: the decimal mark of its numbers, "." or ","
    - thousands: the mark between groups of three digits; empty if there is none
    """

    name: str
    columns: tuple[str, ...]
    cells: tuple[list[str], ...]
    lines: Sequence[int]
    has_header: bool = True
    decimal: str = "."
    thousands: str = ""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.lines)

    def texts(self, column: str) -> list[str]:
        """Return the cells of a column. Raises UsageError if there is no such column."""
        if column not in self.columns:
            hint = f"its columns are: {', '.join(self.columns)}"
            raise UsageError(f"{self.name} has no column {column!r}", hint)
        return self.cells[self.columns.index(column)]

    def numbers(self, column: str, missing: Collection[str] = ()) -> Floats:
        """Return the numbers of a column; nan stands for a missing one.

        missing: the texts that stand for a missing value. Raises UsageError for a cell that is no
        finite number, with its line and column.
        """
        numbers = np.empty(len(self))
        for row, cell in enumerate(self.texts(column)):
            if cell in missing:
                numbers[row] = math.nan
            else:
                numbers[row] = self._number(row, column, cell)
        return numbers

    def _number(self, row: int, column: str, cell: str) -> float:
        """Return the number in a cell. Raises UsageError if there is none."""
        text = cell.replace(self.thousands, "") if self.thousands else cell
        try:
            number = float(text.replace(self.decimal, "."))
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or "_" in cell:
            shown = cell if len(cell) <= _SHOWN else cell[:_SHOWN] + "..."
            raise UsageError(f"{self.where(row, column)}: {shown!r} is no number")
        return number

    def where(self, row: int, column: str) -> str:
        """Return where a cell is, for messages. row: from 0."""
        return f"{self.name}, line {self.lines[row]}, column {column}"

    def rows(self, positions: npt.ArrayLike) -> "RawTable":
        """Return a table of the rows at these positions, in this order."""
        chosen = np.asarray(positions, np.int64).tolist()
        cells = tuple([column[row] for row in chosen] for column in self.cells)
        return replace(self, cells=cells, lines=[self.lines[row] for row in chosen])


def read(path: str | Path) -> RawTable:
    """Read a table from a text file of rows and columns.

    Raises UsageError for a file that cannot be read as a table.
    """
    file = Path(path)
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is no text in UTF-8", hint="save it as CSV, in UTF-8") from error
    separator = _separator(text.splitlines()[:_SAMPLE])
    rows = [(line, cells) for line, cells in _split(text, separator) if any(cells)]
    if not rows:
        raise UsageError(f"{file} holds no records")

    width = len(rows[-1][1])
    _, first_row = rows[0]
    has_header = not any(_looks_like_number(cell) for cell in first_row)
    if has_header:
        columns = tuple(first_row)
        del rows[0]
    else:
        columns = tuple(f"x{number}" for number in range(width))
    for line, cells in rows:
        if len(cells) != len(columns):
            text = f"{file}, line {line} has {len(cells)} cells, and not {len(columns)}"
            raise UsageError(text)
    columns_of_cells = tuple(
        list(column) for column in zip(*(cells for _, cells in rows), strict=True)
    )
    return RawTable(
        name=file.name,
        columns=columns,
        cells=columns_of_cells,
        lines=[line for line, _ in rows],
        has_header=has_header,
    )


def of_frame(frame: Any, name: str = "the table") -> RawTable:
    """Return a data frame of pandas as a table of texts. name: for messages."""
    columns = tuple(str(column) for column in frame.columns)
    cells = tuple(
        ["" if value is None or value != value else str(value) for value in frame[column].tolist()]
        for column in frame.columns
    )
    return RawTable(name=name, columns=columns, cells=cells, lines=range(1, len(frame) + 1))


def _separator(lines: Iterable[str]) -> str:
    """Return the separator that most lines have most often."""
    text = "\n".join(lines)
    return max(_SEPARATORS, key=text.count)


def _split(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the cells of each row."""
    reader = csv.reader(text.splitlines(keepends=True), delimiter=separator)
    try:
        for cells in reader:
            yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise UsageError(f"line {reader.line_num}: {error}") from error


def _looks_like_number(cell: str) -> bool:
    """Return whether a cell is a number."""
    try:
        return not math.isnan(float(cell))
    except ValueError:
        return False
