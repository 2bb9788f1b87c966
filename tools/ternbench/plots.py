"""The page of pictures of `tern bench`: where the time, the energy and the bytes of a report go."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ternhost.plots.canvas import blank, dress, legend_above

# Colour and hatch of each part of a bar: grey levels and hatches that stay apart in print.
STYLES = (
    ("#14406b", ""),
    ("#4f83b5", "//"),
    ("#a9bfd3", "||"),
    ("#c46a1b", ".."),
    ("#dfa36b", ""),
    ("#f2d9bf", "\\\\"),
    ("#777777", ""),
    ("#bbbbbb", "xx"),
    ("#e4e4e4", ""),
    ("#333333", "++"),
    ("#ffffff", "//"),
)
_TWO_STYLES = (STYLES[0], STYLES[7])
_WIDTH = 8.0  # inches
_HEIGHT_OF_PANEL = 1.3  # inches, without its bars
_HEIGHT_OF_BAR = 0.36
_LEGEND_COLUMNS = 4
_ROOM_FOR_TOTALS = 1.12  # width of the axes over that of the longest bar

Bars = Mapping[str, Mapping[str, float]]  # the name of a bar -> part -> value


@dataclass(frozen=True)
class Panel:
    """Stacked bars. A value times `scale` is in `unit`; the total of a bar is shown with `digits`."""

    title: str
    unit: str
    bars: Bars
    scale: float = 1.0
    digits: int = 0


def energy_panel(bars: Bars, source: str) -> Panel:
    """The energy of reports, in microjoules."""
    return Panel(f"Energy of a report ({source})", "microjoules", bars)


def page(panels: Sequence[Panel]) -> Figure:
    """Draw the panels below each other, each as high as its bars need."""
    heights = [_HEIGHT_OF_PANEL + _HEIGHT_OF_BAR * len(panel.bars) for panel in panels]
    figure = blank(_WIDTH, sum(heights))
    rows = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
    for axes, panel in zip(rows[:, 0], panels, strict=True):
        _draw(axes, panel)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    """Draw the stacked bars of a panel, with the total beside each, into its axes."""
    dress(axes)
    parts = _parts_of(panel.bars)
    styles = _TWO_STYLES if len(parts) <= len(_TWO_STYLES) else STYLES
    names = list(panel.bars)
    bar_ends = [0.0] * len(names)  # where the next part of each bar begins
    for part, (colour, hatch) in zip(parts, styles, strict=False):
        values = [panel.scale * bar.get(part, 0.0) for bar in panel.bars.values()]
        axes.barh(
            names,
            values,
            left=bar_ends,
            color=colour,
            hatch=hatch,
            edgecolor="#222222",
            linewidth=0.6,
            label=part,
        )
        bar_ends = [end + value for end, value in zip(bar_ends, values, strict=True)]

    for name, total in zip(names, bar_ends, strict=True):
        axes.annotate(f" {total:,.{panel.digits}f}", (total, name), va="center", fontsize="small")
    axes.set_xlim(0, _ROOM_FOR_TOTALS * max(bar_ends))
    axes.invert_yaxis()  # the first bar on top
    axes.set_xlabel(panel.unit)
    legend_rows = math.ceil(len(parts) / _LEGEND_COLUMNS)
    title_pad = 10 + 15 * legend_rows  # points: the legend is between title and bars
    axes.set_title(panel.title, pad=title_pad, loc="left", fontsize="medium", fontweight="bold")
    legend_above(axes, _LEGEND_COLUMNS)


def _parts_of(bars: Bars) -> list[str]:
    """Return the parts of all bars, each once, in the order of their first appearance."""
    parts: dict[str, None] = {}
    for bar in bars.values():
        parts.update(dict.fromkeys(bar))
    return list(parts)
