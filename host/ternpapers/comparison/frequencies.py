"""The errors of a table's means and frequencies, exactly, by the laws of the mechanisms."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from scipy.stats import binom

from ternhost.datasets import Floats, Indices
from ternhost.errors import UsageError
from ternhost.planning.cells import Cell, Row
from ternpapers import baseline
from ternpapers.base import Options
from ternpapers.comparison.contest import Case, Contest, compared, every_case
from ternpapers.comparison.means import ERROR, clients_of, mean_rows, sizes, table_with_numbers
from ternpapers.datasets import stand_ins
from ternpapers.figure import RUNS, Axis, Figure
from ternpapers.verdicts import Verdict, better_everywhere

OUE, SAMPLED = "OUE, epsilon / d each", "k of d attributes"


def figure_of_tables(
    title: str, mechanisms: Sequence[str], x: Axis, **settings: Sequence[Any]
) -> Figure:
    """Return a figure of the errors of a table's means and frequencies, in two panels.

    mechanisms: those that estimate the means. settings: as in `Contest`.
    """
    cells = partial(_table_cells, tuple(mechanisms), settings)
    return Figure(title, x, ERROR, cells, {_SAMPLING: _sampling_is_better}, exact=True)


_SAMPLING = "reports about k of d attributes estimate frequencies better than reports about all"


def _sampling_is_better(rows: Sequence[Row]) -> Verdict:
    """Test whether reports of some attributes estimate frequencies better than reports of all."""
    frequencies = [row for row in rows if row["curve"] in (OUE, SAMPLED)]
    return better_everywhere(ERROR.column, names=(SAMPLED,), others=(OUE,), rows=frequencies)


def _table_cells(
    mechanisms: Sequence[str], settings: Mapping[str, Sequence[Any]], options: Options
) -> list[Cell]:
    """Return the cells of `figure_of_tables`: for means by each mechanism, and for frequencies in two ways.

    Numbers of attributes that the table does not have are left out. Raises UsageError if it has no
    categorical attribute.
    """
    name = options.data or stand_ins.TABLE
    table = table_with_numbers(name)
    if not table.categories:
        raise UsageError(f"{name} has no categorical attribute", hint="leave --data out")
    if "d" in settings:
        all_attributes = sum(sizes(name, None))
        dimensions = [d for d in settings["d"] if d <= all_attributes]
        settings = {**settings, "d": dimensions or [None]}
    all_cases = every_case(Contest(mechanisms, (name,), settings))
    options.require_no_runs()
    all_mechanisms = compared(mechanisms, options)
    of_means = Cell.for_each_combination(
        table=RUNS, work=mean_rows, common={}, case=all_cases, mechanism=all_mechanisms
    )
    of_frequencies = Cell.for_each_combination(
        table=RUNS, work=_frequency_rows, common={}, case=all_cases, way=(OUE, SAMPLED)
    )
    return [*of_means, *of_frequencies]


def _frequency_rows(case: Case, way: str) -> list[Row]:
    """Return the expected squared error of the frequencies of a table's categories, as one row.

    It is the mean over the categories of an attribute, and over all categorical attributes. case:
    the table, how many of its attributes there are, epsilon, and the share of its clients. way:
    OUE, by which a client reports all attributes, or SAMPLED, by which it reports k of them, each
    at epsilon / k.
    """
    table = table_with_numbers(case.source)
    clients = clients_of(case)
    numbers, categories = sizes(case.source, case.d)
    d = numbers + categories
    k = d
    if way == SAMPLED:
        k = baseline.numbers_in_report(case.epsilon, d)

    assert table.codes is not None
    errors = []
    for attribute, names in enumerate(table.categories[:categories]):
        codes = table.codes[:clients, attribute]
        holders = np.bincount(codes, minlength=len(names))
        squared_errors = frequency_errors(holders, case.epsilon / k, k / d)
        errors.append(squared_errors.mean())
    row = {
        "panel": f"categories of {case.source}",
        "curve": way,
        "run": 0,
        "epsilon": case.epsilon,
        "clients": clients,
        "d": d,
        "squared_error": float(np.mean(errors)),
    }
    return [row]


def frequency_errors(holders: Indices, epsilon: float, probability: float) -> Floats:
    """Return the expected squared error of each frequency that `unary` estimates.

    Each client reports with the given probability, at epsilon. holders: how many clients hold each
    category. The frequencies are those of all clients. One client at least has to report.

    Of m clients that report, a share f with the category, a bit is 1 with probability 1/2 or q. So
    the share of ones has the variance (f / 4 + (1 - f) q (1 - q)) / m, and the estimate
    1 / (1/2 - q)**2 times as much. The m clients are a random part of all, whose share f varies,
    too.
    """
    clients = int(holders.sum())
    frequencies = holders / clients
    q = 1 / (math.exp(epsilon) + 1)
    variance_of_bit = frequencies / 4 + (1 - frequencies) * q * (1 - q)
    mean_of_inverse = _mean_of_inverse(clients, probability)  # of 1 / m
    of_bits = variance_of_bit / (0.5 - q) ** 2 * mean_of_inverse

    # The variance of f, if m of the clients are drawn without replacement, averaged over m.
    if clients == 1:
        return np.asarray(of_bits)
    factor = (clients * mean_of_inverse - 1) / (clients - 1)
    of_sampling = frequencies * (1 - frequencies) * factor
    return np.asarray(of_bits + of_sampling)


@lru_cache(maxsize=64)
def _mean_of_inverse(clients: int, probability: float) -> float:
    """Return the mean of 1 / m, where m is the number of clients that report, if it is not 0."""
    if probability == 1:
        return 1 / clients
    m = np.arange(1, clients + 1)
    probabilities = binom.pmf(m, clients, probability)
    return float(np.sum(probabilities / m) / np.sum(probabilities))
