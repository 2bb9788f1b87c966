"""Pictures of the page, as options of ECharts.

The palette is that of Okabe and Ito, which is safe for colour blindness.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tern.fixed import ONE
from ternhost.privacy import cards, certify
from ternhost.store.snapshot import VALUE
from ternhost.text import brief
from ternhost.watch import curves
from ternhost.watch.curves import Curve, Point

Options = dict[str, Any]

_INK, _SOFT, _GRID, _SURFACE = "var(--ink)", "var(--soft)", "var(--line)", "var(--surface)"
COLOURS = [f"var(--c{i})" for i in range(1, 8)]
_DASHES: tuple[Any, ...] = ("solid", [8, 4], [2, 2], [8, 3, 2, 3], [2, 6], [12, 4])  # pixels
_WIDE = 28  # pixels of a line in the legend
_SYMBOLS = ("circle", "rect", "triangle", "diamond", "emptyCircle", "emptyRect")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_SIZE = 14  # of the font in pixels, as in page.css
_FEW_POINTS = 30  # have symbols
MOST_BARS = 256
_FEW_OUTPUTS = 16  # are drawn as bars
_LONGEST = 60  # characters of a name in a tooltip and on an axis
_LONG = 18  # characters of a name in a legend; two of them fit side by side on a phone
_CUT = {"width": 120, "overflow": "truncate"}
_INPUTS = (-1.0, -0.5, 0.0, 0.5, 1.0)

AXES = {
    curves.REPORTS: "reports so far",
    curves.ROUNDS: "rounds so far",
    curves.EPSILON: "mean epsilon spent per device so far",
}


def _axis(kind: str, name: str, below: bool = False, **more: Any) -> Options:
    """An axis; below: the x axis. more: further options of ECharts."""
    lines = {"lineStyle": {"color": _GRID}}
    labels = {"color": _SOFT, "fontSize": _SIZE, "hideOverlap": True}
    axis: Options = {
        "type": kind,
        "name": brief(name, _LONGEST),
        "nameTextStyle": {"color": _SOFT, "align": "center" if below else "left"},
        "nameGap": 32 if below else 12,
        "axisLine": lines,
        "axisTick": lines,
        "splitLine": lines,
        "axisLabel": labels,
    }
    if below:
        axis["nameLocation"] = "middle"
        labels["alignMaxLabel"] = "right"
    return axis | more


def _so_far(by: str) -> Options:
    return _axis("value", AXES[by], below=True, max="dataMax", splitLine={"show": False})


def _frame(x: Options, y: Options, series: list[Options]) -> Options:
    """A picture of these series, with a legend if there are several."""
    legend = [_legend_entry(line) for line in series if not line["name"].startswith("_")]
    # The legend has two lines on a phone.
    top = 36 if len(legend) < 2 else 60
    narrow_top = top if len(legend) < 3 else 88
    narrow = {"query": {"maxWidth": 480}, "option": {"grid": {"top": narrow_top}}}
    ink = {"color": _INK}
    return {
        "animation": False,
        "textStyle": {"fontFamily": FONT, "fontSize": _SIZE, "color": _INK},
        "grid": {"left": 8, "right": 20, "top": top, "bottom": 36, "containLabel": True},
        "media": [narrow, {"option": {"grid": {"top": top}}}],
        "legend": {
            "data": legend,
            "show": len(legend) > 1,
            "itemWidth": _WIDE,
            "itemGap": 12,
            "top": 0,
            "textStyle": ink,
        },
        "tooltip": {
            "trigger": "axis",
            "confine": True,
            "backgroundColor": _SURFACE,
            "borderColor": _GRID,
            "extraCssText": "max-width: 90%; overflow-wrap: anywhere; white-space: normal",
            "textStyle": ink,
        },
        "xAxis": x,
        "yAxis": y,
        "series": series,
    }


def _legend_entry(line: Options) -> Options:
    entry: Options = {"name": line["name"]}
    if "areaStyle" in line:
        entry["icon"] = "rect"
    elif line.get("symbol") == "none":
        entry["icon"] = _line_icon(line["lineStyle"]["type"])
    if line["type"] == "bar":
        entry["itemStyle"] = {"borderWidth": 0.5}
    if len(line["name"]) > _LONG:
        entry["textStyle"] = _CUT
    return entry


def _line_icon(kind: Any) -> str:
    """The icon of a line without symbols, for which ECharts would draw a circle.

    kind: "solid", or the lengths of dashes and gaps.
    """
    lengths = [_WIDE] if kind == "solid" else kind
    path = ""
    for x in range(0, _WIDE, sum(lengths)):
        path += f"M{x} 0h{lengths[0]}v2h-{lengths[0]}z"
    return f"path://{path}"


def _line(name: str, points: Sequence[Point], i: int, **more: Any) -> Options:
    """The line number `i` of a picture, with a colour, dashes and symbols of its own."""
    colour = COLOURS[i % len(COLOURS)]
    symbol = "none"  # in the legend as on the line
    if len(points) < _FEW_POINTS:
        symbol = _SYMBOLS[i % len(_SYMBOLS)]
    line: Options = {
        "type": "line",
        "name": brief(name, _LONGEST),
        "data": [[_short(x), _short(y)] for x, y in points],
        "symbol": symbol,
        "symbolSize": 7,
        "color": colour,
        "lineStyle": {"width": 2, "type": _DASHES[i % len(_DASHES)], "color": colour},
    }
    return line | more


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def learning(curve: Curve, floor: str | None) -> Options:
    """The learning curve with its interval, the optimum and the baseline.

    floor: the baseline in words, None to omit it.
    """
    name = curves.word(curve.measure)
    series = [_line(name, curve.points, 0, z=5)]
    if len(curve.low) > 1:
        series += _band(curve.low, curve.high)
    if curve.points:
        end = curve.points[-1][0]
        if curve.optimum is not None:
            series.append(_level("without privacy", curve.optimum, end, 1))
        if curve.baseline is not None and floor is not None:
            series.append(_level(floor, curve.baseline, end, 2))
    y = _axis("value", f"{name}, held-out records", scale=True)
    return _frame(_so_far(curve.by), y, series)


def _level(name: str, value: float, end: float, i: int) -> Options:
    """A horizontal line, from 0 to `end`."""
    return _line(name, [(0.0, value), (end, value)], i, symbol="none")


def _band(low: Sequence[Point], high: Sequence[Point]) -> list[Options]:
    """Two stacked lines: the lower end, and the filled area up to the upper end."""
    height = [(x, top - bottom) for (x, top), (_, bottom) in zip(high, low, strict=True)]
    common: Options = {
        "stack": "interval",
        "symbol": "none",
        "silent": True,
        "lineStyle": {"opacity": 0},
        "tooltip": {"show": False},
    }
    area = common | {
        "areaStyle": {"opacity": 0.25, "color": COLOURS[0]},
        "itemStyle": {"opacity": 0.4},
    }
    return [_line("_low", low, 0, **common), _line("95 % interval", height, 0, **area)]


def compared(named: Mapping[str, Curve], measure: str, by: str) -> Options:
    """The learning curves of several runs."""
    series = [_line(name, curve.points, i) for i, (name, curve) in enumerate(named.items())]
    y = _axis("value", f"{curves.word(measure)}, held-out records", scale=True)
    return _frame(_so_far(by), y, series)


def stepped(name: str, points: Sequence[Point], by: str) -> Options:
    """A parameter chosen for each round, as a step from the start of the round to its end."""
    y = _axis("value", name, scale=True)
    points = [(0.0, points[0][1]), *points]
    return _frame(_so_far(by), y, [_line(name, points, 0, step="start", symbol="none")])


def arriving(points: Sequence[Point], wanted: int) -> Options:
    """Reports of the open round, by the seconds since this page saw the first."""
    most = wanted
    end = 1
    if points:
        most = max(wanted, *(int(reports) for _, reports in points))
        end = max(1, math.ceil(points[-1][0]))  # the last tick is a round number
    name = "seconds since its first report was seen here"
    x = _axis("value", name, below=True, max=end, splitLine={"show": False})
    y = _axis("value", "reports", min=0, max=most)
    series = [_line("reports", points, 0, step="end", symbol="none", areaStyle={"opacity": 0.15})]
    if points:
        ends = [(points[0][0], wanted), (points[-1][0], wanted)]
        series.append(_line("wanted", ends, 1, symbol="none"))
    return _frame(x, y, series)


def bars(names: Sequence[str], values: Sequence[float], x: str, y: str, colour: int = 0) -> Options:
    """A bar for each name, as high as its count. x, y: the names of the axes."""
    bar: Options = {
        "type": "bar",
        "name": y,
        "barMaxWidth": 48,
        "itemStyle": {"color": COLOURS[colour], "borderColor": _INK, "borderWidth": 0.5},
        "data": [_short(value) for value in values],
    }
    names_below = _axis("category", x, below=True, data=[brief(name, _LONGEST) for name in names])
    names_below["axisLabel"] |= _CUT
    return _frame(names_below, _axis("value", y, min=0, minInterval=1), [bar])


@lru_cache(maxsize=64)
def outputs(data: bytes, what: str = VALUE) -> tuple[list[int], list[str]]:
    """The symbols of a card, in the order of their values, and those values in words.

    Raises UsageError.
    """
    if what != VALUE:
        symbols = list(range(cards.decode(data).symbols))
        return symbols, [f"{what} {i}" for i in symbols]
    values = cards.output_values(cards.decode(data))
    order = sorted(range(len(values)), key=values.__getitem__)
    return order, [f"{values[i]:.4g}" for i in order]


def _distributions(data: bytes, what: str) -> dict[str, list[float]]:
    """By input, the probability of each symbol.

    Labels and categories are the windows of randomised response.
    """
    decoded = cards.decode(data)
    if what == VALUE:
        return {f"x = {x:g}": cards.distribution(decoded, round(x * ONE)) for x in _INPUTS}
    distributions = {}
    for i in range(min(decoded.symbols, len(_INPUTS))):
        distributions[f"{what} {i}"] = [float(p) for p in certify.at_knot(decoded, i)]
    return distributions


def card(data: bytes, what: str = VALUE) -> Options:
    """The exact distribution of a card's outputs for five inputs. what: as in TallyView.

    Raises UsageError.
    """
    order, names = outputs(data, what)
    every = max(1, math.ceil(len(names) / MOST_BARS))
    starts = np.arange(0, len(order), every)
    series = []
    for i, (name, probabilities) in enumerate(_distributions(data, what).items()):
        summed = np.add.reduceat(np.array(probabilities)[order], starts)
        points = [_short(float(p)) for p in summed]
        shape = _bar_shape() if len(names) <= _FEW_OUTPUTS else _step_shape(i)
        series.append({"name": name, "data": points, "color": COLOURS[i], **shape})
    unit = f"reported {what}"
    if every > 1:
        unit += f", {every} outputs together"
    hidden = {"show": False}
    x = _axis("category", unit, below=True, splitLine=hidden, data=names[::every])
    return _frame(x, _axis("value", "probability", min=0), series)


def _bar_shape() -> Options:
    return {"type": "bar", "itemStyle": {"borderColor": _INK, "borderWidth": 0.5}}


def _step_shape(i: int) -> Options:
    style = {"width": 1.5, "type": _DASHES[i], "color": COLOURS[i]}
    return {"type": "line", "step": "middle", "symbol": "none", "lineStyle": style}
