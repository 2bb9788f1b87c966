"""Guesses which columns of a table name the device, the time and the label of a record."""

from collections.abc import Sequence

import numpy as np

from ternhost.datasets.schemas import usual_names
from ternhost.datasets.schemas.columns import Categorical
from ternhost.datasets.schemas.draft import Draft
from ternhost.datasets.schemas.guessed_columns import column_of
from ternhost.datasets.tables.times import look_like_times

_MOST_DECREASES = 0.1  # share of the steps of a time at which it decreases
IS_DEVICE = "it seems to say which device a record belongs to"
IS_TIME = "it seems to be a time"


def find_device_and_time(draft: Draft) -> None:
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
            draft.reasons[name] = IS_DEVICE
        elif _is_time(draft, name):
            draft.reasons[name] = IS_TIME
            draft.time = draft.time or name


def _is_time(draft: Draft, name: str) -> bool:
    """Return whether a column seems to be a time: by its cells, or by its name and its order."""
    if look_like_times(draft.table.texts(name)):
        return True
    return usual_names.plain(name) in usual_names.TIMES and _mostly_rises(draft, name)


def _mostly_rises(draft: Draft, name: str) -> bool:
    """Return whether a column may be a time: if it has numbers, few are below the one before."""
    numbers = draft.numbers(name)
    if numbers is None:
        return True
    changes = np.diff(numbers[~np.isnan(numbers)])
    return int((changes < 0).sum()) <= _MOST_DECREASES * len(changes)


def guessed_label(draft: Draft) -> str:
    """Return the column that has the name of a label, else the last one that can be one."""
    names = [name for name in draft.table.columns if name not in draft.reasons]
    usual = [name for name in names if usual_names.plain(name) in usual_names.LABELS]
    candidates = [*reversed(usual), *reversed(names)]
    if not draft.table.has_header:
        candidates = [*_unnamed_classes(draft, names), *candidates]
    for name in candidates:
        if not isinstance(column_of(draft, name, is_label=True), str):
            return name
    return ""


def _unnamed_classes(draft: Draft, names: Sequence[str]) -> list[str]:
    """Return the columns of a table without names that probably are its label, the best one first.

    In such tables classes come last, or they are the only texts, or numbers in the first column.
    """
    of_texts: list[str] = []
    of_numbers: list[str] = []
    for name in names:
        if not isinstance(column_of(draft, name, is_label=True), Categorical):
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
