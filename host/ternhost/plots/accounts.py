"""Pictures of what reports disclose: epsilons of accounts, and what an observer may believe."""

from collections.abc import Mapping, Sequence
from textwrap import fill

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from ternhost.plots.canvas import DARK, INK, LEGEND, MIDDLE, SHADES, SMALL, legend_above, single
from ternhost.privacy.guarantee import believed, rounded
from ternhost.privacy.many_reports import Epsilons

_LINE = 44  # characters of a label below the axis


def epsilons(
    at: Sequence[int],
    across: str,
    up: str,
    curves: Mapping[str, Sequence[float | None]],
    title: str,
) -> Figure:
    """Draw up to four ways to account for epsilon, against the number of reports or rounds.

    Both axes are logarithmic. at: the numbers of reports or rounds. across, up: the labels of the
    two axes. curves: by the name of each way, its epsilon at each of these numbers; None where it
    has no answer.
    """
    figure, axes = single(3.6)
    # Of each curve: the style of its line, its marker, and its colour.
    styles = (("-", "o", DARK), ("--", "s", MIDDLE), ("-.", "^", SHADES[1]), (":", "", INK))
    for (name, bounds), (line, marker, colour) in zip(curves.items(), styles, strict=False):
        if not any(bounds):
            continue
        heights = np.array(bounds, np.float64)  # None becomes nan, which is not drawn
        axes.plot(at, heights, line, marker=marker, markersize=4, color=colour, label=name)
    axes.set(xscale="log", yscale="log", xlabel=across, ylabel=up)
    axes.set_title(title, fontsize="medium", pad=40)
    legend_above(axes, columns=2)
    return figure


def over_rounds(rows: Sequence[Epsilons], columns: Mapping[str, str], title: str) -> Figure:
    """Draw the epsilons of a device's reports together, after growing numbers of rounds.

    columns: the names of fields of `Epsilons`, by the names of the curves.
    """
    across = "reports of a device"
    if rows[0].shuffled is not None:
        across = "rounds"
    curves: dict[str, list[float | None]] = {}
    for heading, name in columns.items():
        curves[heading] = [getattr(row, name) for row in rows]
    return epsilons([row.rounds for row in rows], across, "epsilon", curves, title)


def epsilon_spent(spent: Mapping[float, int], allowed: float, what: str) -> Figure:
    """Draw as bars how many clients have spent each epsilon, and the epsilon of the run as a line.

    spent: the number of clients by the epsilon that they have spent. allowed: what the run may cost
    a client, as an epsilon. what: a label that says what the epsilon is about.
    """
    label = fill(f"spent by a client: {what}", _LINE)
    more_lines = label.count("\n")
    figure, axes = single(2.1 + 0.17 * more_lines)  # inches
    epsilons = sorted(spent)
    clients = [spent[epsilon] for epsilon in epsilons]
    largest = max(allowed, *epsilons)
    width = largest / 18  # of a bar
    bars = axes.bar(epsilons, clients, width=width, color=DARK, edgecolor=INK, label="clients")
    labels = [f"{spent[epsilon]:,} at {rounded(epsilon)}" for epsilon in epsilons]
    axes.bar_label(bars, labels=labels, padding=4, bbox={"color": "white", "pad": 1.5})
    axes.axvline(allowed, linestyle="--", color=MIDDLE, label=f"of this run: {rounded(allowed)}")

    room_for_labels = 1.3
    axes.set(xlim=(-width, largest + 2 * width), ylim=(0, max(clients) * room_for_labels))
    axes.set(xlabel=label, ylabel="clients")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(lambda value, _position: f"{value:,.0f}")
    legend_above(axes, columns=2)
    return figure


def beliefs(epsilons: Sequence[tuple[str, float]], priors: Sequence[float]) -> Figure:
    """Draw how certain an observer can become of something about a device, by its reports.

    epsilons: pairs of a name and an epsilon; each is a row of the picture. priors: up to three
    probabilities that the observer assigns to it before the reports. Each row has a line for each
    of them, which leads from this probability to the largest one that is possible afterwards.
    """
    names = [name for name, _epsilon in epsilons]
    figure, axes = single(1.0 + 0.62 * len(names))  # inches: for legend and axis, and for each row
    styles = (("o", DARK), ("s", MIDDLE), ("^", SHADES[1]))
    rows = np.arange(len(names))[::-1]  # the first row is at the top
    for number, (prior, (marker, colour)) in enumerate(zip(priors, styles, strict=False)):
        heights = rows + 0.22 * (1 - number)  # three lines in a row: above, at and below its middle
        after = [believed(prior, epsilon) for _name, epsilon in epsilons]
        label = f"from {100 * prior:g} %"
        axes.hlines(heights, prior, after, color=colour, linewidth=2)
        axes.plot([prior] * len(rows), heights, "|", color=INK, markersize=9)
        axes.plot(after, heights, marker, color=colour, markersize=6, label=label)
    axes.set_yticks(rows, names, fontsize=SMALL)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.6, len(names) - 0.4))
    axes.set_xlabel("belief before (line) and after, at most")
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    figure.legend(loc="outside upper center", ncols=len(priors), **LEGEND)
    return figure
