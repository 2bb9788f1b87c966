"""Pictures of experiments: panels of curves with one legend, which can be told apart in grey."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ternhost.experiments.cells import Row
from ternhost.experiments.statistics import pick, values_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)))
_MARKERS = "osD^vPX*<>hdp8"
_ASIDE = 0.006  # of the width, between neighbouring curves with error bars
_COLOURS = ("#14406b", "#c46a1b", "#222222", "#4f83b5", "#8a4a10", "#7a7a7a")
_MOST = 9  # curves that can be told apart in one pair of axes
_ENOUGH = 3  # points of a line that says how y depends on x


@dataclass(frozen=True)
class Curve:
    """Points of a picture; `error` is one standard error of each y, drawn as a bar.

    A line joins them where the measured value is continuous in x: break it with a point of nan, or use joined=False.
    everywhere: show it in each part of a panel that is divided because it has too many curves.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] | None = None
    joined: bool = True
    everywhere: bool = False

    @classmethod
    def of(cls, label: str, rows: Sequence[Row], x: str, y: str, error: str = "standard_error") -> Curve:
        """A curve of these columns of rows."""
        across, up, bars = ([row.get(name, 0.0) for row in rows] for name in (x, y, error))
        return cls(label, across, up, bars)

    @classmethod
    def each(
        cls, rows: Sequence[Row], who: str, x: str, y: str, error: str = "standard_error"
    ) -> list[Curve]:
        """The curve of each different value of the column `who`."""
        return [cls.of(name, pick(rows, **{who: name}), x, y, error) for name in values_of(rows, who)]

    @property
    def has_line(self) -> bool:
        """Whether it is drawn with a line: two points say nothing about the values between, except for a height."""
        points = sum(map(math.isfinite, self.y))
        return self.joined and (points >= _ENOUGH or len(set(self.y)) == 1)


@dataclass(frozen=True)
class Panel:
    """One pair of axes: `across` and `up` name what they measure, with the unit."""

    title: str
    across: str
    up: str
    curves: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False
    lines: Mapping[str, float] = field(default_factory=dict)  # named heights
    limits: tuple[float, float] | None = None  # of what is shown upwards


def _divided(panel: Panel) -> list[Panel]:
    """The panel, or several of at most _MOST curves."""
    if len(panel.curves) <= _MOST:
        return [panel]
    shared = [curve for curve in panel.curves if curve.everywhere]
    own = [curve for curve in panel.curves if not curve.everywhere]
    parts = -(-len(own) // (_MOST - len(shared)))
    size = -(-len(own) // parts)
    return [
        replace(
            panel, title=f"{panel.title} ({i + 1} of {parts})", curves=own[i * size : (i + 1) * size] + shared
        )
        for i in range(parts)
    ]


def draw(panels: Sequence[Panel], columns: int = 1) -> Figure:
    """Panels with one legend for all. Curves differ by line style, marker and shade, so that grey is enough.

    Curves with error bars are moved apart a little, or the bars would hide each other. A panel with too many curves is
    divided into several with the same axes, side by side.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    from ternhost.run.report import plots  # takes long to import

    whole = [_divided(panel) for panel in panels]
    panels = [part for parts in whole for part in parts]
    columns = max(columns, *map(len, whole))
    rows = -(-len(panels) // columns)
    curves = sorted((curve for panel in panels for curve in panel.curves), key=lambda curve: curve.everywhere)
    labels = list(dict.fromkeys(curve.label for curve in curves))
    heights = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    width = 6.2 if columns == 1 else 4.8 * columns
    entry = 0.7 + 0.075 * max(len(name) for name in (*labels, *heights))  # inches of the legend
    legend_columns = max(1, int(width / entry))
    legend_rows = -(-(len(labels) + len(heights)) // legend_columns)
    figure = plots.blank(width, 3.5 * rows + 0.3 + 0.22 * legend_rows)
    grid = np.atleast_1d(figure.subplots(rows, columns)).reshape(-1)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    entries: dict[str, Any] = {}
    for axes, panel in zip(grid, panels, strict=False):
        plots.dress(axes)
        barred = [curve for curve in panel.curves if curve.error and any(curve.error)]
        for curve in panel.curves:
            i = labels.index(curve.label)
            aside = barred.index(curve) - (len(barred) - 1) / 2 if curve in barred else 0.0
            entries[curve.label] = axes.errorbar(
                _aside(curve.x, aside, panel.log_x),
                curve.y,
                curve.error,
                linestyle=_LINES[(i + i // len(_COLOURS)) % len(_LINES)] if curve.has_line else "none",
                marker=_MARKERS[i % len(_MARKERS)],
                color=_COLOURS[i % len(_COLOURS)],
                markerfacecolor="white" if i % 2 else None,
                markersize=5,
                linewidth=1.4,
                capsize=2,
                elinewidth=0.8,
            )
        for name, height in panel.lines.items():
            style = ((0, (4, 4)), (0, (1, 1)))[heights.index(name) % 2]
            entries[name] = axes.axhline(height, color="#222222", linewidth=1, linestyle=style)
        if panel.limits:
            axes.set_ylim(panel.limits)
        axes.set_title(panel.title, fontsize="medium")
        axes.set_xlabel(panel.across)
        axes.set_ylabel(panel.up)
        if panel.log_x:
            axes.set_xscale("log")
            axes.set_xticks(
                xs := sorted({x for curve in panel.curves for x in curve.x}),
                [f"{x:.3g}" if x < 100 else f"{x:g}" for x in xs],
            )
            axes.xaxis.set_minor_formatter(NullFormatter())
        if panel.log_y:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter(NullFormatter())
    drawn = iter(grid)
    for parts in whole:
        beside = [next(drawn) for _ in parts]
        for axes in beside[1:]:
            axes.sharex(beside[0])
            axes.sharey(beside[0])
        beside[0].autoscale_view()
    names = [*labels, *heights]
    figure.legend(
        [entries[name] for name in names], names, loc="outside upper center", ncols=legend_columns,
        frameon=False, fontsize="small", handlelength=3.2,
    )  # fmt: skip
    return figure


def _aside(x: Sequence[float], by: float, log: bool) -> Sequence[float]:
    if not by or len(x) < 2:
        return x
    at = np.asarray(x, np.float64)
    step = np.exp(by * _ASIDE * np.log(at[-1] / at[0])) if log else by * _ASIDE * (at[-1] - at[0])
    moved: list[float] = (at * step if log else at + step).tolist()
    return moved
