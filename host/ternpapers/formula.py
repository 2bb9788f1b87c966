"""Makes figures of formulas: nothing is drawn at random, and one cell computes all rows."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ternhost.errors import UsageError
from ternhost.planning.cells import Cell, Row
from ternhost.privacy import mechanisms
from ternpapers.base import Options
from ternpapers.figure import RUNS, Axis, Figure
from ternpapers.piecewise_law import PiecewiseLaw
from ternpapers.verdicts import Check

OF_EPSILON = Axis("epsilon", "epsilon")
VARIANCE = Axis("variance", "worst-case variance", log=True)
EPSILONS = tuple(round(0.1 * i, 1) for i in range(4, 81))
_SHOWN_EPSILON = 2.0  # of densities; the papers name none


def figure_of_formula(
    title: str,
    x: Axis,
    y: Axis,
    rows: Callable[..., list[Row]],
    statements: Mapping[str, Check] | None = None,
    **arguments: Any,
) -> Figure:
    """Return a figure of the rows that the function `rows` computes from these arguments.

    A row has a panel, a curve, and the columns of the axes. statements: as of `Figure`. arguments:
    those of `rows`.
    """
    cells = partial(_cells, {"rows": rows, **arguments})
    return Figure(title, x, y, cells, statements or {}, columns=3, exact=True)


def _cells(arguments: Mapping[str, Any], options: Options) -> list[Cell]:
    """Return the only cell of a formula. Raises UsageError for options of other figures."""
    for option in options.chosen:
        text = f"this figure is a formula, without a choice of --{option}"
        raise UsageError(text, hint=f"leave --{option} out")
    return [Cell(RUNS, _computed, arguments)]


def _computed(rows: Callable[..., list[Row]], **arguments: Any) -> list[Row]:
    """Compute the rows of a formula, as those of a single run."""
    return [{"run": 0, **row} for row in rows(**arguments)]


def curves(
    panel: str,
    column: str,
    value: str,
    laws: Mapping[str, Callable[[float], float]],
    xs: Sequence[float],
) -> list[Row]:
    """Return the rows of a curve for each law, a function of x, over these xs.

    panel: the panel of all curves. column, value: the names of the columns of x and of the value of
    the law.
    """
    rows: list[Row] = []
    for name, law in laws.items():
        for x in xs:
            rows.append({"panel": panel, "curve": name, column: x, value: law(x)})
    return rows


def figure_of_density(
    name: str,
    t: Callable[[float], float],
    inputs: Sequence[float] = (0.0, 0.5, 1.0),
    statements: Mapping[str, Check] | None = None,
) -> Figure:
    """Return a figure of the density of a piecewise mechanism's output, with a panel for each input.

    t: returns the mechanism's parameter at an epsilon. statements: as of `Figure`.
    """
    title = f"density of {name}'s output"
    x, y = Axis("output", "output"), Axis("density", "probability density")
    return figure_of_formula(title, x, y, _densities, statements, name=name, t=t, inputs=inputs)


def _densities(name: str, t: Callable[[float], float], inputs: Sequence[float]) -> list[Row]:
    """Return the rows of `figure_of_density`."""
    law = PiecewiseLaw(_SHOWN_EPSILON, t(_SHOWN_EPSILON))
    outputs = np.linspace(-law.bound, law.bound, 401).tolist()
    curve = f"{name}, epsilon {_SHOWN_EPSILON:g}"

    def density_of(window_start: float, output: float) -> float:
        """Return the density at an output. window_start: where the window of the input begins."""
        if window_start <= output <= window_start + 2 * law.half_width:
            return law.density_inside
        return law.density_outside

    rows = []
    window_starts = law.window_start(np.array(inputs)).tolist()
    for x, window_start in zip(inputs, window_starts, strict=True):
        density = partial(density_of, window_start)
        rows += curves(f"input {x:g}", "output", "density", {curve: density}, outputs)
    return rows


def figure_of_variances(
    names: Sequence[str],
    statements: Mapping[str, Check],
    title: str = "worst-case variance for one number",
) -> Figure:
    """Return a figure of the worst-case variances of these mechanisms for one number."""
    return figure_of_formula(title, OF_EPSILON, VARIANCE, _variances, statements, names=names)


def _variances(names: Sequence[str]) -> list[Row]:
    """Return the rows of `figure_of_variances`."""
    laws = {name: worst_variance(name) for name in names}
    return curves("one number", "epsilon", "variance", laws, EPSILONS)


def worst_variance(name: str) -> Callable[[float], float]:
    """Return the worst-case variance of a mechanism as a function of epsilon, by its source."""
    law = mechanisms.REGISTRY.named(name).worst_variance
    assert law is not None
    return law
