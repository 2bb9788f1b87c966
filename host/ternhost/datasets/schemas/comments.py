"""Comments in the file of a proposed schema: what was seen in the records, and what to edit."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ternhost.datasets.base import Floats, are_whole
from ternhost.datasets.schemas.columns import Categorical, Column
from ternhost.datasets.schemas.draft import Draft
from ternhost.datasets.schemas.schema import LEAVE_OUT, MIDDLE, Schema
from ternhost.datasets.schemas.toml_text import text_of

_MOST_CODES = 10  # different whole numbers that may be codes of categories
_MOST_SHOWN = 12  # categories in a comment


def notes_above_columns(draft: Draft, schema: Schema) -> dict[tuple[str, ...], list[str]]:
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
    if any(len(draft.present(column.name)) < len(draft.table) for column in draft.columns):
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


def notes_of(draft: Draft, column: Column) -> list[str]:
    """Return the comment above a column: what was seen in the records."""
    texts = draft.present(column.name)
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
