"""The picture of `tern hil --history`: figures of boards across commits."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ternhost.plots import canvas
from ternhost.plots.canvas import blank, dress, legend_above

_WIDTH = 8.0  # inches
_HEIGHT = 2.4  # inches, of a panel
_MARGIN = 0.5  # inches
_LEGEND_COLUMNS = 4
_MEASURED, _MISSED, _LIMIT = "#14406b", "#c46a1b", "#333333"

Record = Mapping[str, Any]


def save(series: Mapping[str, Sequence[Record]], path: Path) -> None:
    """Draw into a file. Raises StorageError."""
    canvas.save(draw(series), path)


def draw(series: Mapping[str, Sequence[Record]]) -> Figure:
    """Draw a panel for each entry of `expectations.read`: the measured values, and their limits."""
    figure = blank(_WIDTH, _MARGIN + _HEIGHT * len(series))
    panels = figure.subplots(len(series), 1, squeeze=False)[:, 0]
    for axes, (title, records) in zip(panels, series.items(), strict=True):
        dress(axes)
        _draw_values(axes, records)
        _draw_limits(axes, records)

        commits = [record["commit"][:12] for record in records]
        axes.set_xticks(range(len(commits)), commits, rotation=30, ha="right", fontsize="small")
        axes.set_title(title, pad=20, loc="left", fontsize="medium", fontweight="bold")
        legend_above(axes, _LEGEND_COLUMNS)
    return figure


def _draw_values(axes: Axes, records: Sequence[Record]) -> None:
    values = [record["value"] for record in records]
    axes.plot(values, marker="o", color=_MEASURED, label="measured")

    missed = [position for position, record in enumerate(records) if not record["passed"]]
    missed_values = [values[position] for position in missed]
    axes.plot(missed, missed_values, "X", markersize=11, color=_MISSED, label="missed")


def _draw_limits(axes: Axes, records: Sequence[Record]) -> None:
    """A dashed line for each limit of the last record, with gaps where a record had none."""
    for limit in records[-1]["bounds"]:
        values = [record["bounds"].get(limit, math.nan) for record in records]
        axes.plot(values, linestyle="--", marker="_", color=_LIMIT, label=limit)
