"""Proposes the schema of a table: which columns are features, their bounds, and the label.

A proposal is a guess, which the user edits. Its bounds and categories come from the records, so
that they are not private; the file says so.
"""

from dataclasses import dataclass

import numpy as np

from tern.wire import MAX_DIMENSION
from ternhost.datasets.schemas.comments import notes_above_columns, notes_of
from ternhost.datasets.schemas.draft import Draft
from ternhost.datasets.schemas.guessed_columns import IS_CONSTANT, IS_NUMBER, column_of
from ternhost.datasets.schemas.guessed_roles import (
    IS_DEVICE,
    IS_TIME,
    find_device_and_time,
    guessed_label,
)
from ternhost.datasets.schemas.schema import LEAVE_OUT, MIDDLE, Schema
from ternhost.datasets.schemas.schema_file import COLUMNS
from ternhost.datasets.tables.missing_marks import marks_of
from ternhost.datasets.tables.reading import RawTable
from ternhost.errors import UsageError

_MOST_REASONS = 3  # in a message


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


def propose(table: RawTable, label: str = "") -> Proposal:
    """Propose a schema for a table.

    label: the name of the label's column; empty: it is guessed. Raises UsageError if there is no
    such column, or if no column is left as a feature.
    """
    if label:
        table.texts(label)  # raises UsageError if there is no such column
    missing = marks_of(table)
    draft = Draft(table, label, missing)
    find_device_and_time(draft)
    if not label:
        draft.label = guessed_label(draft)
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


def _proposal(draft: Draft) -> Proposal:
    """Return the schema of a draft, with its comments."""
    schema = Schema(
        tuple(draft.columns),
        label=draft.label,
        missing=draft.missing,
        rows_with_missing=LEAVE_OUT if _has_complete_rows(draft) else MIDDLE,
        leave_out=tuple(draft.reasons),
        name=draft.table.name,
    )
    notes = {**draft.notes, **notes_above_columns(draft, schema)}
    usual_reasons = (IS_DEVICE, IS_TIME, IS_CONSTANT, IS_NUMBER)
    problems = {}
    for name, reason in draft.reasons.items():
        if reason not in usual_reasons:
            problems[name] = reason
    return Proposal(schema, notes, problems)


def _has_complete_rows(draft: Draft) -> bool:
    """Return whether there is a row in which no value is missing that becomes part of a record."""
    is_complete = np.ones(len(draft.table), bool)
    for column in draft.columns:
        is_complete &= ~draft.table.missing(column.name, draft.missing)
    return bool(is_complete.any())


def _add_column(draft: Draft, name: str) -> None:
    """Add a column of the table to a draft, or the reason why it is left out."""
    is_label = name == draft.label
    if name in draft.reasons and not is_label:
        return
    column = column_of(draft, name, is_label=is_label)
    if isinstance(column, str):
        draft.reasons[name] = column
        return
    draft.columns.append(column)
    draft.notes[(COLUMNS, name)] = notes_of(draft, column)


def _fit_a_record(draft: Draft) -> None:
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
