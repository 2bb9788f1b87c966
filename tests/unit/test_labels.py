"""What a store knows of the labels of its devices, and which models can learn from them."""

import numpy as np
import pytest

from ternhost.errors import UsageError
from ternhost.store import labels
from ternhost.store.store import Store

ONE = 16384  # 1.0 as Q1.14


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "s.sqlite") as opened:
        yield opened


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        ([ONE, -ONE], labels.NUMBERS),
        ([0, 8000, -3], labels.NUMBERS),
        ([0, 2, 1], 3),
        ([1, 1], 2),
        ([0, 0], None),  # of a table, or of records that a program makes later
    ],
)
def test_the_kind_of_labels_follows_from_their_values(values, classes):
    assert labels.classes_in(np.array(values, np.int16)) == classes


@pytest.mark.parametrize("model", [2, 3, 128])
def test_softmax_needs_class_numbers(store, model):
    labels.keep(store, 1, 8, labels.NUMBERS)
    with pytest.raises(UsageError):
        labels.require(store, range(8, 12), model)


@pytest.mark.parametrize("model", [labels.NUMBERS, 2])
def test_class_numbers_need_softmax_of_as_many_classes(store, model):
    labels.keep(store, 1, 8, 3)
    with pytest.raises(UsageError):
        labels.require(store, [8], model)


@pytest.mark.parametrize("model", [3, 4])
def test_a_class_may_be_missing_among_the_labels_of_a_device(store, model):
    labels.keep(store, 1, 8, 3)
    labels.require(store, range(1, 9), model)


def test_devices_of_which_nothing_is_known_are_asked(store):
    labels.keep(store, 1, 8, labels.NUMBERS)
    labels.require(store, range(9, 20), 3)


def test_what_is_kept_last_of_a_device_counts(store):
    """Of devices 1 to 9, the ones in the middle get other records, and one of them then none."""
    labels.keep(store, 1, 9, labels.NUMBERS)
    labels.keep(store, 4, 6, 3)
    labels.keep(store, 5, 5, None)
    labels.require(store, [1, 2, 3, 5, 7, 8, 9], labels.NUMBERS)
    labels.require(store, [4, 5, 6], 3)
    for device in (4, 6):
        with pytest.raises(UsageError):
            labels.require(store, [device], labels.NUMBERS)
