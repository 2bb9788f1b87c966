"""Pictures of collected distributions: a histogram, and the cumulative distribution below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from ternhost.plots.canvas import (
    DARK,
    INK,
    LEGEND,
    LIGHT,
    MIDDLE,
    SMALL,
    SOFT,
    WIDTH,
    blank,
    dress,
    plain,
)

if TYPE_CHECKING:
    from ternhost.learn.distributions.distribution_entries import CollectedDistribution

_HEIGHT = 4.4  # inches
_FEW_BINS = 40  # bars of a histogram, up to which their error bars have caps
_MOST_LABELS = 6  # quantiles whose names stand in the picture; more would hide each other
_TRULY = "truly"  # in the legend
_TRUE: dict[str, Any] = {"color": SOFT, "linewidth": 1.4, "linestyle": (0, (3, 1.5))}


def distribution(collected: CollectedDistribution) -> Figure:
    """Draw the histogram of an attribute, and below it its cumulative distribution.

    The bars of the histogram have error bars. The cumulative distribution has a band, and the
    quantiles are marked on it with their intervals. What the clients really hold is a dashed line,
    if it is known.
    """
    figure = blank(WIDTH, _HEIGHT)
    upper, lower = figure.subplots(2, 1, sharex=True)
    _draw_histogram(upper, collected)
    _draw_cumulative(lower, collected)
    for axes in (upper, lower):
        axes.tick_params(labelsize=SMALL)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(PercentFormatter(1))
    edges = collected.histogram.edges
    lower.set(xlabel=plain(collected.axis), xlim=(edges[0], edges[-1]))

    # The dashed line is in both panels, and stands in the legend once, at its end.
    entries = {}
    for axes in (upper, lower):
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries[label] = handle
    if _TRULY in entries:
        entries[_TRULY] = entries.pop(_TRULY)
    figure.legend(
        list(entries.values()), list(entries), loc="outside upper center", ncols=2, **LEGEND
    )
    return figure


def _draw_histogram(axes: Axes, collected: CollectedDistribution) -> None:
    """Draw the shares of the bins as bars with error bars, and the true ones if they are known."""
    dress(axes)
    edges, bins = collected.shown.edges, collected.shown
    centers = (edges[:-1] + edges[1:]) / 2
    axes.bar(
        edges[:-1],
        bins.shares,
        width=np.diff(edges),
        align="edge",
        color=LIGHT,
        edgecolor=DARK,
        linewidth=0.5,
        label="share of a bin",
    )
    # An interval is cut to what is possible, and then the estimate may lie outside of it.
    center_of_interval = bins.interval.mean(axis=0)
    half_lengths = np.diff(bins.interval, axis=0)[0] / 2
    axes.errorbar(
        centers,
        center_of_interval,
        yerr=half_lengths,
        fmt="none",
        ecolor=MIDDLE,
        elinewidth=1.2,
        capsize=2 if len(centers) <= _FEW_BINS else 0,
        label="its interval of 95 %",
    )
    if bins.true is not None:
        axes.stairs(bins.true, edges, label=_TRULY, **_TRUE)
    axes.set_ylabel("share", fontsize=SMALL)


def _draw_cumulative(axes: Axes, collected: CollectedDistribution) -> None:
    """Draw the cumulative distribution with its band, its quantiles, and the true one if known."""
    dress(axes)
    edges, cumulative = collected.cumulative.edges, collected.cumulative
    # Nothing lies below the first edge: there the distribution is known to be 0.
    shares = np.concatenate([[0.0], cumulative.shares])
    low, high = np.hstack([np.zeros((2, 1)), cumulative.interval])
    axes.fill_between(edges, low, high, color=LIGHT, alpha=0.6, linewidth=0)
    axes.plot(edges, shares, color=DARK, linewidth=1.4, label="this share or less")
    if cumulative.true is not None:
        axes.plot(edges, np.concatenate([[0.0], cumulative.true]), label=_TRULY, **_TRUE)

    quantiles = collected.quantiles
    axes.errorbar(
        [(each.low + each.high) / 2 for each in quantiles],
        [each.level for each in quantiles],
        xerr=[(each.high - each.low) / 2 for each in quantiles],
        fmt="none",
        ecolor=MIDDLE,
        elinewidth=1.2,
        capsize=2.5,
    )
    axes.plot(
        [each.value for each in quantiles],
        [each.level for each in quantiles],
        "o",
        color=MIDDLE,
        markersize=4,
        label="quantile, and its interval of 95 %",
    )
    if len(quantiles) <= _MOST_LABELS:
        for each in quantiles:
            _name_quantile(axes, each.name, (each.value, each.level), edges)
    axes.set(ylim=(-0.03, 1.06))
    axes.set_ylabel("this share or less", fontsize=SMALL)


def _name_quantile(axes: Axes, name: str, point: tuple[float, float], edges: Any) -> None:
    """Write the name of a quantile beside its point, on the side with more room.

    point: its value and level. edges: of the bins, between which the axis lies.
    """
    is_right = point[0] > (edges[0] + edges[-1]) / 2
    axes.annotate(
        name,
        point,
        xytext=(-5 if is_right else 5, 5 if is_right else -5),
        textcoords="offset points",
        ha="right" if is_right else "left",
        va="bottom" if is_right else "top",
        fontsize=SMALL,
        color=INK,
    )
