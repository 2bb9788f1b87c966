"""Wang et al., Collecting and Analyzing Multidimensional Data with Local Differential Privacy.

ICDE 2019.

Brazil's and Mexico's census records (IPUMS) are not free to pass on. Where the paper uses them,
these figures use bundled data sets, or `--data ipums:FILE.csv`, an extract of your own.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from ternhost.planning.cells import Row
from ternhost.planning.statistics import pick
from ternpapers.comparison.contest import CLIENTS, DIMENSION, EPSILON, Contest
from ternpapers.comparison.frequencies import figure_of_tables
from ternpapers.comparison.means import GAUSSIANS, figure_of_means
from ternpapers.comparison.models import LINEAR, LOGISTIC, SVM, figure_of_models
from ternpapers.comparison.reports import variances_of_reports
from ternpapers.figure import Axis, Figure
from ternpapers.formula import (
    OF_EPSILON,
    curves,
    figure_of_density,
    figure_of_formula,
    figure_of_variances,
)
from ternpapers.mechanisms import hybrid, pm
from ternpapers.orders import PM_AND_DUCHI
from ternpapers.variance_statements import never_worse, smaller
from ternpapers.verdicts import Check, Verdict, better, better_everywhere, by_curve

_MECHANISMS = ("laplace", "scdf", "duchi", "pm", "hm")
_LEARNERS = ("laplace", "duchi", "pm", "hm")
_INPUTS = np.linspace(0, 1, 201)  # the worst of them is taken; variances are symmetric
_BORDER = Axis("border", "border")
_PM_FROM = 1.29  # epsilon from which PM is better than Duchi's mechanism, by the paper


def _pm_below_duchi(rows: Sequence[Row]) -> Verdict:
    """Test whether PM has a smaller worst-case variance than Duchi's mechanism as stated."""
    variances = by_curve(rows, "variance")  # by mechanism, at all epsilons
    epsilon = np.array([row["epsilon"] for row in pick(rows, curve="pm")])
    is_below = variances["pm"] < variances["duchi"]
    return Verdict(bool((is_below == (epsilon >= _PM_FROM)).all()))


_ABOUT_VARIANCES: dict[str, Check] = {
    "PM's worst-case variance is smaller than Laplace's": partial(smaller, "pm", ("laplace",)),
    "PM's worst-case variance is smaller than Duchi's from epsilon 1.29": _pm_below_duchi,
    "HM's worst-case variance is never larger than PM's or Duchi's": partial(
        never_worse, "hm", ("pm", "duchi")
    ),
}


def _ratios() -> list[Row]:
    """Return the rows of Fig. 3: worst-case variances of PM and HM, divided by Duchi's.

    They are for several numbers d, by epsilon.
    """
    epsilons = [round(0.1 * i, 1) for i in range(1, 81)]
    rows = []
    for d in (5, 10, 20, 40):
        laws = {name: partial(_over_duchi, name, d) for name in ("pm", "hm")}
        rows += curves(f"d = {d}", "epsilon", "ratio", laws, epsilons)
    return rows


def _over_duchi(name: str, d: int, epsilon: float) -> float:
    """Return the worst-case variance of a mechanism, divided by Duchi's, for d numbers."""
    by_mechanism = _worst_variance(name, d, epsilon)
    return by_mechanism / _worst_variance("duchi", d, epsilon)


def _worst_variance(name: str, d: int, epsilon: float) -> float:
    """Return the worst-case variance of one of d numbers that a client reports together.

    It is that of equations 13 and 14, or of Duchi's mechanism for tuples.
    """
    return float(variances_of_reports(_INPUTS, name, epsilon, d).max())


def _below_duchi(rows: Sequence[Row]) -> Verdict:
    """Test whether all ratios to the worst-case variance of Duchi's mechanism are below 1."""
    return Verdict(max(row["ratio"] for row in rows) < 1)


def _hm_at_most(rows: Sequence[Row]) -> Verdict:
    """Test whether HM has at most the stated part of the worst-case variance of Duchi's."""
    return Verdict(max(row["ratio"] for row in pick(rows, curve="hm")) <= 0.77)


_ABOUT_RATIOS = {
    "PM and HM have less worst-case variance than Duchi's mechanism for d > 1": _below_duchi,
    "HM has at most 77 % of the worst-case variance of Duchi's mechanism for d > 1": _hm_at_most,
}


def _regimes() -> list[Row]:
    """Return the epsilons where the order of the worst-case variances changes (Table I, d = 1)."""
    borders = {
        "HM becomes better than Duchi's": hybrid.HM_FROM,
        "PM becomes better than Duchi's": PM_AND_DUCHI.epsilon(),
    }
    rows: list[Row] = []
    for i, (curve, epsilon) in enumerate(borders.items()):
        rows.append({"panel": "d = 1", "curve": curve, "border": i, "epsilon": epsilon})
    return rows


_SMALLER = {
    "PM and HM have smaller errors than Laplace, SCDF and Duchi": partial(
        better_everywhere, "squared_error", ("pm", "hm"), ("laplace", "scdf", "duchi")
    )
}
_FEWER = {
    "PM and HM have lower misclassification rates than Laplace and Duchi": partial(
        better, LOGISTIC.y.column, ("pm", "hm"), ("laplace", "duchi")
    )
}
_LESS = {
    "PM and HM have smaller errors than Duchi": partial(
        better, LINEAR.y.column, ("pm", "hm"), ("duchi",)
    )
}
_RATIO = Axis("ratio", "ratio")
_SHARES = {"share": (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0), "epsilon": (1.0,)}
_DIMENSIONS = {"d": (5, 10, 15, 19), "epsilon": (1.0,)}

FIGURES: dict[str, Figure] = {
    "1": figure_of_variances(_LEARNERS, _ABOUT_VARIANCES),
    "2": figure_of_density("PM", pm.t_pm),
    "3": figure_of_formula(
        "worst-case variance for d numbers over Duchi's", OF_EPSILON, _RATIO, _ratios, _ABOUT_RATIOS
    ),
    "4": figure_of_tables("errors of means and of frequencies", _MECHANISMS, EPSILON),
    "5": figure_of_means(
        "errors of means of 16 Gaussian numbers, or of those of --data",
        Contest(_MECHANISMS, GAUSSIANS),
        statements=_SMALLER,
    ),
    "6": figure_of_means(
        "errors of means for two other distributions, or of --data",
        Contest(_MECHANISMS, ("uniform", "power law")),
        statements=_SMALLER,
    ),
    "7": figure_of_tables("errors by the number of clients", _MECHANISMS, CLIENTS, **_SHARES),
    "8": figure_of_tables(
        "errors by the number of attributes", _MECHANISMS, DIMENSION, **_DIMENSIONS
    ),
    "9": figure_of_models(LOGISTIC, _LEARNERS, _FEWER),
    "10": figure_of_models(SVM, _LEARNERS, _FEWER),
    "11": figure_of_models(LINEAR, _LEARNERS[1:], _LESS),
    "table-1": figure_of_formula(
        "epsilons where the order of the variances changes", _BORDER, OF_EPSILON, _regimes
    ),
}
