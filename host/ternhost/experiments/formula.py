"""Figures of formulas: nothing is drawn at random, and a figure is one cell of rows."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from ternhost.errors import UsageError
from ternhost.experiments.base import Options
from ternhost.experiments.cells import Cell, Row
from ternhost.experiments.figure import RUNS, Axis, Figure, Trends, no_trends
from ternhost.experiments.perturbing import tuple_bound
from ternhost.learn.designs import coordinates_by_rule
from ternhost.privacy import mechanisms
from ternhost.privacy.base import MICRO

_POINTS = np.linspace(0, 1, 201)


def formula(
    title: str,
    x: Axis,
    y: Axis,
    rows: Callable[[], list[Row]],
    trends: Callable[[Sequence[Row]], Trends] = no_trends,
) -> Figure:
    """A figure of these rows (panel, curve, and the columns of the axes)."""
    return Figure(title, x, y, partial(_cells, rows), trends=trends, columns=3)


def _cells(rows: Callable[[], list[Row]], options: Options) -> list[Cell]:
    for name in ("dataset", "runs", "contender"):
        if getattr(options, name) is not None:
            option = "mechanism" if name == "contender" else name
            raise UsageError(
                f"this figure is a formula, without a choice of --{option}", hint=f"leave --{option} out"
            )
    return [Cell(RUNS, _computed, {"rows": rows})]


def _computed(rows: Callable[[], list[Row]]) -> list[Row]:
    return [{"run": 0, **row} for row in rows()]


def curves(
    panel: str, column: str, value: str, laws: Mapping[str, Callable[[float], float]], xs: Sequence[float]
) -> list[Row]:
    """A curve for each law, over these xs."""
    return [
        {"panel": panel, "curve": name, column: x, value: law(x)} for name, law in laws.items() for x in xs
    ]


def worst_variance(name: str) -> Callable[[float], float]:
    """The worst-case variance of a mechanism by epsilon, as its source states it."""
    law = mechanisms.REGISTRY.named(name).worst_variance
    assert law is not None
    return law


def worst_variance_of_tuples(name: str, d: int, epsilon: float) -> float:
    """The worst-case variance of one of d numbers: of Duchi's mechanism for tuples, or of another for k of d numbers at
    epsilon / k each, by the papers' rule for k (Wang et al., equations 13 and 14)."""
    if name == "duchi":
        return tuple_bound(epsilon, d) ** 2
    law = mechanisms.REGISTRY.named(name).variance
    assert law is not None
    k = coordinates_by_rule("paper", round(epsilon * MICRO), d)
    return float(max(d / k * (law(epsilon / k, x) + x * x) - x * x for x in _POINTS.tolist()))
