"""Reads tables that people have, from text files of rows and columns.

A table is kept as text, cell by cell, with the line of the file that each row came from. So every
message can name the line, the column and the cell that it is about.

The module csv of the standard library splits lines into cells. What is decided here and in
`table_text` and `number_style` is the form of a file: its encoding, separator, titles, names and
decimal mark. Libraries that detect the form were tried on the kinds of tables in
tests/harness/table_kinds.py, 53 of them at the time. DuckDB's sniffer and CleverCSV divided 36
rightly, csv.Sniffer 30 and pandas 26. They read most of the others without an error, but wrongly:
DuckDB 12, CleverCSV 16 and pandas 21. None of them finds decimal commas, and no cell that they
convert can be named by its line. They need 66 MB (DuckDB), 84 MB (pandas) or three further packages
(CleverCSV), and from 0.2 to 0.7 seconds before they read anything.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ternhost import files
from ternhost.datasets.tables import table_text
from ternhost.datasets.tables.number_style import (
    NOT_FINITE,
    Floats,
    NumberStyle,
    style_of,
    styles_of,
)
from ternhost.datasets.tables.table_rows import MISSING, content_of
from ternhost.errors import UsageError
from ternhost.options import shown

Mask = npt.NDArray[np.bool_]

_INVISIBLE = "\u200b\ufeff"  # which spreadsheets and web pages leave around names
_OTHER_BLANKS = re.compile(r"[^\S\n]")  # a blank or a tab, which may be at the end of a cell


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
    - breaks: the rows, from 0, before which the file has a blank line
    - place: what `lines` counts: lines of a file, or rows of a data frame
    - names_in_comment: the columns are named in a comment, as numpy.savetxt does it
    - separator: of the cells in a line; empty for one column, or without a file
    """

    name: str
    columns: tuple[str, ...]
    cells: tuple[list[str], ...]
    lines: Sequence[int]
    has_header: bool = True
    decimal: str = "."
    thousands: str = ""
    breaks: Sequence[int] = ()
    place: str = "line"
    names_in_comment: bool = False
    separator: str = ""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.lines)

    @cached_property
    def style(self) -> NumberStyle:
        """How the table writes numbers."""
        return NumberStyle(self.decimal, self.thousands)

    def texts(self, column: str) -> list[str]:
        """Return the cells of a column. Raises UsageError if there is no such column."""
        if column not in self.columns:
            hint = f"its columns are: {', '.join(self.columns)}"
            raise UsageError(f"{self.name} has no column {column!r}", hint)
        return self.cells[self.columns.index(column)]

    def numbers(self, column: str, missing: Collection[str] = ()) -> Floats:
        """Return the numbers of a column; nan stands for a missing one.

        missing: the texts that stand for a missing value. One that is a number, such as -200, stands
        for all cells with this number, such as -200.0. Raises UsageError for a cell that is no
        finite number, with its line and column.
        """
        cells = self.texts(column)
        absent = self.missing(column, missing)
        present = cells
        if absent.any():
            present = list(itertools.compress(cells, ~absent))
        values = self.style.values(present)
        if values is None:
            for row in np.flatnonzero(~absent).tolist():
                self._require_number(row, column, cells[row])
            raise AssertionError("one of the cells must have been no number")
        if len(values) == len(cells):
            return values
        numbers = np.full(len(cells), math.nan)
        numbers[~absent] = values
        return numbers

    def missing(self, column: str, missing: Collection[str]) -> Mask:
        """Return which cells of a column are missing.

        missing: the texts that stand for a missing value. One that is a number, such as -200, stands
        for all cells with this number, such as -200.0. Raises UsageError if there is no such column.
        """
        cells = self.texts(column)
        texts = set(missing)
        forms = [form for form in map(self.style.forms_of, missing) if form]
        if forms:
            pattern = re.compile(f"^(?:{'|'.join(forms)})$", re.A | re.M)
            texts.update(pattern.findall("\n".join(cells)))
        if texts.isdisjoint(cells):
            return np.zeros(len(cells), bool)
        return np.fromiter((cell in texts for cell in cells), bool, len(cells))

    def _require_number(self, row: int, column: str, cell: str) -> None:
        """Raise UsageError for a cell that is no finite number, with what it may be instead."""
        plain = self.style.plain(cell)
        if plain is not None and math.isfinite(float(plain)):
            return
        where = self.where(row, column)
        if plain is not None:
            raise UsageError(f"{where}: {shown(cell)} is too large a number")
        problem = f"{shown(cell)} is no number"
        if not cell:
            problem = "the cell is empty"
        raise UsageError(f"{where}: {problem}", hint=self._remedy(cell))

    def _remedy(self, cell: str) -> str:
        """Return what the user can do about a cell that is no number."""
        if cell.lower() in MISSING | NOT_FINITE:
            return f'if the value is missing, write into the schema: missing = ["{cell}"]'
        numbers_here = f"numbers in {self.name} have {self.style.words}"
        for style in styles_of(cell):
            return f"with {style.words} it would be {style.plain(cell)}, but {numbers_here}"
        return (
            f"{numbers_here}; correct the cell, leave out its column, or say that it is missing; "
            "if the column says which device a record belongs to, name it: --by COLUMN"
        )

    def where(self, row: int, column: str) -> str:
        """Return where a cell is, for messages. row: from 0."""
        return f"{self.name}, {self.place} {self.lines[row]}, column {column}"

    def categories_of(self, column: str) -> tuple[str, ...]:
        """Return the categories of a column that is no column of numbers; empty if none are known.

        A file does not tell the type of a column. Raises UsageError if there is no such column.
        """
        self.texts(column)
        return ()

    @property
    def how_to_describe(self) -> str:
        """What writes a schema for the table, as a hint."""
        return f"'tern data describe {self.name}' writes bounds for it"

    def rows(self, positions: npt.ArrayLike) -> "RawTable":
        """Return a table of the rows at these positions, in this order."""
        chosen = np.asarray(positions, np.int64).tolist()
        cells = tuple([column[row] for row in chosen] for column in self.cells)
        lines = [self.lines[row] for row in chosen]
        return replace(self, cells=cells, lines=lines, breaks=())


def read(path: str | Path, header: bool | None = None, names: Collection[str] = ()) -> RawTable:
    """Read a table from a text file of rows and columns.

    header: whether the first row names the columns; None: that follows from the cells. names: of
    columns that the table must have, if they are known. Raises UsageError for a file that cannot be
    read as a table, with the line that is wrong.
    """
    file = Path(path)
    try:
        data = files.read_whole(file)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:  # a name that no file can have
        raise UsageError(f"cannot read {shown(str(file))}: {error}") from error
    text = table_text.decoded(data, file)
    layout = table_text.layout_of(text)
    content = content_of(text, layout, file, header, names)
    cells = content.cells
    if _OTHER_BLANKS.search(text):
        cells = [list(map(str.strip, column)) for column in cells]
    style = style_of(cells, layout.separator)
    place_of_names = f"{file}"
    if content.line_of_names:
        place_of_names = f"{file}, line {content.line_of_names}"
    return RawTable(
        name=file.name,
        columns=names_of(content.names, len(cells), place_of_names),
        cells=tuple(cells),
        lines=content.lines,
        has_header=content.names is not None,
        decimal=style.decimal,
        thousands=style.thousands,
        breaks=content.breaks,
        names_in_comment=content.names is not None and not content.line_of_names,
        separator=layout.separator,
    )


def names_of(given: Sequence[str] | None, count: int, place: str) -> tuple[str, ...]:
    """Return a name for each of `count` columns. Raises UsageError if two have the same one.

    given: the names in the table, in which columns without a name are called x0 for the first and
    so on; None if the table names none. place: of the names, for messages.
    """
    names = [""] * count
    if given is not None:
        # A name may have several lines, as those of spreadsheets have.
        names = [" ".join(name.split()).strip(_INVISIBLE) for name in given]
    for position, name in enumerate(names):
        names[position] = name or f"x{position}"
    for name, times in Counter(names).items():
        if times > 1:
            positions = [str(number) for number, other in enumerate(names, 1) if other == name]
            raise UsageError(
                f"{place} names several columns {shown(name)}: numbers {' and '.join(positions)}",
                hint="give each column a name of its own",
            )
    return tuple(names)
