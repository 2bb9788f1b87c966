"""Turns a column of times into seconds: numbers with a unit, times since 1970, and date-times."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from ternbench.exports.columns import Column, Titles, setting
from ternbench.exports.units import TIME
from ternbench.traces import Floats
from ternhost.datasets.tables.reading import RawTable
from ternhost.errors import UsageError
from ternhost.options import shown

# The units in which times since 1970 are usual, in seconds.
_SINCE_1970 = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
# Recordings are taken to be from these years, so that times since 1970 have one possible unit.
_FIRST, _LAST = datetime(2010, 1, 1, tzinfo=UTC), datetime(2060, 1, 1, tzinfo=UTC)
_LONGEST = 100 * 365 * 86400.0  # seconds; no clock of an instrument began earlier
_MIN_RATE, _MAX_RATE = 20.0, 5e6  # samples a second that a recording of reports can have
_DIFFERENT = 0.05  # by which the rate that the user names may differ from that of the times
_CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{1,2}(?:[.,]\d+)?)")
_ISO = re.compile(r"\d{4}-?\d\d-?\d\d[T ]\d\d:?\d\d.*")


class ContradictedRateError(UsageError):
    """The times of a file have another rate than the user names."""


@dataclass(frozen=True)
class Times:
    """Times of samples: seconds from the first sample, and how they were found.

    taken: what they were taken from, for people and for --json. start: the time of the first sample
    on the clock of the file, in seconds.
    """

    seconds: Floats
    taken: dict[str, object]
    start: float = 0.0


def of_rate(count: int, rate: float) -> Times:
    """Return the times of `count` samples, of which `rate` are in a second."""
    return Times(np.arange(count) / rate, {"setting": setting("rate", f"{rate:g}")})


def of_column(titles: Titles, column: Column) -> Times:
    """Return the times in a column.

    Raises UsageError if its unit is not known, if a cell is no time, and if the times do not
    increase.
    """
    table = titles.table
    cells = table.texts(column.name)
    first = next(iter(cells), "")
    taken: dict[str, object] = {"column": column.name}
    if _ISO.fullmatch(first):
        seconds, start = _parsed(table, column.name, _from_iso)
        taken["unit"] = "date and time"
    elif _CLOCK.fullmatch(first):
        seconds, start = _parsed(table, column.name, _clock_reader(cells))
        taken["unit"] = "hours, minutes and seconds"
    else:
        numbers = titles.numbers(column.name)
        _require_all(table, column.name, numbers)
        if column.unit is None and not _is_unclear(titles, column):
            factor, taken["unit"] = _unit_since_1970(titles, column, numbers)
        else:
            unit = titles.require_unit(TIME, column)
            factor, taken["unit"] = unit.factor, unit.symbol
        if not column.is_unit_stated:
            _require_no_other_unit(table, column, numbers, factor)
        seconds = (numbers - numbers[0]) * factor
        start = float(numbers[0]) * factor
    _require_increase(table, column.name, seconds)
    return Times(seconds, taken, start)


def _require_all(table: RawTable, name: str, numbers: Floats) -> None:
    """Raise UsageError if a sample has no time, with the line."""
    missing = np.flatnonzero(np.isnan(numbers))
    if missing.size:
        text = f"{table.where(int(missing[0]), name)}: the sample has no time"
        raise UsageError(text, hint="leave out the line, or name the number of samples a second")


def require_same_rate(titles: Titles, column: Column, rate: float) -> None:
    """Raise UsageError if the rate that the user names is not that of the times in a column.

    Only the first and the last time are compared. Those between may repeat, which can be why the
    user names a rate.
    """
    table = titles.table
    last = len(table) - 1
    span = of_column(titles.at_rows([0, last]), column).seconds[-1]
    found = last / span
    if abs(found / rate - 1) > _DIFFERENT:
        text = f"{table.name} has {found:,.6g} samples a second by its times, and not rate={rate:g}"
        raise ContradictedRateError(text, hint="leave out rate=, or correct it")


def _is_unclear(titles: Titles, column: Column) -> bool:
    """Return whether something stands where the column's unit may stand."""
    return any(title.unclear for title in titles.of(TIME) if title.name == column.name)


def _unit_since_1970(titles: Titles, column: Column, numbers: Floats) -> tuple[float, str]:
    """Return the unit of numbers that are times since 1970, in seconds and in words.

    Raises UsageError for other numbers, whose unit nobody knows.
    """
    symbol = _symbol_since_1970(numbers)
    if not symbol:
        titles.require_unit(TIME, column)
        raise AssertionError("the column has no unit")
    return _SINCE_1970[symbol], f"{symbol} since 1970"


def _symbol_since_1970(numbers: Floats) -> str:
    """Return the unit in which numbers are times since 1970; empty if they are none in any unit."""
    for symbol, factor in _SINCE_1970.items():
        seconds = numbers * factor
        is_in_years = _FIRST.timestamp() <= seconds[0] and seconds[-1] < _LAST.timestamp()
        if is_in_years and _is_usual_rate(numbers, factor):
            return symbol
    return ""


def _is_usual_rate(numbers: Floats, factor: float) -> bool:
    """Return whether times in units of `factor` seconds follow each other as samples do."""
    step = float(np.median(np.diff(numbers))) * factor
    return step > 0 and _MIN_RATE <= 1 / step <= _MAX_RATE


def _require_no_other_unit(table: RawTable, column: Column, numbers: Floats, factor: float) -> None:
    """Raise UsageError for times that cannot be in the unit of their title.

    They seem to be times since 1970 in another unit, or would be longer than any clock runs. factor:
    the unit of the title in seconds.
    """
    likely = _symbol_since_1970(numbers)
    is_other = likely and _SINCE_1970[likely] != factor
    if is_other or abs(numbers[[0, -1]] * factor).max() > _LONGEST:
        text = f"{table.name}: the times in column {shown(column.name)} are in another unit than its title says"
        named = f"{column.name} in {likely or 'ms'}"
        raise UsageError(text, hint=f"name the unit: {setting('time', named)}")


def _require_increase(table: RawTable, name: str, seconds: Floats) -> None:
    """Raise UsageError if times repeat or go back, with the line."""
    steps = np.diff(seconds)
    wrong = np.flatnonzero(~(steps > 0))
    if not wrong.size:
        return
    row = int(wrong[0]) + 1
    cells = table.texts(name)
    problem = "repeats" if steps[wrong[0]] == 0 else "goes back"
    text = (
        f"{table.where(row, name)}: the time {problem}: {shown(cells[row])} follows "
        f"{shown(cells[row - 1])}, and times must increase"
    )
    hint = "export each sample once, in its order"
    if problem == "repeats":
        hint = "export more digits of the time, or name the number of samples a second: rate=HZ"
    raise UsageError(text, hint)


def _parsed(table: RawTable, name: str, read: Callable[[str], float]) -> tuple[Floats, float]:
    """Return the seconds in a column from its first cell on, and those of this cell.

    read: returns the seconds in a cell, or raises ValueError. Raises UsageError with the line.
    """
    cells = table.texts(name)
    seconds = np.empty(len(cells))
    for row, cell in enumerate(cells):
        try:
            seconds[row] = read(cell)
        except ValueError:
            text = f"{table.where(row, name)}: {shown(cell)} is no time as {shown(cells[0])} is one"
            raise UsageError(text, hint="correct the line, or leave it out") from None
    return seconds - seconds[0], float(seconds[0])


def _from_iso(text: str) -> float:
    """Return the seconds since 1970 of a date and time in ISO 8601. Raises ValueError.

    A text without a time zone is taken to be in UTC, since only differences count.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


def _clock_reader(cells: Sequence[str]) -> Callable[[str], float]:
    """Return what reads times such as 00:01:02.5 as seconds; it raises ValueError for other texts.

    Two numbers are minutes and seconds if the seconds have decimals, and else unclear.
    """
    has_decimals = any("." in cell or "," in cell for cell in cells)

    def read(cell: str) -> float:
        match = _CLOCK.fullmatch(cell)
        if match is None or (match[1] is None and not has_decimals):
            raise ValueError
        hours = int(match[1] or 0)
        return 3600.0 * hours + 60.0 * int(match[2]) + float(match[3].replace(",", "."))

    return read
