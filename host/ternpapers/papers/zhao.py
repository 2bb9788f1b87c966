"""Zhao et al., Local Differential Privacy-Based Federated Learning for Internet of Things.

IEEE Internet of Things Journal 8, 2021.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ternhost.planning.cells import Row
from ternhost.planning.statistics import pick, values_of
from ternhost.privacy.mechanisms import piecewise, three_outputs
from ternpapers import discretisation
from ternpapers.comparison.contest import EPSILON, OUTPUTS, Contest
from ternpapers.comparison.frequencies import tables
from ternpapers.comparison.means import GAUSSIANS, means
from ternpapers.comparison.models import (
    ACCURACY,
    CLASSIFIED,
    LINEAR_ERROR,
    REGRESSED,
    models,
)
from ternpapers.experiments.erm import SHARED
from ternpapers.experiments.variance import CROSSINGS, crossing
from ternpapers.figure import Axis, Check, Figure, Verdict, better, by_curve, every, gained
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


def _is_never_worse(name: str, other: str, rows: Sequence[Row]) -> Verdict:
    """Test whether a mechanism's worst-case variance is at most that of another at all epsilons."""
    variances = by_curve(rows, "variance")
    return Verdict(bool((variances[name] <= variances[other] * (1 + _ROUNDING)).all()))


def _is_duchi_up_to_ln_2(rows: Sequence[Row]) -> Verdict:
    """Test whether Three-Outputs has the worst-case variance of Duchi's mechanism up to ln 2."""
    up_to_ln_2 = [row for row in rows if row["epsilon"] <= _LN_2]
    variances = by_curve(up_to_ln_2, "variance")
    return Verdict(bool(np.allclose(variances["three-outputs"], variances["duchi"])))


def _in_order(rows: Sequence[Row]) -> Verdict:
    """Test whether PM-OPT is never worse than PM-SUB, which is never worse than PM."""
    pairs = (("pm-opt", "pm-sub"), ("pm-sub", "pm"))
    return every(_is_never_worse(name, other, rows).holds for name, other in pairs)


def _hm_tp_is_best(rows: Sequence[Row]) -> Verdict:
    """Test whether HM-TP is never worse than any other mechanism."""
    others = [name for name in _ONE_NUMBER if name != "hm-tp"]
    return every(_is_never_worse("hm-tp", other, rows).holds for other in others)


_ABOUT_VARIANCES: dict[str, Check] = {
    "up to ln 2 Three-Outputs is Duchi's mechanism": _is_duchi_up_to_ln_2,
    "Three-Outputs is never worse than Duchi's": partial(_is_never_worse, "three-outputs", "duchi"),
    "PM-OPT is never worse than PM-SUB, nor PM-SUB than PM": _in_order,
    "HM-TP is better than every other mechanism": _hm_tp_is_best,
}


def _zero_probabilities() -> list[Row]:
    """Return the rows of Fig. 3: a, the probability of 0 at x = 0, for each epsilon."""
    epsilons = [round(0.05 * i, 2) for i in range(161)]
    law = {_A_AT_0: three_outputs.zero_probability}
    return curves("Three-Outputs", "epsilon", "a", law, epsilons)


def _is_0_first(rows: Sequence[Row]) -> Verdict:
    """Test whether a is 0 up to epsilon ln 2."""
    return Verdict(not any(row["a"] for row in rows if row["epsilon"] < _LN_2))


def _rises(rows: Sequence[Row]) -> Verdict:
    """Test whether a never falls as epsilon grows."""
    a = by_curve(rows, "a")[_A_AT_0]
    return Verdict(bool((np.diff(a) >= 0).all()))


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
) -> Verdict:
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

    names = [name for name in values_of(rows, "curve") if name in WINDOWED]
    cases = product(values_of(rows, "panel"), names)
    return every(gained(gains(panel, name), shared) for panel, name in cases)


_OTHERS = _MECHANISMS[:-1]
_HM_TP = "HM-TP is better than every other mechanism"
_SMALLER = {_HM_TP: partial(better, "squared_error", ("hm-tp",), _OTHERS)}
_MORE_ACCURATE = {
    _HM_TP: partial(better, ACCURACY.column, ("hm-tp",), _OTHERS, larger=True, shared=SHARED)
}
_LESS = {_HM_TP: partial(better, LINEAR_ERROR.column, ("hm-tp",), _OTHERS[1:], shared=SHARED)}
_A = Axis("a", "a")
_WITH_OUTPUTS = "more outputs are better"
_ERRORS = {_WITH_OUTPUTS: partial(_more_outputs, "squared_error")}
_LOSSES = {_WITH_OUTPUTS: partial(_more_outputs, "squared_error", shared=SHARED)}
_ACCURACIES = {_WITH_OUTPUTS: partial(_more_outputs, "accuracy", larger=True, shared=SHARED)}
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
    "2": variances(_ONE_NUMBER, _ABOUT_VARIANCES),
    "3": formula(
        "a, the probability of 0 in Three-Outputs",
        OF_EPSILON,
        _A,
        _zero_probabilities,
        {"a is 0 up to epsilon ln 2": _is_0_first, "a rises with epsilon": _rises},
    ),
    "4": density("PM-SUB", piecewise.t_sub),
    "5": formula("worst-case variance for d numbers", OF_EPSILON, VARIANCE, _variances_of_tuples),
    "6": tables("errors of means and of frequencies", _MECHANISMS, EPSILON),
    "7": means(
        "errors of means of 16 Gaussian numbers",
        Contest(_MECHANISMS, GAUSSIANS),
        statements=_SMALLER,
    ),
    "8": models("logistic regression", "logistic", _ALL, ACCURACY, statements=_MORE_ACCURATE),
    "9": models("SVM", "svm", _ALL, ACCURACY, statements=_MORE_ACCURATE),
    "10": models(
        "linear regression",
        "linear",
        _contest(_MECHANISMS[1:], LINEAR_ERROR),
        LINEAR_ERROR,
        statements=_LESS,
    ),
    "11": means(
        "errors of means by the number of outputs",
        Contest(_DISCRETE, GAUSSIANS, _outputs_at(4.0)),
        OUTPUTS,
        statements=_ERRORS,
    ),
    "12": models(
        "linear regression by outputs",
        "linear",
        _contest(_DISCRETE, LINEAR_ERROR, _outputs_at(4.0)),
        LINEAR_ERROR,
        OUTPUTS,
        statements=_LOSSES,
    ),
    "13": models(
        "logistic regression by outputs",
        "logistic",
        _BY_OUTPUTS,
        ACCURACY,
        OUTPUTS,
        statements=_ACCURACIES,
    ),
    "14": models(
        "accuracy of linear regression by outputs",
        "linear",
        _BY_OUTPUTS,
        ACCURACY,
        OUTPUTS,
        statements=_ACCURACIES,
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
