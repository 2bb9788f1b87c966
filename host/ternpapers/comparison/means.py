"""The errors of means that mechanisms estimate."""

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tern.fixed import ONE
from ternhost.datasets import Floats, synthetic
from ternhost.learn import collect
from ternhost.planning.cells import Cell, Row
from ternpapers import baseline
from ternpapers.base import Options
from ternpapers.comparison.contest import EPSILON, Case, Contest, cases, compared
from ternpapers.comparison.reports import TUPLES, reported
from ternpapers.figure import RUNS, Axis, Check, Figure

_D = 16  # numbers of a client, if they are drawn
_CHUNK = 100_000  # so many clients at once, to need less memory
ERROR = Axis("squared_error", "mean squared error", log=True)
# Distributions of drawn numbers: the options of `synthetic.attributes` by name.
_GAUSSIAN_SHAPES = {f"Gaussian, mean {mean:.2g}": {"mean": mean} for mean in (0, 1 / 3, 2 / 3, 1)}
SHAPES: Mapping[str, Mapping[str, Any]] = {
    **_GAUSSIAN_SHAPES,
    "uniform": {"shape": "uniform"},
    "power law": {"shape": "power"},
}
GAUSSIANS = tuple(_GAUSSIAN_SHAPES)


def means(
    title: str,
    contest: Contest,
    x: Axis = EPSILON,
    *,
    statements: Mapping[str, Check] | None = None,
) -> Figure:
    """Return a figure of the errors of means by several mechanisms, with a panel for each source.

    statements: as of `Figure`.
    """
    return Figure(title, x, ERROR, partial(_mean_cells, contest), statements or {})


def _mean_cells(contest: Contest, options: Options) -> list[Cell]:
    """Return the cells of `means`: one for each case and mechanism. Raises UsageError."""
    if options.data:
        collect.load(options.data)  # raises if it cannot be loaded
    return Cell.for_each_combination(
        table=RUNS,
        work=mean_rows,
        common=common_arguments(options),
        case=cases(contest.on(options), options),
        mechanism=compared(contest.mechanisms, options),
    )


def common_arguments(options: Options) -> dict[str, Any]:
    """Return the arguments that all cells share.

    most: the largest number of clients. seeds: those of the runs.
    """
    most = 100_000
    if options.quick:
        most = 20_000
    elif options.in_full:
        most = 4_000_000
    return {"most": most, "seeds": options.seeds(default=20, quick=6, paper=100)}


@lru_cache(maxsize=2)
def numbers_of(source: str, most: int) -> Floats:
    """Return the numeric attributes of n clients (n x d). source: as of Case. most: the largest n."""
    if source in SHAPES:
        values = synthetic.attributes(min(most, 1_000_000), _D, seed=0, **SHAPES[source]).numeric
    else:
        values = collect.load(source)[0].numeric[:most]
    return values / ONE


def sizes(source: str, d: int | None) -> tuple[int, int]:
    """Return how many of d attributes are numbers and how many are categories, as (n, c).

    They are in the proportion of all attributes of the source. d: None for all of them.
    """
    if source in SHAPES:
        if d is None:
            return _D, 0
        return d, 0
    table, _ = collect.load(source)
    numbers, categories = table.numeric.shape[1], len(table.categories)
    if d is None:
        return numbers, categories
    proportional = round(d * numbers / (numbers + categories))
    fewer_numbers = min(max(1, proportional), numbers)  # one at least
    fewer_categories = min(d - fewer_numbers, categories)
    return fewer_numbers, fewer_categories


def mean_rows(case: Case, mechanism: str, most: int, seeds: Sequence[int]) -> list[Row]:
    """Return the mean squared error of the means that a mechanism estimates, for each seed.

    case: the table, how many of its attributes there are, epsilon, and the share of its clients.
    mechanism: perturbs the numbers of each client. most: the largest number of clients.
    """
    numbers, categories = sizes(case.source, case.d)
    total = numbers + categories
    all_numbers = numbers_of(case.source, most)
    clients = round(case.share * len(all_numbers))
    x = all_numbers[:clients, :numbers]
    panel = case.source
    if categories:
        panel = f"numbers of {case.source}"
    common = {
        "panel": panel,
        "curve": mechanism,
        "epsilon": case.epsilon,
        "clients": len(x),
        "d": total,
        "outputs": case.outputs,
    }
    rows = []
    for seed in seeds:
        rng = baseline.generator(seed)
        sums = np.zeros(numbers)  # of the reports of each number
        for start in range(0, len(x), _CHUNK):
            chunk = x[start : start + _CHUNK]
            if mechanism == TUPLES:
                # A tuple of the numbers alone, at their share of epsilon.
                epsilon = case.epsilon * numbers / total
                sums += reported(chunk, mechanism, epsilon, rng).sum(axis=0)
            else:
                # Clients choose among all attributes; zeros stand for the categories, and their
                # reports do not count.
                attributes = np.pad(chunk, ((0, 0), (0, categories)))
                reports = reported(attributes, mechanism, case.epsilon, rng, case.outputs)
                sums += reports.sum(axis=0)[:numbers]
        estimates = sums / len(x)
        error = float(np.mean((estimates - x.mean(axis=0)) ** 2))
        rows.append({**common, "run": seed, "squared_error": error})
    return rows
