"""Data sets and tables in the integers that devices hold, and the files of some of them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tern.fixed import ONE
from ternhost.cache import cache_root
from ternhost.errors import UsageError

CLASSIFICATION = "classification"  # labels are -1 and 1
REGRESSION = "regression"  # labels lie in [-1, 1]
MULTICLASS = "multiclass"  # labels count the classes from 0

Floats = npt.NDArray[np.float64]
Fixed = npt.NDArray[np.int16]
Indices = npt.NDArray[np.int64]

CONSTANT = "constant"
PUBLIC = 1000  # records of a data set, at most, that are public
_HELD_OUT = 0.1
_GOLDEN = 2654435769  # 2**32 over the golden ratio


@dataclass(frozen=True)
class Dataset:
    """n records with labels.

    features: n x d, Q1.14, the constant first. labels: n, Q1.14 or classes. held_out: n flags of
    the records that only judge a model. public: positions of the public rows, records that are
    nobody's: neither for training nor held out; their first ones are as evenly spread as all.
    """

    name: str
    task: str
    feature_names: tuple[str, ...]
    features: Fixed
    labels: Fixed
    held_out: npt.NDArray[np.bool_]
    classes: tuple[str, ...] = ()
    public: Indices = field(default_factory=lambda: np.arange(0))

    @property
    def dimension(self) -> int:
        """The number of features, the constant included."""
        return int(self.features.shape[1])

    @property
    def training(self) -> Indices:
        """Positions of the records for training, in order."""
        return np.setdiff1d(np.flatnonzero(~self.held_out), self.public)

    @property
    def test(self) -> Indices:
        """Positions of the held-out records, in order."""
        return np.flatnonzero(self.held_out)

    @cached_property
    def judged(self) -> tuple[Floats, Floats]:
        """Features and labels of the held-out records, in units of Q1.14.

        Cached, since every figure needs them.
        """
        test = self.test
        return self.features[test].astype(np.float64), self.labels[test].astype(np.float64)

    @cached_property
    def shares(self) -> Floats:
        """The share of each class among the training records; of two classes, label -1 comes first."""
        labels = self.labels[self.training]
        codes, classes = (labels > 0).astype(np.int64), 2
        if self.task == MULTICLASS:
            codes, classes = labels.astype(np.int64), len(self.classes)
        return np.bincount(codes, minlength=classes) / len(labels)

    def records(self, positions: npt.ArrayLike) -> Fixed:
        """Records as a device holds them: m x (d + 1), the label last."""
        rows = np.asarray(positions)
        return np.concatenate([self.features[rows], self.labels[rows, None]], axis=1)

    def against_rest(self, *positive: str) -> Self:
        """The same records, with label 1 for these classes and -1 for the rest.

        Raises UsageError unless these are some of the classes, but not all.
        """
        if self.task != MULTICLASS or not positive or not set(positive) < set(self.classes):
            part = ", ".join(positive) or "nothing"
            hint = f"its classes are: {', '.join(self.classes)}"
            raise UsageError(f"{self.name} cannot be divided into {part} and the rest", hint)
        chosen = [self.classes.index(name) for name in positive]
        labels = np.where(np.isin(self.labels, chosen), ONE, -ONE).astype(np.int16)
        return replace(self, task=CLASSIFICATION, labels=labels)

    def divided(self, held_out: npt.NDArray[np.bool_], public: npt.ArrayLike = ()) -> Self:
        """The same records, divided in another way.

        held_out: n flags. public: positions of public rows, by default none.
        """
        return replace(self, held_out=held_out, public=np.asarray(public, np.int64))

    def with_public_rows(self) -> Self:
        """The same records, a third of which are public, but at most PUBLIC.

        They are the ones that the fixed split would hold out next.
        """
        others = np.argsort(_multiples(len(self.labels)))[len(self.test) :]
        count = min(PUBLIC, len(others) // 3)
        return self.divided(self.held_out, others[:count])


@dataclass(frozen=True)
class Table:
    """n records of attributes.

    numeric: n x the number of numeric attributes, Q1.14. codes: n x the number of categorical ones,
    as positions in their `categories`.
    """

    name: str
    numeric_names: tuple[str, ...]
    numeric: Fixed
    categorical_names: tuple[str, ...] = ()
    codes: Fixed | None = None
    categories: tuple[tuple[str, ...], ...] = ()

    @property
    def training(self) -> Indices:
        """Positions of the records that devices may hold: all records."""
        return np.arange(len(self.numeric))

    def records(self, positions: npt.ArrayLike) -> Fixed:
        """Records as a device holds them: m x (d + 1).

        Numeric attributes come first, and last an unused label of 0.
        """
        rows = np.asarray(positions)
        columns = [self.numeric[rows], np.zeros((len(rows), 1), np.int16)]
        if self.codes is not None:
            columns.insert(1, self.codes[rows])
        return np.concatenate(columns, axis=1)

    def regression(self, label: str) -> Dataset:
        """Predict the numeric attribute `label` from all others.

        Raises UsageError if there is no such attribute.
        """
        if label not in self.numeric_names:
            hint = f"it has: {', '.join(self.numeric_names) or 'none'}"
            raise UsageError(f"{self.name} has no numeric attribute {label!r}", hint)
        labels = self.numeric[:, self.numeric_names.index(label)]
        names, features = self._without(label)
        return with_constant(self.name, REGRESSION, names, features, labels)

    def classification(self, label: str) -> Dataset:
        """Tell the categories of the categorical attribute `label` from all other attributes."""
        assert self.codes is not None
        j = self.categorical_names.index(label)
        names, features = self._without(label)
        labels, classes = self.codes[:, j], self.categories[j]
        return with_constant(self.name, MULTICLASS, names, features, labels, classes)

    def _without(self, label: str) -> tuple[list[str], Fixed]:
        """The names and columns of all other attributes, as features.

        A categorical attribute has a column for each category but the last.
        """
        names: list[str] = []
        columns: list[Fixed] = []
        for j, name in enumerate(self.numeric_names):
            if name != label:
                names.append(name)
                columns.append(self.numeric[:, j : j + 1])
        for j, name in enumerate(self.categorical_names):
            assert self.codes is not None
            if name != label:
                categories = self.categories[j]
                names += [f"{name}={category}" for category in categories[:-1]]
                columns.append(expand(self.codes[:, j], len(categories)))
        return names, np.concatenate(columns, axis=1)

    def above_mean(self, label: str) -> Dataset:
        """Tell whether the numeric attribute `label` is above its mean over all records.

        That is what the papers do. Raises UsageError if there is no such attribute.
        """
        dataset = self.regression(label)
        is_above = dataset.labels > dataset.labels.mean()
        labels = np.where(is_above, ONE, -ONE).astype(np.int16)
        return replace(dataset, task=CLASSIFICATION, labels=labels)


def with_constant(
    name: str,
    task: str,
    names: Sequence[str],
    features: Fixed,
    labels: npt.NDArray[Any],
    classes: tuple[str, ...] = (),
) -> Dataset:
    """A data set of these features (n x d - 1), with the constant before them and the fixed split."""
    constant = np.full((len(features), 1), ONE, np.int16)
    return Dataset(
        name=name,
        task=task,
        feature_names=(CONSTANT, *names),
        features=np.concatenate([constant, features], axis=1),
        labels=labels.astype(np.int16),
        held_out=held_out(len(labels)),
        classes=classes,
    )


def held_out(n: int, share: float = _HELD_OUT) -> npt.NDArray[np.bool_]:
    """The fixed split, n flags: `share` of them are set.

    They are evenly spread: by multiples of the golden ratio, modulo 1.
    """
    return _multiples(n) < np.uint64(round(share * (1 << 32)))


def _multiples(n: int) -> npt.NDArray[np.uint64]:
    return np.arange(1, n + 1, dtype=np.uint64) * np.uint64(_GOLDEN) % np.uint64(1 << 32)


def to_fixed(values: npt.ArrayLike) -> Fixed:
    """Q1.14 of real numbers, rounded and clipped to [-1, 1].

    Raises ValueError for a number that is not finite.
    """
    real = np.asarray(values, np.float64)
    if not np.isfinite(real).all():
        raise ValueError("a number is not finite")
    return np.rint(np.clip(real, -1, 1) * ONE).astype(np.int16)


def normalised(values: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> Fixed:
    """Q1.14 of values, scaled so that their domain [low, high] becomes [-1, 1].

    Values outside of it are clipped.
    """
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    width = np.where(high > low, high - low, 1.0)
    return to_fixed((2 * np.asarray(values, np.float64) - low - high) / width)


def expand(codes: npt.ArrayLike, count: int) -> Fixed:
    """Codes (n) of an attribute of `count` categories as n x (count - 1) binary ones.

    Source: Wang et al., ICDE 2019. The j-th is 1 in records of category j, else -1; all are -1 in
    records of the last category.
    """
    is_category = np.asarray(codes)[:, None] == np.arange(count - 1)
    return np.where(is_category, ONE, -ONE).astype(np.int16)


def data_folder() -> Path:
    """The folder of the files that users get themselves: $TERN_DATA, else `data` in tern's cache."""
    return Path(os.environ.get("TERN_DATA") or cache_root() / "data")


def find_file(dataset: str, path: Path | None, names: Sequence[str], source: str) -> Path:
    """The file of a data set: `path` itself, or the first of `names` in the folder `path`.

    The default folder is `data_folder()`. Raises UsageError if there is none; its hint names the
    `source` of the file.
    """
    folder = path or data_folder()
    if folder.is_file():
        return folder
    for name in names:
        if (folder / name).is_file():
            return folder / name
    missing = f"there is no {names[0]} in {folder}"
    if path and not folder.exists():
        missing = f"{folder} does not exist"
    hint = (
        f"get it from {source}; then put it there, set TERN_DATA to its folder, "
        f"or use the name {dataset}:FILE"
    )
    raise UsageError(f"the data set {dataset} is a file of its publishers: {missing}", hint)


def bad_file(path: Path, problem: str, source: str) -> UsageError:
    """The error for a file that is not in its published format."""
    return UsageError(f"{path}: {problem}", hint=f"get the file again from {source}")
