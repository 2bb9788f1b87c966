"""A figure or table of a paper, as tern computes it.

Its cells make rows, one for each run. These are summarised, drawn on the axes of the paper, and
compared with what the paper's text says.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ternhost.datasets import Floats
from ternhost.planning.cells import Cell, Row, Tables
from ternhost.planning.statistics import (
    beyond_noise,
    grouped,
    pick,
    summaries,
    values_of,
    winners,
)
from ternhost.plots.curves import Curve, Panel, draw
from ternpapers.base import Options, Outcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

_FEW = 20  # so many descriptions are printed, but not more
_SQUARE = 2  # panels on a side of a square picture
_SMALLEST = 1e-300  # takes the place of a divisor of 0
# The table of all cells: rows with the columns panel, curve, run, and those of the two axes.
RUNS = "runs"
_APART = NON_PRIVATE, NO_NOISE = "without privacy", "without noise"  # curves that do not compete
_WORDS = {True: "so here", False: "NOT SO here", None: "noise hides here whether"}
# Columns without meaning for one run.
_OF_RUNS = ("standard_error", "low", "high", "behind_best", "verdict", "runs")

Holds = bool | None  # None: noise hides it
Trends = Mapping[str, Holds]  # whether each sentence of the paper holds here


def no_trends(rows: Sequence[Row]) -> Trends:
    """Return no sentences: the paper's text says nothing of the curves that could be compared."""
    return {}


def by_curve(rows: Sequence[Row], column: str) -> dict[str, Floats]:
    """Return the values of a column by curve, in the order of the rows."""
    columns = {}
    for (name,), curve_rows in grouped(rows, "curve").items():
        columns[name] = np.array([row[column] for row in curve_rows])
    return columns


def verdict(gains: npt.ArrayLike, shared: float = 0.0) -> Holds:
    """Return whether the mean of the gains of paired runs is above 0; None if noise hides it.

    gains: the gain of each run. shared: see `mean_and_error`.
    """
    differences = np.asarray(gains, np.float64)
    if beyond_noise(differences, shared):
        return True
    if beyond_noise(-differences, shared):
        return False
    return None


def every(verdicts: Iterable[Holds]) -> Holds:
    """Return whether all verdicts hold; None if none fails, but noise hides some."""
    all_verdicts = set(verdicts)
    if False in all_verdicts:
        return False
    if None in all_verdicts:
        return None
    return True


def better(
    column: str,
    names: Sequence[str],
    others: Sequence[str],
    rows: Sequence[Row],
    larger: bool = False,
    shared: float = 0.0,
) -> Trends:
    """Test whether each of the curves `names` is better than each of the others, in every panel.

    The gain of a curve y over another z in a run is the mean of (y - z) / (y + z) over x. Runs are
    paired, and the verdict says whether the mean gain of all runs is above 0. column: that of the
    compared values. larger: whether larger values are better; if not, gains change their sign.
    shared: see `mean_and_error`.
    """
    panels = values_of(rows, "panel")
    sign = -1
    if larger:
        sign = 1

    def gains(panel: str, name: str, other: str) -> list[float]:
        """Return, for each run, by how much the curve `name` is better than the other."""
        gains_of_runs = []
        for run_rows in grouped(pick(rows, panel=panel), "run").values():
            curves = by_curve(run_rows, column)
            y, z = curves[name], curves[other]
            relative_differences = (y - z) / np.maximum(y + z, _SMALLEST)
            gains_of_runs.append(sign * float(np.mean(relative_differences)))
        return gains_of_runs

    trends = {}
    for name, other in product(names, others):
        if name != other:
            verdicts = [verdict(gains(panel, name, other), shared) for panel in panels]
            trends[f"{name} is better than {other}"] = every(verdicts)
    return trends


@dataclass(frozen=True)
class Axis:
    """A column of the rows, and how it is drawn.

    label: the text at the axis. log: whether the scale is logarithmic. larger: whether a larger
    value is better.
    """

    column: str
    label: str
    log: bool = False
    larger: bool = False


@dataclass(frozen=True)
class Figure:
    """A figure of a paper: what it shows, and how tern computes and draws it.

    x, y: the axes. cells: returns the cells whose rows, in the table RUNS, are drawn. trends: says
    of these rows which sentences of the paper hold. columns: how many panels are beside each other.
    shared: of the folds of a cross-validation, see `mean_and_error`.
    """

    title: str
    x: Axis
    y: Axis
    cells: Callable[[Options], list[Cell]]
    trends: Callable[[Sequence[Row]], Trends] = no_trends
    columns: int = 2
    shared: float = 0.0

    def outcome(self, options: Options, tables: Tables) -> Outcome:
        """Return the result: the means over runs, the best curves, the verdicts, and the picture.

        tables: the rows of all cells; those of the table RUNS count.
        """
        runs = tables[RUNS]
        competing_runs, other_runs = [], []  # those without privacy do not compete
        for run in runs:
            if run["curve"] in _APART:
                other_runs.append(run)
            else:
                competing_runs.append(run)

        rows = self._summaries(competing_runs)
        best = self._best(rows)
        rows += self._summaries(other_runs)
        if max(row["runs"] for row in rows) == 1:
            rows = [_of_one_run(row) for row in rows]
        trends = self.trends(runs)

        lines = [self.title, *self._descriptions(rows, best)]
        trend_rows = []
        for text, holds in trends.items():
            lines.append(f"{_WORDS[holds]}: {text}")
            trend_rows.append({"trend": text, "holds": holds})
        all_tables = {"figure": rows, "best": best, "trends": trend_rows}
        filled_tables = {name: table for name, table in all_tables.items() if table}
        return Outcome(
            settings={"title": self.title},
            tables=filled_tables,
            figures={"figure": self._picture(rows)},
            lines=lines,
        )

    def _best(self, rows: Sequence[Row]) -> list[Row]:
        """Return the best curve at each x of each panel.

        The result is empty if there is only one curve, or one run, which proves nothing. rows: the
        summaries of the curves that compete.
        """
        has_several_runs = rows[0]["runs"] > 1
        has_several_curves = len(values_of(rows, "curve")) > 1
        if not (has_several_runs and has_several_curves):
            return []
        by = ("panel", self.x.column)
        return winners(rows, by, compared="curve", figure=self.y.column)

    def _descriptions(self, rows: Sequence[Row], best: Sequence[Row]) -> list[str]:
        """Return a line on each best curve, or else on each value; none if there are too many."""
        if best:
            lines = [self._describe_best(row) for row in best]
        else:
            lines = [self._describe_value(row) for row in rows]
        if len(lines) > _FEW:
            return []
        return lines

    def _summaries(self, runs: Sequence[Row]) -> list[Row]:
        """Return the mean over runs of each curve at each x, with its error."""
        return summaries(
            runs,
            by=("panel", self.x.column),
            compared="curve",
            figure=self.y.column,
            larger=lambda row: self.y.larger,  # the same for all rows
            shared=self.shared,
        )

    def _picture(self, rows: Sequence[Row]) -> "MatplotlibFigure":
        """Draw the panels. Four of them make a square."""
        panels = [self._panel(panel, rows) for panel in values_of(rows, "panel")]
        columns = self.columns
        if len(panels) == _SQUARE**2:
            columns = _SQUARE
        return draw(panels, columns)

    def _panel(self, panel: str, rows: Sequence[Row]) -> Panel:
        """Return a panel with all of its curves."""
        curves = Curve.each(pick(rows, panel=panel), "curve", self.x.column, self.y.column)
        x, y = self.x, self.y
        return Panel(panel, x.label, y.label, curves, log_x=x.log, log_y=y.log)

    def _describe_best(self, row: Row) -> str:
        """Return a line on the best curve at one x."""
        where = f"{row['panel']}, {self.x.column} {row[self.x.column]:g}"
        others = ""
        if not row["wins"]:
            others = f", tied with {row['tied'] or 'the others'}"
        return f"{where}: best is {row['best']}{others}"

    def _describe_value(self, row: Row) -> str:
        """Return a line on the value of a curve at one x."""
        x, y = self.x.column, self.y.column
        return f"{row['panel']}, {row['curve']}, {x} {row[x]:g}: {y} {row[y]:.6g}"


def _of_one_run(row: Row) -> Row:
    """Return a row without the columns that mean something for several runs only."""
    return {name: value for name, value in row.items() if name not in _OF_RUNS}
