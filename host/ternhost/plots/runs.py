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
    """The model's measure after every round, the optimum without privacy, and, if near, the answer
    without features. reports: their number by the end of each round, for a second axis. label,
    floor: names of the model and of that answer.
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
    if (
        least - baseline < _FAR * (most - least) > baseline - most
    ):  # else it would flatten the curve
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
        decimals = 0 if most - least > 0.05 else 1 if most - least > 0.005 else 2
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=decimals))
    if np.all(np.diff([0, *reports]) > 0):  # else it would not be an axis
        _reports_axis(axes, reports)
    figure.legend(loc="outside upper center", ncols=2, **LEGEND)
    return figure


def _reports_axis(axes: Axes, reports: Sequence[int]) -> None:
    counts = np.array([0, *reports], np.float64)
    rounds = np.arange(len(counts))
    scales = lambda x: np.interp(x, rounds, counts), lambda n: np.interp(n, counts, rounds)
    top = axes.secondary_xaxis("top", functions=scales)
    top.set_xlabel("reports so far")
    top.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    top.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def frame_bytes(contents: Mapping[str, int], overhead: int) -> Figure:
    """Bytes on the wire of frames by name: their contents, each beside `overhead` bytes of header
    and tag.
    """
    figure, axes = single(0.9 + 0.42 * len(contents))
    rows = np.arange(len(contents))[::-1]
    bar: dict[str, Any] = {"height": 0.6, "edgecolor": INK}
    axes.barh(rows, overhead, color=LIGHT, label="header and tag", **bar)
    axes.barh(
        rows,
        list(contents.values()),
        left=overhead,
        color=MIDDLE,
        hatch="//",
        label="content",
        **bar,
    )
    first, *_ = totals = [overhead + content for content in contents.values()]
    for row, total in zip(rows, totals, strict=True):
        times = "" if total == first else f"\n{total / first:.1f} times as many"
        axes.text(
            total + max(totals) * 0.02, row, f"{total} bytes{times}", va="center", fontsize=SMALL
        )
    axes.set_yticks(rows, list(contents))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set(xlim=(0, max(totals) * 1.75), xlabel="bytes of one frame, before COBS")
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
    """Estimated means of coordinates with their confidence intervals; nan where nobody reported."""
    figure, axes = single(0.9 + 0.17 * len(names))
    rows = np.arange(len(names))[::-1]
    reach = np.array([mean - low, high - mean])
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.errorbar(
        mean,
        rows,
        xerr=reach,
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
    """Estimated frequencies of an attribute's categories, their intervals (2 x n), and the true
    ones, if known.
    """

    name: str
    categories: Sequence[str]
    shares: Floats
    interval: Floats
    true: Floats | None = None


def frequencies(attributes: Sequence[Shares]) -> Figure:
    """The frequencies of categories, one panel for each attribute."""
    rows = -(-len(attributes) // 2)
    most = max(len(one.categories) for one in attributes)
    figure = blank(WIDTH, 0.6 + rows * (0.7 + 0.2 * most))
    panels = figure.subplots(rows, 2, squeeze=False).flat
    for axes, one in zip(panels, attributes, strict=False):
        dress(axes)
        at = np.arange(len(one.categories))[::-1]
        axes.errorbar(
            one.shares,
            at,
            xerr=np.abs(one.interval - one.shares),
            fmt="o",
            markersize=4,
            color=DARK,
            ecolor=MIDDLE,
            capsize=2.5,
            label="estimate, and its interval of 95 %",
        )
        if one.true is not None:
            hollow: dict[str, Any] = {
                "markersize": 7,
                "markerfacecolor": "none",
                "markeredgecolor": INK,
            }
            axes.plot(one.true, at, "D", label="truly", **hollow)
        axes.set_yticks(
            at, [plain(category, LONGEST // 2) for category in one.categories], fontsize=SMALL
        )
        axes.set_ylim(-0.8, len(one.categories) - 0.2)
        axes.set_title(plain(one.name), fontsize=SMALL)
        axes.tick_params(labelsize=SMALL)
        axes.xaxis.set_major_locator(MaxNLocator(3))
        axes.xaxis.set_major_formatter(PercentFormatter(1))
    for axes in panels:
        axes.set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, **LEGEND)
    return figure


def clusters(sizes: Mapping[str, int]) -> Figure:
    """The number of clients in each cluster."""
    figure, axes = single(2.1)
    bars = axes.bar(list(sizes), list(sizes.values()), width=0.6, color=MIDDLE, edgecolor=INK)
    axes.bar_label(bars, labels=[f"{size:,}" for size in sizes.values()], padding=3)
    axes.set(xlabel="cluster", ylabel="clients")
    axes.grid(visible=False, axis="x")
    return figure


def scores(rows: Sequence[Mapping[str, Any]], measure: str) -> Figure:
    """A score of clusters (`measure`) against the loss of the model, falling, or by round where a
    loss is None. rows: round, score, score_without_noise and loss.
    """
    figure, axes = single(2.9)
    known = all(row["loss"] is not None for row in rows)
    at = [row["loss" if known else "round"] for row in rows]
    kinds = {
        "score": ("with noise", "-o", DARK),
        "score_without_noise": ("without noise", "--s", MIDDLE),
    }
    for name, (label, line, colour) in kinds.items():
        if None not in (values := [row[name] for row in rows]):
            axes.plot(at, values, line, markersize=4.5, color=colour, label=label)
    axes.set(xlabel="log-loss" if known else "round", ylabel=measure, xmargin=0.08, ymargin=0.15)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=not known))
    axes.xaxis.set_inverted(known)
    for x, row, side in ((at[0], rows[0], "left"), (at[-1], rows[-1], "right")) if known else ():
        axes.annotate(
            f"round {row['round']}", (x, row["score"]), (0, -14), "data", "offset points", ha=side
        )
    figure.legend(loc="outside upper center", ncols=2, **LEGEND)
    return figure
