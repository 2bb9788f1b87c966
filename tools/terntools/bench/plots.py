"""The page of pictures of `tern bench`: where the time of a report goes, its energy by link, and its bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ternhost.run.report.plots import blank, dress, legend_above

# Grey levels and hatches that stay apart in print.
_STYLES = (
    ("#14406b", ""), ("#4f83b5", "//"), ("#a9bfd3", "||"), ("#c46a1b", ".."), ("#dfa36b", ""), ("#f2d9bf", "\\\\"),
    ("#777777", ""), ("#bbbbbb", "xx"), ("#e4e4e4", ""), ("#333333", "++"), ("#ffffff", "//"),
)  # fmt: skip
_WIDTH = 8.0  # inches
_ROW = 0.36
_COLUMNS = 4  # of a legend

Rows = Mapping[str, Mapping[str, float]]  # a bar's name -> part -> value
Panel = tuple[str, str, Rows, Callable[[float], str]]  # title, unit, rows, how a total is written


def latency(reports: Sequence[tuple[str, Mapping[str, float]]]) -> Panel:
    """Milliseconds of each part of reports: (name, part -> microseconds)."""
    rows = {name: {part: us / 1000 for part, us in parts.items()} for name, parts in reports}
    return (
        "Latency of a report",
        "milliseconds from the round's first byte to the report's last",
        rows,
        lambda total: f"{total:.1f}",
    )


def instructions(reports: Sequence[tuple[str, Mapping[str, float]]]) -> Panel:
    """Thousands of instructions of each part of reports: (name, part -> instructions)."""
    rows = {name: {part: value / 1000 for part, value in parts.items()} for name, parts in reports}
    return "Instructions of a report", "thousands, without the link", rows, lambda total: f"{total:,.0f}"


def energy(rows: Rows, source: str) -> Panel:
    """Microjoules of each part of reports."""
    return f"Energy of a report ({source})", "microjoules", rows, lambda total: f"{total:,.0f}"


def battery(lives: Sequence[tuple[str, Mapping[str, float]]]) -> Panel:
    """Microampere of each part of a life on a battery: (name, part -> milliampere)."""
    rows = {name: {part: 1000 * ma for part, ma in parts.items()} for name, parts in lives}
    return (
        "Where a battery's charge goes (modelled)",
        "microampere on average",
        rows,
        lambda total: f"{total:,.0f}",
    )


def sizes(reports: Sequence[tuple[str, int, int]]) -> Panel:
    """Bytes of reports: (name, header and tag, content)."""
    rows = {name: {"header and tag": overhead, "content": content} for name, overhead, content in reports}
    return "Bytes of a report", "bytes, before COBS or MQTT", rows, lambda total: f"{total:.0f}"


def page(panels: Sequence[Panel]) -> Figure:
    """The panels, one below the other: stacked bars, a bar a row."""
    heights = [1.3 + _ROW * len(rows) for _, _, rows, _ in panels]
    figure = blank(_WIDTH, sum(heights))
    for axes, panel in zip(
        figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0], panels, strict=True
    ):
        _draw(axes, *panel)
    return figure


def _draw(axes: Axes, title: str, unit: str, rows: Rows, write: Callable[[float], str]) -> None:
    dress(axes)
    names = list(rows)
    parts = list(dict.fromkeys(part for row in rows.values() for part in row))
    few = len(parts) <= 2
    styles = (_STYLES[0], _STYLES[7]) if few else _STYLES
    left = [0.0] * len(names)
    for part, (colour, hatch) in zip(parts, styles, strict=False):
        values = [rows[name].get(part, 0.0) for name in names]
        axes.barh(
            names, values, left=left, color=colour, hatch=hatch, edgecolor="#222222", linewidth=0.6, label=part
        )  # fmt: skip
        left = [a + b for a, b in zip(left, values, strict=True)]
    for name, total in zip(names, left, strict=True):
        axes.annotate(f" {write(total)}", (total, name), va="center", fontsize="small")
    axes.set_xlim(0, 1.12 * max(left))
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_title(
        title, pad=10 + 15 * -(-len(parts) // _COLUMNS), loc="left", fontsize="medium", fontweight="bold"
    )
    legend_above(axes, _COLUMNS)
