"""Pictures of experiments: panels of curves, which differ in grey, too, with one legend."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]

# How curves look, by their index in the legend; the lists begin again after their ends.
_LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)))
_MARKERS = "osD^vPX*<>hdp8"
_BLACK = "#222222"
_COLOURS = ("#14406b", "#c46a1b", _BLACK, "#4f83b5", "#8a4a10", "#7a7a7a")
_DASHES = ((0, (4, 4)), (0, (1, 1)))  # of horizontal lines
_SIZES: dict[str, Any] = {  # in points
    "markersize": 5,
    "linewidth": 1.4,
    "capsize": 2,
    "elinewidth": 0.8,
}

_MOST = 9  # curves in one panel: a reader cannot tell more apart
_ENOUGH = 3  # so many points are joined by a line
_TICKS = 8  # at most, on the x axis
_MARKED = 45  # a curve of more points has no markers: they would hide the line
_SHIFT = 0.006  # between neighbouring curves with error bars, as a share of the width

# In inches.
_WIDTH_OF_ONE = 6.2  # of a figure with one column of panels
_WIDTH_OF_SEVERAL = 4.8  # of each column, if there are several
_HEIGHT = 3.5  # of a row of panels
_HEIGHT_AROUND_LEGEND = 0.3
_HEIGHT_OF_LEGEND_ROW = 0.22


@dataclass(frozen=True)
class Curve:
    """Points of a panel, joined by a line.

    label: its name in the legend. x, y: of the points. A nan in y breaks the line, where y is not
    continuous. error: one standard error of each y, which is drawn as a bar below and above it; or
    a pair of the lengths of the bars below and of those above. everywhere: show this curve in every
    part, if its panel has too many curves and is divided.
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
        """Return a curve whose points are the rows of a table.

        x, y, error: the names of the columns. If a row has no error, it is taken to be 0.
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
        """Return a curve for each value in a column of a table.

        label: the name of this column; its values become the labels. x, y, error: the names of the
        columns with the points and their errors; if a row has no error, it is taken to be 0.
        """
        rows_by_label: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            rows_by_label[row[label]].append(row)
        curves = []
        for name, rows_of_label in rows_by_label.items():
            curves.append(cls.of(name, rows_of_label, x, y, error))
        return curves

    @property
    def has_line(self) -> bool:
        """Whether a line joins the points.

        Two points say nothing about what is between them, unless they are equally high.
        """
        number_of_points = sum(map(math.isfinite, self.y))
        all_are_equal = len(set(self.y)) == 1
        return number_of_points >= _ENOUGH or all_are_equal


@dataclass(frozen=True)
class Panel:
    """One pair of axes with curves.

    x_label, y_label: what the axes show, and in which unit. log_x, log_y: whether an axis is
    logarithmic. lines: the heights of horizontal lines, by their names in the legend. limits: the
    ends of the y axis; None: they follow from the curves.
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
    """Divide a panel with more than _MOST curves into several, with at most _MOST curves each.

    Curves that are marked as `everywhere` are in each of them; the others are divided evenly.
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

    Curves differ in line style, marker and shade, so that they can be told apart without colours.
    Those with error bars are shifted a little, so that no bar hides another. A panel with too many
    curves is divided into several with the same axes, side by side in one row.
    """
    from ternhost.plots import canvas  # here, since it takes a second to import

    divided = [_divided(panel) for panel in panels]
    parts = list(itertools.chain(*divided))
    most_parts = max(len(parts_of_panel) for parts_of_panel in divided)
    columns = max(min(columns, len(parts)), most_parts)
    rows = math.ceil(len(parts) / columns)
    width = _WIDTH_OF_SEVERAL * columns
    if columns == 1:
        width = _WIDTH_OF_ONE
    legend = _Legend.of(parts, width)
    height = _HEIGHT * rows + _HEIGHT_AROUND_LEGEND + _HEIGHT_OF_LEGEND_ROW * legend.rows

    figure = canvas.blank(width, height)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(parts) :]:  # places without a panel
        axes.set_axis_off()

    drawn: dict[str, Any] = {}  # an object of matplotlib for each name in the legend
    for axes, panel in zip(grid, parts, strict=False):
        canvas.dress(axes)
        drawn |= _draw_curves(axes, panel, legend.curves)
        drawn |= _draw_heights(axes, panel, legend.heights)
        _set_axes(axes, panel)
    _share_axes(divided, grid)
    legend.draw(figure, drawn)
    return figure


@dataclass(frozen=True)
class _Legend:
    """The legend of all panels: its names, and the columns and rows that they fill."""

    curves: list[str]  # the labels of curves
    heights: list[str]  # the names of horizontal lines
    columns: int
    rows: int

    @classmethod
    def of(cls, panels: Sequence[Panel], width: float) -> "_Legend":
        """Return the legend of these panels, with each name once, for a figure of `width` inches.

        Curves that are in every panel come last.
        """
        all_curves: list[Curve] = []
        for panel in panels:
            all_curves += panel.curves
        all_curves.sort(key=lambda curve: curve.everywhere)  # False sorts before True
        curves = _distinct(curve.label for curve in all_curves)
        heights = _distinct(itertools.chain(*(panel.lines for panel in panels)))

        names = [*curves, *heights]
        longest = max(len(name) for name in names)
        inches_of_entry = 0.7 + 0.075 * longest  # a piece of line, and a character of small text
        columns = max(1, int(width / inches_of_entry))
        rows = math.ceil(len(names) / columns)
        return cls(curves, heights, columns, rows)

    def draw(self, figure: "Figure", drawn: Mapping[str, Any]) -> None:
        """Draw the legend above all panels.

        drawn: by name, the object of matplotlib whose line and marker are shown beside the name.
        """
        names = [*self.curves, *self.heights]
        figure.legend(
            [drawn[name] for name in names],
            names,
            loc="outside upper center",
            ncols=self.columns,
            frameon=False,
            fontsize="small",
            handlelength=3.2,
        )


def _draw_curves(axes: "Axes", panel: Panel, labels: Sequence[str]) -> dict[str, Any]:
    """Draw the curves of a panel; return for each label what the legend shows for it.

    labels: of the curves of all panels. A label's index among them decides line style, marker and
    colour, so that a curve looks the same in each panel.
    """
    curves_with_bars = [curve for curve in panel.curves if curve.error and any(curve.error)]
    drawn = {}
    for curve in panel.curves:
        index = labels.index(curve.label)
        error = None
        steps = 0.0
        if curve in curves_with_bars:
            error = curve.error
            # The middle one of the curves with bars is not shifted.
            steps = curves_with_bars.index(curve) - (len(curves_with_bars) - 1) / 2
        drawn[curve.label] = axes.errorbar(
            _shifted(curve.x, steps, panel.log_x),
            curve.y,
            error,
            **_look(curve, index),
            **_SIZES,
        )
    return drawn


def _look(curve: Curve, index: int) -> dict[str, Any]:
    """Return the line style, marker and colour of a curve, as options of matplotlib.

    index: of the curve's label in the legend.
    """
    colour = _COLOURS[index % len(_COLOURS)]
    line: Any = "none"
    if curve.has_line:
        # When the colours begin again, the line styles go on by one more, so that curves of the
        # same colour have different lines.
        colours_begun_again = index // len(_COLOURS)
        line = _LINES[(index + colours_begun_again) % len(_LINES)]
    marker = None
    if len(curve.x) <= _MARKED:
        marker = _MARKERS[index % len(_MARKERS)]
    inside_of_marker = None  # the colour of the curve
    if index % 2 == 1:
        inside_of_marker = "white"
    return {
        "linestyle": line,
        "color": colour,
        "marker": marker,
        "markerfacecolor": inside_of_marker,
    }


def _draw_heights(axes: "Axes", panel: Panel, names: Sequence[str]) -> dict[str, Any]:
    """Draw the horizontal lines of a panel; return for each name what the legend shows for it.

    names: of the lines of all panels. A name's index among them decides how its line is dashed.
    """
    drawn = {}
    for name, height in panel.lines.items():
        dashes = _DASHES[names.index(name) % len(_DASHES)]
        drawn[name] = axes.axhline(height, color=_BLACK, linewidth=1, linestyle=dashes)
    return drawn


def _set_axes(axes: "Axes", panel: Panel) -> None:
    """Set the title, labels, scales and ticks of a panel's axes."""
    from matplotlib.ticker import LogLocator, NullFormatter

    if panel.limits:
        axes.set_ylim(panel.limits)
    axes.set_title(panel.title, fontsize="medium")
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    _set_ticks_of_x(axes, panel)
    if panel.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
        axes.yaxis.set_major_formatter(lambda value, _position: f"{value:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())


def _set_ticks_of_x(axes: "Axes", panel: Panel) -> None:
    """Set the scale and the ticks of a panel's x axis.

    On a logarithmic axis, ticks are at points of the curves: at every few of them if there are
    many, and always at the largest. On a linear axis they are only set for a few whole numbers.
    """
    from matplotlib.ticker import NullLocator

    points = sorted({x for curve in panel.curves for x in curve.x})
    if panel.log_x:
        axes.set_xscale("log")
        step = math.ceil(len(points) / _TICKS)
        descending = points[::-1][::step]  # from the largest on
        ticks = descending[::-1]
        axes.set_xticks(ticks, [_tick(x) for x in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
        return
    are_whole_numbers = all(x == int(x) for x in points)
    if len(points) <= _TICKS and are_whole_numbers:
        axes.set_xticks(points)


def _share_axes(divided: Sequence[Sequence[Panel]], grid: Iterable["Axes"]) -> None:
    """Give the parts of each divided panel the same scales.

    divided: the parts of each panel. grid: the axes of all parts, in their order.
    """
    remaining = iter(grid)
    for parts in divided:
        first, *others = itertools.islice(remaining, len(parts))
        for axes in others:
            axes.sharex(first)
            axes.sharey(first)
        first.autoscale_view()


def _tick(x: float) -> str:
    """Write a number as a tick shows it, such as 2k, 3M, 1,234 or 0.5."""
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if x >= unit and x % unit == 0:
            return f"{x / unit:,g}{name}"
    if x >= 1000:
        return f"{x:,g}"
    return f"{x:.3g}"


def _shifted(x: Sequence[float], steps: float, log: bool) -> Sequence[float]:
    """Return points with each shifted to the right, by `steps` times _SHIFT of the curve's width.

    x: the points, ascending. steps: negative to shift them to the left. log: whether the axis is
    logarithmic, on which a shift multiplies by a factor.
    """
    if not steps or len(x) < 2:
        return x
    if log:
        factor = (x[-1] / x[0]) ** (steps * _SHIFT)
        return [value * factor for value in x]
    shift = steps * _SHIFT * (x[-1] - x[0])
    return [value + shift for value in x]


def _distinct(names: Iterable[str]) -> list[str]:
    """Return each name once, in the order in which they first appear."""
    return list(dict.fromkeys(names))
