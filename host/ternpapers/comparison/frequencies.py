"""The errors of a table's means and frequencies."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ternhost.errors import UsageError
from ternhost.learn import collect
from ternhost.learn.designs import coordinates_by_rule
from ternhost.planning.cells import Cell, Row
from ternhost.privacy.base import MICRO
from ternpapers import baseline
from ternpapers.base import Options
from ternpapers.comparison.contest import Case, Contest, cases, compared
from ternpapers.comparison.means import ERROR, common_arguments, mean_rows, sizes
from ternpapers.experiments.frequencies import unary
from ternpapers.figure import RUNS, Axis, Figure, Verdict, better

OUE, SAMPLED = "OUE, epsilon / d each", "k of d attributes"


def tables(title: str, mechanisms: Sequence[str], x: Axis, **settings: Sequence[Any]) -> Figure:
    """Return a figure of the errors of a table's means and frequencies, in two panels.

    mechanisms: those that estimate the means. settings: as in `Contest`.
    """
    cells = partial(_table_cells, tuple(mechanisms), settings)
    return Figure(title, x, ERROR, cells, {_SAMPLING: _sampling_is_better})


_SAMPLING = "reports about k of d attributes estimate frequencies better than reports about all"


def _sampling_is_better(rows: Sequence[Row]) -> Verdict:
    """Test whether reports of some attributes estimate frequencies better than reports of all."""
    frequencies = [row for row in rows if row["curve"] in (OUE, SAMPLED)]
    return better(ERROR.column, names=(SAMPLED,), others=(OUE,), rows=frequencies)


def _table_cells(
    mechanisms: Sequence[str], settings: Mapping[str, Sequence[Any]], options: Options
) -> list[Cell]:
    """Return the cells of `tables`: for means by each mechanism, and for frequencies in two ways.

    Numbers of attributes that the table does not have are left out. Raises UsageError if it has no
    categorical attribute.
    """
    name = options.data or "flights-table"
    table, _ = collect.load(name)
    if not table.categories:
        raise UsageError(f"{name} has no categorical attribute", hint="leave --data out")
    if "d" in settings:
        all_attributes = sum(sizes(name, None))
        dimensions = [d for d in settings["d"] if d <= all_attributes]
        settings = {**settings, "d": dimensions or [None]}
    all_cases = cases(Contest(mechanisms, (name,), settings), options)
    common = common_arguments(options)
    all_mechanisms = compared(mechanisms, options)
    of_means = Cell.for_each_combination(
        table=RUNS, work=mean_rows, common=common, case=all_cases, mechanism=all_mechanisms
    )
    of_frequencies = Cell.for_each_combination(
        table=RUNS, work=_frequencies, common=common, case=all_cases, way=(OUE, SAMPLED)
    )
    return [*of_means, *of_frequencies]


def _frequencies(case: Case, way: str, most: int, seeds: Sequence[int]) -> list[Row]:
    """Return the mean squared error of the frequencies of a table's categories, for each seed.

    Each client reports k of its attributes by optimized unary encoding, each at epsilon / k.

    case: the table, how many of its attributes there are, epsilon, and the share of its clients.
    way: OUE, by which a client reports all attributes, or SAMPLED, by which it reports a random
    part of them. most: the largest number of clients.
    """
    table, _ = collect.load(case.source)
    clients = round(case.share * min(most, len(table.numeric)))
    numbers, categories = sizes(case.source, case.d)
    total = numbers + categories
    assert table.codes is not None
    true_counts = []  # for each attribute, the number of clients in each of its categories
    for attribute, names in enumerate(table.categories[:categories]):
        codes = table.codes[:clients, attribute]
        true_counts.append(np.bincount(codes, minlength=len(names)))
    k = total  # how many attributes a client reports
    if way == SAMPLED:
        k = coordinates_by_rule("paper", round(case.epsilon * MICRO), total)
    common = {
        "panel": f"categories of {case.source}",
        "curve": way,
        "epsilon": case.epsilon,
        "clients": clients,
        "d": total,
    }
    rows = []
    for seed in seeds:
        rng = baseline.generator(seed)
        errors = []
        for counts in true_counts:
            # Of the clients in each category, those that report this attribute.
            reporting_clients = rng.binomial(counts, k / total)
            estimate = unary(reporting_clients, case.epsilon / k, rng)
            errors.append(np.mean((estimate - counts / clients) ** 2))
        rows.append({**common, "run": seed, "squared_error": float(np.mean(errors))})
    return rows
