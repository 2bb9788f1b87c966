"""What the bytes of a table mean: their encoding, the separator of cells, and what is no cell."""

import codecs
import contextlib
import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ternhost.errors import UsageError
from ternhost.options import shown

# The separators that are tried, and their names. Of two that fit equally well, the first is taken.
SEPARATORS = {
    ";": "semicolons",
    "\t": "tabs",
    ",": "commas",
    "|": "vertical bars",
    " ": "blanks",
    "": "nothing, since there is one column",
}
COMMENT = "#"  # begins a line that is no row
QUOTE = '"'
_SAMPLE = 200  # how many lines decide the separator
_FEW_COMMENTS = 0.1  # share of the lines
_MOST_LINES = 0.9  # the share of lines that makes a habit
# Factors of scores that need better evidence: texts have blanks, too, and one column is no division.
_DOUBTS = {" ": 0.9, "": 0.5}
_NO_SEPARATOR = "\x1f"  # no text has this character
# Byte order marks. That of UTF-32 begins with that of UTF-16, so it comes first.
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Control characters, which no table has: not tab, new line, vertical tab or form feed.
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f]")
# Files of other kinds that may have the name of a table, by how they begin, and what to do.
_OTHER_FILES = {
    b"PK\x03\x04": "a spreadsheet or an archive: open it, and save the table as CSV",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet: open it, and save the table as CSV",
    b"\x1f\x8b": "compressed: unpack it with gunzip",
    b"BZh": "compressed: unpack it with bunzip2",
    b"\xfd7zXZ": "compressed: unpack it with unxz",
    b"PAR1": "Parquet: read it in Python, and write CSV",
    b"SQLite format 3": "a database: export its table as CSV",
    b"%PDF": "PDF: the table must be text, such as CSV",
}
_MARKUP = re.compile(r"\s*<(?:!doctype|html|\?xml|table)\b", re.I)
_JSON = re.compile(r'\s*(?:\[\s*)?\{\s*(?:"|\})')
_NUMBER = re.compile(r"[+-]?(?=[.,]?\d)[\d.,\u00a0\u202f']+(?:[eE][+-]?\d+)?", re.A)
_GROUPED_BY_BLANKS = re.compile(r"[+-]?\d{1,3}(?: \d{3})+(?:[.,]\d*)?", re.A)
# A decimal comma in an amount with its unit, such as 63,50 € or -3,5 °C.
_AMOUNT = re.compile(r"[€$£]?\s?[+-]?[\d.\u00a0\u202f' ]*\d,\d+\s?[^\s\d.,;|]{1,6}", re.A)
_SEVERAL_NUMBERS = re.compile(r"[+-]?[\d.]+(?:[,;|\t ]+[+-]?[\d.]+)+[,;]?", re.A)


# Encodings


def decoded(data: bytes, path: Path | str) -> str:
    """Return the text in the bytes of a file, whose lines all end with a newline.

    Without a byte order mark it is UTF-8 if it can be, and else Windows-1252. Raises UsageError,
    which names the line of a byte that cannot be read.
    """
    for start, kind in _OTHER_FILES.items():
        if data.startswith(start):
            raise UsageError(f"{path} is no table", hint=f"it is {kind}")
    encoding = _encoding(data)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        _require_text(data.decode("latin-1"), path)  # of other files this is the better message
        line = _line_of(data, error.start, encoding)
        wrong = error.object[error.start : error.start + 1].hex()
        raise UsageError(
            f"{path}, line {line}: byte 0x{wrong} is no character in {encoding.upper()}",
            hint="correct the line, or save the table again in UTF-8",
        ) from error
    text = text.removesuffix("\x1a")  # with which DOS ended texts
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    _require_text(text, path)
    for kind, pattern in {"HTML or XML": _MARKUP, "JSON": _JSON}.items():
        if pattern.match(text):
            raise UsageError(f"{path} is no table", hint=f"it is {kind}: save the table as CSV")
    return text


def _require_text(text: str, path: Path | str) -> None:
    """Raise UsageError for a control character, which no table as text has, with its line."""
    control = _CONTROL.search(text)
    if control:
        line = text.count("\n", 0, control.start()) + 1
        code = f"0x{ord(control[0]):02x}"
        raise UsageError(
            f"{path}, line {line}: the control character {code} is in no table",
            hint="is this a table as text? Save it as CSV, in UTF-8",
        )


def _encoding(data: bytes) -> str:
    """Return the name of the encoding that bytes are most probably in."""
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            return encoding
    # In UTF-16, every other byte of most tables is 0; texts in other encodings have none.
    start = data[:4096]
    if start.count(0) > len(start) // 4:
        return "utf-16-le" if start[1::2].count(0) >= start[::2].count(0) else "utf-16-be"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        # If most of the bytes that are no ASCII make up characters of UTF-8, the others are damage.
        text = data.decode("utf-8", errors="replace")
        wrong = text.count("\ufffd")
        right = sum(character > "\x7f" for character in text) - wrong
        if wrong > right:
            return "cp1252"
    return "utf-8"


def _line_of(data: bytes, position: int, encoding: str) -> int:
    """Return the number of the line that a byte is in."""
    before = data[:position].decode(encoding, errors="ignore")
    return len(re.findall("\r\n|\r|\n", before)) + 1


# Separators


@dataclass(frozen=True)
class Layout:
    """How the lines of a table are divided into cells.

    separator: one of `SEPARATORS`. terminator: what ends each record beside the line's end: ";" in
    tables like WISDM's, else "". has_comments: whether lines that begin with # are comments.
    """

    separator: str
    terminator: str = ""
    has_comments: bool = True

    @property
    def words(self) -> str:
        """The layout in words, such as "cells are separated by semicolons"."""
        words = f"cells are separated by {SEPARATORS[self.separator]}"
        if self.separator == ",":
            words += ", so that a comma is no decimal mark"
        return words

    def shown(self, cells: Sequence[str]) -> str:
        """Return the cells of a row as one text, for messages."""
        return self.separator.join(cells)

    def cells_of(self, line: str) -> list[str]:
        """Split one line, whatever is wrong with its quotes."""
        with contextlib.suppress(_QuoteError):
            for _, cells in _split([line], self, strict=False):
                return cells
        return []


def layout_of(text: str) -> Layout:
    """Return the layout that divides the first lines of a text best.

    That is the one with which most lines have the same number of cells, and the cells look like
    numbers or plain words rather than like several cells in one.
    """
    marks = "".join(SEPARATORS) + "\n"
    first_lines = itertools.islice(_lines(text), 2 * _SAMPLE)
    lines = [line for line in first_lines if line.strip(marks)]
    if not lines:
        return Layout(next(separator for separator in SEPARATORS if separator in text))
    without_comments = [line for line in lines if not line.startswith(COMMENT)]
    has_comments = 2 * len(without_comments) > len(lines) and not _are_rows(lines)
    if has_comments:
        lines = without_comments
    lines = lines[:_SAMPLE]
    best = Layout("", has_comments=has_comments)
    best_score = 0.0
    for separator in SEPARATORS:
        layout = Layout(separator, _terminator(lines, separator), has_comments)
        score = _score(_sample_rows(lines, layout), separator)
        if score > best_score:
            best = layout
            best_score = score
    return best


def _are_rows(lines: Sequence[str]) -> bool:
    """Return whether lines that begin with # are rows: many, with the marks of the other lines.

    After the # of a comment, there often is a blank. Before the first other line, it may be names.
    """
    marks = re.compile(f"[^{''.join(SEPARATORS)}]+")
    usual = {marks.sub("", line) for line in lines if not line.startswith(COMMENT)}
    after_names = itertools.dropwhile(lambda line: line.startswith(COMMENT), lines)
    alike = [line for line in after_names if line.startswith(COMMENT) and not line[1:2].isspace()]
    alike = [line for line in alike if marks.sub("", line) in usual - {"", "\n"}]
    return len(alike) > _FEW_COMMENTS * len(lines)


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, each with its newline, without keeping all of them."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1
        if not end:
            end = len(text)
        yield text[start:end]
        start = end


def _terminator(lines: Sequence[str], separator: str) -> str:
    """Return ";" if it ends the records of lines with another separator, else ""."""
    if separator == ";" or not lines or any(QUOTE in line for line in lines):
        return ""
    ended = sum(line.rstrip().endswith(";") for line in lines)
    return ";" if ended > _MOST_LINES * len(lines) else ""


def _sample_rows(lines: Sequence[str], layout: Layout) -> list[list[str]]:
    """Split a few lines, whatever is wrong with their quotes."""
    with contextlib.suppress(_QuoteError):
        rows = [cells for _, cells in _split(lines, layout, strict=False)]
        return [cells for cells in rows if any(cells)]
    return []


def _score(rows: Sequence[Sequence[str]], separator: str) -> float:
    """Return how well rows are divided, from 0 to 1."""
    if not rows:
        return 0.0
    (width, _), *_ = Counter(map(len, rows)).most_common(1)
    fitting = [row for row in rows if len(row) == width]
    used = max(used_width(row) for row in fitting)
    if not used:
        return 0.0
    if separator and used < 2:
        return 0.0
    total = 0.0
    for row in fitting:
        total += sum(map(_cell_score, row[:used])) / used
    return _DOUBTS.get(separator, 1.0) * total / len(rows)


def _cell_score(cell: str) -> float:
    """Return how much a text looks like one cell, from 0 to 1."""
    cell = cell.strip()
    if not cell or _NUMBER.fullmatch(cell) or _GROUPED_BY_BLANKS.fullmatch(cell):
        return 1.0
    if _SEVERAL_NUMBERS.fullmatch(cell):
        return 0.0
    if any(mark in cell for mark in ";,\t|") and not _AMOUNT.fullmatch(cell):
        return 0.5
    return 0.9 if " " in cell else 0.95


def used_width(cells: Sequence[str]) -> int:
    """Return the number of cells up to the last one that is not empty."""
    width = len(cells)
    while width and not cells[width - 1].strip():
        width -= 1
    return width


def rows_of(text: str, layout: Layout, path: Path | str) -> Iterator[tuple[int, list[str]]]:
    """Split a text into rows: the number of each row's first line, from 1, and its cells.

    Blank lines have no cells. Raises UsageError, which names the line, for a quote that is not
    closed or that does not end its cell.
    """
    try:
        yield from _split(_lines(text), layout, strict=True)
    except _QuoteError as error:
        line = text.split("\n")[error.line - 1]
        raise UsageError(
            f"{path}, line {error.line}: a cell's quotes are wrong: {shown(line)}",
            hint=f"a cell that begins with a quote ends with one, before the next separator; a quote "
            f"inside it is written twice. Here {layout.words}",
        ) from error


class _QuoteError(Exception):
    """Quotes that make no sense in the record that begins with a line."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def _split(lines: Iterable[str], layout: Layout, strict: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line of each row, from 1, and its cells.

    strict: whether wrong quotes raise _QuoteError.
    """
    numbers: list[int] = []  # of the line of each record, if a line can have several
    if layout.terminator:
        lines = _ended_records(lines, layout.terminator, numbers)
    elif layout.separator == " ":
        lines = (line.replace("\t", " ").strip() + "\n" for line in lines)
    reader = csv.reader(
        lines,
        delimiter=layout.separator or _NO_SEPARATOR,
        skipinitialspace=True,
        strict=strict,
    )
    taken = 0  # how many lines or records the rows before have
    try:
        for cells in reader:
            yield (numbers[taken] if numbers else taken + 1), cells
            taken = reader.line_num
    except csv.Error as error:
        raise _QuoteError(numbers[taken] if numbers else taken + 1) from error


def _ended_records(lines: Iterable[str], terminator: str, numbers: list[int]) -> Iterator[str]:
    """Yield the records of lines in which each ends with a mark, and note their lines' numbers."""
    for number, line in enumerate(lines, 1):
        for record in line.split(terminator):
            if record.strip():
                numbers.append(number)
                yield record.rstrip("\n") + "\n"
