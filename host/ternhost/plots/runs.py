"""Pictures of a run: its model by round, its estimates, its groups, and the bytes of its frames."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from ternhost.plots.canvas import (
    DARK,
    INK,
    LEGEND,
    LIGHT,
    LONGEST,
    MIDDLE,
    SHADES,
    SMALL,
    WIDTH,
    Floats,
    blank,
    dress,
    legend_above,
    plain,
    single,
)

_FAR = 3  # times the height of a curve: what is farther away would flatten it
_MOST_MARKERS = 20  # of a curve
# How an estimate with its interval looks.
_ESTIMATE: dict[str, Any] = {
    "fmt": "o",
    "markersize": 4,
    "color": DARK,
    "ecolor": MIDDLE,
    "capsize": 2.5,
}


@dataclass(frozen=True)
class Reference:
    """A quality to compare a model with, and the name of what has this quality."""

    quality: float
    name: str


def judged(
    private: Sequence[float],
    optimum: float,
    baseline: Reference,
    *,
    reports: Sequence[int],
    label: str,
    measure: str,
) -> Figure:
    """Draw the quality of a model after each round, beside that of a model without privacy.

    private: the quality after each round.
    optimum: that of the same kind of model, fitted without privacy.
    baseline: that of an answer that ignores the features, such as always the majority. It is not
    shown if it is so far away that the curve would look flat.
    reports: how many reports there were by the end of each round, for a second axis.
    label: the name of the model. measure: the name of the quality.
    """
    figure, axes = single(2.9)
    rounds = len(private)
    axes.axhline(optimum, linestyle="--", color=MIDDLE, label="without privacy")
    axes.plot(
        np.arange(1, rounds + 1),
        private,
        linestyle="-",
        marker="o",
        markersize=5,
        color=DARK,
        markevery=max(1, math.ceil(rounds / _MOST_MARKERS)),
        label=label,
    )
    lowest = min(*private, optimum)
    highest = max(*private, optimum)
    # How far the baseline is outside of what is drawn so far; negative if it is inside.
    distance = max(lowest - baseline.quality, baseline.quality - highest)
    if distance < _FAR * (highest - lowest):
        axes.axhline(baseline.quality, linestyle=":", color=INK, label=baseline.name)
        lowest = min(lowest, baseline.quality)
        highest = max(highest, baseline.quality)

    axes.set(xlabel="round", xlim=(0.5, rounds + 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    _quality_axis(axes, lowest, highest, measure)
    every_round_had_reports = bool(np.all(np.diff([0, *reports]) > 0))
    if every_round_had_reports:  # otherwise several rounds would be at the same place of the axis
        _reports_axis(axes, reports)
    figure.legend(loc="outside upper center", ncols=2, **LEGEND)
    return figure


def progress(
    curves: Mapping[str, Sequence[float]], *, lowest: Reference, highest: Reference, label: str
) -> Figure:
    """Draw shares that several runs have reached, from before their first round to their end.

    curves: by the name of a run, the share before its first round and after each. lowest, highest:
    shares to compare with. label: what the shares are.
    """
    figure, axes = single(2.9)
    axes.axhline(highest.quality, linestyle="--", color=MIDDLE, label=highest.name)
    axes.axhline(lowest.quality, linestyle=":", color=INK, label=lowest.name)
    styles = [("o", DARK), ("s", SHADES[1])]
    for (name, shares), (marker, color) in zip(curves.items(), styles, strict=False):
        axes.plot(
            np.linspace(0, 1, len(shares)),
            shares,
            linestyle="-",
            marker=marker,
            markersize=4.5,
            markevery=max(1, math.ceil(len(shares) / _MOST_MARKERS)),
            color=color,
            label=name,
        )
    axes.set(xlabel="share of the rounds", ylabel=label, xlim=(-0.02, 1.02))
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    figure.legend(loc="outside upper center", ncols=2, **LEGEND)
    return figure


def _quality_axis(axes: Axes, lowest: float, highest: float, measure: str) -> None:
    """Set the vertical axis for the quality of a model, from a margin below to one above.

    lowest, highest: what is drawn. measure: the name of the quality; an accuracy is in per cent.
    """
    height = highest - lowest
    margin = max(1e-4, 0.12 * height)
    axes.set(ylabel=measure, ylim=(lowest - margin, highest + margin))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if measure.startswith("accuracy"):
        formatter = PercentFormatter(1, decimals=_decimals_of_percent(height))
        axes.yaxis.set_major_formatter(formatter)


def _decimals_of_percent(height: float) -> int:
    """Return how many decimals of a percentage tell the ticks of an axis apart.

    height: of the axis, from its lowest to its highest value (1: 100 %).
    """
    if height > 0.05:
        return 0
    if height > 0.005:
        return 1
    return 2


def _reports_axis(axes: Axes, reports: Sequence[int]) -> None:
    """Add a second horizontal axis, above, that shows reports instead of rounds.

    reports: how many there were by the end of each round.
    """
    counts = np.array([0, *reports], np.float64)
    rounds = np.arange(len(counts))

    # Matplotlib needs the conversions between both axes, of numbers and of arrays.
    def reports_at(round_number: Any) -> Any:
        """Return how many reports there were by a round, interpolated within it."""
        return np.interp(round_number, rounds, counts)

    def round_at(report_count: Any) -> Any:
        """Return the round by which there were so many reports, as the inverse of `reports_at`."""
        return np.interp(report_count, counts, rounds)

    top = axes.secondary_xaxis("top", functions=(reports_at, round_at))
    top.set_xlabel("reports so far")
    top.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    top.xaxis.set_major_formatter(lambda value, _position: f"{value:,.0f}")


def frame_bytes(contents: Mapping[str, int], overhead: int) -> Figure:
    """Draw the length of frames as bars, and how many times as long as the first one they are.

    contents: the bytes of content of each frame, by its name. overhead: the bytes of header and tag
    that each frame has besides.
    """
    figure, axes = single(0.9 + 0.42 * len(contents))  # inches: for legend and axis, and each row
    rows = np.arange(len(contents))[::-1]  # the first row is at the top
    sizes = np.array(list(contents.values()))
    bar: dict[str, Any] = {"height": 0.6, "edgecolor": INK}
    axes.barh(rows, overhead, color=LIGHT, label="header and tag", **bar)
    axes.barh(rows, sizes, left=overhead, color=MIDDLE, hatch="//", label="content", **bar)

    totals = overhead + sizes
    longest = totals.max()
    for row, total in zip(rows, totals, strict=True):
        label = f"{total} bytes"
        if total != totals[0]:
            label += f"\n{total / totals[0]:.1f} times as many"
        axes.text(total + longest * 0.02, row, label, va="center", fontsize=SMALL)
    room_for_labels = 1.75
    axes.set_yticks(rows, list(contents))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set(xlim=(0, longest * room_for_labels), xlabel="bytes of one frame, before COBS")
    legend_above(axes, columns=2)
    return figure


def gradient(
    names: Sequence[str],
    mean: Floats,
    low: Floats,
    high: Floats,
    confidence: float,
    across: str = "gradient (1: the clipping bound)",
) -> Figure:
    """Draw estimated means with their confidence intervals, one in each row.

    names: of the rows. mean, low, high: of each row, the estimate and the ends of its interval; nan
    where nobody reported. confidence: of the intervals, from 0 to 1. across: the label of the axis.
    """
    figure, axes = single(0.9 + 0.17 * len(names))  # inches: for legend and axis, and each row
    rows = np.arange(len(names))[::-1]  # the first row is at the top
    half_lengths = np.array([mean - low, high - mean])  # below and above the mean
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.errorbar(
        mean,
        rows,
        xerr=half_lengths,
        label=f"mean, and its interval of at least {100 * confidence:g} %",
        **_ESTIMATE,
    )
    axes.set_yticks(rows, [plain(name) for name in names], fontsize=SMALL)
    axes.set(ylim=(-0.8, len(names) - 0.2), xlabel=across)
    figure.legend(loc="outside upper center", **LEGEND)
    return figure


@dataclass(frozen=True)
class Shares:
    """The estimated frequencies of the n categories of an attribute."""

    name: str  # of the attribute
    categories: Sequence[str]
    shares: Floats  # the estimates
    interval: Floats  # 2 x n: the lower ends of their confidence intervals, then the upper ends
    true: Floats | None = None  # the true frequencies, if known


def frequencies(attributes: Sequence[Shares]) -> Figure:
    """Draw the estimated frequencies of categories, in a panel for each attribute."""
    columns = 2
    rows = math.ceil(len(attributes) / columns)
    most_categories = max(len(attribute.categories) for attribute in attributes)
    height_of_row = 0.7 + 0.2 * most_categories  # inches
    figure = blank(WIDTH, 0.6 + rows * height_of_row)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, attribute in zip(panels, attributes, strict=False):
        _draw_frequencies(axes, attribute)
    for axes in panels[len(attributes) :]:  # places without an attribute
        axes.set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, **LEGEND)
    return figure


def _draw_frequencies(axes: Axes, attribute: Shares) -> None:
    """Draw an attribute's frequencies: the estimates with intervals, and the true ones if known."""
    dress(axes)
    rows = np.arange(len(attribute.categories))[::-1]  # the first row is at the top
    half_lengths = np.abs(attribute.interval - attribute.shares)  # below and above the estimate
    axes.errorbar(
        attribute.shares,
        rows,
        xerr=half_lengths,
        label="estimate, and its interval of 95 %",
        **_ESTIMATE,
    )
    if attribute.true is not None:
        axes.plot(
            attribute.true,
            rows,
            "D",
            markersize=7,
            markerfacecolor="none",
            markeredgecolor=INK,
            label="truly",
        )
    names = [plain(category, LONGEST // 2) for category in attribute.categories]
    axes.set_yticks(rows, names, fontsize=SMALL)
    axes.set_ylim(-0.8, len(names) - 0.2)
    axes.set_title(plain(attribute.name), fontsize=SMALL)
    axes.tick_params(labelsize=SMALL)
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.xaxis.set_major_formatter(PercentFormatter(1))


def clusters(sizes: Mapping[str, int]) -> Figure:
    """Draw as bars how many clients are in each cluster. sizes: this number by cluster."""
    figure, axes = single(2.1)
    names = list(sizes)
    counts = list(sizes.values())
    bars = axes.bar(names, counts, width=0.6, color=MIDDLE, edgecolor=INK)
    axes.bar_label(bars, labels=[f"{count:,}" for count in counts], padding=3)
    axes.set(xlabel="cluster", ylabel="clients")
    axes.grid(visible=False, axis="x")
    return figure


def scores(rows: Sequence[Mapping[str, Any]], measure: str) -> Figure:
    """Draw a score of clusters after each round, with and without noise.

    The horizontal axis shows the loss of the model, which falls from round to round; if it is not
    known, the number of the round.

    rows: one for each round, with `round`, `score`, `score_without_noise` and `loss`. A curve is
    left out if one of its scores is None. measure: the name of the score.
    """
    figure, axes = single(2.9)
    has_losses = all(row["loss"] is not None for row in rows)
    column, x_label = "round", "round"
    if has_losses:
        column, x_label = "loss", "log-loss"
    x = [row[column] for row in rows]
    with_noise = [row["score"] for row in rows]
    without_noise = [row["score_without_noise"] for row in rows]
    if None not in with_noise:
        axes.plot(x, with_noise, "-o", markersize=4.5, color=DARK, label="with noise")
    if None not in without_noise:
        axes.plot(x, without_noise, "--s", markersize=4.5, color=MIDDLE, label="without noise")
    axes.set(xlabel=x_label, ylabel=measure, xmargin=0.08, ymargin=0.15)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=not has_losses))
    axes.xaxis.set_inverted(has_losses)  # so that later rounds are at the right
    if has_losses:
        _name_round(axes, rows[0], "left")
        _name_round(axes, rows[-1], "right")
    figure.legend(loc="outside upper center", ncols=2, **LEGEND)
    return figure


def _name_round(axes: Axes, row: Mapping[str, Any], side: str) -> None:
    """Write the number of a round below its point in the picture of `scores`.

    row: of a round, with `round`, `loss` and `score`. side: the end of the text that is below the
    point, "left" or "right".
    """
    point = row["loss"], row["score"]
    axes.annotate(
        f"round {row['round']}",
        point,
        xytext=(0, -14),
        xycoords="data",
        textcoords="offset points",
        ha=side,
    )
