"""Zhao et al., Local Differential Privacy-Based Federated Learning for Internet of Things, IEEE IoT J. 8, 2021."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ternhost.experiments.cells import Row
from ternhost.experiments.comparison import (
    ACCURACY,
    EPSILON,
    GAUSSIANS,
    LINEAR_ERROR,
    OUTPUTS,
    means,
    models,
    tables,
)  # fmt: skip
from ternhost.experiments.discretisation import variances
from ternhost.experiments.figure import Axis, Figure, Trends, below, by_curve
from ternhost.experiments.formula import (
    curves,
    density,
    formula,
    worst_variance,
    worst_variance_of_tuples,
)
from ternhost.experiments.perturbing import WINDOWED
from ternhost.experiments.statistics import pick, values_of
from ternhost.experiments.variance import CROSSINGS, crossing
from ternhost.privacy.mechanisms import piecewise, three_outputs

_MECHANISMS = ("laplace", "duchi", "pm", "hm", "three-outputs", "pm-sub", "hm-tp")
_ONE_NUMBER = (*_MECHANISMS, "pm-opt")
_CLASSIFIED = ("synthetic-logistic", "breast-cancer")
_LINEAR = ("synthetic-linear", "diabetes")
_COUNTS = (3, 5, 9, 17, 33, 65, 129, 257, 513, 1025, 2001)  # outputs
_EPSILON, _VARIANCE = Axis("epsilon", "epsilon"), Axis("variance", "worst-case variance")


def _variances() -> list[Row]:
    epsilons = [round(0.1 * i, 1) for i in range(4, 81)]
    return curves(
        "one number", "epsilon", "variance", {name: worst_variance(name) for name in _ONE_NUMBER}, epsilons
    )


def _variance_trends(rows: Sequence[Row]) -> Trends:
    laws = by_curve(rows, "variance")
    epsilon = np.array([row["epsilon"] for row in pick(rows, curve="pm")])
    others = np.minimum.reduce([laws[name] for name in _ONE_NUMBER if name != "hm-tp"])
    equal = 1 + 1e-9
    return {
        "up to ln 2 Three-Outputs is Duchi's mechanism": bool(
            np.allclose(laws["three-outputs"][epsilon <= 0.69], laws["duchi"][epsilon <= 0.69])
        ),
        "Three-Outputs is never worse than Duchi's": bool(
            (laws["three-outputs"] <= laws["duchi"] * equal).all()
        ),
        "PM-OPT is never worse than PM-SUB, nor PM-SUB than PM": bool(
            ((laws["pm-opt"] <= laws["pm-sub"] * equal) & (laws["pm-sub"] <= laws["pm"] * equal)).all()
        ),
        "HM-TP is better than every other mechanism": bool((laws["hm-tp"] <= others * equal).all()),
    }


def _zero_probabilities() -> list[Row]:
    epsilons = [round(0.05 * i, 2) for i in range(161)]
    return curves(
        "Three-Outputs", "epsilon", "a", {"a, P(0) at x = 0": three_outputs.zero_probability}, epsilons
    )


def _zero_trends(rows: Sequence[Row]) -> Trends:
    a = by_curve(rows, "a")["a, P(0) at x = 0"]
    return {
        "a is 0 up to epsilon ln 2": all(row["a"] == 0 for row in rows if row["epsilon"] < 0.69),
        "a rises with epsilon": bool((np.diff(a) >= 0).all()),
    }


def _variances_of_tuples() -> list[Row]:
    epsilons = [round(0.1 * i, 1) for i in range(4, 81)]
    rows = []
    for d in (5, 10, 20, 40):
        laws = {name: partial(worst_variance_of_tuples, name, d) for name in _MECHANISMS[1:]}
        rows += curves(f"d = {d}", "epsilon", "variance", laws, epsilons)
    return rows


def _crossings() -> list[Row]:
    """Tables I and II: the epsilons where two mechanisms have the same worst-case variance."""
    return [
        {
            "panel": "crossings",
            "curve": f"{first}, {second}",
            "row": i,
            "epsilon": crossing(first, second, *between),
        }
        for i, (first, second, *between) in enumerate(CROSSINGS)
    ]


def _best(name: str, others: Sequence[str], column: str, rows: Sequence[Row]) -> Trends:
    return {f"{name} has smaller errors than {other}": below(rows, column, name, other) for other in others}


def _more_outputs(column: str, rows: Sequence[Row]) -> Trends:
    """An accuracy or error at the most outputs against that at the fewest, in every panel."""
    sign = 1 if column == ACCURACY.column else -1
    panels = [by_curve(rows, column, panel) for panel in values_of(rows, "panel")]
    return {
        f"{name} is better with 2,001 outputs than with 3": all(
            sign * (curves[name][-1] - curves[name][0]) > 0 for curves in panels
        )
        for name in panels[0]
        if name in WINDOWED
    }


_SMALLER = partial(
    _best, "hm-tp", ("laplace", "duchi", "pm", "hm", "three-outputs", "pm-sub"), "squared_error"
)
_A = Axis("a", "a")
_LOG_VARIANCE = Axis("variance", "worst-case variance", log=True)
_ERRORS, _ACCURACIES = (partial(_more_outputs, column) for column in ("squared_error", "accuracy"))
_DISCRETE = tuple(WINDOWED)
_BY_OUTPUTS: dict[str, Any] = {"x": OUTPUTS, "settings": {"epsilon": (4.0,), "outputs": _COUNTS}}
_AT_5: dict[str, Any] = {"x": OUTPUTS, "settings": {"epsilon": (5.0,), "outputs": _COUNTS}}
_TWO = ("pm-sub", "three-outputs")
_LEVEL_RATIO = Axis("ratio", "ratio of variances")


def _learned(title: str, model: str, mechanisms: Sequence[str], y: Axis = ACCURACY, **more: Any) -> Figure:
    sources = _LINEAR if y is LINEAR_ERROR else _CLASSIFIED
    return models(title, model, mechanisms, sources, y, **more)


FIGURES: dict[str, Figure] = {
    "2": formula("worst-case variance for one number", _EPSILON, _VARIANCE, _variances, _variance_trends),
    "3": formula("a, the probability of 0 in Three-Outputs", _EPSILON, _A, _zero_probabilities, _zero_trends),
    "4": density("PM-SUB", piecewise.t_sub),
    "5": formula("worst-case variance for d numbers", _EPSILON, _LOG_VARIANCE, _variances_of_tuples),
    "6": tables("errors of means and of frequencies", _MECHANISMS, EPSILON),
    "7": means("errors of means of 16 Gaussian numbers", _MECHANISMS, GAUSSIANS, trends=_SMALLER),
    "8": _learned("logistic regression", "logistic", _MECHANISMS),
    "9": _learned("SVM", "svm", _MECHANISMS),
    "10": _learned("linear regression", "linear", _MECHANISMS[1:], LINEAR_ERROR),
    "11": means("errors of means by the number of outputs", _DISCRETE, GAUSSIANS, **_BY_OUTPUTS, trends=_ERRORS),
    "12": _learned("linear regression by outputs", "linear", _DISCRETE, LINEAR_ERROR, **_BY_OUTPUTS, trends=_ERRORS),
    "13": _learned("logistic regression by outputs", "logistic", _DISCRETE, **_BY_OUTPUTS, trends=_ACCURACIES),
    "14": _learned("accuracy of linear regression by outputs", "linear", _DISCRETE, **_BY_OUTPUTS, trends=_ACCURACIES),
    "15": _learned("SVM at epsilon 5, PM-SUB and Three-Outputs", "svm", _TWO, **_AT_5),
    "table-1": formula("epsilons where two mechanisms are equally good", Axis("row", "row"), _EPSILON, _crossings)
}  # fmt: skip
FIGURES["levels"] = formula(
    "worst-case variance over the continuous one, by outputs", OUTPUTS, _LEVEL_RATIO, variances
)
FIGURES["table-2"] = FIGURES["table-1"]
