"""How a table marks missing values: with words such as NA, or with numbers such as -200.

What is found is a guess, from which a proposed schema begins.
"""

from collections.abc import Sequence

import numpy as np

from ternhost.datasets.base import Floats
from ternhost.datasets.tables.reading import RawTable
from ternhost.datasets.tables.table_rows import MISSING
from ternhost.errors import UsageError

_SENTINEL_SHARE = 0.005  # of the values
_FEWEST_SENTINELS = 3
_APART = 0.1  # of the width of the other numbers
_LEAST_SENTINEL = 9  # in size
_FEWEST_NUMBERS = 4  # different ones, of a column in which a number can stand for missing ones


def marks_of(table: RawTable) -> tuple[str, ...]:
    """Return the texts of a table that seem to stand for a missing value; the empty one always."""
    found = [""]
    for name in table.columns:
        marks = {text for text in table.texts(name) if text.lower() in MISSING}
        found += sorted(marks.difference(found))
    if any("+" in table.texts(name) for name in table.columns):
        found = [mark for mark in found if mark != "-"]  # which is the other category there
    sentinels: set[float] = set()
    usual: set[float] = set()
    for name in table.columns:
        numbers = numbers_if_all_are(table, name, found)
        if numbers is not None:
            of_column, others = _sentinels(numbers)
            sentinels |= of_column
            usual |= others
    return (*found, *(f"{number:.0f}" for number in sorted(sentinels - usual)))


def _sentinels(numbers: Floats) -> tuple[set[float], set[float]]:
    """Return the numbers of a column that seem to stand for missing ones, and those that do not.

    Such a number is a negative whole one, or consists of nines, such as -200 or 9999. It occurs
    often, and farther from all others than these are from each other. A number that is merely
    somewhat apart is among neither: other columns decide. So is a number of a column with few
    different ones, such as one in which no measurement is there.
    """
    known = np.unique(numbers[~np.isnan(numbers)])
    fewest = max(_FEWEST_SENTINELS, _SENTINEL_SHARE * len(numbers))
    chosen, undecided = set(), set()
    for value, others in ((known[0], known[1:]), (known[-1], known[:-1])):
        if not _has_form_of_sentinel(value):
            continue
        if not len(others):
            undecided.add(float(value))
            continue
        if (numbers == value).sum() < fewest:
            continue
        with np.errstate(over="ignore"):  # of numbers such as 1e308 and -1e308
            width = others[-1] - others[0]
            gap = np.abs(others - value).min()
        if gap > width and len(known) >= _FEWEST_NUMBERS:
            chosen.add(float(value))
        elif gap > _APART * width:
            undecided.add(float(value))
    return chosen, set(known.tolist()) - chosen - undecided


def _has_form_of_sentinel(value: float) -> bool:
    """Return whether a number looks like one that stands for missing ones: -200, or 9999."""
    is_large_and_whole = value == np.rint(value) and abs(value) >= _LEAST_SENTINEL
    has_nines_only = set(f"{value:.0f}") == {"9"}
    return bool(is_large_and_whole and (value < 0 or has_nines_only))


def numbers_if_all_are(table: RawTable, name: str, missing: Sequence[str]) -> Floats | None:
    """Return the numbers of a column; None if it has a cell that is none, or no number at all."""
    try:
        numbers = table.numbers(name, missing)
    except UsageError:
        return None
    if np.isnan(numbers).all():
        return None
    return numbers
