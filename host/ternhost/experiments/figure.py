"""A figure or table of a paper, as tern computes it: rows of runs, summarised, drawn on the paper's axes, and compared
with what the paper's text says."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ternhost.datasets import Floats
from ternhost.experiments.base import Options, Outcome
from ternhost.experiments.cells import Cell, Row, Tables
from ternhost.experiments.pictures import Curve, Panel, draw
from ternhost.experiments.statistics import pick, summaries, values_of, winners

_FEW = 20  # sets of curves to name the best of each
RUNS = "runs"  # the table of all cells: rows with the columns panel, curve, run, and those of the two axes
Trends = Mapping[str, bool]  # a sentence of the paper -> whether it holds here


def no_trends(rows: Sequence[Row]) -> Trends:
    """For a figure about which the text states nothing that can be checked."""
    return {}


def by_curve(rows: Sequence[Row], column: str, panel: str | None = None) -> dict[str, Floats]:
    """The column of each curve, in the order of x, of one panel or of the only one."""
    chosen = rows if panel is None else pick(rows, panel=panel)
    names = values_of(chosen, "curve")
    return {name: np.array([row[column] for row in pick(chosen, curve=name)]) for name in names}


def below(rows: Sequence[Row], column: str, lower: str, higher: str) -> bool:
    """Whether one curve is below another in every panel: in the mean of their logarithms' difference over x."""
    panels = (by_curve(rows, column, panel) for panel in values_of(rows, "panel"))
    return all(np.mean(np.log(curves[lower] / curves[higher])) < 0 for curves in panels)


@dataclass(frozen=True)
class Axis:
    """A column of the rows, and how it is drawn."""

    column: str
    label: str
    log: bool = False


@dataclass(frozen=True)
class Figure:
    """title: what the paper's figure shows. cells: the units of work, for table RUNS. larger: whether a larger y is
    better. trends: of the summarised rows. columns: panels beside each other."""

    title: str
    x: Axis
    y: Axis
    cells: Callable[[Options], list[Cell]]
    larger: bool = False
    trends: Callable[[Sequence[Row]], Trends] = no_trends
    columns: int = 2

    def outcome(self, options: Options, tables: Tables) -> Outcome:
        rows = summaries(
            tables[RUNS], ("panel", self.x.column), "curve", self.y.column, larger=lambda row: self.larger
        )
        panels = [
            Panel(
                panel, self.x.label, self.y.label,
                Curve.each(pick(rows, panel=panel), "curve", self.x.column, self.y.column),
                log_x=self.x.log, log_y=self.y.log,
            )
            for panel in values_of(rows, "panel")
        ]  # fmt: skip
        trends = self.trends(rows)
        compared = rows[0]["runs"] > 1 and len(values_of(rows, "curve")) > 1
        best = winners(rows, ("panel", self.x.column), "curve", self.y.column) if compared else []
        lines = [
            self.title,
            *(self._of_best(row) for row in best if len(best) <= _FEW),
            *(f"{'so' if holds else 'NOT SO'} here: {text}" for text, holds in trends.items()),
        ]
        told = [{"trend": text, "holds": holds} for text, holds in trends.items()]
        kept = {"figure": rows, **{name: each for name, each in (("best", best), ("trends", told)) if each}}
        return Outcome({"title": self.title}, kept, {"figure": draw(panels, self.columns)}, lines)

    def _of_best(self, row: Row) -> str:
        others = "" if row["wins"] else f", tied with {row['tied'] or 'the others'}"
        return f"{row['panel']}, {self.x.column} {row[self.x.column]:g}: best is {row['best']}{others}"
