"""Draws the picture of `tern hil --history`: measured figures of boards across commits."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ternhost.plots import canvas
from ternhost.plots.canvas import blank, dress, legend_above
from terntools.testing import expectations

_WIDTH = 8.0  # inches
_HEIGHT = 2.4  # inches, of a panel
_MARGIN = 0.5  # inches
_LEGEND_COLUMNS = 4
_VERSION_LENGTH = 16  # of a commit, or of a date and the time
_MEASURED, _MISSED, _LIMIT = "#14406b", "#c46a1b", "#333333"

Record = Mapping[str, Any]
"""A measured value of the history, as `expectations.read` returns it."""


def save(series: Mapping[str, Sequence[Record]], path: Path) -> None:
    """Draw the history into a file. Raises StorageError.

    series: records by a title, from `expectations.read`.
    """
    canvas.save(draw(series), path)


def draw(series: Mapping[str, Sequence[Record]]) -> Figure:
    """Draw a panel for each figure of a board, with its measured values and their limits.

    series: records by a title, from `expectations.read`.
    """
    figure = blank(_WIDTH, _MARGIN + _HEIGHT * len(series))
    panels = figure.subplots(len(series), 1, squeeze=False)[:, 0]
    for axes, (title, records) in zip(panels, series.items(), strict=True):
        dress(axes)
        _draw_values(axes, records)
        _draw_limits(axes, records)

        versions = [expectations.version_of(record)[:_VERSION_LENGTH] for record in records]
        axes.set_xticks(range(len(versions)), versions, rotation=30, ha="right", fontsize="small")
        axes.set_title(title, pad=20, loc="left", fontsize="medium", fontweight="bold")
        legend_above(axes, _LEGEND_COLUMNS)
    return figure


def _draw_values(axes: Axes, records: Sequence[Record]) -> None:
    """Draw the measured values as a line, and a cross at each that missed its expectation."""
    values = [record["value"] for record in records]
    axes.plot(values, marker="o", color=_MEASURED, label="measured")

    missed_positions = []
    missed_values = []
    for position, record in enumerate(records):
        if not record["passed"]:
            missed_positions.append(position)
            missed_values.append(record["value"])
    axes.plot(missed_positions, missed_values, "X", markersize=11, color=_MISSED, label="missed")


def _draw_limits(axes: Axes, records: Sequence[Record]) -> None:
    """Draw a dashed line for each limit that the last record has, with gaps where an earlier had none."""
    for limit in records[-1]["bounds"]:
        values = [record["bounds"].get(limit, math.nan) for record in records]
        axes.plot(values, linestyle="--", marker="_", color=_LIMIT, label=limit)
