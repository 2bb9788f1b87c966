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


def _axis(kind: str, name: str, is_x_axis: bool = False, **options: Any) -> Options:
    """Describe an axis to ECharts.

    kind: "value" for numbers, "category" for names. options: others of ECharts, which take
    precedence.
    """
    lines = {"lineStyle": {"color": _GRID}}
    labels = {"color": _SOFT, "fontSize": _SIZE, "hideOverlap": True}
    axis: Options = {
        "type": kind,
        "name": brief(name, _LONGEST),
        "nameTextStyle": {"color": _SOFT, "align": "center" if is_x_axis else "left"},
        "nameGap": 32 if is_x_axis else 12,
        "axisLine": lines,
        "axisTick": lines,
        "splitLine": lines,
        "axisLabel": labels,
    }
    if is_x_axis:
        axis["nameLocation"] = "middle"
        labels["alignMaxLabel"] = "right"
    return axis | options


def _so_far(by: str) -> Options:
    return _axis("value", AXES[by], is_x_axis=True, max="dataMax", splitLine={"show": False})


def _frame(x_axis: Options, y_axis: Options, series: list[Options]) -> Options:
    """Return the options of a picture of these series, with a legend if there are several.

    Series whose name begins with an underscore are not in the legend.
    """
    legend = [_legend_entry(line) for line in series if not line["name"].startswith("_")]
    # The legend has two lines on a phone.
    space_above = 36 if len(legend) < 2 else 60
    space_above_narrow = space_above if len(legend) < 3 else 88
    narrow = {"query": {"maxWidth": 480}, "option": {"grid": {"top": space_above_narrow}}}
    ink = {"color": _INK}
    return {
        "animation": False,
        "textStyle": {"fontFamily": FONT, "fontSize": _SIZE, "color": _INK},
        "grid": {"left": 8, "right": 20, "top": space_above, "bottom": 36, "containLabel": True},
        "media": [narrow, {"option": {"grid": {"top": space_above}}}],
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
        "xAxis": x_axis,
        "yAxis": y_axis,
        "series": series,
    }


def _legend_entry(series: Options) -> Options:
    """Return the entry of a series in the legend, with an icon that shows how it is drawn."""
    entry: Options = {"name": series["name"]}
    if "areaStyle" in series:
        entry["icon"] = "rect"
    elif series.get("symbol") == "none":
        entry["icon"] = _line_icon(series["lineStyle"]["type"])
    if series["type"] == "bar":
        entry["itemStyle"] = {"borderWidth": 0.5}
    if len(series["name"]) > _LONG:
        entry["textStyle"] = _CUT  # shortened, so that two entries fit side by side
    return entry


def _line_icon(dashes: Any) -> str:
    """Return the icon of a line without symbols, for which ECharts would draw a circle.

    dashes: "solid", or the lengths of dashes and gaps in pixels.
    """
    lengths = [_WIDE] if dashes == "solid" else dashes
    path = ""  # of SVG: a bar 2 pixels high for each dash
    for start in range(0, _WIDE, sum(lengths)):
        path += f"M{start} 0h{lengths[0]}v2h-{lengths[0]}z"
    return f"path://{path}"


def _line(name: str, points: Sequence[Point], number: int, **options: Any) -> Options:
    """Describe a line to ECharts.

    number: of the line in its picture, which gives it a colour, dashes and symbols of its own.
    options: others of ECharts, which take precedence.
    """
    colour = COLOURS[number % len(COLOURS)]
    symbol = "none"  # in the legend as on the line
    if len(points) < _FEW_POINTS:
        symbol = _SYMBOLS[number % len(_SYMBOLS)]
    line: Options = {
        "type": "line",
        "name": brief(name, _LONGEST),
        "data": [[_short(x), _short(y)] for x, y in points],
        "symbol": symbol,
        "symbolSize": 7,
        "color": colour,
        "lineStyle": {"width": 2, "type": _DASHES[number % len(_DASHES)], "color": colour},
    }
    return line | options


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def learning(curve: Curve, baseline_name: str | None) -> Options:
    """Draw the learning curve with its interval, the optimum and the baseline.

    baseline_name: the baseline in words, or None to omit it.
    """
    name = curves.word(curve.measure)
    series = [_line(name, curve.points, 0, z=5)]
    if len(curve.low) > 1:
        series += _band(curve.low, curve.high)
    if curve.points:
        last_x = curve.points[-1][0]
        if curve.optimum is not None:
            series.append(_level("without privacy", curve.optimum, last_x, 1))
        if curve.baseline is not None and baseline_name is not None:
            series.append(_level(baseline_name, curve.baseline, last_x, 2))
    y_axis = _axis("value", f"{name}, held-out records", scale=True)
    return _frame(_so_far(curve.by), y_axis, series)


def _level(name: str, y: float, last_x: float, number: int) -> Options:
    """Describe a horizontal line at the height `y`, from x = 0 to `last_x`."""
    return _line(name, [(0.0, y), (last_x, y)], number, symbol="none")


def _band(low: Sequence[Point], high: Sequence[Point]) -> list[Options]:
    """Describe the area between two curves as two stacked lines.

    The first line is the lower curve, invisible. The second is the height of the area above it,
    filled.
    """
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


def compared(curves_by_name: Mapping[str, Curve], measure: str, by: str) -> Options:
    """Draw the learning curves of several runs.

    curves_by_name: at most as many as there are kinds of lines. measure: the figure. by: the x
    axis.
    """
    series = [
        _line(name, curve.points, number)
        for number, (name, curve) in enumerate(curves_by_name.items())
    ]
    y_axis = _axis("value", f"{curves.word(measure)}, held-out records", scale=True)
    return _frame(_so_far(by), y_axis, series)


def stepped(name: str, points: Sequence[Point], by: str) -> Options:
    """Draw a parameter chosen for each round, as a step from the start of the round to its end."""
    y_axis = _axis("value", name, scale=True)
    points = [(0.0, points[0][1]), *points]
    return _frame(_so_far(by), y_axis, [_line(name, points, 0, step="start", symbol="none")])


def arriving(points: Sequence[Point], wanted: int) -> Options:
    """Draw the reports of the open round, by the seconds since this page saw the first one.

    points: (seconds, reports). wanted: the number of reports that ends the round.
    """
    highest = wanted
    last_second = 1
    if points:
        highest = max(wanted, *(int(reports) for _, reports in points))
        last_second = max(1, math.ceil(points[-1][0]))  # the last tick is a round number
    name = "seconds since its first report was seen here"
    x_axis = _axis("value", name, is_x_axis=True, max=last_second, splitLine={"show": False})
    y_axis = _axis("value", "reports", min=0, max=highest)
    series = [_line("reports", points, 0, step="end", symbol="none", areaStyle={"opacity": 0.15})]
    if points:
        level = [(points[0][0], wanted), (points[-1][0], wanted)]
        series.append(_line("wanted", level, 1, symbol="none"))
    return _frame(x_axis, y_axis, series)


def bars(
    names: Sequence[str], values: Sequence[float], x_name: str, y_name: str, colour: int = 0
) -> Options:
    """Draw a bar for each name, as high as its value.

    x_name, y_name: the names of the axes. colour: an index into COLOURS.
    """
    bar: Options = {
        "type": "bar",
        "name": y_name,
        "barMaxWidth": 48,
        "itemStyle": {"color": COLOURS[colour], "borderColor": _INK, "borderWidth": 0.5},
        "data": [_short(value) for value in values],
    }
    names_below = _axis(
        "category", x_name, is_x_axis=True, data=[brief(name, _LONGEST) for name in names]
    )
    names_below["axisLabel"] |= _CUT
    return _frame(names_below, _axis("value", y_name, min=0, minInterval=1), [bar])


@lru_cache(maxsize=64)
def outputs(card_bytes: bytes, meaning: str = VALUE) -> tuple[list[int], list[str]]:
    """Return the symbols of a card in the order of their values, and these values in words.

    meaning: what its symbols stand for, as in TallyView. Raises UsageError.
    """
    if meaning != VALUE:
        symbols = list(range(cards.decode(card_bytes).symbols))
        return symbols, [f"{meaning} {symbol}" for symbol in symbols]
    values = cards.output_values(cards.decode(card_bytes))
    order = sorted(range(len(values)), key=values.__getitem__)
    return order, [f"{values[symbol]:.4g}" for symbol in order]


def _distributions(card_bytes: bytes, meaning: str) -> dict[str, list[float]]:
    """Return the probability of each symbol, by the input in words.

    The symbols of labels and categories are the windows of randomised response.
    """
    decoded = cards.decode(card_bytes)
    if meaning == VALUE:
        return {
            f"x = {value:g}": cards.distribution(decoded, round(value * ONE)) for value in _INPUTS
        }
    distributions = {}
    for symbol in range(min(decoded.symbols, len(_INPUTS))):
        distributions[f"{meaning} {symbol}"] = [
            float(probability) for probability in certify.at_knot(decoded, symbol)
        ]
    return distributions


def card(card_bytes: bytes, meaning: str = VALUE) -> Options:
    """Draw the exact distribution of a card's outputs for five inputs.

    meaning: what its symbols stand for, as in TallyView. Raises UsageError.
    """
    order, names = outputs(card_bytes, meaning)
    # A card may have thousands of outputs: neighbours share a bar.
    group_size = max(1, math.ceil(len(names) / MOST_BARS))
    starts = np.arange(0, len(order), group_size)
    series = []
    for number, (name, probabilities) in enumerate(_distributions(card_bytes, meaning).items()):
        group_probabilities = np.add.reduceat(np.array(probabilities)[order], starts)
        points = [_short(float(probability)) for probability in group_probabilities]
        shape = _bar_shape() if len(names) <= _FEW_OUTPUTS else _step_shape(number)
        series.append({"name": name, "data": points, "color": COLOURS[number], **shape})
    x_name = f"reported {meaning}"
    if group_size > 1:
        x_name += f", {group_size} outputs together"
    hidden = {"show": False}
    x_axis = _axis("category", x_name, is_x_axis=True, splitLine=hidden, data=names[::group_size])
    return _frame(x_axis, _axis("value", "probability", min=0), series)


def _bar_shape() -> Options:
    return {"type": "bar", "itemStyle": {"borderColor": _INK, "borderWidth": 0.5}}


def _step_shape(i: int) -> Options:
    style = {"width": 1.5, "type": _DASHES[i], "color": COLOURS[i]}
    return {"type": "line", "step": "middle", "symbol": "none", "lineStyle": style}
