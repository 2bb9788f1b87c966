"""Times in the cells of tables: numbers, ISO 8601, and dates and clocks as people write them."""

import contextlib
import itertools
import re
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from ternhost.datasets.base import Floats
from ternhost.datasets.tables.reading import RawTable
from ternhost.errors import UsageError
from ternhost.options import shown

_DATES = (
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%Y/%m/%d",
    "%d.%m.%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%d/%m/%y",
    "%m/%d/%y",
    "%d.%m.%y",
    "%Y-%m",
    "%d %b %Y",
    "%d-%b-%Y",
    "%d/%b/%Y",
    "%d-%b-%y",
    "%b %d, %Y",
    "%d %B %Y",
    "%B %d, %Y",
)
_CLOCKS = ("%H:%M:%S", "%H:%M", "%H.%M.%S", "%H:%M:%S.%f", "%I:%M:%S %p", "%I:%M %p")
_FORMS = (
    *_DATES,
    *_CLOCKS,
    *(f"{date} {clock}" for date, clock in itertools.product(_DATES, _CLOCKS)),
)
# What dates and times of day look like to a person, in more forms than those above.
_LOOKS = re.compile(
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2}))([T ].*)?"
    r"|(?:\d{1,2}[-/ ][A-Za-z]{3,9}[-/ ]\d{2,4}|[A-Za-z]{3,9} \d{1,2}, \d{4})( .*)?"
    r"|\d{1,2}([:.]\d{2}){2}|\d{1,2}:\d{2}"
)
_FIRST_ONES = 100  # texts that show what a column is
_REMEDY = "write times as 2026-03-10 18:00, or as numbers"


def times_of(table: RawTable, column: str) -> Floats:
    """Return the times in a column as numbers (n) that increase with the time.

    All cells are numbers, or all are times in the same form. Raises UsageError for a cell that is
    neither, and for dates of which nobody can tell whether the day or the month comes first.
    """
    texts = table.texts(column)
    try:
        return table.numbers(column)
    except UsageError:
        if table.style.plain(texts[0]) is not None:
            raise  # it names the cell that is no number
    seconds = _iso(texts)
    if seconds is not None:
        return seconds

    possible_forms = [form for form in _FORMS if _is_of(texts[0], form)]
    readings = [_parsed(texts, form) for form in possible_forms]
    complete = [seconds for seconds in readings if seconds is not None]
    if not complete:
        row = _first_other(texts, possible_forms)
        problem = "is no time in the form of the others"
        if row == 0:
            problem = "is in none of the forms of time that are known"
        text = f"{table.where(row, column)}: {shown(texts[row])} {problem}"
        raise UsageError(text, _REMEDY)
    order = np.argsort(complete[0], kind="stable")
    for other in complete[1:]:
        if not np.array_equal(np.argsort(other, kind="stable"), order):
            text = f"{table.name}, column {column}: in {shown(texts[0])}, the day or the month may be first"
            raise UsageError(text, _REMEDY)
    return complete[0]


def look_like_times(texts: Sequence[str]) -> bool:
    """Return whether texts look like dates or times of day, by the first ones that are there.

    They may still be in a form that `times_of` refuses.
    """
    present = [text for text in texts if text]
    first_ones = present[:_FIRST_ONES]
    return bool(first_ones) and all(map(_looks_like_a_time, first_ones))


def _looks_like_a_time(text: str) -> bool:
    """Return whether a text looks like a date or a time of day, and is no number such as 12.30."""
    with contextlib.suppress(ValueError):
        float(text)
        return False
    return _iso([text]) is not None or _LOOKS.fullmatch(text) is not None


def _iso(texts: Sequence[str]) -> Floats | None:
    """Return texts in ISO 8601 as seconds; None if one is not. Without a time zone, it is UTC."""
    seconds = np.empty(len(texts))
    for row, text in enumerate(texts):
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            return None
        seconds[row] = _seconds(time)
    return seconds


def _parsed(texts: Sequence[str], form: str) -> Floats | None:
    """Return texts in a form of `strptime` as seconds; None if one is not in this form."""
    seconds_of: dict[str, float] = {}  # each text is parsed once, which is slow
    for text in texts:
        if text not in seconds_of:
            try:
                seconds_of[text] = _seconds(datetime.strptime(text, form))
            except ValueError:
                return None
    return np.array([seconds_of[text] for text in texts])


def _seconds(time: datetime) -> float:
    """Return a time as a number of seconds."""
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - datetime(1900, 1, 1, tzinfo=UTC)).total_seconds()


def _first_other(texts: Sequence[str], forms: Sequence[str]) -> int:
    """Return the row of the first text that is in none of these forms.

    forms: those of the first text. If each text is in one of them, but not all are in the same, it
    is the row of the first one that differs in form from the first text.
    """
    if _iso(texts[:1]) is not None:
        return next(row for row, text in enumerate(texts) if _iso([text]) is None)
    for row, text in enumerate(texts):
        if not any(_is_of(text, form) for form in forms):
            return row
    return next(row for row, text in enumerate(texts) if not _is_of(text, forms[0]))


def _is_of(text: str, form: str) -> bool:
    """Return whether a text is a time in a form of `strptime`."""
    return _parsed([text], form) is not None
