"""Caches data sets in files, since reading their sources takes seconds.

Importing pandas or scikit-learn alone takes a second.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ternhost.cache import cache_root, kept_file
from ternhost.datasets.base import Dataset


def kept(key: str, make: Callable[[], Dataset]) -> Dataset:
    """Return the cached data set with this key; if there is none, make it and cache it."""
    path = cache_root() / "datasets" / f"{key}.npz"
    return kept_file(path, read=_read, make=make, write=_write)


def _read(path: Path) -> Dataset:
    """Read a data set from a file that `_write` wrote."""
    with path.open("rb") as file, np.load(file) as parts:
        return Dataset(
            name=str(parts["name"]),
            task=str(parts["task"]),
            feature_names=tuple(map(str, parts["feature_names"])),
            features=parts["features"],
            labels=parts["labels"],
            held_out=parts["held_out"],
            classes=tuple(map(str, parts["classes"])),
            public=parts["public"],
        )


def _write(path: Path, dataset: Dataset) -> None:
    """Write a data set as a compressed archive of arrays, one for each of its fields."""
    np.savez_compressed(
        path,
        name=dataset.name,
        task=dataset.task,
        feature_names=np.array(dataset.feature_names, dtype=str),
        classes=np.array(dataset.classes, dtype=str),
        features=dataset.features,
        labels=dataset.labels,
        held_out=dataset.held_out,
        public=dataset.public,
    )
