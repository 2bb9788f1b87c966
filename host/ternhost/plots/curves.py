"""Pictures of experiments: panels of curves, which differ in grey, too, with one legend."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]

_LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)))
_MARKERS = "osD^vPX*<>hdp8"
_SIZES: dict[str, Any] = {
    "markersize": 5,
    "linewidth": 1.4,
    "capsize": 2,
    "elinewidth": 0.8,
}  # points
_SHIFT = 0.006  # of the width, between neighbouring curves with error bars
_COLOURS = ("#14406b", "#c46a1b", "#222222", "#4f83b5", "#8a4a10", "#7a7a7a")
_MOST = 9  # curves in one panel that a reader can tell apart
_ENOUGH = 3  # points for a line
_TICKS = 8  # with labels, on a logarithmic axis of x
_MARKED = 45  # points of a curve at most that have markers
_DASHES = ((0, (4, 4)), (0, (1, 1)))  # of horizontal lines
# Inches.
_WIDTH_OF_ONE = 6.2  # column
_WIDTH_OF_SEVERAL = 4.8  # columns, each
_HEIGHT = 3.5  # of a row


@dataclass(frozen=True)
class Curve:
    """A curve of points, which a line joins.

    A point of nan breaks the line, where y is not continuous in x. error: one standard error of
    each y, drawn as a bar; or the bars' lengths below and above it. everywhere: if a panel with too
    many curves is divided, show this one in every part.
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
        """Return a curve through the rows of a table.

        x, y, error: the names of its columns; without a column of errors they are 0.
        """
        return cls(
            label=label,
            x=[row[x] for row in rows],
            y=[row[y] for row in rows],
            error=[row.get(error, 0.0) for row in rows],
        )

    @classmethod
    def each(
        cls, rows: Sequence[Row], label: str, x: str, y: str, error: str = "standard_error"
    ) -> list["Curve"]:
        """Return a curve for each value of the column `label`; the other columns as in `of`."""
        rows_by_label: dict[str, list[Row]] = {}
        for row in rows:
            rows_by_label.setdefault(row[label], []).append(row)
        curves = []
        for name, rows_of_label in rows_by_label.items():
            curves.append(cls.of(name, rows_of_label, x, y, error))
        return curves

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
    """Divide a panel into several of at most _MOST curves each, if it has more.

    Curves that are to be everywhere are in each of them; the others are divided evenly.
    """
    if len(panel.curves) <= _MOST:
        return [panel]
    everywhere = [curve for curve in panel.curves if curve.everywhere]
    others = [curve for curve in panel.curves if not curve.everywhere]
    number_of_parts = math.ceil(len(others) / (_MOST - len(everywhere)))
    curves_in_part = math.ceil(len(others) / number_of_parts)
    panels = []
    for part in range(number_of_parts):
        title = f"{panel.title} ({part + 1} of {number_of_parts})"
        first = part * curves_in_part
        curves = others[first : first + curves_in_part] + everywhere
        panels.append(replace(panel, title=title, curves=curves))
    return panels


def draw(panels: Sequence[Panel], columns: int = 1) -> "Figure":
    """Draw panels of curves in rows of `columns`, with one legend above all of them.

    Curves differ in line style, marker and shade. Those with error bars are shifted a little, so
    that no bar hides another. A panel with too many curves is divided into several with the same
    axes, side by side.
    """
    from ternhost.plots import canvas  # takes long to import

    divided = [_divided(panel) for panel in panels]
    parts = list(itertools.chain(*divided))
    most_parts = max(len(parts_of_panel) for parts_of_panel in divided)
    columns = max(min(columns, len(parts)), most_parts)  # a divided panel fits in a row
    rows = math.ceil(len(parts) / columns)
    width = _WIDTH_OF_SEVERAL * columns
    if columns == 1:
        width = _WIDTH_OF_ONE
    legend = _Legend.of(parts, width)
    height = _HEIGHT * rows + 0.3 + 0.22 * legend.rows  # inches

    figure = canvas.blank(width, height)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(parts) :]:
        axes.set_axis_off()

    entries: dict[str, Any] = {}  # of the legend, by name
    for axes, panel in zip(grid, parts, strict=False):
        canvas.dress(axes)
        entries |= _draw_curves(axes, panel, legend.curves)
        entries |= _draw_heights(axes, panel, legend.heights)
        _set_axes(axes, panel)
    _share_axes(divided, grid)
    names = [*legend.curves, *legend.heights]
    figure.legend(
        [entries[name] for name in names],
        names,
        loc="outside upper center",
        ncols=legend.columns,
        frameon=False,
        fontsize="small",
        handlelength=3.2,
    )
    return figure


@dataclass(frozen=True)
class _Legend:
    """The names in the legend of all panels, and the places that they take."""

    curves: list[str]
    heights: list[str]  # of horizontal lines
    columns: int
    rows: int

    @classmethod
    def of(cls, panels: Sequence[Panel], width: float) -> "_Legend":
        """Return the legend of these panels, each name once, in a figure of `width` inches."""
        all_curves = [curve for panel in panels for curve in panel.curves]
        all_curves.sort(key=lambda curve: curve.everywhere)  # those of all panels come last
        curves = list(dict.fromkeys(curve.label for curve in all_curves))
        names_of_lines = [name for panel in panels for name in panel.lines]
        heights = list(dict.fromkeys(names_of_lines))

        longest = max(len(name) for name in (*curves, *heights))
        inches_of_entry = 0.7 + 0.075 * longest
        columns = max(1, int(width / inches_of_entry))
        rows = math.ceil((len(curves) + len(heights)) / columns)
        return cls(curves, heights, columns, rows)


def _draw_curves(axes: "Axes", panel: Panel, labels: Sequence[str]) -> dict[str, Any]:
    """Draw the curves of a panel, and return the legend's entry of each by its label.

    labels: of the curves of all panels. A label's place among them decides line, marker and colour,
    so that a curve looks the same in each panel.
    """
    curves_with_bars = [curve for curve in panel.curves if curve.error and any(curve.error)]
    entries = {}
    for curve in panel.curves:
        i = labels.index(curve.label)
        line: Any = "none"
        if curve.has_line:
            # Curves of the same colour have different lines.
            line = _LINES[(i + i // len(_COLOURS)) % len(_LINES)]
        marker = None
        if len(curve.x) <= _MARKED:
            marker = _MARKERS[i % len(_MARKERS)]
        error = None
        steps = 0.0
        if curve in curves_with_bars:
            error = curve.error
            steps = curves_with_bars.index(curve) - (len(curves_with_bars) - 1) / 2
        entries[curve.label] = axes.errorbar(
            _shifted(curve.x, steps, panel.log_x),
            curve.y,
            error,
            linestyle=line,
            color=_COLOURS[i % len(_COLOURS)],
            marker=marker,
            markerfacecolor="white" if i % 2 else None,
            **_SIZES,
        )
    return entries


def _draw_heights(axes: "Axes", panel: Panel, names: Sequence[str]) -> dict[str, Any]:
    """Draw the horizontal lines of a panel, and return the legend's entry of each by its name.

    names: of the lines of all panels.
    """
    entries = {}
    for name, height in panel.lines.items():
        dashes = _DASHES[names.index(name) % len(_DASHES)]
        entries[name] = axes.axhline(height, color=_COLOURS[2], linewidth=1, linestyle=dashes)
    return entries


def _set_axes(axes: "Axes", panel: Panel) -> None:
    """Set the title, labels, scales and ticks of a panel's axes."""
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    if panel.limits:
        axes.set_ylim(panel.limits)
    axes.set_title(panel.title, fontsize="medium")
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)

    points = sorted({x for curve in panel.curves for x in curve.x})
    if panel.log_x:
        # Ticks are at points of the curves: at every few of them, the largest included.
        axes.set_xscale("log")
        every = math.ceil(len(points) / _TICKS)
        descending = points[::-1][::every]
        ticks = descending[::-1]
        axes.set_xticks(ticks, [_tick(x) for x in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
    elif len(points) <= _TICKS and all(x == int(x) for x in points):
        axes.set_xticks(points)

    if panel.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())


def _share_axes(divided: Sequence[Sequence[Panel]], grid: Iterable["Axes"]) -> None:
    """Give the parts of a divided panel the same scales.

    divided: the parts of each panel. grid: the axes of all parts, in order.
    """
    remaining = iter(grid)
    for parts in divided:
        first, *others = (next(remaining) for _ in parts)
        for axes in others:
            axes.sharex(first)
            axes.sharey(first)
        first.autoscale_view()


def _tick(x: float) -> str:
    """Return a number as a tick shows it, such as 2k, 3M, 1,234 or 0.5."""
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if x >= unit and x % unit == 0:
            return f"{x / unit:,g}{name}"
    if x >= 1000:
        return f"{x:,g}"
    return f"{x:.3g}"


def _shifted(x: Sequence[float], steps: float, log: bool) -> Sequence[float]:
    """Return ascending points, each shifted by `steps` times _SHIFT of the width of the axis.

    log: whether the axis is logarithmic, where a shift is a factor.
    """
    if not steps or len(x) < 2:
        return x
    if log:
        factor = (x[-1] / x[0]) ** (steps * _SHIFT)
        return [value * factor for value in x]
    shift = steps * _SHIFT * (x[-1] - x[0])
    return [value + shift for value in x]
