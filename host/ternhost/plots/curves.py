"""Pictures of experiments: panels of curves that differ in grey, too, with one legend."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]

_LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)))
_MARKERS = "osD^vPX*<>hdp8"
_SIZES = {"markersize": 5, "linewidth": 1.4, "capsize": 2, "elinewidth": 0.8}  # points
_SHIFT = 0.006  # of the width, between neighbouring curves with error bars
_COLOURS = ("#14406b", "#c46a1b", "#222222", "#4f83b5", "#8a4a10", "#7a7a7a")
_MOST = 9  # curves in one panel that a reader can tell apart
_ENOUGH = 3  # points for a line
_TICKS = 8  # with labels, on a logarithmic axis of x
_MARKED = 45  # points of a curve at most that have markers


@dataclass(frozen=True)
class Curve:
    """A curve of points. error: one standard error of each y, drawn as a bar; or the bars' lengths
    below and above it.

    A line joins the points. A point of nan breaks it, where y is not continuous in x.
    everywhere: if a panel with too many curves is divided, show this one in every part.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] | tuple[Sequence[float], Sequence[float]] | None = None
    everywhere: bool = False

    @classmethod
    def of(
        cls, label: str, rows: Sequence[Row], x: str, y: str, error: str = "standard_error"
    ) -> "Curve":
        """A curve of these columns of the rows."""
        xs, ys, errors = ([row.get(name, 0.0) for row in rows] for name in (x, y, error))
        return cls(label, xs, ys, errors)

    @classmethod
    def each(
        cls, rows: Sequence[Row], label: str, x: str, y: str, error: str = "standard_error"
    ) -> list["Curve"]:
        """A curve for each value of the column `label`."""
        rows_by_label: dict[str, list[Row]] = {}
        for row in rows:
            rows_by_label.setdefault(row[label], []).append(row)
        return [cls.of(name, part, x, y, error) for name, part in rows_by_label.items()]

    @property
    def has_line(self) -> bool:
        """Whether a line joins the points.

        Two points say nothing about values between them, unless they are equal.
        """
        points = sum(map(math.isfinite, self.y))
        return points >= _ENOUGH or len(set(self.y)) == 1


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Labels name quantity and unit. lines: heights of horizontal lines, by name. limits: of y.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False
    lines: Mapping[str, float] = field(default_factory=dict)
    limits: tuple[float, float] | None = None


def _divided(panel: Panel) -> list[Panel]:
    """The panel, or several panels of at most _MOST curves each."""
    if len(panel.curves) <= _MOST:
        return [panel]
    everywhere = [curve for curve in panel.curves if curve.everywhere]
    others = [curve for curve in panel.curves if not curve.everywhere]
    parts = math.ceil(len(others) / (_MOST - len(everywhere)))
    size = math.ceil(len(others) / parts)
    curves = [others[i * size : (i + 1) * size] + everywhere for i in range(parts)]
    titles = [f"{panel.title} ({i + 1} of {parts})" for i in range(parts)]
    return [
        replace(panel, title=title, curves=part) for title, part in zip(titles, curves, strict=True)
    ]


def draw(panels: Sequence[Panel], columns: int = 1) -> "Figure":
    """Panels in rows of `columns`, with one legend. Curves differ in line style, marker and shade.

    Curves with error bars are shifted a little, so that no bar hides another. A panel with too many
    curves is divided into several with the same axes, side by side.
    """
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    from ternhost.plots import canvas  # takes long to import

    divided = [_divided(panel) for panel in panels]
    panels = [part for parts in divided for part in parts]
    columns = max(min(columns, len(panels)), *map(len, divided))
    rows = math.ceil(len(panels) / columns)
    curves = sorted(
        (curve for panel in panels for curve in panel.curves), key=lambda curve: curve.everywhere
    )
    labels = list(dict.fromkeys(curve.label for curve in curves))
    heights = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    width = 6.2 if columns == 1 else 4.8 * columns
    names = [*labels, *heights]
    entry_width = 0.7 + 0.075 * max(map(len, names))  # inches
    legend_columns = max(1, int(width / entry_width))
    legend_rows = math.ceil(len(names) / legend_columns)
    figure = canvas.blank(width, 3.5 * rows + 0.3 + 0.22 * legend_rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    entries: dict[str, Any] = {}
    for axes, panel in zip(grid, panels, strict=False):
        canvas.dress(axes)
        barred = [curve for curve in panel.curves if curve.error and any(curve.error)]
        for curve in panel.curves:
            i = labels.index(curve.label)
            steps = barred.index(curve) - (len(barred) - 1) / 2 if curve in barred else 0.0
            line = _LINES[(i + i // len(_COLOURS)) % len(_LINES)] if curve.has_line else "none"
            style = {"linestyle": line, "color": _COLOURS[i % len(_COLOURS)]}
            marker = _MARKERS[i % len(_MARKERS)] if len(curve.x) <= _MARKED else None
            points = {"marker": marker, "markerfacecolor": "white" if i % 2 else None}
            x = _shifted(curve.x, steps, panel.log_x)
            entries[curve.label] = axes.errorbar(
                x, curve.y, curve.error if curve in barred else None, **style, **points, **_SIZES
            )
        for name, height in panel.lines.items():
            line = ((0, (4, 4)), (0, (1, 1)))[heights.index(name) % 2]
            entries[name] = axes.axhline(height, color="#222222", linewidth=1, linestyle=line)
        if panel.limits:
            axes.set_ylim(panel.limits)
        axes.set_title(panel.title, fontsize="medium")
        axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
        if panel.log_x:
            axes.set_xscale("log")
            every = sorted({x for curve in panel.curves for x in curve.x}, reverse=True)
            ticks = every[:: math.ceil(len(every) / _TICKS)][::-1]
            axes.set_xticks(ticks, [_tick(x) for x in ticks])
            axes.xaxis.set_minor_locator(NullLocator())
        elif len(whole := {x for curve in panel.curves for x in curve.x}) <= _TICKS and all(
            x == int(x) for x in whole
        ):
            axes.set_xticks(sorted(whole))
        if panel.log_y:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter(NullFormatter())
    remaining = iter(grid)
    for parts in divided:
        first, *others = (next(remaining) for _ in parts)
        for axes in others:
            axes.sharex(first)
            axes.sharey(first)
        first.autoscale_view()
    figure.legend(
        [entries[name] for name in names],
        names,
        loc="outside upper center",
        ncols=legend_columns,
        frameon=False,
        fontsize="small",
        handlelength=3.2,
    )
    return figure


def _tick(x: float) -> str:
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if x >= unit and x % unit == 0:
            return f"{x / unit:,g}{name}"
    return f"{x:,g}" if x >= 1000 else f"{x:.3g}"


def _shifted(x: Sequence[float], steps: float, log: bool) -> Sequence[float]:
    if not steps or len(x) < 2:
        return x
    if log:
        factor = (x[-1] / x[0]) ** (steps * _SHIFT)
        return [value * factor for value in x]
    shift = steps * _SHIFT * (x[-1] - x[0])
    return [value + shift for value in x]
