"""Zhao et al., Local Differential Privacy-Based Federated Learning for Internet of Things.

IEEE Internet of Things Journal 8, 2021.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ternhost.datasets import Floats
from ternhost.planning.cells import Row
from ternhost.planning.statistics import pick, values_of
from ternhost.privacy.mechanisms import piecewise, three_outputs
from ternpapers import discretisation
from ternpapers.comparison import (
    ACCURACY,
    CLASSIFIED,
    EPSILON,
    GAUSSIANS,
    LINEAR_ERROR,
    OUTPUTS,
    REGRESSED,
    Contest,
    means,
    models,
    tables,
)
from ternpapers.experiments.erm import SHARED
from ternpapers.experiments.variance import CROSSINGS, crossing
from ternpapers.figure import Axis, Figure, Trends, better, by_curve, every, verdict
from ternpapers.formula import (
    EPSILONS,
    OF_EPSILON,
    VARIANCE,
    curves,
    density,
    formula,
    variances,
    worst_variance_of_tuples,
)
from ternpapers.perturbing import WINDOWED

_MECHANISMS = ("laplace", "duchi", "pm", "hm", "three-outputs", "pm-sub", "hm-tp")
_ONE_NUMBER = (*_MECHANISMS, "pm-opt")
_A_AT_0 = "a, P(0) at x = 0"
_LN_2 = 0.69  # ln 2 = 0.693, rounded down
_ROUNDING = 1e-9  # relative
_COUNTS = (3, 5, 9, 17, 33, 65, 129, 257, 513, 1025, 2001)  # outputs


def _variance_trends(rows: Sequence[Row]) -> Trends:
    """Compare the worst-case variances for one number with what the paper says of Fig. 2."""
    variances = by_curve(rows, "variance")  # of each mechanism, at all epsilons
    epsilon = np.array([row["epsilon"] for row in pick(rows, curve="pm")])
    three_outputs, duchi = variances["three-outputs"], variances["duchi"]
    variances_of_others = [variances[name] for name in _ONE_NUMBER if name != "hm-tp"]
    others = np.minimum.reduce(variances_of_others)  # the least at each epsilon

    def is_never_worse(variance: Floats, rival: Floats) -> bool:
        """Return whether a variance is at most that of the rival, at all epsilons."""
        return bool((variance <= rival * (1 + _ROUNDING)).all())

    up_to_ln_2 = epsilon <= _LN_2
    is_duchi = np.allclose(three_outputs[up_to_ln_2], duchi[up_to_ln_2])
    pm_opt_is_first = is_never_worse(variances["pm-opt"], variances["pm-sub"])
    pm_sub_is_second = is_never_worse(variances["pm-sub"], variances["pm"])
    return {
        "up to ln 2 Three-Outputs is Duchi's mechanism": bool(is_duchi),
        "Three-Outputs is never worse than Duchi's": is_never_worse(three_outputs, duchi),
        "PM-OPT is never worse than PM-SUB, nor PM-SUB than PM": (
            pm_opt_is_first and pm_sub_is_second
        ),
        "HM-TP is better than every other mechanism": is_never_worse(variances["hm-tp"], others),
    }


def _zero_probabilities() -> list[Row]:
    """Return the rows of Fig. 3: a, the probability of 0 at x = 0, for each epsilon."""
    epsilons = [round(0.05 * i, 2) for i in range(161)]
    law = {_A_AT_0: three_outputs.zero_probability}
    return curves("Three-Outputs", "epsilon", "a", law, epsilons)


def _zero_trends(rows: Sequence[Row]) -> Trends:
    """Compare a with what the paper says of Fig. 3."""
    a = by_curve(rows, "a")[_A_AT_0]
    below_ln_2 = [row["a"] for row in rows if row["epsilon"] < _LN_2]
    return {
        "a is 0 up to epsilon ln 2": not any(below_ln_2),
        "a rises with epsilon": bool((np.diff(a) >= 0).all()),
    }


def _variances_of_tuples() -> list[Row]:
    """Return the rows of Fig. 5: the worst-case variances for d numbers by epsilon."""
    rows = []
    for d in (5, 10, 20, 40):
        laws = {name: partial(worst_variance_of_tuples, name, d) for name in _MECHANISMS[1:]}
        rows += curves(f"d = {d}", "epsilon", "variance", laws, EPSILONS)
    return rows


def _crossings(first: int, last: int) -> list[Row]:
    """Return the epsilons where two mechanisms have the same worst-case variance.

    first, last: which pairs of CROSSINGS, the last one not included; Table I has the first two,
    Table II the others.
    """
    rows: list[Row] = []
    for number, (one, two, low, high) in enumerate(CROSSINGS[first:last], start=1):
        row = {"panel": "crossings", "curve": f"{one}, {two}", "row": number}
        rows.append({**row, "epsilon": crossing(one, two, low, high)})
    return rows


def _more_outputs(
    column: str, rows: Sequence[Row], larger: bool = False, shared: float = 0.0
) -> Trends:
    """Test whether the most outputs are better than the fewest, in every panel, paired by runs.

    column: the column of the compared values. larger: whether larger values are better. shared: see
    `mean_and_error`.
    """
    outputs = [row["outputs"] for row in rows]
    fewest, most = min(outputs), max(outputs)
    sign = -1
    if larger:
        sign = 1

    def gains(panel: str, mechanism: str) -> list[float]:
        """Return, for each run, by how much the most outputs are better."""
        with_fewest = pick(rows, panel=panel, curve=mechanism, outputs=fewest)
        with_most = pick(rows, panel=panel, curve=mechanism, outputs=most)
        gains_of_runs = []
        for few, many in zip(with_fewest, with_most, strict=True):
            gains_of_runs.append(sign * (many[column] - few[column]))
        return gains_of_runs

    trends = {}
    panels = values_of(rows, "panel")
    for name in values_of(rows, "curve"):
        if name in WINDOWED:
            verdicts = [verdict(gains(panel, name), shared) for panel in panels]
            trends[f"{name} is better with {most:,} outputs than with {fewest}"] = every(verdicts)
    return trends


_OTHERS = _MECHANISMS[:-1]
_SMALLER = partial(better, "squared_error", ("hm-tp",), _OTHERS)
_MORE_ACCURATE = partial(better, ACCURACY.column, ("hm-tp",), _OTHERS, larger=True, shared=SHARED)
_LESS = partial(better, LINEAR_ERROR.column, ("hm-tp",), _OTHERS[1:], shared=SHARED)
_A = Axis("a", "a")
_ERRORS = partial(_more_outputs, "squared_error")
_LOSSES = partial(_more_outputs, "squared_error", shared=SHARED)
_ACCURACIES = partial(_more_outputs, "accuracy", larger=True, shared=SHARED)
_DISCRETE = tuple(WINDOWED)


def _outputs_at(epsilon: float) -> dict[str, Sequence[Any]]:
    """Return the settings of a figure by the number of outputs, at this epsilon."""
    return {"epsilon": (epsilon,), "outputs": _COUNTS}


_TWO = ("pm-sub", "three-outputs")
_CROSSINGS = (
    "epsilons where two mechanisms are equally good",
    Axis("row", "row"),
    OF_EPSILON,
    _crossings,
)
_LEVEL_RATIO = Axis("ratio", "ratio of variances")


def _contest(
    mechanisms: Sequence[str], y: Axis, settings: Mapping[str, Sequence[Any]] | None = None
) -> Contest:
    """Return a contest of models, on the data sets whose labels suit the y axis."""
    sources = CLASSIFIED
    if y is LINEAR_ERROR:
        sources = REGRESSED
    return Contest(mechanisms, sources, settings or {})


_ALL = _contest(_MECHANISMS, ACCURACY)
_BY_OUTPUTS = _contest(_DISCRETE, ACCURACY, _outputs_at(4.0))
FIGURES: dict[str, Figure] = {
    "2": variances(_ONE_NUMBER, _variance_trends),
    "3": formula(
        "a, the probability of 0 in Three-Outputs",
        OF_EPSILON,
        _A,
        _zero_probabilities,
        _zero_trends,
    ),
    "4": density("PM-SUB", piecewise.t_sub),
    "5": formula("worst-case variance for d numbers", OF_EPSILON, VARIANCE, _variances_of_tuples),
    "6": tables("errors of means and of frequencies", _MECHANISMS, EPSILON),
    "7": means(
        "errors of means of 16 Gaussian numbers", Contest(_MECHANISMS, GAUSSIANS), trends=_SMALLER
    ),
    "8": models("logistic regression", "logistic", _ALL, ACCURACY, trends=_MORE_ACCURATE),
    "9": models("SVM", "svm", _ALL, ACCURACY, trends=_MORE_ACCURATE),
    "10": models(
        "linear regression",
        "linear",
        _contest(_MECHANISMS[1:], LINEAR_ERROR),
        LINEAR_ERROR,
        trends=_LESS,
    ),
    "11": means(
        "errors of means by the number of outputs",
        Contest(_DISCRETE, GAUSSIANS, _outputs_at(4.0)),
        OUTPUTS,
        trends=_ERRORS,
    ),
    "12": models(
        "linear regression by outputs",
        "linear",
        _contest(_DISCRETE, LINEAR_ERROR, _outputs_at(4.0)),
        LINEAR_ERROR,
        OUTPUTS,
        trends=_LOSSES,
    ),
    "13": models(
        "logistic regression by outputs",
        "logistic",
        _BY_OUTPUTS,
        ACCURACY,
        OUTPUTS,
        trends=_ACCURACIES,
    ),
    "14": models(
        "accuracy of linear regression by outputs",
        "linear",
        _BY_OUTPUTS,
        ACCURACY,
        OUTPUTS,
        trends=_ACCURACIES,
    ),
    "15": models(
        "SVM at epsilon 5, PM-SUB and Three-Outputs",
        "svm",
        _contest(_TWO, ACCURACY, _outputs_at(5.0)),
        ACCURACY,
        OUTPUTS,
    ),
    "table-1": formula(*_CROSSINGS, first=0, last=2),
    "table-2": formula(*_CROSSINGS, first=2, last=5),
    "levels": formula(
        "worst-case variance over the continuous one, by outputs",
        OUTPUTS,
        _LEVEL_RATIO,
        discretisation.variances,
    ),
}
