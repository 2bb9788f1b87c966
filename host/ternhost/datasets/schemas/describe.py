"""Proposes the schema of a table: which columns are features, their bounds, and the label.

A proposal is a guess, which the user edits. Its bounds and categories come from the records, so
that they are not private; the file says so.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import compress

import numpy as np

from tern.wire import MAX_DIMENSION
from ternhost.datasets.base import Floats, are_whole
from ternhost.datasets.schemas import usual_names
from ternhost.datasets.schemas.columns import Categorical, Column, Numeric, normal, ordered
from ternhost.datasets.schemas.schema import LEAVE_OUT, MIDDLE, Schema
from ternhost.datasets.schemas.schema_file import COLUMNS
from ternhost.datasets.schemas.toml_text import text_of
from ternhost.datasets.tables.missing_marks import marks_of, numbers_if_all_are
from ternhost.datasets.tables.number_style import is_number
from ternhost.datasets.tables.reading import RawTable
from ternhost.datasets.tables.times import look_like_times
from ternhost.errors import UsageError
from ternhost.options import shown
from ternhost.text import counted

_MOST_CATEGORIES = 30
_FEW = 10  # so many texts are categories, also if each of them occurs once
_MOST_CLASSES = 20  # of whole numbers that are a label
_MOST_CLASS = 1e9  # the size of a number of a class
_MOST_CODES = 10  # different whole numbers that may be codes of categories
_FEWEST_A_CATEGORY = 2  # records, on average
_PARTS = 10  # about as many parts of a round number are between bounds
_MOST_DECREASES = 0.1  # share of the steps of a time at which it decreases
_MOST_REASONS = 3  # in a message
_MOST_SHOWN = 12  # categories in a comment
_FEWEST_COUNTED = 10  # rows that a column numbers
_IS_DEVICE = "it seems to say which device a record belongs to"
_IS_TIME = "it seems to be a time"
_IS_CONSTANT = "tern adds the constant 1 by itself"
_IS_NUMBER = "it seems to number the records"
_HAS_LEADING_ZERO = re.compile(r"0\d")  # of a code, such as 007, whose zeros are a part of it


@dataclass
class Proposal:
    """A schema that is proposed, and comments that tell the user what to edit.

    notes: as of `schema_file.lines_of`. problems: why columns are left out that may be meant as
    features, or as the label, by their names.
    """

    schema: Schema
    notes: dict[tuple[str, ...], list[str]]
    problems: dict[str, str]

    def text(self) -> str:
        """Return the text of the schema's file."""
        return self.schema.toml(self.notes)


@dataclass
class _Draft:
    """What is found out about a table, column by column."""

    table: RawTable
    label: str
    missing: tuple[str, ...]
    columns: list[Column] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)  # for leaving a column out, by its name
    notes: dict[tuple[str, ...], list[str]] = field(default_factory=dict)
    device: str = ""
    time: str = ""
    _numbers: dict[str, Floats | None] = field(default_factory=dict)  # that were read already

    def numbers(self, name: str) -> Floats | None:
        """Return the numbers of a column, as of `numbers_if_all_are`; they are read once."""
        if name not in self._numbers:
            self._numbers[name] = numbers_if_all_are(self.table, name, self.missing)
        return self._numbers[name]


def propose(table: RawTable, label: str = "") -> Proposal:
    """Propose a schema for a table.

    label: the name of the label's column; empty: it is guessed. Raises UsageError if there is no
    such column, or if no column is left as a feature.
    """
    if label:
        table.texts(label)  # raises UsageError if there is no such column
    missing = marks_of(table)
    draft = _Draft(table, label, missing)
    _find_device_and_time(draft)
    if not label:
        draft.label = _guessed_label(draft)
    for name in table.columns:
        _add_column(draft, name)
    _fit_a_record(draft)
    features = [column for column in draft.columns if column.name != draft.label]
    if not features:
        reasons = [f"{name}: {reason}" for name, reason in draft.reasons.items()]
        hint = "; ".join(reasons[:_MOST_REASONS]) or "a table needs features beside its label"
        raise UsageError(f"no column of {table.name} can be a feature", hint)
    if draft.label in draft.reasons:
        text = f"{draft.label} cannot be the label of {table.name}: {draft.reasons[draft.label]}"
        raise UsageError(text, "name another column with --label")
    return _proposal(draft)


def _proposal(draft: _Draft) -> Proposal:
    """Return the schema of a draft, with its comments."""
    schema = Schema(
        tuple(draft.columns),
        label=draft.label,
        missing=draft.missing,
        rows_with_missing=LEAVE_OUT if _has_complete_rows(draft) else MIDDLE,
        leave_out=tuple(draft.reasons),
        name=draft.table.name,
    )
    notes = {**draft.notes, **_notes_above_columns(draft, schema)}
    usual_reasons = (_IS_DEVICE, _IS_TIME, _IS_CONSTANT, _IS_NUMBER)
    problems = {}
    for name, reason in draft.reasons.items():
        if reason not in usual_reasons:
            problems[name] = reason
    return Proposal(schema, notes, problems)


def _notes_above_columns(draft: _Draft, schema: Schema) -> dict[tuple[str, ...], list[str]]:
    """Return the comments at the beginning of the file and at its keys, by key."""
    notes: dict[tuple[str, ...], list[str]] = {}
    notes[()] = [
        f"What the columns of {draft.table.name} mean to tern. It is a proposal: please edit it.",
        "Bounds and categories marked `computed = true` come from the records, and are not",
        "private. Write bounds that everybody may know, such as those of the sensor, and",
        "delete the mark.",
        "",
    ]
    notes[("label",)] = [
        "The column that a model predicts. If there is nothing to predict, delete the line:"
    ]
    if len(schema.classes) > 2:
        notes[("positive",)] = [
            "A model of two classes needs the one that is +1; the others are the rest:",
            f"positive = {text_of(schema.classes[0])}",
        ]
    if draft.device:
        notes[("device",)] = [
            "If this column says which device a record belongs to, take the # away:",
            f"device = {text_of(draft.device)}",
        ]
    if draft.time:
        notes[("time",)] = [
            "If this column orders the records of a device, take the # away:",
            f"time = {text_of(draft.time)}",
        ]
    if any(len(_present(draft, column.name)) < len(draft.table) for column in draft.columns):
        notes[("missing",)] = ["How a missing value is written, as far as was seen:"]
        notes[("rows_with_missing",)] = [
            f'Rows with a missing value: "{LEAVE_OUT}" such a row, or put the "{MIDDLE}" of the bounds',
            "in place of a missing number:",
        ]
    if draft.reasons:
        notes[("leave_out",)] = [
            "Columns that are no features:",
            *(f"  {name}: {reason}" for name, reason in draft.reasons.items()),
        ]
    return notes


def _has_complete_rows(draft: _Draft) -> bool:
    """Return whether there is a row in which no value is missing that becomes part of a record."""
    is_complete = np.ones(len(draft.table), bool)
    for column in draft.columns:
        is_complete &= ~draft.table.missing(column.name, draft.missing)
    return bool(is_complete.any())


# Devices, time and the label


def _find_device_and_time(draft: _Draft) -> None:
    """Find the columns that say which device a record belongs to, and when it was made."""
    table = draft.table
    for name in table.columns:
        if name == draft.label:
            continue
        words = set(usual_names.plain(name).split("_"))
        distinct = len(set(table.texts(name)))
        repeats = 1 < distinct <= len(table) / 2
        if not draft.device and words & usual_names.DEVICES and repeats:
            draft.device = name
            draft.reasons[name] = _IS_DEVICE
        elif _is_time(draft, name):
            draft.reasons[name] = _IS_TIME
            draft.time = draft.time or name


def _is_time(draft: _Draft, name: str) -> bool:
    """Return whether a column seems to be a time: by its cells, or by its name and its order."""
    if look_like_times(draft.table.texts(name)):
        return True
    return usual_names.plain(name) in usual_names.TIMES and _mostly_rises(draft, name)


def _mostly_rises(draft: _Draft, name: str) -> bool:
    """Return whether a column may be a time: if it has numbers, few are below the one before."""
    numbers = draft.numbers(name)
    if numbers is None:
        return True
    changes = np.diff(numbers[~np.isnan(numbers)])
    return int((changes < 0).sum()) <= _MOST_DECREASES * len(changes)


def _guessed_label(draft: _Draft) -> str:
    """Return the column that has the name of a label, else the last one that can be one."""
    names = [name for name in draft.table.columns if name not in draft.reasons]
    usual = [name for name in names if usual_names.plain(name) in usual_names.LABELS]
    candidates = [*reversed(usual), *reversed(names)]
    if not draft.table.has_header:
        candidates = [*_unnamed_classes(draft, names), *candidates]
    for name in candidates:
        if not isinstance(_column_of(draft, name, is_label=True), str):
            return name
    return ""


def _unnamed_classes(draft: _Draft, names: Sequence[str]) -> list[str]:
    """Return the columns of a table without names that probably are its label, the best one first.

    In such tables classes come last, or they are the only texts, or numbers in the first column.
    """
    of_texts: list[str] = []
    of_numbers: list[str] = []
    for name in names:
        if not isinstance(_column_of(draft, name, is_label=True), Categorical):
            continue
        if draft.numbers(name) is None:
            of_texts.append(name)
        else:
            of_numbers.append(name)
    classes = of_texts + of_numbers
    if not classes:
        return []
    if names[-1] in classes:
        return [names[-1]]
    if len(of_texts) == 1:
        return of_texts
    if not of_texts and names[0] in of_numbers:
        return [names[0]]
    return []


# Columns


def _add_column(draft: _Draft, name: str) -> None:
    """Add a column of the table to a draft, or the reason why it is left out."""
    is_label = name == draft.label
    if name in draft.reasons and not is_label:
        return
    column = _column_of(draft, name, is_label=is_label)
    if isinstance(column, str):
        draft.reasons[name] = column
        return
    draft.columns.append(column)
    draft.notes[(COLUMNS, name)] = _notes_of(draft, column)


def _column_of(draft: _Draft, name: str, *, is_label: bool) -> Column | str:
    """Return what a column of the table is, or the reason why it cannot be a feature or a label."""
    texts = _present(draft, name)
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


def _why_no_numbers(draft: _Draft, name: str, texts: Sequence[str]) -> str:
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


def _present(draft: _Draft, name: str) -> list[str]:
    """Return the texts of a column that do not stand for a missing value."""
    is_missing = draft.table.missing(name, draft.missing)
    return list(compress(draft.table.texts(name), ~is_missing))


def _reason_against(name: str, texts: Sequence[str], *, is_label: bool) -> str:
    """Return why a column is left out whatever it holds; empty if nothing speaks against it.

    texts: those that are not missing.
    """
    distinct = set(texts)
    if not distinct:
        return "it has no value"
    if {normal(text) for text in distinct} == {"1"}:
        return _IS_CONSTANT
    if len(distinct) == 1:
        return f"it is {text_of(texts[0])} in every record"
    has_name_of_id = usual_names.plain(name).split("_")[-1] in usual_names.IDS
    are_ids = has_name_of_id and len(distinct) == len(texts)
    if not is_label and (are_ids or _count_up(texts)):
        return _IS_NUMBER
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


def _notes_of(draft: _Draft, column: Column) -> list[str]:
    """Return the comment above a column: what was seen in the records."""
    texts = _present(draft, column.name)
    if isinstance(column, Categorical):
        seen = _seen_categories(texts)
        if column.name == draft.label:
            seen = f"the label; {seen}"
    else:
        numbers = draft.numbers(column.name)
        assert numbers is not None
        seen = _seen_numbers(numbers[~np.isnan(numbers)])
    missing = len(draft.table) - len(texts)
    if missing:
        seen += f"; {missing:,} missing"
    return [seen]


def _seen_categories(texts: Sequence[str]) -> str:
    """Return in words which texts occur, and how often: the most frequent ones."""
    counts = Counter(texts)
    parts = [f"{text} {count:,}" for text, count in counts.most_common(_MOST_SHOWN)]
    if len(counts) > _MOST_SHOWN:
        parts.append("...")
    return f"seen: {', '.join(parts)}"


def _seen_numbers(numbers: Floats) -> str:
    """Return in words which numbers occur, and what to write if a few of them are codes."""
    seen = f"seen: {numbers.min():g} to {numbers.max():g}"
    distinct = np.unique(numbers)
    if are_whole(distinct) and 2 < len(distinct) <= _MOST_CODES:
        codes = text_of([f"{code:.0f}" for code in distinct])
        seen += f"; if these are codes, and not amounts: categories = {codes}"
    return seen


def _fit_a_record(draft: _Draft) -> None:
    """Leave out the last columns of a table that has more features than a record can have."""
    count = 1  # the constant
    for column in list(draft.columns):
        if column.name == draft.label:
            continue
        count += len(column.features)
        if count > MAX_DIMENSION:
            draft.columns.remove(column)
            draft.reasons[column.name] = (
                f"a record has at most {MAX_DIMENSION} features, the constant included"
            )
            count -= len(column.features)
