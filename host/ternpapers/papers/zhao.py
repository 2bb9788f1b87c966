"""Zhao et al., Local Differential Privacy-Based Federated Learning for Internet of Things.

IEEE Internet of Things Journal 8, 2021.
"""

from collections.abc import Sequence
from functools import partial
from itertools import groupby, takewhile

import numpy as np

from ternhost.planning.cells import Row
from ternhost.planning.statistics import pick, values_of
from ternhost.privacy.mechanisms import three_outputs
from ternpapers.figure import Axis, Figure
from ternpapers.formula import (
    OF_EPSILON,
    curves,
    figure_of_density,
    figure_of_formula,
    figure_of_variances,
)
from ternpapers.mechanisms import pm
from ternpapers.papers import zhao_levels, zhao_means, zhao_models, zhao_tables
from ternpapers.variance_statements import (
    close,
    never_worse,
    smaller,
    smaller_if_large,
    smaller_if_small,
)
from ternpapers.verdicts import Check, Verdict, by_curve, every

_EXISTING = zhao_means.EXISTING
_ONE_NUMBER = (*_EXISTING, *zhao_means.PROPOSED, "pm-opt")
_A_AT_0 = "a, P(0) at x = 0"
_LN_2 = 0.69  # ln 2 = 0.693, rounded down


def _is_duchi_up_to_ln_2(rows: Sequence[Row]) -> Verdict:
    """Test whether Three-Outputs has the worst-case variance of Duchi's mechanism up to ln 2."""
    up_to_ln_2 = [row for row in rows if row["epsilon"] <= _LN_2]
    variances = by_curve(up_to_ln_2, "variance")
    return Verdict(bool(np.allclose(variances["three-outputs"], variances["duchi"])))


def _windows_are_better_than_pm(rows: Sequence[Row]) -> Verdict:
    """Test whether PM-OPT and PM-SUB are both better than PM; a case is a mechanism."""
    return every(smaller(name, ("pm",), rows).holds for name in ("pm-opt", "pm-sub"))


def _windows_are_best_if_large(rows: Sequence[Row]) -> Verdict:
    """Test whether PM-OPT and PM-SUB are both better than the others at the largest epsilons.

    HM-TP is none of the others, since the paper says this before it comes to HM-TP.
    """
    others = ("three-outputs", *_EXISTING)
    of_pm_opt = smaller_if_large("pm-opt", others, rows)
    if not of_pm_opt.holds:
        return of_pm_opt
    return smaller_if_large("pm-sub", others, rows)  # its detail: PM-OPT is better earlier


_ABOUT_VARIANCES: dict[str, Check] = {
    "Laplace is worse than Duchi's mechanism up to epsilon 2.3": partial(
        smaller, "duchi", ("laplace",), to=2.3
    ),
    "Laplace is better than Duchi's mechanism beyond epsilon 2.3": partial(
        smaller, "laplace", ("duchi",), above=2.3
    ),
    "PM is better than Laplace and Duchi's mechanism if epsilon is large": partial(
        smaller_if_large, "pm", ("laplace", "duchi")
    ),
    "PM is better than Laplace at every epsilon": partial(smaller, "pm", ("laplace",)),
    "HM is never worse than Laplace, Duchi's mechanism and PM": partial(
        never_worse, "hm", ("laplace", "duchi", "pm")
    ),
    "Three-Outputs is Duchi's mechanism if epsilon is small, up to ln 2": _is_duchi_up_to_ln_2,
    "Three-Outputs is better than Duchi's mechanism beyond epsilon ln 2": partial(
        smaller, "three-outputs", ("duchi",), above=_LN_2
    ),
    "Three-Outputs is better than Laplace, Duchi's mechanism, PM and HM if epsilon is small": (
        partial(smaller_if_small, "three-outputs", _EXISTING)
    ),
    # The epsilons are tenths: 3.1 is the last one below 3.2.
    "Three-Outputs is better than PM below epsilon 3.2": partial(
        smaller, "three-outputs", ("pm",), to=3.1
    ),
    "Three-Outputs is not better than PM from epsilon 3.2 on": partial(
        smaller, "pm", ("three-outputs",), above=3.1
    ),
    "PM-OPT is never worse than PM-SUB": partial(never_worse, "pm-opt", ("pm-sub",)),
    "PM-OPT and PM-SUB are better than PM at every epsilon": _windows_are_better_than_pm,
    "PM-OPT and PM-SUB are better than Three-Outputs and the existing mechanisms if epsilon is "
    "large": _windows_are_best_if_large,
    "Three-Outputs is better than PM-SUB if epsilon is small": partial(
        smaller_if_small, "three-outputs", ("pm-sub",)
    ),
    "PM-SUB is better than Three-Outputs if epsilon is large": partial(
        smaller_if_large, "pm-sub", ("three-outputs",)
    ),
    "HM-TP is never worse than any other mechanism": partial(
        never_worse, "hm-tp", [name for name in _ONE_NUMBER if name != "hm-tp"]
    ),
}


def _zero_probabilities() -> list[Row]:
    """Return the rows of Fig. 3: a, the probability of 0 at x = 0, for each epsilon."""
    epsilons = [round(0.05 * i, 2) for i in range(161)]
    law = {_A_AT_0: three_outputs.zero_probability}
    return curves("Three-Outputs", "epsilon", "a", law, epsilons)


def _is_0_first(rows: Sequence[Row]) -> Verdict:
    """Test whether a is 0 at all epsilons up to ln 2, as the paper's formula (5) has it."""
    zeros = list(takewhile(lambda row: row["a"] == 0, rows))
    if not zeros:
        return Verdict(False)
    first_epsilons = [row["epsilon"] for row in rows if row["epsilon"] <= _LN_2]
    holds = len(zeros) >= len(first_epsilons)
    return Verdict(holds, f"up to epsilon {zeros[-1]['epsilon']:g}")


def _rises(rows: Sequence[Row]) -> Verdict:
    """Test whether a rises from each epsilon to the next, once it is not 0 any more."""
    a = by_curve(rows, "a")[_A_AT_0]
    steps = np.diff(a)[a[1:] > 0]
    return every((steps > 0).tolist())


def _has_three_pieces(rows: Sequence[Row]) -> Verdict:
    """Test whether the density is a constant, then a higher constant, then the first one again.

    A case is an input.
    """
    cases = []
    for panel in values_of(rows, "panel"):
        densities = [row["density"] for row in pick(rows, panel=panel)]
        pieces = [density for density, _ in groupby(densities)]  # each piece once
        low, high = min(pieces), max(pieces)
        cases.append(low < high and pieces == [low, high, low])
    return every(cases)


_A = Axis("a", "a")


FIGURES: dict[str, Figure] = {
    "1": figure_of_variances(_ONE_NUMBER, _ABOUT_VARIANCES),
    "3": figure_of_formula(
        "a, the probability of 0 in Three-Outputs",
        OF_EPSILON,
        _A,
        _zero_probabilities,
        {
            "a is 0 if epsilon is small, so that Three-Outputs is Duchi's mechanism": _is_0_first,
            "once a is above 0, it rises with epsilon": _rises,
        },
    ),
    "4": figure_of_density(
        "PM-OPT",
        pm.t_opt,
        inputs=(0.0, 0.5),
        statements={"the density has three pieces, the middle one the highest": _has_three_pieces},
    ),
    "5": figure_of_variances(
        ("pm-opt", "pm-sub"),
        {
            "PM-SUB's variance is close to PM-OPT's, within 5 %": partial(
                close, "pm-sub", "pm-opt", 0.05
            )
        },
        title="worst-case variances of PM-SUB and PM-OPT",
    ),
    "6": zhao_means.FIGURES["6"],
    "7": zhao_means.FIGURES["7"],
    "8": zhao_models.FIGURES["8"],
    "9": zhao_models.FIGURES["9"],
    "10": zhao_models.FIGURES["10"],
    "11": zhao_means.FIGURES["11"],
    "12": zhao_models.FIGURES["12"],
    "13": zhao_models.FIGURES["13"],
    "14": zhao_models.FIGURES["14"],
    "15": zhao_models.FIGURES["15"],
    "table-1": zhao_tables.FIGURES["table-1"],
    "table-2": zhao_tables.FIGURES["table-2"],
    "levels": zhao_levels.FIGURE,
}
