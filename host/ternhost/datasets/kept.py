"""A cache of data sets: reading their sources takes seconds, and importing pandas or scikit-learn
takes a second.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ternhost.cache import cache_root, kept_file
from ternhost.datasets.base import Dataset

_NAMES = ("feature_names", "classes")
_PARTS = ("features", "labels", "held_out", "public")


def kept(key: str, make: Callable[[], Dataset]) -> Dataset:
    """The cached data set of that key. Without one, `make` makes it, and it is cached."""
    return kept_file(cache_root() / "datasets" / f"{key}.npz", _read, make, _write)


def _read(path: Path) -> Dataset:
    with path.open("rb") as file, np.load(file) as parts:
        features, classes = (tuple(map(str, parts[part])) for part in _NAMES)
        records = {part: parts[part] for part in _PARTS}
        return Dataset(str(parts["name"]), str(parts["task"]), features, classes=classes, **records)


def _write(path: Path, dataset: Dataset) -> None:
    parts: dict[str, Any] = {"name": dataset.name, "task": dataset.task}
    parts |= {part: np.array(getattr(dataset, part), dtype=str) for part in _NAMES}
    parts |= {part: getattr(dataset, part) for part in _PARTS}
    np.savez_compressed(path, **parts)
