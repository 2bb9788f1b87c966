"""A cache of data sets: reading their source takes seconds, importing pandas or scikit-learn alone takes one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ternhost.cache import cache_root, kept_file
from ternhost.datasets.base import Dataset

_NAMES = ("feature_names", "classes")
_PARTS = ("features", "labels", "held_out")


def kept(key: str, make: Callable[[], Dataset]) -> Dataset:
    """The data set of that key from the cache, else made and kept there."""
    return kept_file(cache_root() / "datasets" / f"{key}.npz", _read, make, _write)


def _read(path: Path) -> Dataset:
    with path.open("rb") as file, np.load(file) as parts:
        features, classes = (tuple(map(str, parts[part])) for part in _NAMES)
        values, labels, held_out = (parts[part] for part in _PARTS)
        return Dataset(str(parts["name"]), str(parts["task"]), features, values, labels, held_out, classes)


def _write(path: Path, made: Dataset) -> None:
    parts: dict[str, Any] = {"name": made.name, "task": made.task}
    parts |= {part: np.array(getattr(made, part), dtype=str) for part in _NAMES}
    parts |= {part: getattr(made, part) for part in _PARTS}
    np.savez_compressed(path, **parts)
