"""Pictures of the page, as options of ECharts, in the palette of Okabe and Ito, which is safe for
colour blindness.
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
# and its size in pixels, as in page.css
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_SIZE = 14
_MOST_BARS = 256
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
    place = {"nameLocation": "middle", "nameGap": 32} if below else {"nameGap": 12}
    labels = {"hideOverlap": True, "alignMaxLabel": "right"} if below else {"hideOverlap": True}
    title = {"nameTextStyle": {"color": _SOFT, "align": "center" if below else "left"}, **place}
    lines: Options = {
        part: {"lineStyle": {"color": _GRID}} for part in ("axisLine", "axisTick", "splitLine")
    }
    lines["axisLabel"] = {"color": _SOFT, "fontSize": _SIZE, **labels}
    return {"type": kind, "name": brief(name, _LONGEST), **title, **lines, **more}


def _so_far(by: str) -> Options:
    return _axis("value", AXES[by], below=True, max="dataMax", splitLine={"show": False})


def _frame(x: Options, y: Options, series: list[Options]) -> Options:
    legend = [
        {
            "name": line["name"],
            **({"icon": "rect"} if "areaStyle" in line else _plain(line)),
            **({"itemStyle": {"borderWidth": 0.5}} if line["type"] == "bar" else {}),
            **({"textStyle": _CUT} if len(line["name"]) > _LONG else {}),
        }
        for line in series
        if not line["name"].startswith("_")
    ]
    top = 36 if len(legend) < 2 else 60
    narrow = {
        "query": {"maxWidth": 480},
        "option": {"grid": {"top": top if len(legend) < 3 else 88}},
    }
    ink = {"textStyle": {"color": _INK}}
    return {
        "animation": False,
        "textStyle": {"fontFamily": FONT, "fontSize": _SIZE, "color": _INK},
        "grid": {"left": 8, "right": 20, "top": top, "bottom": 36, "containLabel": True},
        "media": [
            narrow,
            {"option": {"grid": {"top": top}}},
        ],  # the legend has two lines on a phone
        "legend": {
            "data": legend,
            "show": len(legend) > 1,
            "itemWidth": _WIDE,
            "itemGap": 12,
            "top": 0,
            **ink,
        },
        "tooltip": {
            "trigger": "axis",
            "confine": True,
            "backgroundColor": _SURFACE,
            "borderColor": _GRID,
            "extraCssText": "max-width: 90%; overflow-wrap: anywhere; white-space: normal",
            **ink,
        },
        **{"xAxis": x, "yAxis": y, "series": series},
    }


def _plain(line: Options) -> Options:
    """The icon of a line without symbols, for which ECharts would draw a circle in the legend."""
    if line.get("symbol") != "none":
        return {}
    dash = [_WIDE] if line["lineStyle"]["type"] == "solid" else line["lineStyle"]["type"]
    dashes = (f"M{x} 0h{dash[0]}v2h-{dash[0]}z" for x in range(0, _WIDE, sum(dash)))
    return {"icon": f"path://{''.join(dashes)}"}


def _line(name: str, points: Sequence[Point], i: int, **more: Any) -> Options:
    colour, data = COLOURS[i % len(COLOURS)], [[_short(x), _short(y)] for x, y in points]
    symbol = (
        _SYMBOLS[i % len(_SYMBOLS)] if len(points) < 30 else "none"
    )  # in the legend as on the line
    style = {"width": 2, "type": _DASHES[i % len(_DASHES)], "color": colour}
    marks = {"symbol": symbol, "symbolSize": 7, "color": colour, "lineStyle": style}
    return {"type": "line", "name": brief(name, _LONGEST), "data": data, **marks, **more}


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def learning(curve: Curve, floor: str | None) -> Options:
    """The learning curve with its interval, the optimum and the baseline. floor: the baseline in
    words, None to omit it.
    """
    name = curves.word(curve.measure)
    series = [_line(name, curve.points, 0, z=5)]
    if len(curve.low) > 1:
        series += _band(curve.low, curve.high)
    if curve.points:
        ends = (0.0, curve.points[-1][0])
        for i, label, value in ((1, "without privacy", curve.optimum), (2, floor, curve.baseline)):
            if value is not None and label is not None:
                series.append(_line(label, [(x, value) for x in ends], i, symbol="none"))
    return _frame(
        _so_far(curve.by), _axis("value", f"{name}, held-out records", scale=True), series
    )


def _band(low: Sequence[Point], high: Sequence[Point]) -> list[Options]:
    # Two stacked lines: the lower end, and the filled area up to the upper end.
    height = [(x, top - bottom) for (x, top), (_, bottom) in zip(high, low, strict=True)]
    hidden: Options = {"lineStyle": {"opacity": 0}, "tooltip": {"show": False}}
    common: Options = {"stack": "interval", "symbol": "none", "silent": True, **hidden}
    area = {"areaStyle": {"opacity": 0.25, "color": COLOURS[0]}, "itemStyle": {"opacity": 0.4}}
    return [_line("_low", low, 0, **common), _line("95 % interval", height, 0, **common, **area)]


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
    last = max(1, math.ceil(points[-1][0])) if points else 1  # its last tick is a round number
    name = "seconds since its first report was seen here"
    x = _axis("value", name, below=True, max=last, splitLine={"show": False})
    y = _axis("value", "reports", min=0, max=max([wanted, *(int(n) for _, n in points)]))
    series = [_line("reports", points, 0, step="end", symbol="none", areaStyle={"opacity": 0.15})]
    if points:
        series.append(
            _line("wanted", [(t, wanted) for t, _ in (points[0], points[-1])], 1, symbol="none")
        )
    return _frame(x, y, series)


def bars(names: Sequence[str], values: Sequence[float], x: str, y: str, colour: int = 0) -> Options:
    """A bar for each name, as high as its count."""
    style = {"color": COLOURS[colour], "borderColor": _INK, "borderWidth": 0.5}
    bar: Options = {"type": "bar", "name": y, "barMaxWidth": 48, "itemStyle": style}
    bar["data"] = [_short(value) for value in values]
    names_below = {
        **_axis("category", x, below=True),
        "data": [brief(name, _LONGEST) for name in names],
    }
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


def _laws(data: bytes, what: str) -> dict[str, list[float]]:
    # By input, the probability of each symbol; labels and categories are the windows of randomised
    # response.
    decoded = cards.decode(data)
    if what == VALUE:
        return {f"x = {x:g}": cards.distribution(decoded, round(x * ONE)) for x in _INPUTS}
    few = range(min(decoded.symbols, len(_INPUTS)))
    return {f"{what} {i}": [float(p) for p in certify.at_knot(decoded, i)] for i in few}


def card(data: bytes, what: str = VALUE) -> Options:
    """The exact distribution of a card's outputs for five inputs. what: as in TallyView.

    Raises UsageError.
    """
    order, names = outputs(data, what)
    every = max(1, math.ceil(len(names) / _MOST_BARS))
    few = len(names) <= 16
    bar = {"type": "bar", "itemStyle": {"borderColor": _INK, "borderWidth": 0.5}}
    shape = bar if few else {"type": "line", "step": "middle", "symbol": "none"}
    series = []
    for i, (name, law) in enumerate(_laws(data, what).items()):
        summed = np.add.reduceat(np.array(law)[order], np.arange(0, len(order), every))
        line = {} if few else {"lineStyle": {"width": 1.5, "type": _DASHES[i], "color": COLOURS[i]}}
        points = [_short(float(p)) for p in summed]
        series.append({"name": name, "data": points, "color": COLOURS[i], **shape, **line})
    unit = f"reported {what}" if every == 1 else f"reported {what}, {every} outputs together"
    axis = {
        **_axis("category", unit, below=True, splitLine={"show": False}),
        "data": names[::every],
    }
    return _frame(axis, _axis("value", "probability", min=0), series)
