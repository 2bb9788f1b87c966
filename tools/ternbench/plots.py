"""Draws the pictures of `tern bench`: where the time, the energy and the bytes of a report go.

A page has panels below each other. A panel has a horizontal bar for each report, which is stacked
from the report's parts.
"""

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
    ("#8c5a2b", "xx"),
)
_TWO_STYLES = (STYLES[0], STYLES[7])  # for bars of two parts: dark and light
_WIDTH = 8.0  # inches
_HEIGHT_OF_PANEL = 1.3  # inches, without its bars
_HEIGHT_OF_BAR = 0.36
_LEGEND_COLUMNS = 4
_ROOM_FOR_TOTALS = 1.12  # width of the axes over that of the longest bar

Bars = Mapping[str, Mapping[str, float]]
"""The value of each part of each bar: bars by name, and in them values by the part's name."""


@dataclass(frozen=True)
class Panel:
    """A picture of stacked bars.

    unit: what the axis shows. bars: values, which are multiplied by `scale` to be in that unit. digits:
    of the total beside a bar, after the decimal point.
    """

    title: str
    unit: str
    bars: Bars
    scale: float = 1.0
    digits: int = 0


def energy_panel(bars: Bars, source: str) -> Panel:
    """Return the panel of the energy of reports.

    bars: energies in microjoules. source: how they were found, for the title.
    """
    return Panel(f"Energy of a report ({source})", "microjoules", bars)


def page(panels: Sequence[Panel]) -> Figure:
    """Draw panels below each other, each as high as its bars need."""
    heights = [_HEIGHT_OF_PANEL + _HEIGHT_OF_BAR * len(panel.bars) for panel in panels]
    figure = blank(_WIDTH, sum(heights))
    rows = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
    for axes, panel in zip(rows[:, 0], panels, strict=True):
        _draw(axes, panel)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    """Draw the bars of a panel into its axes, with title, legend, and the total beside each bar."""
    dress(axes)
    parts = _parts_of(panel.bars)
    totals = _draw_bars(axes, panel, parts)
    for name, total in totals.items():
        axes.annotate(f" {total:,.{panel.digits}f}", (total, name), va="center", fontsize="small")
    longest_bar = max(totals.values())
    axes.set_xlim(0, _ROOM_FOR_TOTALS * longest_bar)
    axes.invert_yaxis()  # the first bar on top
    axes.set_xlabel(panel.unit)

    legend_rows = math.ceil(len(parts) / _LEGEND_COLUMNS)
    title_pad = 10 + 15 * legend_rows  # points: the legend is between title and bars
    axes.set_title(panel.title, pad=title_pad, loc="left", fontsize="medium", fontweight="bold")
    legend_above(axes, _LEGEND_COLUMNS)


def _draw_bars(axes: Axes, panel: Panel, parts: Sequence[str]) -> dict[str, float]:
    """Draw the bars of a panel part by part, and return the length of each bar by its name.

    parts: of all bars, in the order from left to right.
    """
    styles: Sequence[tuple[str, str]] = STYLES
    if len(parts) <= len(_TWO_STYLES):
        styles = _TWO_STYLES
    lengths = dict.fromkeys(panel.bars, 0.0)
    for part, (colour, hatch) in zip(parts, styles, strict=False):
        values = {name: panel.scale * bar.get(part, 0.0) for name, bar in panel.bars.items()}
        axes.barh(
            list(values),
            list(values.values()),
            left=list(lengths.values()),  # a part begins where the one before it ended
            color=colour,
            hatch=hatch,
            edgecolor="#222222",
            linewidth=0.6,
            label=part,
        )
        for name, value in values.items():
            lengths[name] += value
    return lengths


def _parts_of(bars: Bars) -> list[str]:
    """Return the names of the parts of all bars, each once, in the order of their first appearance."""
    parts: dict[str, None] = {}
    for bar in bars.values():
        parts.update(dict.fromkeys(bar))
    return list(parts)
