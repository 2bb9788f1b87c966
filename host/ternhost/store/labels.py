"""The kind of labels that devices have, as far as their host gave them their records.

A device does not say what its labels are, and it cannot refuse a question for labels of another
kind: that would depend on the values of its records, and would not be paid for (storage.md). So the
host remembers what it wrote to its devices.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ternhost.datasets.base import are_class_numbers
from ternhost.errors import UsageError
from ternhost.store.store import Store
from ternhost.text import counted

NUMBERS = 1
"""Stands for labels in [-1, 1]: those of two classes, and numbers to predict."""
# In the state of a store: a list of [first device, last device, classes]. `classes` is NUMBERS, or
# how many classes there are at least, whose numbers are the labels.
_STATE = "labels"


def classes_in(labels: npt.NDArray[np.int16]) -> int | None:
    """Return how many classes the labels of records tell apart at least; NUMBERS in [-1, 1].

    labels: in the last column of records, as devices hold them. The result is None if all are 0,
    as in tables without labels: then nobody knows.
    """
    if not labels.any():
        return None
    if not are_class_numbers(labels):
        return NUMBERS
    return max(2, int(labels.max()) + 1)


def keep(store: Store, first: int, last: int, classes: int | None) -> None:
    """Remember the kind of labels of devices `first` to `last`, instead of what was known of them.

    classes: the result of `classes_in`.
    """
    with store.transaction():
        ranges = []
        for begin, end, known in store.state(_STATE) or []:
            if begin < first:  # the part before these devices
                ranges.append([begin, min(end, first - 1), known])
            if end > last:  # the part after them
                ranges.append([max(begin, last + 1), end, known])
        if classes is not None:
            ranges.append([first, last, classes])
        store.save_state({_STATE: sorted(ranges)})


def require(store: Store, devices: Sequence[int] | npt.NDArray[Any], classes: int) -> None:
    """Raise UsageError if devices are known to have labels that a model cannot learn from.

    Without this they would answer all the same, and pay for gradients of a model that means nothing.

    devices: the ids of those that would be asked. classes: how many classes the model tells apart
    by their numbers; NUMBERS for models of labels in [-1, 1].
    """
    ids = np.asarray(devices)
    for first, last, known in store.state(_STATE) or []:
        is_numbers = known == NUMBERS
        suits = is_numbers == (classes == NUMBERS) and known <= classes
        count = int(np.count_nonzero((ids >= first) & (ids <= last)))
        if suits or not count:
            continue
        who = f"{counted(count, 'device')} of this run"
        if is_numbers:
            text = f"the labels of {who} are numbers from -1 to 1, and softmax needs class numbers"
            hint = "use --model logistic, linear or svm"
        else:
            text = f"the labels of {who} are the numbers of {known} classes"
            hint = (
                f"use --model softmax; for records of the devices, --data devices:FEATURES:{known}"
            )
        own = "if their programs make other records: tern board provision BOARD --data own"
        raise UsageError(text, hint=f"{hint}; {own}")
