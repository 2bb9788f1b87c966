"""Figures of formulas: nothing is drawn at random, and a figure is one cell of rows."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ternhost.errors import UsageError
from ternhost.learn.designs import coordinates_by_rule
from ternhost.planning.cells import Cell, Row
from ternhost.privacy import mechanisms
from ternhost.privacy.base import MICRO
from ternpapers.base import Options
from ternpapers.figure import RUNS, Axis, Figure, Trends, no_trends
from ternpapers.perturbing import piecewise_bound, tuple_bound

_POINTS = np.linspace(0, 1, 201)
OF_EPSILON, VARIANCE = Axis("epsilon", "epsilon"), Axis("variance", "worst-case variance", log=True)
EPSILONS = tuple(round(0.1 * i, 1) for i in range(4, 81))
_SHOWN_EPSILON = 2.0  # of densities; the papers name none


def formula(
    title: str,
    x: Axis,
    y: Axis,
    rows: Callable[..., list[Row]],
    trends: Callable[[Sequence[Row]], Trends] = no_trends,
    **arguments: Any,
) -> Figure:
    """A figure of the rows (panel, curve, and the columns of the axes) that `rows` computes from
    these arguments.
    """
    return Figure(
        title, x, y, partial(_cells, {"rows": rows, **arguments}), trends=trends, columns=3
    )


def _cells(arguments: Mapping[str, Any], options: Options) -> list[Cell]:
    for name in ("dataset", "runs", "contender"):
        if getattr(options, name) is not None:
            option = "mechanism" if name == "contender" else name
            raise UsageError(
                f"this figure is a formula, without a choice of --{option}",
                hint=f"leave --{option} out",
            )
    return [Cell(RUNS, _computed, arguments)]


def _computed(rows: Callable[..., list[Row]], **arguments: Any) -> list[Row]:
    return [{"run": 0, **row} for row in rows(**arguments)]


def curves(
    panel: str,
    column: str,
    value: str,
    laws: Mapping[str, Callable[[float], float]],
    xs: Sequence[float],
) -> list[Row]:
    """A curve for each law, over these xs."""
    return [
        {"panel": panel, "curve": name, column: x, value: law(x)}
        for name, law in laws.items()
        for x in xs
    ]


def density(name: str, t: Callable[[float], float]) -> Figure:
    """The density of a piecewise mechanism's output for three inputs. t: its parameter by epsilon."""
    title, output = f"density of {name}'s output for three inputs", Axis("output", "output")
    return formula(
        title, output, Axis("density", "probability density"), _densities, name=name, t=t
    )


def _densities(name: str, t: Callable[[float], float]) -> list[Row]:
    parameter, e = t(_SHOWN_EPSILON), math.exp(_SHOWN_EPSILON)
    bound = piecewise_bound(_SHOWN_EPSILON, parameter)
    scale = bound / (parameter + 1)
    outside = parameter / (parameter + e) / (2 * bound - 2 * scale)
    rows = []
    for x in (0.0, 0.5, 1.0):
        low = scale * (x * parameter - 1)

        def law(y: float, low: float = low) -> float:
            return outside * (e if low <= y <= low + 2 * scale else 1)

        outputs = np.linspace(-bound, bound, 401).tolist()
        rows += curves(
            f"input {x:g}",
            "output",
            "density",
            {f"{name}, epsilon {_SHOWN_EPSILON:g}": law},
            outputs,
        )
    return rows


def variances(names: Sequence[str], trends: Callable[[Sequence[Row]], Trends]) -> Figure:
    """The worst-case variances of these mechanisms for one number."""
    title = "worst-case variance for one number"
    return formula(title, OF_EPSILON, VARIANCE, _variances, trends, names=names)


def _variances(names: Sequence[str]) -> list[Row]:
    return curves(
        "one number",
        "epsilon",
        "variance",
        {name: worst_variance(name) for name in names},
        EPSILONS,
    )


def worst_variance(name: str) -> Callable[[float], float]:
    """The worst-case variance of a mechanism by epsilon, as its source states it."""
    law = mechanisms.REGISTRY.named(name).worst_variance
    assert law is not None
    return law


def worst_variance_of_tuples(name: str, d: int, epsilon: float) -> float:
    """The worst-case variance of one of d numbers: of Duchi's mechanism for tuples, or of another
    for k of d numbers at epsilon / k each, by the papers' rule for k (Wang et al., equations 13 and
    14).
    """
    if name == "duchi":
        return tuple_bound(epsilon, d) ** 2
    law = mechanisms.REGISTRY.named(name).variance
    assert law is not None
    k = coordinates_by_rule("paper", round(epsilon * MICRO), d)
    return float(max(d / k * (law(epsilon / k, x) + x * x) - x * x for x in _POINTS.tolist()))
