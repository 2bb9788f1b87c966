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
from tern.wire import MAX_DIMENSION
from ternhost.cache import cache_root
from ternhost.errors import UsageError

CLASSIFICATION = "classification"  # labels are -1 and 1
REGRESSION = "regression"  # labels lie in [-1, 1]
MULTICLASS = "multiclass"  # labels count the classes from 0

Floats = npt.NDArray[np.float64]
Fixed = npt.NDArray[np.int16]
Indices = npt.NDArray[np.int64]

CONSTANT = "constant"
REST = "the rest"  # names all classes but those that a model of two classes tells from them
PUBLIC = 1000  # at most so many records of a data set are public rows
_HELD_OUT = 0.1  # the share of the records that are held out
_GOLDEN = 2654435769  # 2**32 divided by the golden ratio


@dataclass(frozen=True)
class ColumnUnit:
    """What the numbers of a column are in a unit of their own.

    - name: that of the column
    - low, high: what -1 and 1 stand for
    - unit: in words; empty if it has none
    """

    name: str
    low: float
    high: float
    unit: str = ""


@dataclass(frozen=True)
class Dataset:
    """n records with labels, for training and judging a model.

    - name, task: the name of the data set, and one of CLASSIFICATION, REGRESSION and MULTICLASS
    - feature_names, features: d names, and n x d numbers in Q1.14; the first feature is constant
    - labels: n numbers, in Q1.14 or, for MULTICLASS, the numbers of classes
    - held_out: n flags of the records that only judge a model
    - classes: the names of the classes: those that labels count, for MULTICLASS; for two classes
      that of label -1 and that of label 1; empty if they have no names
    - public: positions of the public rows, which no device holds and which judge no model; the
      first ones of them are as evenly spread over the data set as all
    - owners: for each of the n records the number of the device that holds it, from 0; None if any
      device may hold any record
    - owner_names: the names of these devices
    - label_unit: that of numeric labels; None if they are in [-1, 1] by themselves
    - units: of the features that have one
    """

    name: str
    task: str
    feature_names: tuple[str, ...]
    features: Fixed
    labels: Fixed
    held_out: npt.NDArray[np.bool_]
    classes: tuple[str, ...] = ()
    public: Indices = field(default_factory=lambda: np.arange(0))
    owners: Indices | None = None
    owner_names: tuple[str, ...] = ()
    label_unit: ColumnUnit | None = None
    units: tuple[ColumnUnit, ...] = ()

    @property
    def size(self) -> int:
        """The number of records, n."""
        return len(self.labels)

    @property
    def dimension(self) -> int:
        """The number of features, the constant included."""
        return int(self.features.shape[1])

    @property
    def training(self) -> Indices:
        """Positions of the records for training, in order."""
        is_for_training = ~self.held_out
        is_for_training[self.public] = False
        return np.flatnonzero(is_for_training)

    def training_without(self, reserved: npt.ArrayLike) -> Indices:
        """Return `training` without some positions, such as those of further public records."""
        is_for_training = np.zeros(self.size, bool)
        is_for_training[self.training] = True
        is_for_training[np.asarray(reserved, np.intp)] = False
        return np.flatnonzero(is_for_training)

    @property
    def test(self) -> Indices:
        """Positions of the held-out records, in order."""
        return np.flatnonzero(self.held_out)

    @cached_property
    def judged(self) -> tuple[Floats, Floats]:
        """The features and the labels of the held-out records, as floats in units of Q1.14.

        They are cached, since every measure of a model needs them.
        """
        test = self.test
        return self.features[test].astype(np.float64), self.labels[test].astype(np.float64)

    @cached_property
    def shares(self) -> Floats:
        """The share of each class among the training records.

        Of the two classes of a classification, label -1 comes first.
        """
        return self.class_counts(self.training) / len(self.training)

    def class_counts(self, positions: Indices) -> Indices:
        """Return how many of the records at some positions are of each class.

        Of the two classes of a classification, label -1 comes first.
        """
        labels = self.labels[positions]
        if self.task == MULTICLASS:
            return np.bincount(labels.astype(np.int64), minlength=len(self.classes))
        return np.bincount((labels > 0).astype(np.int64), minlength=2)

    def records(self, positions: npt.ArrayLike) -> Fixed:
        """Return the records at m positions as devices hold them: m x (d + 1), the label last."""
        rows = np.asarray(positions)
        return np.concatenate([self.features[rows], self.labels[rows, None]], axis=1)

    @property
    def all_records(self) -> Fixed:
        """All n records as devices hold them: n x (d + 1), the label last."""
        return np.concatenate([self.features, self.labels[:, None]], axis=1)

    def against_rest(self, *positive: str) -> Self:
        """Return the same records with label 1 for some classes and -1 for the rest.

        positive: the names of these classes. Raises UsageError if there is no such class, or the
        rest would be empty.
        """
        leaves_a_rest = set(positive) < set(self.classes)
        if self.task != MULTICLASS or not positive or not leaves_a_rest:
            part = "nothing"
            if positive:
                part = ", ".join(positive)
            hint = f"its classes are: {', '.join(self.classes)}"
            raise UsageError(f"{self.name} cannot be divided into {part} and the rest", hint)
        positive_codes = [self.classes.index(name) for name in positive]
        is_positive = np.isin(self.labels, positive_codes)
        labels = np.where(is_positive, ONE, -ONE).astype(np.int16)
        rest = [name for name in self.classes if name not in positive]
        names = (rest[0] if len(rest) == 1 else REST, " or ".join(positive))
        return replace(self, task=CLASSIFICATION, labels=labels, classes=names)

    def divided(self, held_out: npt.NDArray[np.bool_], public: npt.ArrayLike = ()) -> Self:
        """Return the same records with other held-out records and public rows.

        held_out: n flags. public: positions of public rows, by default none.
        """
        return replace(self, held_out=held_out, public=np.asarray(public, np.int64))

    def without_owners(self) -> Self:
        """Return the same records, of which any device may hold any."""
        return replace(self, owners=None, owner_names=())

    def with_public_rows(self) -> Self:
        """Return the same records with public rows: a third of the others, but at most PUBLIC.

        They are the records that the fixed split would hold out next.
        """
        by_fixed_split = np.argsort(_multiples(len(self.labels)))  # those held out come first
        others = by_fixed_split[len(self.test) :]
        count = min(PUBLIC, len(others) // 3)
        return self.divided(self.held_out, others[:count])


@dataclass(frozen=True)
class Table:
    """n records of numeric and categorical attributes, for collecting means and frequencies.

    numeric_names, numeric: the numeric attributes, n x their number, in Q1.14. categorical_names,
    codes: the categorical attributes, n x their number, each as a position in the `categories` of
    the attribute; None if there are none. owners, owner_names: as of Dataset. units: of the numeric
    attributes that have one.
    """

    name: str
    numeric_names: tuple[str, ...]
    numeric: Fixed
    categorical_names: tuple[str, ...] = ()
    codes: Fixed | None = None
    categories: tuple[tuple[str, ...], ...] = ()
    owners: Indices | None = None
    owner_names: tuple[str, ...] = ()
    units: tuple[ColumnUnit, ...] = ()

    @property
    def size(self) -> int:
        """The number of records, n."""
        return len(self.numeric)

    @property
    def training(self) -> Indices:
        """Positions of the records that devices may hold: all records."""
        return np.arange(len(self.numeric))

    def records(self, positions: npt.ArrayLike) -> Fixed:
        """Return the records at m positions as devices hold them: m x (d + 1).

        Numeric attributes come first, then categorical ones, and last an unused label of 0.
        """
        rows = np.asarray(positions)
        columns = [self.numeric[rows]]
        if self.codes is not None:
            columns.append(self.codes[rows])
        columns.append(np.zeros((len(rows), 1), np.int16))
        return np.concatenate(columns, axis=1)

    def regression(self, label: str) -> Dataset:
        """Return a data set whose task is to predict a numeric attribute from all others.

        label: the name of that attribute. Raises UsageError if there is no such attribute.
        """
        if label not in self.numeric_names:
            hint = f"it has: {', '.join(self.numeric_names) or 'none'}"
            raise UsageError(f"{self.name} has no numeric attribute {label!r}", hint)
        labels = self.numeric[:, self.numeric_names.index(label)]
        names, features = self._without(label)
        return with_constant(self.name, REGRESSION, names, features, labels)

    def classification(self, label: str) -> Dataset:
        """Return a data set whose task is to predict a categorical attribute from all others.

        label: the name of that attribute.
        """
        assert self.codes is not None
        j = self.categorical_names.index(label)
        names, features = self._without(label)
        labels, classes = self.codes[:, j], self.categories[j]
        return with_constant(self.name, MULTICLASS, names, features, labels, classes)

    def _without(self, label: str) -> tuple[list[str], Fixed]:
        """Return the names and columns of all attributes but `label`, as features.

        A numeric attribute is one column; a categorical one has a column for each category but the
        last.
        """
        names: list[str] = []
        columns: list[Fixed] = []
        for j, name in enumerate(self.numeric_names):
            if name != label:
                names.append(name)
                columns.append(self.numeric[:, [j]])
        for j, name in enumerate(self.categorical_names):
            assert self.codes is not None
            if name != label:
                categories = self.categories[j]
                names += [f"{name}={category}" for category in categories[:-1]]
                columns.append(expand(self.codes[:, j], len(categories)))
        return names, np.concatenate(columns, axis=1)

    def above_mean(self, label: str) -> Dataset:
        """Return a data set whose task is to tell whether a numeric attribute is above its mean.

        label: the name of that attribute. The mean is that over all records, as in the papers.
        Raises UsageError if there is no such attribute.
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
    """Return a data set of these features, to which the constant is added.

    The records to hold out are those of the fixed split (`held_out`). name, task: as of Dataset.
    names: those of the features. features: n x (d - 1), Q1.14. labels: n. classes: the names of
    classes, for MULTICLASS.
    """
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
    """Return the fixed split: flags of n records, of which `share` are held out.

    Record i is held out if the i-th multiple of the golden ratio, modulo 1, is below `share`. That
    spreads the held-out records evenly, whatever the order of the records.
    """
    limit = np.uint64(round(share * (1 << 32)))
    return _multiples(n) < limit


def _multiples(n: int) -> npt.NDArray[np.uint64]:
    """Return the first n multiples of 1 over the golden ratio, modulo 1, in units of 2**-32."""
    return np.arange(1, n + 1, dtype=np.uint64) * np.uint64(_GOLDEN) % np.uint64(1 << 32)


def to_fixed(values: npt.ArrayLike) -> Fixed:
    """Convert real numbers to Q1.14, rounded, and clipped to [-1, 1].

    Raises ValueError for a number that is not finite.
    """
    real = np.asarray(values, np.float64)
    if not np.isfinite(real).all():
        raise ValueError("a number is not finite")
    return np.rint(np.clip(real, -1, 1) * ONE).astype(np.int16)


def are_whole(numbers: npt.NDArray[Any]) -> bool:
    """Return whether all numbers of an array are whole."""
    return bool((numbers == np.rint(numbers)).all())


def are_class_numbers(labels: npt.NDArray[Any]) -> bool:
    """Return whether labels, which are whole numbers, can be the numbers of classes.

    These are small. As labels in [-1, 1] in Q1.14 they would all lie between 0 and 0.008.
    """
    return bool(((labels >= 0) & (labels < MAX_DIMENSION)).all())


def normalised(values: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> Fixed:
    """Convert values to Q1.14, scaled so that their domain [low, high] becomes [-1, 1].

    Values outside of it are clipped. A domain of a single value becomes 0.
    """
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    width = np.where(high > low, high - low, 1.0)  # 1 only avoids a division by 0
    twice_from_middle = 2 * np.asarray(values, np.float64) - low - high
    return to_fixed(twice_from_middle / width)


def expand(codes: npt.ArrayLike, count: int) -> Fixed:
    """Return the codes (n) of a categorical attribute as n x (count - 1) binary features.

    count: how many categories it has. Feature j is 1 in records of category j, else -1; all are -1
    in records of the last category. Source: Wang et al., ICDE 2019.
    """
    is_category = np.asarray(codes)[:, None] == np.arange(count - 1)
    return np.where(is_category, ONE, -ONE).astype(np.int16)


def data_folder() -> Path:
    """Return the folder of files that users get themselves: $TERN_DATA, or one in tern's cache."""
    folder = os.environ.get("TERN_DATA")
    if folder:
        return Path(folder)
    return cache_root() / "data"


def find_file(
    dataset: str,
    path: Path | None,
    names: Sequence[str],
    source: str,
    *,
    of_several: bool = False,
) -> Path:
    """Find the file of a data set.

    It is `path`, if that is a file, or else the first of `names` that is in the folder `path`, by
    default in `data_folder()`. dataset: the name of the data set. source: where users get the file,
    for the hint of the UsageError that is raised if it is not there. of_several: whether the data
    set has several files, so that users name their folder.
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
    named = f"{dataset}:FILE"
    if of_several:
        named = f"{dataset}:FOLDER"
    hint = (
        f"get it from {source}; then put it there, set TERN_DATA to its folder, "
        f"or use the name {named}"
    )
    raise UsageError(f"the data set {dataset} is a file of its publishers: {missing}", hint)


def bad_file(path: Path, problem: str, source: str) -> UsageError:
    """Return the error for a file that is not in its published format.

    problem: what is wrong with it. source: where users get the file.
    """
    return UsageError(f"{path}: {problem}", hint=f"get the file again from {source}")
