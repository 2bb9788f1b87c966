"""A figure or table of a paper, as tern computes it.

Its cells make rows, one for each run. These are summarised, drawn on the axes of the paper, and
compared with the *statements*: what the paper's text says about the figure, in other words.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ternhost.planning.cells import Cell, Row, Tables
from ternhost.planning.statistics import pick, summaries, values_of, winners
from ternhost.plots.curves import Curve, Panel, draw
from ternhost.text import counted
from ternpapers.base import Options, Outcome
from ternpapers.verdicts import Check, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

_FEW = 20  # so many descriptions are printed, but not more
_SQUARE = 2  # panels on a side of a square picture
# The table of all cells: rows with the columns panel, curve, run, and those of the two axes.
RUNS = "runs"
# Curves that do not compete: those of two names, and those with this ending.
NON_PRIVATE = "without privacy"
NO_NOISE = "without noise"
UNROUNDED = ", before rounding"
NOT_COMPUTED = "not"  # how the verdict was computed on what nothing here can tell
# Columns without meaning for one run.
_OF_RUNS = ("standard_error", "low", "high", "behind_best", "verdict", "runs")


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

        The columns are statement, verdict (in words), detail, and computed: "exactly", the number of
        runs, or NOT_COMPUTED. runs: the rows of all runs.
        """
        computed = "exactly"
        if not self.exact:
            computed = counted(len(values_of(runs, "run")), "run")
        rows: list[Row] = []
        for text, verdict in self.verdicts(runs).items():
            row = {"statement": text, "verdict": verdict.words, "detail": verdict.detail}
            row["computed"] = computed
            if text in self.untold:
                row["computed"] = NOT_COMPUTED
            rows.append(row)
        return rows

    def outcome(self, options: Options, tables: Tables) -> Outcome:
        """Return the result: the means over runs, the best curves, the verdicts, and the picture.

        tables: the rows of all cells; those of the table RUNS count.
        """
        runs = tables[RUNS]
        competing_runs, other_runs = [], []
        for run in runs:
            if _competes(run["curve"]):
                competing_runs.append(run)
            else:
                other_runs.append(run)

        rows = self._summaries(competing_runs)
        best = self._best(rows)
        rows += self._summaries(other_runs)
        if max(row["runs"] for row in rows) == 1:
            rows = [_of_one_run(row) for row in rows]

        statements = self.statement_rows(runs)
        lines = [self.title, *self._descriptions(rows, best)]
        lines += [line_of_statement(row) for row in statements]
        all_tables = {"figure": rows, "best": best, "statements": statements}
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


def line_of_statement(row: Row) -> str:
    """Return a line with a verdict, the statement and the detail. row: of `statement_rows`."""
    line = f"{row['verdict']}: {row['statement']}"
    if row["detail"]:
        line += f" ({row['detail']})"
    return line


def _competes(curve: str) -> bool:
    """Return whether a curve is compared with others when the best one is named."""
    return curve not in (NON_PRIVATE, NO_NOISE) and not curve.endswith(UNROUNDED)


def _of_one_run(row: Row) -> Row:
    """Return a row without the columns that mean something for several runs only."""
    return {name: value for name, value in row.items() if name not in _OF_RUNS}
