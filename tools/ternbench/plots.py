"""The page of pictures of `tern bench`: where the time of a report goes, its energy by link, and
its bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ternhost.run.report.plots import blank, dress, legend_above

# Grey levels and hatches that stay apart in print.
_STYLES = (
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
_WIDTH = 8.0  # inches
_ROW = 0.36
_COLUMNS = 4  # of a legend

Rows = Mapping[str, Mapping[str, float]]  # a bar's name -> part -> value


@dataclass(frozen=True)
class Panel:
    """Stacked bars: the parts of each, in other units, and their `scale` to `unit`; digits: of a
    bar's total.
    """

    title: str
    unit: str
    rows: Rows
    scale: float = 1.0
    digits: int = 0


def energy(rows: Rows, source: str) -> Panel:
    return Panel(f"Energy of a report ({source})", "microjoules", rows)


def page(panels: Sequence[Panel]) -> Figure:
    heights = [1.3 + _ROW * len(panel.rows) for panel in panels]
    figure = blank(_WIDTH, sum(heights))
    places = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, panel in zip(places, panels, strict=True):
        _draw(axes, panel)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    dress(axes)
    names = list(panel.rows)
    parts = list(dict.fromkeys(part for row in panel.rows.values() for part in row))
    styles = (_STYLES[0], _STYLES[7]) if len(parts) <= 2 else _STYLES
    left = [0.0] * len(names)
    for part, (colour, hatch) in zip(parts, styles, strict=False):
        values = [panel.scale * panel.rows[name].get(part, 0.0) for name in names]
        axes.barh(
            names,
            values,
            left=left,
            color=colour,
            hatch=hatch,
            edgecolor="#222222",
            linewidth=0.6,
            label=part,
        )
        left = [a + b for a, b in zip(left, values, strict=True)]
    for name, total in zip(names, left, strict=True):
        axes.annotate(f" {total:,.{panel.digits}f}", (total, name), va="center", fontsize="small")
    axes.set_xlim(0, 1.12 * max(left))
    axes.invert_yaxis()
    axes.set_xlabel(panel.unit)
    _set_title(axes, panel.title, 10 + 15 * -(-len(parts) // _COLUMNS))
    legend_above(axes, _COLUMNS)


def _set_title(axes: Axes, text: str, above: float) -> None:
    axes.set_title(text, pad=above, loc="left", fontsize="medium", fontweight="bold")
