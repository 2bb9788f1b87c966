"""The values that a plan for a statistic assumes that devices hold: those of a table, or of a law."""

from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from ternhost.datasets import Table
from ternhost.datasets.base import to_fixed
from ternhost.errors import UsageError
from ternhost.learn.collecting import collect
from ternhost.planning.statistic_options import SHARE, Options

_NUMBER = "number"  # the name of the only attribute where there is no table
_VALUES = 10_000  # of an assumed distribution
# The standard deviation of values that are about normal: the range, of length 2, has six of them.
_DEVIATION = 1 / 3
_CATEGORIES = 2  # unless the user says how many there are


@dataclass(frozen=True)
class Assumed:
    """Values that devices are assumed to hold.

    name: in a word. words: what they are, in a sentence. table: the values, without owners.
    """

    name: str
    words: str
    table: Table


def assumptions_of(options: Options) -> list[Assumed]:
    """Return the values that a plan reckons with, one or several kinds of them. Raises UsageError."""
    if options.data:
        return [_of_table(options)]
    if options.statistic == SHARE:
        return [_equal_shares(options.categories or _CATEGORIES)]
    ranks = (np.arange(_VALUES) + 0.5) / _VALUES
    normal = NormalDist(0, _DEVIATION)
    normal_values = np.array([normal.inv_cdf(rank) for rank in ranks])
    return [
        Assumed("uniform", "all values of the range equally frequent", _one_number(2 * ranks - 1)),
        Assumed(
            "normal",
            "normal values around the middle, with a standard deviation of a sixth of the range",
            _one_number(normal_values),
        ),
    ]


def dealt(table: Table, count: int, seed: int) -> Table:
    """Return a table of so many records, drawn from those of a table without replacement.

    If the table has too few, each is taken several times, as equally often as possible.
    """
    random = np.random.default_rng(seed)
    positions = np.resize(random.permutation(table.size), count)
    codes = table.codes
    if codes is not None:
        codes = codes[positions]
    return replace(table, numeric=table.numeric[positions], codes=codes)


def _of_table(options: Options) -> Assumed:
    """Return the values of the table that the user names. Raises UsageError."""
    table, _ = collect.load(options.data, options.selection)
    wanted, kind = table.numeric_names, "number"
    if options.statistic == SHARE:
        wanted, kind = table.categorical_names, "column of categories"
    if not wanted:
        text = f"{table.name} has no {kind}, which a {options.statistic} is of"
        raise UsageError(text, hint="choose another --statistic, or another table")
    without_owners = replace(table, owners=None, owner_names=())
    return Assumed(table.name, f"the values of {table.name}", without_owners)


def _one_number(scaled: "np.typing.NDArray[np.float64]") -> Table:
    """Return a table of one number. scaled: its values, in [-1, 1]; those beyond are clipped."""
    return Table("assumed values", (_NUMBER,), to_fixed(scaled)[:, None])


def _equal_shares(categories: int) -> Assumed:
    """Return values of one attribute whose categories are equally frequent."""
    codes = (np.arange(_VALUES) % categories).astype(np.int16)[:, None]
    table = Table(
        "assumed values",
        numeric_names=(),
        numeric=np.zeros((_VALUES, 0), np.int16),
        categorical_names=("category",),
        codes=codes,
        categories=(tuple(str(number) for number in range(categories)),),
    )
    return Assumed("equal", f"{categories} categories that are equally frequent", table)
