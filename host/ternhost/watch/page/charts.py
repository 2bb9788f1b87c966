"""Pictures of the page, as options of the JavaScript library ECharts.

The palette is that of Okabe and Ito, which is safe for colour blindness.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from tern.fixed import ONE
from ternhost.learn.distributions.distribution_entries import CollectedDistribution, Quantile
from ternhost.privacy import cards, certify
from ternhost.privacy import outputs as card_outputs
from ternhost.store.snapshot import LABEL, VALUE
from ternhost.text import brief
from ternhost.watch import curves
from ternhost.watch.curves import Curve, Point

Options = dict[str, Any]

# Variables of page.css, which has a light and a dark version.
_INK, _SOFT, _GRID, _SURFACE = "var(--ink)", "var(--soft)", "var(--line)", "var(--surface)"
COLOURS = [f"var(--c{number})" for number in range(1, 8)]
# The dashes and gaps of each line of a picture, in pixels, and the symbols of its points.
_DASHES: tuple[Any, ...] = ("solid", [8, 4], [2, 2], [8, 3, 2, 3], [2, 6], [12, 4])
_SYMBOLS = ("circle", "rect", "triangle", "diamond", "emptyCircle", "emptyRect")
_FEW_POINTS = 30  # a line with fewer points has symbols
_WIDE = 28  # the length of a line in the legend, in pixels
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_SIZE = 14  # of the font in pixels, as in page.css
MOST_BARS = 256  # of a picture; more outputs of a card share bars
_FEW_OUTPUTS = 16  # up to so many outputs of a card are drawn as bars, more as lines
_LONGEST = 60  # characters of a name in a tooltip and on an axis
_LONG = 18  # characters of a name in a legend; two of them fit side by side on a phone
_CUT = {"width": 120, "overflow": "truncate"}  # the style of a longer name
_INPUTS = (-1.0, -0.5, 0.0, 0.5, 1.0)  # the values whose reports are drawn for a card

AXES = {
    curves.REPORTS: "reports so far",
    curves.ROUNDS: "rounds so far",
    curves.EPSILON: "mean epsilon spent per device so far",
}


def _axis(kind: str, name: str, is_x_axis: bool = False, **options: Any) -> Options:
    """Describe an axis to ECharts.

    kind: "value" for numbers, "category" for names. name: what stands beside it. options: further
    options of ECharts, which replace those from here.
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
    """Describe the x axis of a learning curve, which ends at the last point. by: as for a Curve."""
    return _axis("value", AXES[by], is_x_axis=True, max="dataMax", splitLine={"show": False})


def _frame(x_axis: Options, y_axis: Options, series: list[Options]) -> Options:
    """Return the options of a picture of these series (lines or bars) on these axes.

    It has a legend if there are several series. Those whose name begins with an underscore are not
    in the legend.
    """
    legend = []
    for each in series:
        if not each["name"].startswith("_"):
            legend.append(_legend_entry(each))

    # Pixels above the axes: for the name of the y axis, and for a legend of one line. On a phone, a
    # legend of three entries or more has two lines.
    has_legend = len(legend) >= 2
    space_above = 60 if has_legend else 36
    space_above_on_phone = 88 if len(legend) >= 3 else space_above
    on_phone = {"query": {"maxWidth": 480}, "option": {"grid": {"top": space_above_on_phone}}}
    elsewhere = {"option": {"grid": {"top": space_above}}}
    ink = {"color": _INK}
    return {
        "animation": False,
        "textStyle": {"fontFamily": FONT, "fontSize": _SIZE, "color": _INK},
        "grid": {"left": 8, "right": 20, "top": space_above, "bottom": 36, "containLabel": True},
        "media": [on_phone, elsewhere],
        "legend": {
            "data": legend,
            "show": has_legend,
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
    """Return the icon in the legend of a line without symbols, for which ECharts draws a circle.

    dashes: "solid", or the lengths of dashes and gaps in pixels.
    """
    lengths = [_WIDE] if dashes == "solid" else dashes
    dash_length = lengths[0]
    path = ""  # of SVG: for each dash a rectangle that is 2 pixels high
    for start in range(0, _WIDE, sum(lengths)):
        path += f"M{start} 0h{dash_length}v2h-{dash_length}z"
    return f"path://{path}"


def _line(name: str, points: Sequence[Point], number: int, **options: Any) -> Options:
    """Describe a line to ECharts.

    number: of the line in its picture, which gives it a colour, dashes and symbols of its own.
    options: further options of ECharts, which replace those from here.
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
    """Return a number rounded to six digits, so that less is sent to the browser."""
    return float(f"{value:.6g}")


def learning(curve: Curve, baseline_name: str | None) -> Options:
    """Draw the learning curve with its interval, the value without privacy and the baseline.

    baseline_name: what the baseline is, in words; None to leave it out.
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
    """Describe the area between two curves to ECharts, as two lines that are stacked.

    ECharts can only fill the area below a line. The first line is the lower curve, invisible; on top
    of it, the second one has the height of the area, filled.
    """
    height = []
    for (x, top), (_x, bottom) in zip(high, low, strict=True):
        height.append((x, top - bottom))
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

    curves_by_name: at most six, as many as there are kinds of lines. measure: the name of the
    figure. by: the x axis.
    """
    series = []
    for number, (name, curve) in enumerate(curves_by_name.items()):
        series.append(_line(name, curve.points, number))
    y_axis = _axis("value", f"{curves.word(measure)}, held-out records", scale=True)
    return _frame(_so_far(by), y_axis, series)


def stepped(name: str, points: Sequence[Point], by: str) -> Options:
    """Draw a parameter that is chosen for each round, as a step from its start to its end.

    points: at the end of each round. by: the x axis.
    """
    y_axis = _axis("value", name, scale=True)
    _first_x, first_value = points[0]
    points = [(0.0, first_value), *points]  # the first round begins at 0
    return _frame(_so_far(by), y_axis, [_line(name, points, 0, step="start", symbol="none")])


def arriving(points: Sequence[Point], wanted: int) -> Options:
    """Draw the reports of the open round, by the seconds since this page saw the first one.

    points: (seconds, reports). wanted: the number of reports that ends the round.
    """
    highest = wanted
    last_second = 1
    if points:
        highest = max(wanted, *[int(reports) for _seconds, reports in points])
        last_seconds, _reports = points[-1]
        last_second = max(1, math.ceil(last_seconds))  # so that the last tick is a whole number
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


def histogram(collected: CollectedDistribution) -> Options:
    """Draw the histogram of an attribute: a bar for each bin, with its interval."""
    edges, bins = collected.shown.edges.tolist(), collected.shown
    names = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(edges)]
    shares = _percent(bins.shares)
    bar: Options = {
        "type": "bar",
        "name": "share",
        "itemStyle": {"color": COLOURS[6], "borderColor": _INK, "borderWidth": 0.5},
        "barCategoryGap": "0%",
        "data": shares,
    }
    # A box plot whose box has no height looks like an error bar.
    whiskers = []
    for low, high in zip(*map(_percent, bins.interval), strict=True):
        middle = (low + high) / 2
        whiskers.append([low, middle, middle, middle, high])
    error_bars: Options = {
        "type": "boxplot",
        "name": "interval of 95 %",
        "itemStyle": {"color": "transparent", "borderColor": COLOURS[1], "borderWidth": 1.5},
        "boxWidth": [0, 8],
        "tooltip": {"show": False},
        "silent": True,
        "data": whiskers,
        "z": 4,
    }
    series = [bar, error_bars]
    if bins.true is not None:
        series.append(_truly(_percent(bins.true), step="middle"))
    hidden = {"show": False}
    x_axis = _axis("category", collected.axis, is_x_axis=True, data=names, splitLine=hidden)
    # The name of the first bin is wider than its bar, and would begin to the left of the picture.
    x_axis["axisLabel"] |= {**_CUT, "alignMinLabel": "left", "showMinLabel": True}
    return _frame(x_axis, _axis("value", "share in %"), series)


def cumulative(collected: CollectedDistribution) -> Options:
    """Draw the cumulative distribution of an attribute with its band, and its quantiles."""
    first, *others = collected.cumulative.edges.tolist()

    def points_of(shares: Iterable[float]) -> list[Point]:
        """Return the points of a line at the edges of the bins. Nothing lies below the first."""
        return [(first, 0.0), *zip(others, _percent(shares), strict=True)]

    low, high = collected.cumulative.interval
    series = [
        _line("this share or less", points_of(collected.cumulative.shares), 0, symbol="none"),
        *_band(points_of(low), points_of(high)),
    ]
    if collected.cumulative.true is not None:
        series.append(_truly([list(point) for point in points_of(collected.cumulative.true)]))
    series += _quantile_marks(collected.quantiles)
    x_axis = _axis("value", collected.axis, is_x_axis=True, min=first, max=others[-1])
    return _frame(x_axis, _axis("value", "share in %"), series)


def _quantile_marks(quantiles: Sequence[Quantile]) -> list[Options]:
    """Describe the quantiles as points, and their intervals as lines between two ends."""
    points, interval_ends = [], []
    for quantile in quantiles:
        height = 100 * quantile.level
        points.append([_short(quantile.value), height])
        # The dash ends a line, so that the intervals are not joined.
        interval_ends += [[_short(quantile.low), height], [_short(quantile.high), height], "-"]
    marks: Options = {
        "type": "scatter",
        "name": "quantiles",
        "data": points,
        "symbolSize": 8,
        "itemStyle": {"color": COLOURS[1]},
        "z": 6,
    }
    intervals = _line("_intervals", [], 1, data=interval_ends, symbol="none", z=5)
    intervals["tooltip"] = {"show": False}
    intervals["lineStyle"] = {"width": 2, "type": "solid", "color": COLOURS[1]}
    return [marks, intervals]


def _truly(data: list[Any], **options: Any) -> Options:
    """Describe the line of what clients really hold. data, options: of ECharts."""
    dashes = [4, 3]
    line = _line("truly", [], 2, data=data, symbol="none", z=3, **options)
    line["color"] = _SOFT
    line["lineStyle"] = {"width": 1.5, "type": dashes, "color": _SOFT}
    return line


def _percent(shares: Iterable[float]) -> list[float]:
    """Return shares in per cent, with fewer digits."""
    return [_short(100 * float(share)) for share in shares]


@lru_cache(maxsize=64)
def outputs(
    card_bytes: bytes, meaning: str = VALUE, classes: tuple[str, ...] = ()
) -> tuple[list[int], list[str]]:
    """Return the symbols of a card in the order of their values, and a name for each of them.

    A card is the table from which a device samples the symbol that it reports. Of values the names
    are the values, of labels those of the classes, or "label 0" and so on. meaning: what a symbol
    stands for, as in `TallyView`. classes: the names of classes, if they have any. Raises
    UsageError for a card that cannot be read.
    """
    if meaning != VALUE:
        symbols = list(range(cards.decode(card_bytes).symbols))
        return symbols, [_symbol_name(meaning, symbol, classes) for symbol in symbols]
    values = cards.output_values(cards.decode(card_bytes))
    order = sorted(range(len(values)), key=values.__getitem__)
    return order, [f"{values[symbol]:.4g}" for symbol in order]


def _symbol_name(meaning: str, symbol: int, classes: tuple[str, ...]) -> str:
    """Return the name of the class for a label; otherwise what a symbol stands for, numbered."""
    if meaning == LABEL and symbol < len(classes):
        return classes[symbol]
    return f"{meaning} {symbol}"


def _distributions(
    card_bytes: bytes, meaning: str, classes: tuple[str, ...]
) -> dict[str, list[float]]:
    """Return the probability of each symbol for five inputs of a card, by the name of the input.

    meaning, classes: as for `outputs`. The inputs are values from -1 to 1, or the first labels.
    """
    decoded = cards.decode(card_bytes)
    distributions = {}
    if meaning == VALUE:
        for value in _INPUTS:
            fixed_point_value = round(value * ONE)
            distributions[f"x = {value:g}"] = cards.distribution(decoded, fixed_point_value)
        return distributions

    # A label is reported by randomised response, of which each label is a knot (cards.md).
    for label in range(min(decoded.symbols, len(_INPUTS))):
        probabilities = [float(probability) for probability in certify.at_knot(decoded, label)]
        distributions[_symbol_name(meaning, label, classes)] = probabilities
    return distributions


def card(card_bytes: bytes, meaning: str = VALUE, classes: tuple[str, ...] = ()) -> Options:
    """Draw the exact distribution of a card's outputs for five inputs.

    A card may have thousands of outputs: then neighbours share a bar. meaning, classes: as for
    `outputs`. Raises UsageError for a card that cannot be read.
    """
    order, names = outputs(card_bytes, meaning, classes)
    distributions = _distributions(card_bytes, meaning, classes)
    in_order = np.array(list(distributions.values()))[:, order]  # inputs x outputs
    if meaning == VALUE:  # what is hardly ever reported would take most of the room
        is_shown = card_outputs.shown(np.arange(len(order), dtype=np.float64), in_order)
        in_order = in_order[:, is_shown]
        names = [name for name, shows in zip(names, is_shown, strict=True) if shows]

    group_size = math.ceil(len(names) / MOST_BARS)  # how many outputs share a bar
    group_starts = np.arange(0, len(names), group_size)
    sums_of_groups = np.add.reduceat(in_order, group_starts, axis=1)
    series = []
    for number, (name, probabilities) in enumerate(zip(distributions, sums_of_groups, strict=True)):
        heights = [_short(float(probability)) for probability in probabilities]
        shape = _bar_shape() if len(names) <= _FEW_OUTPUTS else _step_shape(number)
        series.append({"name": name, "data": heights, "color": COLOURS[number], **shape})
    x_name = f"reported {meaning}"
    if group_size > 1:
        x_name += f", {group_size} outputs together"
    hidden = {"show": False}
    x_axis = _axis("category", x_name, is_x_axis=True, splitLine=hidden, data=names[::group_size])
    y_axis = _axis("value", "probability", min=0)
    if card_outputs.needs_logarithm(sums_of_groups):
        lowest = sums_of_groups[sums_of_groups > 0].min()
        whole_power = 10.0 ** math.floor(math.log10(lowest / 2))
        bottom = _short(whole_power)
        # Bars begin at startValue; without it they would hang from 1.
        y_axis = _axis(
            "log", "probability (logarithmic axis)", min=bottom, max=1, startValue=bottom
        )
    return _frame(x_axis, y_axis, series)


def _bar_shape() -> Options:
    """Return the options of a series that is drawn as bars."""
    return {"type": "bar", "itemStyle": {"borderColor": _INK, "borderWidth": 0.5}}


def _step_shape(number: int) -> Options:
    """Return the options of a series that is drawn as a stepped line. number: of the series."""
    style = {"width": 1.5, "type": _DASHES[number], "color": COLOURS[number]}
    return {"type": "line", "step": "middle", "symbol": "none", "lineStyle": style}
