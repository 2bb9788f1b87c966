"""The errors of means that mechanisms estimate, exactly.

Reports are unbiased and independent. So the expected squared error of a mean of n clients is the sum
of the variances of their reports, divided by n**2: nothing has to be drawn.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tern.fixed import ONE
from ternhost.datasets import Fixed, Floats, Table, on_devices
from ternhost.datasets.shipped import synthetic
from ternhost.errors import UsageError
from ternhost.learn.collecting import collect
from ternhost.planning.cells import Cell, Row
from ternpapers.base import Options
from ternpapers.comparison.contest import EPSILON, Case, Contest, compared, every_case
from ternpapers.comparison.reports import TUPLES, variances_of_reports
from ternpapers.figure import RUNS, Axis, Figure
from ternpapers.verdicts import Check

_D = 16  # numbers of a client, if they are drawn
_CLIENTS = 100_000  # whose numbers are drawn; the papers name no number
ERROR = Axis("squared_error", "mean squared error", log=True)
# Distributions of drawn numbers: the options of `synthetic.attributes` by name.
_GAUSSIAN_SHAPES = {f"Gaussian, mean {mean:.2g}": {"mean": mean} for mean in (0, 1 / 3, 2 / 3, 1)}
SHAPES: Mapping[str, Mapping[str, Any]] = {
    **_GAUSSIAN_SHAPES,
    "uniform": {"shape": "uniform"},
    "power law": {"shape": "power"},
}
GAUSSIANS = tuple(_GAUSSIAN_SHAPES)


def figure_of_means(
    title: str,
    contest: Contest,
    x: Axis = EPSILON,
    *,
    statements: Mapping[str, Check] | None = None,
) -> Figure:
    """Return a figure of the errors of means by several mechanisms, with a panel for each source.

    statements: as of `Figure`.
    """
    cells = partial(_mean_cells, contest)
    return Figure(title, x, ERROR, cells, statements or {}, exact=True)


def _mean_cells(contest: Contest, options: Options) -> list[Cell]:
    """Return the cells of `figure_of_means`: one for each case and mechanism. Raises UsageError."""
    options.require_no_runs()
    if options.data:
        table_with_numbers(options.data)  # raises if there is none
    return Cell.for_each_combination(
        table=RUNS,
        work=mean_rows,
        common={},
        case=every_case(contest.on(options)),
        mechanism=compared(contest.mechanisms, options),
    )


@lru_cache(maxsize=4)
def table_with_numbers(name: str) -> Table:
    """Load a table, and cache it for the cells of a process.

    Raises UsageError if it cannot be loaded, or has no numeric attribute.
    """
    if on_devices.attributes(name) is not None:
        text = f"{name} has no records: only devices know them"
        raise UsageError(text, hint="name the table of the records, such as my.csv")
    table, _ = collect.load(name)
    if not table.numeric_names:
        raise UsageError(f"{name} has no numeric attribute", hint="leave --data out")
    return table


@lru_cache(maxsize=8)
def _numbers(source: str) -> Fixed:
    """Return the numeric attributes of all clients of a source (n x d, in Q1.14)."""
    if source in SHAPES:
        return synthetic.attributes(_CLIENTS, _D, seed=0, **SHAPES[source]).numeric
    return table_with_numbers(source).numeric


def clients_of(case: Case) -> int:
    """Return how many clients report, one at least."""
    return max(1, round(case.share * len(_numbers(case.source))))


@lru_cache(maxsize=64)
def _distinct(source: str, d: int, clients: int) -> tuple[Floats, Floats]:
    """Return the different numbers that clients hold, and how often each occurs.

    d: how many numeric attributes there are. They are counted together. clients: how many of all
    clients are counted, the first ones.
    """
    values, counts = np.unique(_numbers(source)[:clients, :d], return_counts=True)
    return values / ONE, counts.astype(np.float64)


def sizes(source: str, d: int | None) -> tuple[int, int]:
    """Return how many of d attributes are numbers and how many are categories, as (n, c).

    They are in the proportion of all attributes of the source. d: None for all of them.
    """
    if source in SHAPES:
        if d is None:
            return _D, 0
        return d, 0
    table = table_with_numbers(source)
    numbers, categories = table.numeric.shape[1], len(table.categories)
    if d is None:
        return numbers, categories
    proportional = round(d * numbers / (numbers + categories))
    fewer_numbers = min(max(1, proportional), numbers)  # one at least
    fewer_categories = min(d - fewer_numbers, categories)
    return fewer_numbers, fewer_categories


def mean_rows(case: Case, mechanism: str) -> list[Row]:
    """Return the expected squared error of the means that a mechanism estimates, as one row.

    It is the mean over all numeric attributes. Where outputs are made discrete, the row also has
    the error without that, as "continuous_error". case: the table, how many of its attributes
    there are, epsilon, and the share of its clients. mechanism: perturbs the numbers of each
    client.
    """
    _, categories = sizes(case.source, case.d)
    panel = case.source
    if categories and not case.split:
        panel = f"numbers of {case.source}"
    row = {
        "panel": panel,
        "curve": mechanism,
        "run": 0,
        "epsilon": case.epsilon,
        "clients": clients_of(case),
        "d": sum(sizes(case.source, case.d)),
        "outputs": case.outputs,
        "squared_error": mean_error(case, mechanism),
    }
    if case.outputs:
        row["continuous_error"] = mean_error(replace(case, outputs=None), mechanism)
    return [row]


def mean_error(case: Case, mechanism: str) -> float:
    """Return the expected squared error of an estimated mean, as in `mean_rows`."""
    numbers, categories = sizes(case.source, case.d)
    d = numbers + categories
    epsilon = case.epsilon
    # Duchi's mechanism reports tuples of numbers only.
    if case.split or mechanism == TUPLES:
        epsilon *= numbers / d
        d = numbers
    clients = clients_of(case)
    values, counts = _distinct(case.source, numbers, clients)
    variances = variances_of_reports(values, mechanism, epsilon, d, case.outputs)
    of_a_report = np.average(variances, weights=counts)
    return float(of_a_report) / clients
