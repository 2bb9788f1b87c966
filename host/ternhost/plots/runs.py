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
    SMALL,
    WIDTH,
    Floats,
    blank,
    dress,
    legend_above,
    plain,
    single,
)

_FAR = 3  # times the height of a curve


def judged(
    private: Sequence[float],
    optimum: float,
    baseline: float,
    *,
    reports: Sequence[int],
    label: str,
    measure: str,
    floor: str,
) -> Figure:
    """Draw a model's measure after every round, beside the optimum without privacy.

    private: the measure after each round. baseline: the measure of the answer that ignores the
    features, shown if it is near. reports: how many there were by the end of each round, for a
    second axis. label, floor: the names of the model and of that answer.
    """
    figure, axes = single(2.9)
    axes.axhline(optimum, linestyle="--", color=MIDDLE, label="without privacy")
    axes.plot(
        np.arange(1, len(private) + 1),
        private,
        linestyle="-",
        marker="o",
        markersize=5,
        color=DARK,
        markevery=max(1, math.ceil(len(private) / 20)),
        label=label,
    )
    least, most = min(*private, optimum), max(*private, optimum)
    distance = max(least - baseline, baseline - most)
    if distance < _FAR * (most - least):  # else it would flatten the curve
        axes.axhline(baseline, linestyle=":", color=INK, label=floor)
        least, most = min(least, baseline), max(most, baseline)
    room = max(1e-4, 0.12 * (most - least))
    axes.set(
        xlabel="round",
        ylabel=measure,
        xlim=(0.5, len(private) + 0.5),
        ylim=(least - room, most + room),
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if measure.startswith("accuracy"):
        decimals = _decimals_of_percent(most - least)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=decimals))
    if np.all(np.diff([0, *reports]) > 0):  # else it would not be an axis
        _reports_axis(axes, reports)
    figure.legend(loc="outside upper center", ncols=2, **LEGEND)
    return figure


def _decimals_of_percent(height: float) -> int:
    """Return how many decimals of per cent tell the ticks of an axis of this height apart."""
    if height > 0.05:
        return 0
    if height > 0.005:
        return 1
    return 2


def _reports_axis(axes: Axes, reports: Sequence[int]) -> None:
    """Add a second axis above: the number of reports by the end of each round."""
    counts = np.array([0, *reports], np.float64)
    rounds = np.arange(len(counts))

    # The two conversions between the axes: of numbers or arrays.
    def reports_at(round_number: Any) -> Any:
        return np.interp(round_number, rounds, counts)

    def round_at(report_count: Any) -> Any:
        return np.interp(report_count, counts, rounds)

    top = axes.secondary_xaxis("top", functions=(reports_at, round_at))
    top.set_xlabel("reports so far")
    top.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    top.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def frame_bytes(contents: Mapping[str, int], overhead: int) -> Figure:
    """Draw how many bytes frames have on the wire, and how many times as many as the first.

    contents: the bytes of content by the name of the frame. overhead: the bytes of header and tag
    that each frame has besides.
    """
    figure, axes = single(0.9 + 0.42 * len(contents))
    rows = np.arange(len(contents))[::-1]
    sizes = np.array(list(contents.values()))
    bar: dict[str, Any] = {"height": 0.6, "edgecolor": INK}
    axes.barh(rows, overhead, color=LIGHT, label="header and tag", **bar)
    axes.barh(rows, sizes, left=overhead, color=MIDDLE, hatch="//", label="content", **bar)

    totals = overhead + sizes
    most = totals.max()
    for row, total in zip(rows, totals, strict=True):
        label = f"{total} bytes"
        if total != totals[0]:
            label += f"\n{total / totals[0]:.1f} times as many"
        axes.text(total + most * 0.02, row, label, va="center", fontsize=SMALL)
    axes.set_yticks(rows, list(contents))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set(xlim=(0, most * 1.75), xlabel="bytes of one frame, before COBS")
    legend_above(axes, 2)
    return figure


def gradient(
    names: Sequence[str],
    mean: Floats,
    low: Floats,
    high: Floats,
    confidence: float,
    across: str = "gradient (1: the clipping bound)",
) -> Figure:
    """Draw the estimated means of coordinates with their confidence intervals.

    names: of the coordinates. mean, low, high: the mean of each and the ends of its interval; nan
    where nobody reported. confidence: of the intervals, from 0 to 1. across: the label of the axis.
    """
    figure, axes = single(0.9 + 0.17 * len(names))
    rows = np.arange(len(names))[::-1]
    bars = np.array([mean - low, high - mean])  # the lengths of both halves
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.errorbar(
        mean,
        rows,
        xerr=bars,
        fmt="o",
        markersize=4,
        color=DARK,
        ecolor=MIDDLE,
        capsize=2.5,
        label=f"mean, and its interval of at least {100 * confidence:g} %",
    )
    axes.set_yticks(rows, [plain(name) for name in names], fontsize=SMALL)
    axes.set(ylim=(-0.8, len(names) - 0.2), xlabel=across)
    figure.legend(loc="outside upper center", **LEGEND)
    return figure


@dataclass(frozen=True)
class Shares:
    """Estimated frequencies of an attribute's n categories."""

    name: str
    categories: Sequence[str]
    shares: Floats
    interval: Floats  # 2 x n: the lower and upper ends
    true: Floats | None = None  # if known


def frequencies(attributes: Sequence[Shares]) -> Figure:
    """Draw the estimated frequencies of categories, in a panel for each attribute."""
    columns = 2
    rows = math.ceil(len(attributes) / columns)
    most_categories = max(len(attribute.categories) for attribute in attributes)
    figure = blank(WIDTH, 0.6 + rows * (0.7 + 0.2 * most_categories))
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, attribute in zip(panels, attributes, strict=False):
        _draw_frequencies(axes, attribute)
    for axes in panels[len(attributes) :]:
        axes.set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, **LEGEND)
    return figure


def _draw_frequencies(axes: Axes, attribute: Shares) -> None:
    """Draw the frequencies of an attribute: estimates with intervals, and the truth if known."""
    dress(axes)
    rows = np.arange(len(attribute.categories))[::-1]
    axes.errorbar(
        attribute.shares,
        rows,
        xerr=np.abs(attribute.interval - attribute.shares),
        fmt="o",
        markersize=4,
        color=DARK,
        ecolor=MIDDLE,
        capsize=2.5,
        label="estimate, and its interval of 95 %",
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
    """Draw the number of clients in each cluster as bars. sizes: by the cluster's name."""
    figure, axes = single(2.1)
    names, counts = list(sizes), list(sizes.values())
    bars = axes.bar(names, counts, width=0.6, color=MIDDLE, edgecolor=INK)
    axes.bar_label(bars, labels=[f"{count:,}" for count in counts], padding=3)
    axes.set(xlabel="cluster", ylabel="clients")
    axes.grid(visible=False, axis="x")
    return figure


def scores(rows: Sequence[Mapping[str, Any]], measure: str) -> Figure:
    """Draw a score of clusters, with and without noise, against the model's falling loss.

    rows: by round; each has `round`, `score`, `score_without_noise` and `loss`. A curve of scores
    is left out if one is None; if a loss is None, the axis shows rounds instead. measure: the name
    of the score.
    """
    figure, axes = single(2.9)
    by_loss = all(row["loss"] is not None for row in rows)
    column = x_label = "round"
    if by_loss:
        column, x_label = "loss", "log-loss"
    x = [row[column] for row in rows]
    scores_with_noise = [row["score"] for row in rows]
    scores_without_noise = [row["score_without_noise"] for row in rows]
    if None not in scores_with_noise:
        axes.plot(x, scores_with_noise, "-o", markersize=4.5, color=DARK, label="with noise")
    if None not in scores_without_noise:
        axes.plot(
            x, scores_without_noise, "--s", markersize=4.5, color=MIDDLE, label="without noise"
        )
    axes.set(xlabel=x_label, ylabel=measure, xmargin=0.08, ymargin=0.15)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=not by_loss))
    axes.xaxis.set_inverted(by_loss)
    if by_loss:
        _name_round(axes, rows[0], "left")
        _name_round(axes, rows[-1], "right")
    figure.legend(loc="outside upper center", ncols=2, **LEGEND)
    return figure


def _name_round(axes: Axes, row: Mapping[str, Any], side: str) -> None:
    """Write the number of a round below its point.

    row: of `scores`. side: of the text, "left" or "right", that is at the point.
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
