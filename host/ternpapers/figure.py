"""A figure or table of a paper, as tern computes it: rows of runs, summarised, drawn on the paper's
axes, and compared with what the paper's text says.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

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

_FEW = 20  # lines of text, for the best of each set of curves or for all values
# the table of all cells: rows with the columns panel, curve, run, and those of the two axes
RUNS = "runs"
_APART = NON_PRIVATE, NO_NOISE = "without privacy", "without noise"  # curves that do not compete
_WORDS = {True: "so here", False: "NOT SO here", None: "noise hides here whether"}
# Columns without meaning for one run.
_OF_RUNS = ("standard_error", "low", "high", "behind_best", "verdict", "runs")

Holds = bool | None  # None: noise hides it
Trends = Mapping[str, Holds]  # a sentence of the paper -> whether it holds here


def no_trends(rows: Sequence[Row]) -> Trends:
    """For a figure about whose curves the paper's text says nothing that a comparison could show."""
    return {}


def by_curve(rows: Sequence[Row], column: str) -> dict[str, Floats]:
    """The column of each curve, in the order of its rows."""
    columns = {}
    for (name,), of_curve in grouped(rows, "curve").items():
        columns[name] = np.array([row[column] for row in of_curve])
    return columns


def verdict(gains: npt.ArrayLike, shared: float = 0.0) -> Holds:
    """Whether the mean of the gains of paired runs is above 0. shared: see `mean_and_error`."""
    differences = np.asarray(gains, np.float64)
    if beyond_noise(differences, shared):
        return True
    if beyond_noise(-differences, shared):
        return False
    return None


def every(verdicts: Iterable[Holds]) -> Holds:
    """Whether all hold."""
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
    """Whether each of these curves is better than each of the others, in every panel.

    Two curves of a run differ by (one - two) / (one + two), on average over x.
    """
    panels = values_of(rows, "panel")
    sign = 1 if larger else -1

    def gains(panel: str, name: str, other: str) -> list[float]:
        runs = []
        for of_run in grouped(pick(rows, panel=panel), "run").values():
            curves = by_curve(of_run, column)
            one, two = curves[name], curves[other]
            runs.append(sign * float(np.mean((one - two) / np.maximum(one + two, 1e-300))))
        return runs

    trends = {}
    for name, other in product(names, others):
        if name != other:
            verdicts = [verdict(gains(panel, name, other), shared) for panel in panels]
            trends[f"{name} is better than {other}"] = every(verdicts)
    return trends


@dataclass(frozen=True)
class Axis:
    """A column of the rows, and how it is drawn. larger: whether a larger value is better."""

    column: str
    label: str
    log: bool = False
    larger: bool = False


@dataclass(frozen=True)
class Figure:
    """What a figure of a paper shows, and the cells, axes and sentences with which tern draws it.

    cells: the units of work, for table RUNS. trends: of the rows of RUNS. columns: panels beside
    each other. shared: of folds, see `mean_and_error`.
    """

    title: str
    x: Axis
    y: Axis
    cells: Callable[[Options], list[Cell]]
    trends: Callable[[Sequence[Row]], Trends] = no_trends
    columns: int = 2
    shared: float = 0.0

    def outcome(self, options: Options, tables: Tables) -> Outcome:
        """The summaries of the runs, the best curves, the verdicts, and the picture."""
        runs = tables[RUNS]
        rows = self._summaries([row for row in runs if row["curve"] not in _APART])
        are_compared = rows[0]["runs"] > 1 and len(values_of(rows, "curve")) > 1
        best: list[Row] = []
        if are_compared:
            best = winners(rows, ("panel", self.x.column), "curve", self.y.column)
        rows += self._summaries([row for row in runs if row["curve"] in _APART])
        if max(row["runs"] for row in rows) == 1:
            rows = [_of_one_run(row) for row in rows]

        trends = self.trends(runs)
        lines = [self.title]
        if are_compared:
            lines += _few([self._of_best(row) for row in best])
        else:
            lines += _few([self._of_value(row) for row in rows])
        lines += [f"{_WORDS[holds]}: {text}" for text, holds in trends.items()]
        kept = {"figure": rows}
        if best:
            kept["best"] = best
        if trends:
            kept["trends"] = [{"trend": text, "holds": holds} for text, holds in trends.items()]

        panels = [self._panel(panel, rows) for panel in values_of(rows, "panel")]
        columns = 2 if len(panels) == 4 else self.columns
        return Outcome({"title": self.title}, kept, {"figure": draw(panels, columns)}, lines)

    def _summaries(self, runs: Sequence[Row]) -> list[Row]:
        by = ("panel", self.x.column)
        larger = self.y.larger
        return summaries(
            runs, by, "curve", self.y.column, larger=lambda row: larger, shared=self.shared
        )

    def _panel(self, panel: str, rows: Sequence[Row]) -> Panel:
        curves = Curve.each(pick(rows, panel=panel), "curve", self.x.column, self.y.column)
        x, y = self.x, self.y
        return Panel(panel, x.label, y.label, curves, log_x=x.log, log_y=y.log)

    def _of_best(self, row: Row) -> str:
        where = f"{row['panel']}, {self.x.column} {row[self.x.column]:g}"
        others = ""
        if not row["wins"]:
            others = f", tied with {row['tied'] or 'the others'}"
        return f"{where}: best is {row['best']}{others}"

    def _of_value(self, row: Row) -> str:
        x, y = self.x.column, self.y.column
        return f"{row['panel']}, {row['curve']}, {x} {row[x]:g}: {y} {row[y]:.6g}"


def _of_one_run(row: Row) -> Row:
    """A row without the columns that mean something for several runs only."""
    return {name: value for name, value in row.items() if name not in _OF_RUNS}


def _few(lines: list[str]) -> list[str]:
    """These lines, unless they are too many to be read."""
    return lines if len(lines) <= _FEW else []
