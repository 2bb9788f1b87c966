"""Pictures of a run, its cost and its card, as matplotlib Figures.

Everything can be told apart without colour.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from tern.card import LAPLACE, MIXTURE, PROJECTION, SUM, Card
from tern.fixed import ONE
from ternhost.errors import StorageError, UsageError
from ternhost.files import replacing, storage_errors
from ternhost.privacy import cards, certify, projection
from ternhost.privacy.guarantee import believed, rounded
from ternhost.text import brief

Floats = npt.NDArray[np.float64]

_INK = "#222222"
_DARK = "#14406b"
_MIDDLE = "#c46a1b"
_LIGHT = "#a9bfd3"
_GRID = "#dddddd"
_SHADES = (_DARK, "#4f83b5", _LIGHT, "#dfa36b", _MIDDLE)
_HATCHES = ("", "//", "..", "\\\\", "xx")
_FAR = 3  # times the height of a curve
_FEW = 8  # outputs that fit as groups of bars
_SMALL = 9  # points
_LONGEST = 40  # characters of a name
_LEGEND: dict[str, Any] = {
    "frameon": False,
    "fontsize": _SMALL,
    "columnspacing": 0.8,
    "handlelength": 1.4,
}
_MOST_STEMS = 400
_SEPARATE = 64  # outputs between which there is room for a gap

_WIDTH = 4.2  # inches: text stays readable where the picture is as wide as a phone
DPI = 240
# Colours of a picture inside a page follow the page's scheme. A background is transparent.
_SCHEMED = {
    "#000000": "ink",
    _INK: "ink",
    _GRID: "line",
    "#ffffff": "page",
    **{shade: f"c{i}" for i, shade in enumerate(_SHADES, 1)},
}


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
    figure, axes = _figure(2.9)
    axes.axhline(optimum, linestyle="--", color=_MIDDLE, label="without privacy")
    axes.plot(
        np.arange(1, len(private) + 1),
        private,
        linestyle="-",
        marker="o",
        markersize=5,
        color=_DARK,
        markevery=max(1, math.ceil(len(private) / 20)),
        label=label,
    )
    least, most = min(*private, optimum), max(*private, optimum)
    if (
        least - baseline < _FAR * (most - least) > baseline - most
    ):  # else it would flatten the curve
        axes.axhline(baseline, linestyle=":", color=_INK, label=floor)
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
    figure.legend(loc="outside upper center", ncols=2, **_LEGEND)
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
    figure, axes = _figure(0.9 + 0.42 * len(contents))
    rows = np.arange(len(contents))[::-1]
    bar: dict[str, Any] = {"height": 0.6, "edgecolor": _INK}
    axes.barh(rows, overhead, color=_LIGHT, label="header and tag", **bar)
    axes.barh(
        rows,
        list(contents.values()),
        left=overhead,
        color=_MIDDLE,
        hatch="//",
        label="content",
        **bar,
    )
    first, *_ = totals = [overhead + content for content in contents.values()]
    for row, total in zip(rows, totals, strict=True):
        times = "" if total == first else f"\n{total / first:.1f} times as many"
        axes.text(
            total + max(totals) * 0.02, row, f"{total} bytes{times}", va="center", fontsize=_SMALL
        )
    axes.set_yticks(rows, list(contents))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set(xlim=(0, max(totals) * 1.75), xlabel="bytes of one frame, before COBS")
    legend_above(axes, 2)
    return figure


def card_distribution(
    card: Card, title: str = "", inputs: Sequence[float] = (-1, -0.5, 0, 0.5, 1)
) -> Figure:
    """The exact distribution of a card's outputs for some inputs, and how much each output can tell
    about the input.
    """
    values = np.array(cards.output_values(card))
    rows = np.array([cards.distribution(card, round(x * ONE)) for x in inputs])
    epsilon = (card.epsilon or 0) / 1e6
    loss = np.zeros(1) if card.shape == SUM else _losses(card)  # Gaussian noise has no bound

    few = len(values) <= _FEW
    # Else a panel of equal bars would say nothing.
    telling = card.shape != SUM and bool(np.ptp(loss) > 1e-3 * loss.max())
    heights = [2.6 if few else 4.0, *[1.9] * telling]
    figure = blank(_WIDTH, sum(heights) + (0.3 if title else 0))
    upper, *lower = np.ravel(np.asarray(figure.subfigures(len(heights), 1, height_ratios=heights)))
    if title:
        figure.suptitle(title, fontsize="large")
    if few:
        _bars(upper, values, rows, inputs)
    else:
        # of a mixture a few outputs are far more likely than the others
        _rows(
            upper, values, rows, inputs, log=card.shape == MIXTURE, vector=card.shape == PROJECTION
        )
    if not telling:
        return figure
    axes = lower[0].subplots()
    dress(axes)
    if few:
        axes.bar(
            range(len(values)), loss, width=0.6, color=_LIGHT, edgecolor=_INK, label="this output"
        )
        axes.set_xticks(range(len(values)), [f"{value:.3g}" for value in values])
    else:
        _stems(axes, values, loss, "this output")
    axes.axhline(epsilon, linestyle="--", color=_MIDDLE, label=f"certified: {epsilon:.6g}")
    highest = max(epsilon, float(loss.max())) * 1.08
    axes.set(ylim=(0, highest), xlabel="reported value", ylabel="log-likelihood ratio")
    axes.set_title("What it can tell about x, at most (epsilon)", fontsize="medium", pad=24)
    legend_above(axes, 2)
    return figure


def _bars(figure: SubFigure, values: Floats, rows: Floats, inputs: Sequence[float]) -> None:
    axes = figure.subplots()
    dress(axes)
    width = 0.84 / len(inputs)
    for i, (row, x) in enumerate(zip(rows, inputs, strict=True)):
        axes.bar(
            np.arange(len(values)) + (i - (len(inputs) - 1) / 2) * width,
            row,
            width,
            color=_SHADES[i % 5],
            hatch=_HATCHES[i % 5],
            edgecolor=_INK,
            linewidth=0.6,
            label=f"x = {x:g}",
        )
    axes.set_xticks(range(len(values)), [f"{value:.3g}" for value in values])
    axes.set(xlabel="reported value", ylabel="probability")
    axes.grid(visible=False, axis="x")
    axes.set_title("What is reported for an input x", fontsize="medium", pad=24)
    legend_above(axes, len(inputs))


def _rows(
    figure: SubFigure,
    values: Floats,
    rows: Floats,
    inputs: Sequence[float],
    log: bool,
    vector: bool,
) -> None:
    """vector: outputs are directions, and inputs lengths of vectors."""
    panels = figure.subplots(len(inputs), 1, sharex=True, sharey=True)
    for axes, row, x in zip(panels, rows, inputs, strict=True):
        dress(axes)
        _stems(axes, values, row)
        if not vector:
            axes.axvline(x, color=_MIDDLE, linestyle="--")
        if log:
            axes.set_yscale("log")
            axes.set_ylim(rows.min() / 2, rows.max() * 2)
        else:
            axes.set_ylim(0, rows.max() * 1.1)
            axes.yaxis.set_major_locator(MaxNLocator(2))
        axes.text(1.01, 0.5, f"x = {x:g}", transform=axes.transAxes, va="center")
    panels[-1].set_xlabel(
        "cosine of the reported direction with the vector" if vector else "reported value"
    )
    figure.supylabel("probability", fontsize="medium")
    about = "vector of x radii" if vector else "input x (dashed)"
    panels[0].set_title(
        f"What is reported for {'a' if vector else 'an'} {about}", fontsize="medium"
    )


def _stems(axes: Axes, values: Floats, heights: Floats, label: str = "") -> None:
    """A line up from the axis for each output.

    An area would join the two halves of a mixture. Of many outputs, each line is the highest of
    some neighbours.
    """
    if (every := -(-len(values) // _MOST_STEMS)) > 1:
        order, firsts = np.argsort(values), np.arange(0, len(values), every)
        values, heights = values[order][firsts], np.maximum.reduceat(heights[order], firsts)
    share = 0.7 if len(values) <= _SEPARATE else 1.1  # of the place for each output, in points
    width = min(4.0, max(0.5, share * 72 * 0.8 * _WIDTH / len(values)))
    axes.vlines(values, np.finfo(float).tiny, heights, color=_DARK, linewidth=width, label=label)


def _losses(card: Card) -> Floats:
    """The largest log-likelihood ratio of each output over all inputs."""
    if card.shape == LAPLACE:
        one, outputs = (
            1 << card.grid_bits,
            np.abs(np.arange(card.lowest, card.lowest + card.symbols)),
        )
        # The farthest less the nearest input, in steps.
        reach: Floats = outputs + one - np.maximum(outputs - one, 0.0)
        return reach * (card.s / card.t)
    if card.shape == PROJECTION:
        body = projection.of(card)
        return np.full(card.symbols, math.log(body.a / body.b))
    every = np.array(
        [certify.at_knot(card, i) for i in range(len(certify.knots(card)))], np.float64
    )
    losses: Floats = np.log(every.max(axis=0) / every.min(axis=0))
    return losses


def epsilons(
    at: Sequence[int],
    across: str,
    up: str,
    curves: Mapping[str, Sequence[float | None]],
    title: str,
) -> Figure:
    """Up to four accounts of epsilon, by name, against a number of reports or rounds; None where
    one has no answer.
    """
    figure, axes = _figure(3.6)
    styles = (("-", "o", _DARK), ("--", "s", _MIDDLE), ("-.", "^", _SHADES[1]), (":", "", _INK))
    for (name, bounds), (line, marker, colour) in zip(curves.items(), styles, strict=False):
        if any(bounds):
            heights = np.array([math.nan if bound is None else bound for bound in bounds])
            axes.plot(at, heights, line, marker=marker, markersize=4, color=colour, label=name)
    axes.set(xscale="log", yscale="log", xlabel=across, ylabel=up)
    axes.set_title(title, fontsize="medium", pad=40)
    legend_above(axes, 2)
    return figure


def epsilon_spent(spent: Mapping[float, int], allowed: float, what: str) -> Figure:
    """The number of clients by the epsilon that they spent in all, beside the one of the run. what:
    the epsilon is.
    """
    figure, axes = _figure(2.1)
    at = sorted(spent)
    width = max(allowed, *at) / 18
    bars = axes.bar(
        at, [spent[x] for x in at], width=width, color=_DARK, edgecolor=_INK, label="clients"
    )
    labels = [f"{spent[x]:,} at {rounded(x)}" for x in at]
    axes.bar_label(bars, labels=labels, padding=4, bbox={"color": "white", "pad": 1.5})
    axes.axvline(allowed, linestyle="--", color=_MIDDLE, label=f"of this run: {rounded(allowed)}")
    axes.set(xlim=(-width, max(allowed, *at) + 2 * width), ylim=(0, max(spent.values()) * 1.3))
    axes.set(xlabel=f"spent by a client: {what}", ylabel="clients")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    legend_above(axes, 2)
    return figure


def beliefs(epsilons: Sequence[tuple[str, float]], priors: Sequence[float]) -> Figure:
    """What an observer may come to believe after reports, for each named epsilon, if it believed
    each of the `priors` before.
    """
    figure, axes = _figure(1.0 + 0.62 * len(epsilons))
    styles = (("o", _DARK), ("s", _MIDDLE), ("^", _SHADES[1]))
    rows = np.arange(len(epsilons))[::-1]
    for i, (prior, (marker, colour)) in enumerate(zip(priors, styles, strict=False)):
        heights = rows + 0.22 * (1 - i)
        after = [believed(prior, epsilon) for _, epsilon in epsilons]
        axes.hlines(heights, prior, after, color=colour, linewidth=2)
        axes.plot([prior] * len(rows), heights, "|", color=_INK, markersize=9)
        axes.plot(
            after, heights, marker, color=colour, markersize=6, label=f"from {100 * prior:g} %"
        )
    axes.set_yticks(rows, [name for name, _ in epsilons], fontsize=_SMALL)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set(
        xlim=(-0.02, 1.02),
        ylim=(-0.6, len(epsilons) - 0.4),
        xlabel="belief before (line) and after, at most",
    )
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    figure.legend(loc="outside upper center", ncols=len(priors), **_LEGEND)
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
    figure, axes = _figure(0.9 + 0.17 * len(names))
    rows = np.arange(len(names))[::-1]
    reach = np.array([mean - low, high - mean])
    axes.axvline(0, color=_INK, linewidth=0.8)
    axes.errorbar(
        mean,
        rows,
        xerr=reach,
        fmt="o",
        markersize=4,
        color=_DARK,
        ecolor=_MIDDLE,
        capsize=2.5,
        label=f"mean, and its interval of at least {100 * confidence:g} %",
    )
    axes.set_yticks(rows, [plain(name) for name in names], fontsize=_SMALL)
    axes.set(ylim=(-0.8, len(names) - 0.2), xlabel=across)
    figure.legend(loc="outside upper center", **_LEGEND)
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
    figure = blank(_WIDTH, 0.6 + rows * (0.7 + 0.2 * most))
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
            color=_DARK,
            ecolor=_MIDDLE,
            capsize=2.5,
            label="estimate, and its interval of 95 %",
        )
        if one.true is not None:
            hollow: dict[str, Any] = {
                "markersize": 7,
                "markerfacecolor": "none",
                "markeredgecolor": _INK,
            }
            axes.plot(one.true, at, "D", label="truly", **hollow)
        axes.set_yticks(
            at, [plain(category, _LONGEST // 2) for category in one.categories], fontsize=_SMALL
        )
        axes.set_ylim(-0.8, len(one.categories) - 0.2)
        axes.set_title(plain(one.name), fontsize=_SMALL)
        axes.tick_params(labelsize=_SMALL)
        axes.xaxis.set_major_locator(MaxNLocator(3))
        axes.xaxis.set_major_formatter(PercentFormatter(1))
    for axes in panels:
        axes.set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, **_LEGEND)
    return figure


def clusters(sizes: Mapping[str, int]) -> Figure:
    """The number of clients in each cluster."""
    figure, axes = _figure(2.1)
    bars = axes.bar(list(sizes), list(sizes.values()), width=0.6, color=_MIDDLE, edgecolor=_INK)
    axes.bar_label(bars, labels=[f"{size:,}" for size in sizes.values()], padding=3)
    axes.set(xlabel="cluster", ylabel="clients")
    axes.grid(visible=False, axis="x")
    return figure


def scores(rows: Sequence[Mapping[str, Any]], measure: str) -> Figure:
    """A score of clusters (`measure`) against the loss of the model, falling, or by round where a
    loss is None. rows: round, score, score_without_noise and loss.
    """
    figure, axes = _figure(2.9)
    known = all(row["loss"] is not None for row in rows)
    at = [row["loss" if known else "round"] for row in rows]
    kinds = {
        "score": ("with noise", "-o", _DARK),
        "score_without_noise": ("without noise", "--s", _MIDDLE),
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
    figure.legend(loc="outside upper center", ncols=2, **_LEGEND)
    return figure


def plain(name: str, most: int = _LONGEST) -> str:
    """A name from a table of data as a picture shows it: not as a formula, which matplotlib makes
    of dollars.
    """
    return brief(name, most).replace("$", r"\$")


def check_place(path: Path) -> None:
    """Check that a picture can be written.

    Raises UsageError for an unknown format, StorageError otherwise.
    """
    formats = blank(1, 1).canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in ("", *formats):
        raise UsageError(
            f"{path}: there is no format {path.suffix}", "end its name in .png, .svg or .pdf"
        )
    # A device is written to as it is, and a file replaced: see `replacing`.
    written = path if path.exists() and not path.is_file() else path.parent
    if path.is_dir() or not os.access(written, os.W_OK):
        raise StorageError(
            f"{path} cannot be written", hint="name a file in a folder that is there"
        )


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG (or what the name's ending says), whole or not at all.

    Raises StorageError.
    """
    with (
        storage_errors("make room, or choose another folder", f"{path} cannot be written"),
        replacing(path) as temporary,
    ):
        figure.savefig(temporary, dpi=DPI, format=path.suffix[1:] or "png")


def png(figure: Figure) -> bytes:
    """A figure as the bytes of a PNG file."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    figure.set_layout_engine("none")  # another format needs no other layout
    return buffer.getvalue()


def svg(figure: Figure, name: str) -> str:
    """A figure as an SVG element of a page, whose font and colours it takes. name: sets its ids
    apart from others.
    """
    buffer = StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    drawn = buffer.getvalue()
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn[drawn.index("<svg") :], flags=re.DOTALL)
    attributes = r' id="[\w.]+_\d+"| (width|height)="[\d.]+pt"| xmlns(:xlink)?="[^"]*"'
    drawn = re.sub(rf'{attributes}|font-family: [^;"]*(; )?|xlink:(?=href)', "", drawn)
    for colour, variable in _SCHEMED.items():
        drawn = drawn.replace(colour, f"var(--{variable})")
    return drawn


def _figure(height: float) -> tuple[Figure, Axes]:
    figure = blank(_WIDTH, height)
    axes = figure.subplots()
    dress(axes)
    return figure, axes


def blank(width: float, height: float) -> Figure:
    """An empty figure of that many inches."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def dress(axes: Axes) -> None:
    """Give axes the look of all the pictures here."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def legend_above(axes: Axes, columns: int) -> None:
    """Put the legend over the axes, where it hides nothing."""
    axes.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, borderaxespad=0.3, **_LEGEND
    )
