"""Guesses what a column of a table is: an amount with bounds, a category, or neither."""

import math
import re
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from tern.wire import MAX_DIMENSION
from ternhost.datasets.base import Floats, are_whole
from ternhost.datasets.schemas import usual_names
from ternhost.datasets.schemas.columns import Categorical, Column, Numeric, normal, ordered
from ternhost.datasets.schemas.draft import Draft
from ternhost.datasets.schemas.toml_text import text_of
from ternhost.datasets.tables.number_style import is_number
from ternhost.errors import UsageError
from ternhost.options import shown
from ternhost.text import counted

_MOST_CATEGORIES = 30
_FEW = 10  # so many texts are categories, also if each of them occurs once
_MOST_CLASSES = 20  # of whole numbers that are a label
_MOST_CLASS = 1e9  # the size of a number of a class
_FEWEST_A_CATEGORY = 2  # records, on average
_PARTS = 10  # about as many parts of a round number are between bounds
_FEWEST_COUNTED = 10  # rows that a column numbers
IS_CONSTANT = "tern adds the constant 1 by itself"
IS_NUMBER = "it seems to number the records"
_HAS_LEADING_ZERO = re.compile(r"0\d")  # of a code, such as 007, whose zeros are a part of it


def column_of(draft: Draft, name: str, *, is_label: bool) -> Column | str:
    """Return what a column of the table is, or the reason why it cannot be a feature or a label."""
    texts = draft.present(name)
    reason = _reason_against(name, texts, is_label=is_label)
    if reason:
        return reason
    absent = len(draft.table) - len(texts)
    if not is_label and absent > len(draft.table) / 2:
        return f"it is missing in {absent:,} of {len(draft.table):,} rows"
    numbers = draft.numbers(name)
    try:
        if numbers is None:
            column = _of_texts(name, texts, is_label=is_label)
        else:
            column = _of_numbers(name, numbers[~np.isnan(numbers)], is_label=is_label)
            if isinstance(column, Categorical) and _are_codes(texts):
                return Categorical(name, ordered(texts), computed=True)
    except UsageError as error:
        return error.message
    if isinstance(column, str):
        return _why_no_numbers(draft, name, texts) or column
    return column


def _are_codes(texts: Sequence[str]) -> bool:
    """Return whether numbers are codes such as 007, whose zeros are a part of them.

    They are not if a number is written in two ways, such as 7 and 07.
    """
    has_leading_zero = any(map(_HAS_LEADING_ZERO.match, texts))
    distinct = set(texts)
    are_different = len(set(map(normal, distinct))) == len(distinct)
    return has_leading_zero and are_different


def _why_no_numbers(draft: Draft, name: str, texts: Sequence[str]) -> str:
    """Return the first cell that is no number, if most of a column are numbers; else nothing.

    texts: those of the column that are not missing.
    """
    if 2 * sum(map(is_number, texts)) < len(texts):
        return ""
    try:
        draft.table.numbers(name, draft.missing)
    except UsageError as error:
        return error.message.removeprefix(f"{draft.table.name}, ")
    return ""


def _reason_against(name: str, texts: Sequence[str], *, is_label: bool) -> str:
    """Return why a column is left out whatever it holds; empty if nothing speaks against it.

    texts: those that are not missing.
    """
    distinct = set(texts)
    if not distinct:
        return "it has no value"
    if {normal(text) for text in distinct} == {"1"}:
        return IS_CONSTANT
    if len(distinct) == 1:
        return f"it is {text_of(texts[0])} in every record"
    has_name_of_id = usual_names.plain(name).split("_")[-1] in usual_names.IDS
    are_ids = has_name_of_id and len(distinct) == len(texts)
    if not is_label and (are_ids or _count_up(texts)):
        return IS_NUMBER
    return ""


def _count_up(texts: Sequence[str]) -> bool:
    """Return whether texts are whole numbers of which each is the one before and 1."""
    if len(texts) < _FEWEST_COUNTED or not re.fullmatch(r"\d{1,15}", texts[0], re.A):
        return False
    first = int(texts[0])
    return all(text == str(number) for number, text in enumerate(texts, first))


def _of_numbers(name: str, numbers: Floats, *, is_label: bool) -> Column:
    """Return a column of these numbers: the classes of a label, or an amount with round bounds."""
    if is_label and _seem_to_be_classes(numbers):
        classes = tuple(f"{number:.0f}" for number in np.unique(numbers))
        return Categorical(name, classes, computed=True)
    low, high = _round_bounds(float(numbers.min()), float(numbers.max()))
    return Numeric(name, low, high, computed=True)


def _of_texts(name: str, texts: Sequence[str], *, is_label: bool) -> Column | str:
    """Return a column of categories, or why it is none."""
    distinct = ordered(texts)
    most = MAX_DIMENSION if is_label else _MOST_CATEGORIES
    are_names = len(distinct) > _FEW and len(texts) < _FEWEST_A_CATEGORY * len(distinct)
    if len(distinct) > most or are_names:
        rows = counted(len(texts), "row")
        return f"it has {counted(len(distinct), 'different text')} in {rows}, such as {shown(texts[0])}"
    return Categorical(name, distinct, computed=True)


def _seem_to_be_classes(numbers: Floats) -> bool:
    """Return whether the numbers of a label seem to be those of classes."""
    distinct = np.unique(numbers)
    if not are_whole(distinct) or np.abs(distinct).max(initial=0) >= _MOST_CLASS:
        return False
    are_repeated = len(numbers) >= _FEWEST_A_CATEGORY * len(distinct)
    return are_repeated and 2 <= len(distinct) <= _MOST_CLASSES


def _round_bounds(least: float, most: float) -> tuple[Decimal, Decimal]:
    """Return round numbers at or beyond two different ones, such as -5 and 40 for -3.7 and 38.2."""
    part = (Decimal(repr(most)) - Decimal(repr(least))) / _PARTS
    unit = Decimal(1).scaleb(part.adjusted())
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= part)
    low = math.floor(Decimal(repr(least)) / step) * step
    high = math.ceil(Decimal(repr(most)) / step) * step
    return _plain(low), _plain(high)


def _plain(number: Decimal) -> Decimal:
    """Return the same number, written without an exponent and without zeros at its end."""
    return Decimal(f"{number.normalize():f}")
