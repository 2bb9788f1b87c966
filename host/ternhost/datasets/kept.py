"""Data sets in the cache: what reads their source takes seconds, of which importing pandas or scikit-learn is one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ternhost.cache import cache_root
from ternhost.datasets.base import Dataset
from ternhost.files import replacing

_NAMES = ("feature_names", "classes")
_PARTS = ("features", "labels", "held_out")


def kept(key: str, make: Callable[[], Dataset]) -> Dataset:
    """The data set of that key from the cache, else made and kept there; a cache that cannot be written is no error."""
    path = cache_root() / "datasets" / f"{key}.npz"
    with (
        contextlib.suppress(Exception),  # of whatever kind: what is damaged is made again
        path.open("rb") as file,
        np.load(file) as found,
    ):
        features, classes = (tuple(str(name) for name in found[part]) for part in _NAMES)
        values, labels, held_out = (found[part] for part in _PARTS)
        return Dataset(str(found["name"]), str(found["task"]), features, values, labels, held_out, classes)
    made = make()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        parts: dict[str, Any] = {"name": made.name, "task": made.task}
        parts |= {part: np.array(getattr(made, part), dtype=str) for part in _NAMES}
        parts |= {part: getattr(made, part) for part in _PARTS}
        with replacing(path) as new:
            np.savez_compressed(new, **parts)
    return made
