"""Quantiles of numbers of the sets: do the intervals hold that `tern collect quantiles` prints?

Each device holds one record. The runs of a seed differ in the devices and in the noise.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from foreign.sets import files_of
from ternhost.datasets import Fixed
from ternhost.learn.collecting.collect import load
from ternhost.planning.cells import Cell, Row
from ternhost.planning.statistics import mean_and_error

sys.path.append(str(Path(__file__).parents[2] / "docs"))
import quantile_runs

EPSILONS = ("1", "4")
MOST_DEVICES = 10_000
_SHARES = ("bins", "cumulative")
_HEAD = ["data set", "number", "devices", "epsilon", "half the interval of p50", "of p90", "of p99"]
_HEAD += ["true p50 in it", "p90", "p99", "true shares of bins in theirs", "of cumulative shares"]


@dataclass(frozen=True)
class Number:
    """A number of a set.

    - set_name: of the set
    - attribute: the column
    """

    set_name: str
    attribute: str


NUMBERS = (
    Number("diamonds", "price"),
    Number("weather", "temp"),
    Number("randhie", "mdvis"),
    Number("fair", "age"),
    Number("segment", "hue-mean"),
)


def covered(folder: str, number: Number, epsilon: str, seed: int) -> list[Row]:
    """Run several times; return the means of what `quantile_runs.covered` gives.

    folder: where the set is written. epsilon: that of the report of each device. seed: of the runs.
    """
    values = _values_of(folder, number)
    devices = min(MOST_DEVICES, len(values))
    rows = []
    for seed_of_run in quantile_runs.seeds_of_runs(seed):
        held = np.random.default_rng(seed_of_run).permutation(values)[:devices]
        entry = quantile_runs.collected(held, epsilon, seed_of_run)
        rows.append(quantile_runs.covered(entry))
    return [{"devices": devices, **quantile_runs.means(rows)}]


@lru_cache(maxsize=1)
def _values_of(folder: str, number: Number) -> Fixed:
    """Return a number of all records of its set, in Q1.14 (n)."""
    table, _ = load(str(files_of(number.set_name, Path(folder)).table))
    return table.numeric[:, table.numeric_names.index(number.attribute)]


Cells = Mapping[tuple[Number, str], Sequence[Cell]]  # by the number and epsilon


def cells_of(folder: Path, names: Sequence[str], seeds: int) -> Cells:
    """Return the runs. names: of the sets. seeds: how many there are for each number and epsilon."""
    cells = {}
    for number in NUMBERS:
        if number.set_name not in names:
            continue
        for epsilon in EPSILONS:
            common = {"folder": str(folder), "number": number, "epsilon": epsilon}
            cells[number, epsilon] = Cell.for_each_combination(
                "quantiles", covered, common, seed=range(1, seeds + 1)
            )
    return cells


def table_of(cells: Cells, rows: Mapping[str, Sequence[Row]]) -> list[list[str]]:
    """Return the table of the intervals, the heading first. rows: those of cells by their keys."""
    made = [_HEAD]
    for (number, epsilon), of_seeds in cells.items():
        figures = [rows[cell.key][0] for cell in of_seeds]
        text = [number.set_name, number.attribute, f"{figures[0]['devices']:,}", epsilon]
        for quantile in quantile_runs.QUANTILES:
            text.append(_with_error(figures, f"half_{quantile}", 1, 3))
        for name in (*quantile_runs.QUANTILES, *_SHARES):
            text.append(_with_error(figures, name, 100, 1))
        made.append(text)
    return made


def _with_error(figures: Sequence[Row], name: str, scale: int, digits: int) -> str:
    """Return the mean of a figure over the seeds as text, with its standard error in brackets."""
    mean, error = mean_and_error([row[name] for row in figures])
    unit = " %" if scale > 1 else ""
    return f"{scale * mean:.{digits}f}{unit} ({scale * error:.{digits}f})"
