"""A figure or table of a paper, as tern computes it.

Its cells make rows, one for each run. These are summarised, drawn on the axes of the paper, and
compared with the *statements*: what the paper's text says about the figure, in other words.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
from ternhost.text import counted
from ternpapers.base import Options, Outcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

_FEW = 20  # so many descriptions are printed, but not more
_SQUARE = 2  # panels on a side of a square picture
_SMALLEST = 1e-300  # takes the place of a divisor of 0
# The table of all cells: rows with the columns panel, curve, run, and those of the two axes.
RUNS = "runs"
# Curves that do not compete: those of these names, and those with this ending.
_APART = NON_PRIVATE, NO_NOISE = "without privacy", "without noise"
UNROUNDED = ", before rounding"
# Columns without meaning for one run.
_OF_RUNS = ("standard_error", "low", "high", "behind_best", "verdict", "runs")

Holds = bool | None  # None: it cannot be told here
_WORDS = {True: "so here", False: "not so here", None: "cannot be told here"}
_LEVEL = 0.05  # of significance, of all cases of a statement together
_ROUNDING = 1e-9  # relative: exact values that differ by less are equal


@dataclass(frozen=True)
class Verdict:
    """Whether a statement of a paper holds for the computed rows.

    holds: None if it cannot be told, because noise hides it, or because it needs what tern does not
    have. detail: in how many cases it holds, or why it cannot be told; empty if there is nothing to
    add.
    """

    holds: Holds
    detail: str = ""

    @property
    def words(self) -> str:
        """The verdict in words: "so here", "not so here" or "cannot be told here"."""
        return _WORDS[self.holds]

    def about(self, statement: str) -> str:
        """Return a line with the statement and the verdict on it."""
        line = f"{self.words}: {statement}"
        if self.detail:
            line += f" ({self.detail})"
        return line


Check = Callable[[Sequence[Row]], Verdict]
"""Says of the rows of all runs whether a statement holds."""


def by_curve(rows: Sequence[Row], column: str) -> dict[str, Floats]:
    """Return the values of a column by curve, in the order of the rows."""
    columns = {}
    for (name,), curve_rows in grouped(rows, "curve").items():
        columns[name] = np.array([row[column] for row in curve_rows])
    return columns


def gained(gains: npt.ArrayLike, shared: float = 0.0, cases: int = 1) -> Holds:
    """Return whether the mean of the gains of paired runs is above 0; None if noise hides it.

    gains: the gain of each run. shared: see `mean_and_error`. cases: how many cases the statement
    has. It fails with one of them, so that the level of 5 % for a failure by chance is divided
    among all (Bonferroni). It holds only if it does in every case, which needs no such division.
    """
    differences = np.asarray(gains, np.float64)
    if beyond_noise(differences, shared):
        return True
    if beyond_noise(-differences, shared, level=_LEVEL / cases):
        return False
    return None


def every(cases: Iterable[Holds]) -> Verdict:
    """Return the verdict on a statement that holds if it holds in every case.

    It cannot be told if noise hides some cases, and none fails, or if there is no case.
    """
    counts = Counter(cases)
    number = counts.total()
    if number == 0:
        return Verdict(None, "there is no case")
    if counts[False]:
        return Verdict(False, f"in {counts[True]} of {number} cases")
    if counts[None]:
        return Verdict(None, f"noise hides {counts[None]} of {number} cases")
    return Verdict(True)


def relative_gains(
    column: str, name: str, other: str, rows: Sequence[Row], larger: bool = False
) -> list[float]:
    """Return, for each run, by how much a curve is better than another one.

    The gain of a curve y over another z in a run is the mean of (y - z) / (y + z) over x. column:
    that of the compared values. rows: those of a panel. larger: whether larger values are better;
    if not, gains change their sign.
    """
    sign = -1
    if larger:
        sign = 1
    gains = []
    for run_rows in grouped(rows, "run").values():
        curves = by_curve(run_rows, column)
        y, z = curves[name], curves[other]
        relative_differences = (y - z) / np.maximum(y + z, _SMALLEST)
        gains.append(sign * float(np.mean(relative_differences)))
    return gains


def better(
    column: str,
    names: Sequence[str],
    others: Sequence[str],
    rows: Sequence[Row],
    larger: bool = False,
    shared: float = 0.0,
) -> Verdict:
    """Test whether each of the curves `names` is better than each of the others, in every panel.

    Runs are paired, and a case is a panel with two curves: there the mean of the `relative_gains`
    of all runs must be above 0, beyond noise. column, larger: as of `relative_gains`. shared: see
    `mean_and_error`.
    """
    gains_of_cases = []
    for panel, name, other in product(values_of(rows, "panel"), names, others):
        if name != other:
            of_panel = pick(rows, panel=panel)
            gains_of_cases.append(relative_gains(column, name, other, of_panel, larger))
    cases = len(gains_of_cases)
    return every(gained(gains, shared, cases) for gains in gains_of_cases)


def better_everywhere(
    column: str,
    names: Sequence[str],
    others: Sequence[str],
    rows: Sequence[Row],
    larger: bool = False,
) -> Verdict:
    """Test whether curves without noise are better than each of the others, at every x.

    A case is an x of a panel: there each of the curves `names` must be better than all others.
    column: that of the compared values. larger: whether larger values are better. The curves of a
    panel have the same xs.
    """
    cases: list[Holds] = []
    for panel in values_of(rows, "panel"):
        curves = by_curve(pick(rows, panel=panel), column)
        if larger:
            curves = {name: -values for name, values in curves.items()}
        worst_of_named = np.maximum.reduce([curves[name] for name in names])
        best_of_others = np.minimum.reduce([curves[name] for name in others])
        margin = _ROUNDING * np.abs(best_of_others)
        cases += (worst_of_named < best_of_others - margin).tolist()
    return every(cases)


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

    x, y: the axes. cells: returns the cells whose rows, in the table RUNS, are drawn. statements:
    what the paper says about the figure, with the check of each. untold: further statements, which
    nothing here can tell, and why. columns: how many panels are beside each other. shared: of the
    folds of a cross-validation, see `mean_and_error`. exact: whether the rows are computed, without
    random draws of noise, so that there is one run. x_labels, y_labels: of panels whose x or y is
    not that of the axis.
    """

    title: str
    x: Axis
    y: Axis
    cells: Callable[[Options], list[Cell]]
    statements: Mapping[str, Check] = field(default_factory=dict)
    untold: Mapping[str, str] = field(default_factory=dict)
    columns: int = 2
    shared: float = 0.0
    exact: bool = False
    x_labels: Mapping[str, str] = field(default_factory=dict)
    y_labels: Mapping[str, str] = field(default_factory=dict)

    def verdicts(self, runs: Sequence[Row]) -> dict[str, Verdict]:
        """Return the verdict on each statement about the figure. runs: the rows of all runs."""
        verdicts = {text: check(runs) for text, check in self.statements.items()}
        for text, reason in self.untold.items():
            verdicts[text] = Verdict(None, reason)
        return verdicts

    def statement_rows(self, runs: Sequence[Row]) -> list[Row]:
        """Return a row for each statement, with its verdict and how it was computed.

        runs: the rows of all runs.
        """
        computed = "exactly"
        if not self.exact:
            number_of_runs = max(row["runs"] for row in self._summaries(runs))
            computed = counted(number_of_runs, "run")
        rows: list[Row] = []
        for text, verdict in self.verdicts(runs).items():
            row = {"statement": text, "verdict": verdict.words, "detail": verdict.detail}
            if text in self.untold:
                rows.append({**row, "computed": "not"})
            else:
                rows.append({**row, "computed": computed})
        return rows

    def outcome(self, options: Options, tables: Tables) -> Outcome:
        """Return the result: the means over runs, the best curves, the verdicts, and the picture.

        tables: the rows of all cells; those of the table RUNS count.
        """
        runs = tables[RUNS]
        competing_runs, other_runs = [], []
        for run in runs:
            if run["curve"] in _APART or run["curve"].endswith(UNROUNDED):
                other_runs.append(run)
            else:
                competing_runs.append(run)

        rows = self._summaries(competing_runs)
        best = self._best(rows)
        rows += self._summaries(other_runs)
        if max(row["runs"] for row in rows) == 1:
            rows = [_of_one_run(row) for row in rows]

        lines = [self.title, *self._descriptions(rows, best)]
        for text, verdict in self.verdicts(runs).items():
            lines.append(verdict.about(text))
        all_tables = {"figure": rows, "best": best, "statements": self.statement_rows(runs)}
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
        x_label = self.x_labels.get(panel, x.label)
        y_label = self.y_labels.get(panel, y.label)
        return Panel(panel, x_label, y_label, curves, log_x=x.log, log_y=y.log)

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
