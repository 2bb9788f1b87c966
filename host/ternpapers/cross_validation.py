"""Cross-validation: a data set is divided into folds at random, and each is held out once."""

import numpy as np

from ternhost.datasets import Dataset
from ternhost.errors import UsageError
from ternhost.text import counted


def require_records(dataset: Dataset, folds: int) -> None:
    """Raise UsageError if a data set has too few records for so many folds, each held out once."""
    if dataset.size < folds:
        records = counted(dataset.size, "record")
        text = f"{dataset.name} has {records}, too few for a cross-validation of {folds} folds"
        raise UsageError(text, hint="name another --data")


def with_fold_held_out(dataset: Dataset, index: int, folds: int, seed: int) -> Dataset:
    """Return the data set with one of so many folds held out.

    index: 0 to folds - 1 for one division of the records, folds to 2 folds - 1 for another one, and
    so on. seed: that of the divisions.
    """
    division, part = divmod(index, folds)
    order = np.random.default_rng([seed, division]).permutation(dataset.size)
    held_out = np.zeros(dataset.size, bool)
    held_out[order[part::folds]] = True
    return dataset.divided(held_out)


def shared_part(folds: int) -> float:
    """Return the number of held-out records over that of training records, see `mean_and_error`."""
    return 1 / (folds - 1)
