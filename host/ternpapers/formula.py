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
OF_EPSILON = Axis("epsilon", "epsilon")
VARIANCE = Axis("variance", "worst-case variance", log=True)
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
    """A figure of the rows that `rows` computes from these arguments.

    A row has a panel, a curve, and the columns of the axes.
    """
    cells = partial(_cells, {"rows": rows, **arguments})
    return Figure(title, x, y, cells, trends=trends, columns=3)


def _cells(arguments: Mapping[str, Any], options: Options) -> list[Cell]:
    chosen = {
        "dataset": options.dataset,
        "runs": options.runs,
        "mechanism": options.contender,
    }
    for option, value in chosen.items():
        if value is not None:
            text = f"this figure is a formula, without a choice of --{option}"
            raise UsageError(text, hint=f"leave --{option} out")
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
    rows: list[Row] = []
    for name, law in laws.items():
        for x in xs:
            rows.append({"panel": panel, "curve": name, column: x, value: law(x)})
    return rows


def density(name: str, t: Callable[[float], float]) -> Figure:
    """The density of a piecewise mechanism's output for three inputs. t: its parameter by epsilon."""
    title = f"density of {name}'s output for three inputs"
    x, y = Axis("output", "output"), Axis("density", "probability density")
    return formula(title, x, y, _densities, name=name, t=t)


def _densities(name: str, t: Callable[[float], float]) -> list[Row]:
    parameter, e = t(_SHOWN_EPSILON), math.exp(_SHOWN_EPSILON)
    bound = piecewise_bound(_SHOWN_EPSILON, parameter)
    scale = bound / (parameter + 1)
    outside = parameter / (parameter + e) / (2 * bound - 2 * scale)
    outputs = np.linspace(-bound, bound, 401).tolist()
    curve = f"{name}, epsilon {_SHOWN_EPSILON:g}"
    rows = []
    for x in (0.0, 0.5, 1.0):
        low = scale * (x * parameter - 1)

        def law(y: float, low: float = low) -> float:
            return outside * (e if low <= y <= low + 2 * scale else 1)

        rows += curves(f"input {x:g}", "output", "density", {curve: law}, outputs)
    return rows


def variances(names: Sequence[str], trends: Callable[[Sequence[Row]], Trends]) -> Figure:
    """The worst-case variances of these mechanisms for one number."""
    title = "worst-case variance for one number"
    return formula(title, OF_EPSILON, VARIANCE, _variances, trends, names=names)


def _variances(names: Sequence[str]) -> list[Row]:
    laws = {name: worst_variance(name) for name in names}
    return curves("one number", "epsilon", "variance", laws, EPSILONS)


def worst_variance(name: str) -> Callable[[float], float]:
    """The worst-case variance of a mechanism by epsilon, as its source states it."""
    law = mechanisms.REGISTRY.named(name).worst_variance
    assert law is not None
    return law


def worst_variance_of_tuples(name: str, d: int, epsilon: float) -> float:
    """The worst-case variance of one of d numbers.

    It is that of Duchi's mechanism for tuples, or of another for k of d numbers at epsilon / k
    each, by the papers' rule for k (Wang et al., equations 13 and 14).
    """
    if name == "duchi":
        return tuple_bound(epsilon, d) ** 2
    law = mechanisms.REGISTRY.named(name).variance
    assert law is not None
    k = coordinates_by_rule("paper", round(epsilon * MICRO), d)
    return float(max(d / k * (law(epsilon / k, x) + x * x) - x * x for x in _POINTS.tolist()))
