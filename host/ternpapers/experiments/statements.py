"""Computes all figures of the papers, and checks each statement of the papers about them."""

from collections.abc import Iterator
from dataclasses import replace

from ternhost.errors import UsageError
from ternhost.planning.cells import Cell, Row, Tables
from ternhost.planning.statistics import grouped
from ternpapers import experiments
from ternpapers.base import Options, Outcome
from ternpapers.figure import Figure, line_of_statement


def _figures() -> Iterator[tuple[str, Figure]]:
    """Yield each figure about which its paper says something, with its name: "zhao 6"."""
    for paper in experiments.PAPERS:
        for number, figure in experiments.figures(paper).items():
            if figure.statements or figure.untold:
                yield f"{paper} {number}", figure


def cells(options: Options) -> list[Cell]:
    """Return the cells of all figures, each with the name of its figure as its table.

    Raises UsageError for options that choose the data, the mechanisms or the runs of one figure.
    """
    for option in options.chosen:
        text = f"one --{option} does not suit the figures of all papers"
        raise UsageError(text, hint=f"leave --{option} out")
    cells_of_all = []
    for name, figure in _figures():
        cells_of_all += [replace(cell, table=name) for cell in figure.cells(options)]
    return cells_of_all


def outcome(options: Options, tables: Tables) -> Outcome:
    """Return the verdict on each statement, as one table of all figures."""
    rows: list[Row] = []
    for name, figure in _figures():
        for row in figure.statement_rows(tables[name]):
            rows.append({"figure": name, **row})
    lines = []
    for (name,), rows_of_figure in grouped(rows, "figure").items():
        lines.append(f"{name}:")
        lines += [f"  {line_of_statement(row)}" for row in rows_of_figure]
    return Outcome(settings={}, tables={"statements": rows}, figures={}, lines=lines)
