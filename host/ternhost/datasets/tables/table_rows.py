"""The rows of a table in a text: which lines are titles, names, comments or nothing."""

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ternhost.datasets.schemas import usual_names
from ternhost.datasets.tables import table_text
from ternhost.datasets.tables.number_style import NOT_FINITE, is_number
from ternhost.datasets.tables.table_text import COMMENT, Layout, used_width
from ternhost.errors import UsageError
from ternhost.options import shown
from ternhost.text import counted

MISSING = frozenset(
    {"", "?", "-", "--", ".", "na", "n/a", "n.a.", "<na>", "nan", "null", "none", "nil"}
    | {"#n/a", "#nv", "#null!", "#div/0!", "#value!", "#wert!", "#num!", "#zahl!", "#ref!"}
)
"""How missing values are often written, in lower case."""

_HEAD = 200  # rows that tell titles and names
_CHUNK = 256  # rows at a time; with more, Python's garbage collector costs as much as the reading
_DIGIT = re.compile("[0-9]")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+", re.A)
_MOST = 0.9  # the share of numbers in a column of numbers, of which a few cells are wrong
_FEW_NEW_WORDS = 0.1  # share of the records that bring a word of their own to a column


@dataclass(frozen=True)
class Row:
    """A row that is not empty.

    line: the number of its first line, from 1. after_blank: whether a blank line is before it.
    """

    line: int
    cells: list[str]
    after_blank: bool = False


@dataclass
class Content:
    """The cells of a table.

    names: of the columns; None if the table does not name them. line_of_names: the line that they
    are in; 0 if it is a comment, or there are none. cells: by column. lines: the first line of each
    row. breaks: the rows, from 0, after a blank line.
    """

    names: list[str] | None
    cells: list[list[str]]
    lines: list[int] = field(default_factory=list)
    breaks: list[int] = field(default_factory=list)
    line_of_names: int = 0


def content_of(
    text: str, layout: Layout, path: Path, header: bool | None, names: Collection[str] = ()
) -> Content:
    """Return the content of a table in a text.

    header: whether the first row names the columns; None: that follows from the cells. names: of
    columns that the table must have; where they are in the first row, it is a row of names. Raises
    UsageError, which names the line that is wrong, and also if the cells leave it open whether the
    first row is a record.
    """
    rows = _Rows(text, layout, path)
    head = list(itertools.islice(rows, _HEAD))
    if not head:
        raise _no_records(path)
    widths = Counter(len(row.cells) for row in head)
    width = max(widths, key=widths.__getitem__)
    used = max(used_width(row.cells) for row in head if len(row.cells) == width)
    table = _Columns(path, layout, width, least=used)
    has_names = header
    names_in_comment = None
    if header is None:
        head = table.without_titles(head)
        has_names = _is_header(head[0].cells, head[1:])
        if names and set(names) <= set(map(str.strip, head[0].cells)):
            has_names = True
        names_in_comment = _names_in_comment(rows.comment, layout, used, is_open=has_names is None)
        if has_names is None and names_in_comment is None:
            raise table.open_header(head[0])
    names_found = names_in_comment
    if has_names:
        row_of_names = head.pop(0)
        names_found = row_of_names.cells[:width]
        table.content.line_of_names = row_of_names.line
    if names_found is not None:
        table.least = used_width(names_found)
    table.take(itertools.chain(head, rows))
    if not table.content.lines:
        raise _no_records(path)
    table.content.names = names_found
    table.leave_out_empty_columns()
    return table.content


def _no_records(path: Path) -> UsageError:
    """Return the error of a file without rows."""
    return UsageError(f"{path} holds no records", hint="each line is a row, with cells in it")


class _Rows:
    """Iterates over the rows of a text that have cells and are no comments.

    comment: the last comment before the first row; empty if there is none.
    """

    def __init__(self, text: str, layout: Layout, path: Path) -> None:
        self.comment = ""
        self._text = text
        self._layout = layout
        self._rows = table_text.rows_of(text, layout, path)

    def __iter__(self) -> Iterator[Row]:
        is_first = True
        after_blank = False
        for line, cells in self._rows:
            if not any(map(str.strip, cells)):
                after_blank = True
            elif cells[0].startswith(COMMENT) and self._is_comment(line, cells):
                if is_first:
                    self.comment = self._line(line)
            else:
                yield Row(line, cells, after_blank)
                is_first = False
                after_blank = False

    @cached_property
    def _lines(self) -> list[str]:
        return self._text.split("\n")

    def _line(self, number: int) -> str:
        """Return a line by its number, from 1."""
        return self._lines[number - 1].strip()

    def _is_comment(self, number: int, cells: Sequence[str]) -> bool:
        """Return whether a line whose first cell begins like a comment is one: it is not in quotes."""
        if not self._layout.has_comments or not self._line(number).startswith(COMMENT):
            return False
        # A spreadsheet writes errors, such as #N/A, into cells.
        return len(cells) < 2 or cells[0].strip().lower() not in MISSING


class _Columns:
    """Gathers the cells of rows by column.

    width: the number of cells of most rows. least: the number of cells that each row needs; others
    up to the width are empty if a row lacks them.
    """

    def __init__(self, path: Path, layout: Layout, width: int, least: int) -> None:
        self.least = least
        self.content = Content(None, [[] for _ in range(width)])
        self._path = path
        self._layout = layout
        self._width = width

    def without_titles(self, head: Sequence[Row]) -> list[Row]:
        """Return the first rows of a table without its titles.

        A title is one cell in a table of several, or whatever stands before a row of names. Raises
        UsageError for a first line with another number of cells, which is not clearly a title.
        """
        position = 0
        while position < len(head) - 1 and self._is_title(head[position].cells):
            position += 1
        titles = head[:position]
        unfit = position
        while unfit < len(head) and not self._fits(head[unfit].cells):
            unfit += 1
        rows = list(head[unfit:])
        if _is_header(rows[0].cells, rows[1:]) is not False and len(rows) > 1:
            return rows
        if unfit > position:
            raise self._wrong_header(head[position])
        for number, title in enumerate(titles):
            # Without names below, a line with all separators is a row whose other cells are missing.
            if self._fits(title.cells):
                return list(head[number:])
        if titles and self._may_be_one_column(rows):
            raise self._wrong_header(titles[-1])
        return rows

    def _may_be_one_column(self, rows: Sequence[Row]) -> bool:
        """Return whether two columns of whole numbers may be one of numbers with decimal commas.

        Then a title before them may be the name of this column.
        """
        if self._layout.separator != "," or self.least != 2:
            return False
        return all(_DECIMAL_COMMA.fullmatch(",".join(row.cells[:2])) for row in rows)

    def _is_title(self, cells: Sequence[str]) -> bool:
        """Return whether a row before the others has one cell only, which is no number."""
        return self.least > 1 and used_width(cells) == 1 and not is_number(cells[0])

    def _fits(self, cells: Sequence[str]) -> bool:
        """Return whether a row has as many cells as the table."""
        return len(cells) >= self.least and used_width(cells) <= self._width

    def _wrong_header(self, row: Row) -> UsageError:
        """Return the error of a first line with another number of cells than the table has."""
        count = used_width(row.cells)
        return UsageError(
            f"{self._path}, line {row.line} has {counted(count, 'cell')}, and other lines have "
            f"{self.least}: {shown(self._layout.shown(row.cells))}",
            hint=f"if it names the columns, name all {self.least} of them; if it is a title, put "
            f"{COMMENT} before it; here {self._layout.words}",
        )

    def open_header(self, row: Row) -> UsageError:
        """Return the error of a first row of words that may be a record or the columns' names."""
        return UsageError(
            f"{self._path}, line {row.line} may be a record, or it may name the columns: "
            f"{shown(self._layout.shown(row.cells))}",
            hint=f"if it names the columns, put {COMMENT} before it; if it is a record, put a line above "
            f"it that begins with {COMMENT} and names {counted(self.least, 'column')}",
        )

    def take(self, rows: Iterable[Row]) -> None:
        """Add all rows. Raises UsageError for one with another number of cells, with its line."""
        iterator = iter(rows)
        while chunk := list(itertools.islice(iterator, _CHUNK)):
            lines = self.content.lines
            for position, row in enumerate(chunk, len(lines)):
                if row.after_blank and position:
                    self.content.breaks.append(position)
            lines.extend([row.line for row in chunk])
            cells_of_rows = [row.cells for row in chunk]
            if set(map(len, cells_of_rows)) != {self._width}:
                cells_of_rows = [self._fitted(row) for row in chunk]
            cells_of_columns = zip(*cells_of_rows, strict=True)
            for column, cells in zip(self.content.cells, cells_of_columns, strict=True):
                column.extend(cells)

    def _fitted(self, row: Row) -> list[str]:
        """Return the cells of a row, with as many empty ones at its end as the table has."""
        cells = row.cells
        if not self._fits(cells):
            raise UsageError(
                f"{self._path}, line {row.line} has {counted(len(cells), 'cell')}, and other lines "
                f"have {self.least}: {shown(self._layout.shown(cells))}",
                hint=f"here {self._layout.words}; correct the line, or put {COMMENT} before it",
            )
        empty = [""] * (self._width - len(cells))
        return cells[: self._width] + empty

    def leave_out_empty_columns(self) -> None:
        """Take away empty columns without a name at the end of the table.

        They come from separators at the end of each line.
        """
        content = self.content
        while len(content.cells) > 1:
            last = len(content.cells) - 1
            is_named = content.names is not None and any(content.names[last:])
            if is_named or any(map(str.strip, content.cells[last])):
                return
            del content.cells[last]
            if content.names is not None:
                del content.names[last:]


def _is_missing(cell: str) -> bool:
    """Return whether a cell is empty, or written as missing values often are."""
    return cell.strip().lower() in MISSING


def _is_header(cells: Sequence[str], rows: Sequence[Row]) -> bool | None:
    """Return whether cells name the columns of the rows after them; None if that is open.

    They do if they are words above numbers. In a table of words alone they do if one of them is
    unlike the other words of its column.
    """
    columns: list[list[str]] = []
    for position in range(len(cells)):
        column = [row.cells[position].strip() for row in rows if position < len(row.cells)]
        columns.append([cell for cell in column if not _is_missing(cell)])

    has_word_above_numbers = False
    has_value = False  # a number, or what stands for one
    has_word_of_records = False
    is_unlike_records = False
    for name, present in zip(map(str.strip, cells), columns, strict=True):
        count_of_numbers = sum(map(is_number, present))
        is_above_numbers = count_of_numbers > _MOST * len(present)
        if is_number(name) and is_above_numbers:
            return False
        if is_number(name) or (is_above_numbers and _is_value(name)):
            has_value = True
        elif is_above_numbers and name:
            has_word_above_numbers = True
        elif name and name in present:
            has_word_of_records = True
        elif name and _is_unlike_records(name, present):
            is_unlike_records = True

    if has_word_above_numbers:
        # A table that was put together of several may have its names several times.
        comes_again = any(row.cells == cells for row in rows)
        return None if has_word_of_records and not comes_again else True
    if has_value or has_word_of_records:
        return False
    return True if is_unlike_records or not rows else None


def _is_value(cell: str) -> bool:
    """Return whether a word stands for a number: a missing one, or one that is not finite."""
    return bool(cell) and (_is_missing(cell) or cell.lower() in NOT_FINITE)


def _is_unlike_records(word: str, others: Sequence[str]) -> bool:
    """Return whether a word is hardly a value of a column: it names one, or the others have digits.

    So it is also if the column has few words, which occur again and again, and this one does not. How
    probably another record has a word of its own is estimated as by Good and Turing: by the share of
    the words that occur once. The first word is counted with them, so that few records tell little.
    """
    if usual_names.is_of_column(word):
        return True
    count_with_digits = sum(_DIGIT.search(other) is not None for other in others)
    if count_with_digits > _MOST * len(others) and not _DIGIT.search(word):
        return True
    single = sum(times == 1 for times in Counter(others).values())
    return (single + 1) / (len(others) + 1) < _FEW_NEW_WORDS


def _names_in_comment(
    comment: str, layout: Layout, count: int, *, is_open: bool
) -> list[str] | None:
    """Return the names in a comment before the first row, as numpy writes them; None for others.

    count: of the columns. is_open: whether the first row may be one of names itself; then a comment
    names also a single column.
    """
    if count < 2 and not is_open:
        return None
    names = [name.strip() for name in layout.cells_of(comment.lstrip(COMMENT + " "))]
    are_names = len(set(names)) == len(names) == count and all(names)
    if not are_names or any(map(is_number, names)):
        return None
    return names
