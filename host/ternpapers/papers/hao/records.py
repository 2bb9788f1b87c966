"""The records of figure 3: linear regression, cross-validated."""

from dataclasses import dataclass, replace
from functools import lru_cache

from ternhost.datasets import Dataset, Table
from ternhost.learn.collecting import collect
from ternpapers.base import CLIENTS, SMALL, load
from ternpapers.cross_validation import with_fold_held_out
from ternpapers.datasets import ipums, one_column_each, stand_ins

FOLDS = 5
# A table of flights, whose time in the air is predicted from some of their other attributes.
FLIGHTS = stand_ins.TABLE
_TIME_IN_THE_AIR = "minutes in the air"
_OF_FLIGHTS = ("origin", "month", "weekday", "rain", "arrival")  # those with few categories


@lru_cache(maxsize=4)
def dataset_of(name: str) -> Dataset:
    """Load the data set of that name, with a column for each category where it is a table.

    Of an extract of IPUMS, the label is the income. Raises UsageError.
    """
    kind, _, _ = name.partition(":")
    if kind in (ipums.NAME, "ipums-regression"):
        table, _ = collect.load(name)
        return one_column_each.regression(table, ipums.INCOME, ipums.ORDERED)
    if kind == FLIGHTS:
        table, _ = collect.load(name)
        return one_column_each.regression(_with_categories(table, _OF_FLIGHTS), _TIME_IN_THE_AIR)
    return load(name)


def _with_categories(table: Table, names: tuple[str, ...]) -> Table:
    """Return a table with all of its numbers, and only these of its categorical attributes."""
    assert table.codes is not None
    positions = [table.categorical_names.index(name) for name in names]
    categories = tuple(table.categories[position] for position in positions)
    codes = table.codes[:, positions]
    return replace(table, categorical_names=names, codes=codes, categories=categories)


def fold(name: str, index: int, seed: int) -> Dataset:
    """Return a data set of which one of FOLDS parts is held out.

    index: 0 to 4 for a random division into parts, 5 to 9 for another one, and so on. seed: that of
    the divisions.
    """
    return with_fold_held_out(dataset_of(name), index, FOLDS, seed)


@dataclass(frozen=True)
class Runs:
    """The runs of all trainers: with each fold of a repeated cross-validation held out.

    name: the data set. folds: how many folds, FOLDS for each division of the records. seed: that of
    the divisions and draws. most: the largest number of reports in a run; None for no bound.
    """

    name: str
    folds: int
    seed: int
    most: int | None

    def reports(self) -> int:
        """Return how many clients report in a run, each of them once.

        Each holds a record for training; the records of small data sets are held by several.
        """
        records = dataset_of(self.name).size
        reports = records * (FOLDS - 1) // FOLDS
        if records < SMALL:
            reports = CLIENTS
        return min(reports, self.most or reports)
