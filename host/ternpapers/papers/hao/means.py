"""Figures 1 and 2: errors of a mean, computed exactly from the laws of the mechanisms.

The paper measures the mean absolute error of 100 runs. Here it is the root of the expected squared
error, without a run. The error of a mean of many reports is nearly normal, so that for each method
the first is sqrt(2 / pi) = 0.8 times the second: ratios and orders are the same.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tern.card import Card
from tern.fixed import ONE
from ternhost.datasets import Fixed
from ternhost.datasets.shipped import synthetic
from ternhost.planning.cells import Cell, Row
from ternhost.planning.statistics import grouped, pick, values_of
from ternhost.privacy.base import MICRO
from ternpapers import laws, levels
from ternpapers.base import Options
from ternpapers.comparison.means import table_with_numbers
from ternpapers.datasets import ipums, stand_ins
from ternpapers.figure import RUNS, Axis, Figure
from ternpapers.papers.hao.budgets import (
    BUDGETS,
    HIERA,
    LAPLACE,
    LEAST_RIVALS,
    MU,
    OF_UNIT,
    UNITS,
    card_of,
    laplace_scales,
    rivals,
)
from ternpapers.verdicts import Verdict, better_everywhere, by_curve, every

_CLIENTS = 100_000  # each reports one value
_AGE = "AGE"
_MUS = tuple(range(1, len(BUDGETS) + 1))
# Distributions of drawn values: the options of `synthetic.attributes` by name.
_OF_PAPER: dict[str, dict[str, Any]] = {
    "uniform": {"shape": "uniform"},
    "Gaussian(0.3, 0.2)": {"mean": 0.3, "deviation": 0.2},
    "exponential(0.3)": {"shape": "exponential", "mean": 0.3},
}
_OF_OURS: dict[str, dict[str, Any]] = {
    "Gaussian, mean -0.5": {"mean": -0.5},
    "Gaussian, mean 0": {"mean": 0.0},
    "Gaussian, mean 0.5": {"mean": 0.5},
    "power law": {"shape": "power"},
}
SHAPES = {**_OF_PAPER, **_OF_OURS}
# The ages of patients, and the distances of flights: they stand in for the paper's census records.
REAL = (stand_ins.PATIENTS, stand_ins.TABLE)


@lru_cache(maxsize=16)
def values_of_source(source: str, seed: int) -> tuple[str, Fixed]:
    """Return the name of a panel, and the values (n) that its clients report.

    source: a name of SHAPES, from whose distribution _CLIENTS values are drawn, or the name of a
    data set. Of the latter we take the attribute AGE, or the first number if there is none, and
    repeat the records if there are fewer than _CLIENTS. Raises UsageError.
    """
    if source in SHAPES:
        table = synthetic.attributes(_CLIENTS, 1, seed=seed, **SHAPES[source])
        return source, table.numeric[:, 0]
    name, values = _attribute(source)
    if len(values) < _CLIENTS:
        values = np.resize(values, _CLIENTS)
    return f"{source}: {name}", values


def _attribute(source: str) -> tuple[str, Fixed]:
    """Return the attribute of a data set whose mean is estimated: its name and values (n).

    Raises UsageError if the data set has no numbers.
    """
    kind, _, path = source.partition(":")
    if kind == ipums.NAME:
        file = None
        if path:
            file = Path(path).expanduser()
        return _AGE, ipums.variable(_AGE, file)  # of all persons, also of those without an income

    table = table_with_numbers(source)
    upper_names = [name.upper() for name in table.numeric_names]
    position = 0
    if _AGE in upper_names:
        position = upper_names.index(_AGE)
    return table.numeric_names[position], table.numeric[:, position]


def _cells(work: Callable[..., list[Row]], default: Sequence[str], options: Options) -> list[Cell]:
    """Return a cell for each source and unit. Raises UsageError.

    work: makes the rows of a source and a unit. default: the sources, if the user names no data.
    """
    options.require_no_runs()
    sources = tuple(default)
    if options.data is not None:
        values_of_source(options.data, options.seed)  # raises if it cannot be loaded
        sources = (options.data,)
    common = {"seed": options.seed}
    return Cell.for_each_combination(
        table=RUNS, work=work, common=common, source=sources, unit=UNITS
    )


# Fig. 1: reuse of reports


def reused(unit: float, source: str, seed: int) -> list[Row]:
    """Return the exact root mean squared error of a mean at each mu.

    mu: how often each report is used, converted to more private levels. unit, source: the unit of
    the budgets, and whose values are reported.
    """
    card = card_of(unit)
    panel, values = values_of_source(source, seed)
    errors = {}
    for mu in _MUS:
        errors[mu] = float(levels.variance(card, values, mu)) ** 0.5
    common = {"panel": panel, "curve": f"e = {unit:g}", "unit": unit, "run": 0}
    rows: list[Row] = []
    for mu, error in errors.items():
        rows.append({**common, "mu": mu, "error": error, "over_mu_1": error / errors[1]})
    return rows


def _larger_mu_is_better(rows: Sequence[Row]) -> Verdict:
    """Test whether each mu has a smaller error than the one before it."""
    cases = []
    for curve in grouped(rows, "panel", "curve").values():
        errors = [row["error"] for row in curve]
        cases += (np.diff(errors) < 0).tolist()
    verdict = every(cases)
    least_over_1 = min(row["over_mu_1"] for row in rows if row["mu"] > 1)
    if least_over_1 > 1:
        return Verdict(verdict.holds, f"{verdict.detail}; the error is always least at mu = 1")
    return verdict


# Fig. 2: HierA and its rivals


def compared(unit: float, source: str, seed: int) -> list[Row]:
    """Return the exact root mean squared error of a mean by HierA and by each of its rivals.

    unit, source: the unit of the budgets, and whose values are reported.
    """
    card = card_of(unit)
    panel, values = values_of_source(source, seed)
    common = {"panel": panel, "unit": unit, "run": 0}
    rows: list[Row] = []

    def add_row(curve: str, epsilon: float | None, variance: float) -> None:
        """Add the row of a curve, by the variance of its mean. epsilon: None if none is kept."""
        rows.append({**common, "curve": curve, "epsilon": epsilon, "error": variance**0.5})

    cost = card.epsilon / MICRO
    add_row(HIERA, cost, float(levels.variance(card, values, MU)))
    add_row(LAPLACE, None, graded_laplace_variance(card, values))
    for curve, (mechanism, epsilon) in rivals(unit, cost).items():
        add_row(curve, epsilon, variance_of_mean(mechanism, epsilon, values))
    return rows


def graded_laplace_variance(card: Card, values: Fixed) -> float:
    """Return the variance of the mean of n values with Laplace noise at the budgets of their ranges."""
    scales = laplace_scales(card, values / ONE)
    variances = 2 * np.square(scales)  # those of Laplace noise
    return float(variances.sum()) / len(values) ** 2


def variance_of_mean(mechanism: str, epsilon: float, values: Fixed) -> float:
    """Return the variance of the mean of n reports, one for each value, by the mechanism's law."""
    variances = laws.variances(mechanism, epsilon, values / ONE)
    return float(variances.sum()) / len(values) ** 2


def _of_paper(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the paper's distributions, or all rows if there are none of these."""
    rows_of_paper = [row for row in rows if row["panel"] in _OF_PAPER]
    if not rows_of_paper:
        return list(rows)
    return rows_of_paper


def _with_place(verdict: Verdict, rows: Sequence[Row]) -> Verdict:
    """Return a verdict on the rows `_of_paper` with a detail that says so, if there are others."""
    if len(_of_paper(rows)) == len(rows):
        return verdict
    place = "on the distributions that the paper draws"
    if verdict.detail:
        place = f"{verdict.detail} {place}"
    return Verdict(verdict.holds, place)


def _beats_graded_laplace(rows: Sequence[Row]) -> Verdict:
    """Test whether HierA beats graded Laplace on the paper's distributions."""
    verdict = better_everywhere("error", (HIERA,), (LAPLACE,), _of_paper(rows))
    return _with_place(verdict, rows)


def _beats_graded_laplace_elsewhere(rows: Sequence[Row]) -> Verdict:
    """Test whether HierA beats graded Laplace on values that the paper does not draw."""
    panels_of_paper = values_of(_of_paper(rows), "panel")
    others = [row for row in rows if row["panel"] not in panels_of_paper]
    if not others:
        return Verdict(None, "only one kind of values is drawn")
    return better_everywhere("error", (HIERA,), (LAPLACE,), others)


def _gains_more_at_small_epsilon(rows: Sequence[Row]) -> Verdict:
    """Test whether each existing method has a larger part of HierA's error at the least unit.

    A case is a method on one of the paper's distributions: the error over that of HierA is larger
    at the least unit than at the largest one.
    """
    rows_of_paper = _of_paper(rows)
    cases = []
    for panel in values_of(rows_of_paper, "panel"):
        curves = by_curve(pick(rows_of_paper, panel=panel), "error")  # by unit, in rising order
        for method in (LAPLACE, *LEAST_RIVALS):
            ratios = curves[method] / curves[HIERA]
            cases.append(bool(ratios[0] > ratios[-1]))
    return _with_place(every(cases), rows)


_AXIS_OF_MU = Axis("mu", "mu, how often a report counts")
_OVER = Axis("over_mu_1", "root mean squared error over that at mu = 1")
_ERROR = Axis("error", "root mean squared error", log=True)

BY_MU = Figure(
    title="errors of a mean by mu, exactly (the paper: mean absolute error of 100 runs, US_AGE)",
    x=_AXIS_OF_MU,
    y=_OVER,
    cells=partial(_cells, reused, (*SHAPES, REAL[0])),
    statements={"the larger mu is, the more accurate the mean is": _larger_mu_is_better},
    columns=3,
    exact=True,
)
COMPARED = Figure(
    title=f"errors of means at mu = {MU}, exactly (the paper: mean absolute error of 100 runs)",
    x=OF_UNIT,
    y=_ERROR,
    cells=partial(_cells, compared, (*SHAPES, *REAL)),
    statements={
        "HierA beats PM and Harmony at the least budget": partial(
            better_everywhere, "error", (HIERA,), tuple(LEAST_RIVALS)
        ),
        "HierA beats graded Laplace": _beats_graded_laplace,
        "HierA beats graded Laplace on other values, too": _beats_graded_laplace_elsewhere,
        "HierA's advantage is larger if the budgets are small": _gains_more_at_small_epsilon,
    },
    columns=3,
    exact=True,
)
