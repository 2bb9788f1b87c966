"""How a table writes its numbers: with decimal points or decimal commas, and with which thousands.

English tables write 1,234.5 where German ones write 1.234,5 and French ones 1 234,5. A table is
read in one style, which follows from all its cells.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

POINT, COMMA = ".", ","
_WORDS = {POINT: "decimal points", COMMA: "decimal commas"}
_WORDS_OF_GROUPS = {
    POINT: "points",
    COMMA: "commas",
    " ": "blanks",
    "\u00a0": "no-break blanks",
    "\u202f": "narrow blanks",
    "'": "apostrophes",
}
NOT_FINITE = frozenset({"inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"})
"""What Python calls numbers that are not finite, in lower case."""
_BLANKS = " \u00a0\u202f'"  # what may group thousands in either style; the last in Switzerland
_EXPONENT = r"(?:[eE][+-]?\d+)?"
# Characters of numbers with decimal points. float() sees to their order. Other characters that it
# takes, such as underscores, digits of other scripts and the words nan and inf, are none of them.
_PLAIN_NUMBERS = re.compile(r"[0-9+\-.eE\n]*")
_PERHAPS_NUMBER = re.compile(rf"[+-]?[\d.,][\d.,{_BLANKS}]*{_EXPONENT}", re.A)
_MAY_GROUP = re.compile(r",|\.\d{3}\.", re.A)  # in a column: there are more than decimal points
_ONE_GROUP = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}", re.A)  # may be 1234 or 1.234
_BELOW_1000 = re.compile(r"[1-9]\d{0,2}", re.A)
_FROM_1000 = re.compile(r"[1-9]\d{3,}", re.A)
_FIRST_ROWS = 1000  # of a column that has decimal points only
_ENOUGH_VOTES = 1000  # cells of a table tell its style, and
_ENOUGH = 20  # cells of a column, of which others may tell another


@dataclass(frozen=True)
class NumberStyle:
    """The style of the numbers in a table.

    decimal: the decimal mark, "." or ",". thousands: the mark between groups of three digits; empty
    if there is none.
    """

    decimal: str = POINT
    thousands: str = ""

    @cached_property
    def _plain(self) -> re.Pattern[str]:
        """What a number without groups of thousands looks like."""
        mark = re.escape(self.decimal)
        return re.compile(rf"[+-]?(?:\d+(?:{mark}\d*)?|{mark}\d+){_EXPONENT}", re.A)

    @cached_property
    def _grouped(self) -> re.Pattern[str]:
        """What a number with groups of thousands looks like."""
        mark = re.escape(self.decimal)
        return re.compile(
            rf"[+-]?[1-9]\d{{0,2}}(?:{re.escape(self.thousands)}\d{{3}})+(?:{mark}\d*)?", re.A
        )

    @property
    def words(self) -> str:
        """The style in words, such as "decimal commas"."""
        words = _WORDS[self.decimal]
        if self.thousands:
            words += f" and {_WORDS_OF_GROUPS[self.thousands]} between thousands"
        return words

    def is_plain(self, cell: str) -> bool:
        """Return whether a cell is a number without groups of thousands."""
        return self._plain.fullmatch(cell) is not None

    def is_grouped(self, cell: str) -> bool:
        """Return whether a cell is a number with groups of thousands."""
        return bool(self.thousands) and self._grouped.fullmatch(cell) is not None

    def plain(self, cell: str) -> str | None:
        """Return a number as Python writes it, exactly: 1234.5 for 1.234,5. None for no number."""
        if self.is_plain(cell):
            return cell.replace(self.decimal, POINT)
        if self.is_grouped(cell):
            return cell.replace(self.thousands, "").replace(self.decimal, POINT)
        return None

    def forms_of(self, text: str) -> str:
        """Return a regular expression of the ways to write a number: 200 as well as 200.0.

        text: the number, in this style or with a decimal point. The result is empty for a text that
        is no number, and for one with an exponent.
        """
        plain = self.plain(text) or NumberStyle().plain(text)
        if plain is None or not plain.lstrip("+-").replace(POINT, "").isdecimal():
            return ""
        whole, _, decimals = plain.lstrip("+-").partition(POINT)
        whole = whole.lstrip("0") or "0"
        decimals = decimals.rstrip("0")
        sign = "-" if plain.startswith("-") else r"\+?"
        mark = re.escape(self.decimal)
        ending = f"(?:{mark}0*)?"
        if decimals:
            ending = f"{mark}{decimals}0*"
        return f"{sign}0*{whole}{ending}"

    def values(self, cells: Sequence[str]) -> Floats | None:
        """Return the numbers in cells; None if a cell has none, or one that is not finite.

        It is quick, and therefore does not find out which cell that is.
        """
        texts = self._python_texts(cells)
        if texts is None:
            return None
        try:
            values = np.fromiter(map(float, texts), np.float64, len(texts))
        except ValueError:
            return None
        return values if np.isfinite(values).all() else None

    def _python_texts(self, cells: Sequence[str]) -> Sequence[str] | None:
        """Return cells as texts for float(), some of which it may refuse; None if one is no number."""
        lines = "\n".join(cells)
        if self.decimal == POINT and _PLAIN_NUMBERS.fullmatch(lines):
            return cells
        if self.decimal == COMMA and POINT not in lines:
            lines = lines.replace(COMMA, POINT)
            texts = lines.split("\n")
            # A cell in quotes may have lines of its own.
            if _PLAIN_NUMBERS.fullmatch(lines) and len(texts) == len(cells):
                return texts
        texts = []
        for cell in cells:
            text = self.plain(cell)
            if text is None:
                return None
            texts.append(text)
        return texts


_UNGROUPED = [NumberStyle(POINT), NumberStyle(COMMA)]
_GROUPED = [NumberStyle(POINT, mark) for mark in COMMA + _BLANKS]
_GROUPED += [NumberStyle(COMMA, mark) for mark in POINT + _BLANKS]


def styles_of(cell: str) -> list[NumberStyle]:
    """Return the styles in which a cell is a number; one with groups only if the cell has some."""
    if not _PERHAPS_NUMBER.fullmatch(cell):
        return []
    readings = [style for style in _UNGROUPED if style.is_plain(cell)]
    return readings + [style for style in _GROUPED if style.is_grouped(cell)]


def is_number(cell: str) -> bool:
    """Return whether a cell is a number in some style."""
    if not _PERHAPS_NUMBER.fullmatch(cell):
        return False
    is_plain = any(style.is_plain(cell) for style in _UNGROUPED)
    return is_plain or any(style.is_grouped(cell) for style in _GROUPED)


def tells_decimal_mark(cells: Sequence[str]) -> bool:
    """Return whether a cell of a column can be read with one decimal mark only.

    0.5 and 12345.678 tell the mark. 12.345 does not: it is 12345 where points group thousands.
    """
    marked_cells = _telling(cells, "\n".join(cells))
    return any(len({style.decimal for style in styles_of(cell)}) == 1 for cell in marked_cells)


def style_of(columns: Sequence[Sequence[str]], separator: str) -> NumberStyle:
    """Return the style of the numbers in a table.

    columns: the cells of the table, by column. separator: of the table, which decides where the
    cells leave it open. 1,234 alone is 1234 in a table with commas, where it must be in quotes, and
    1.234 in others, since tables have semicolons where commas are decimal marks.
    """
    texts = ["\n".join(cells) for cells in columns]  # in which marks are found quickly
    decimal = _decimal_mark(columns, texts, separator)
    for style in _GROUPED:
        if style.decimal != decimal:
            continue
        for cells, text in zip(columns, texts, strict=True):
            if style.thousands in text and any(map(style.is_grouped, cells)):
                return style
    return NumberStyle(decimal)


def _decimal_mark(columns: Sequence[Sequence[str]], texts: Sequence[str], separator: str) -> str:
    """Return the decimal mark for which most cells speak; a cell such as 1,234 has no vote.

    columns, separator: as of `style_of`. texts: for each column, all its cells.
    """
    votes = Counter[str]()  # for either decimal mark
    has_open_commas = False
    enough = max(_ENOUGH, _ENOUGH_VOTES // max(1, len(columns)))
    for cells, text in zip(columns, texts, strict=True):
        votes.update(_decimal_beside_groups(cells[:_FIRST_ROWS], text))
        votes_of_column = 0
        for cell in _telling(cells, text):
            if _ONE_GROUP.fullmatch(cell):
                has_open_commas = has_open_commas or COMMA in cell
                continue
            decimals = {style.decimal for style in styles_of(cell)}
            if len(decimals) == 1:
                votes.update(decimals)
                votes_of_column += 1
            if votes_of_column == enough:
                break
    if votes[COMMA] != votes[POINT]:
        return max(votes, key=votes.__getitem__)
    if has_open_commas and separator != COMMA:
        return COMMA
    return POINT


def _decimal_beside_groups(cells: Sequence[str], text: str) -> str:
    """Return the decimal mark if the other one groups the thousands of a column, and else nothing.

    It does in 950, 1.000 and 1.250: three digits follow each mark, the last ones may be zeros, and
    numbers below 1000 have no mark. Decimals that end with zeros all have equally many digits.

    text: all cells.
    """
    if (POINT in text) == (COMMA in text):
        return ""
    mark = POINT if POINT in text else COMMA
    marked = [cell for cell in cells if mark in cell]
    small = {cell for cell in cells if _BELOW_1000.fullmatch(cell)}
    are_groups = all(map(_ONE_GROUP.fullmatch, marked)) and not any(
        map(_FROM_1000.fullmatch, cells)
    )
    if len(small) > 1 and are_groups and any(cell.endswith("0") for cell in marked):
        return COMMA if mark == POINT else POINT
    return ""


def _telling(cells: Sequence[str], text: str) -> Iterator[str]:
    """Yield the cells of a column with a point or a comma, which tell its style.

    text: all cells. Cells with points are looked for in the first rows only, unless there are
    others, since decimal points are the rule.
    """
    if not _MAY_GROUP.search(text):
        cells = cells[:_FIRST_ROWS]
    for cell in cells:
        if (COMMA in cell or POINT in cell) and _PERHAPS_NUMBER.fullmatch(cell):
            yield cell
