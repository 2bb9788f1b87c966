"""Pictures of a card: the distribution of its outputs, and what each can tell about the input."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from tern.card import LAPLACE, PROJECTION, SUM, Card
from tern.fixed import ONE
from ternhost.plots.canvas import (
    DARK,
    HATCHES,
    INK,
    LIGHT,
    MIDDLE,
    SHADES,
    WIDTH,
    Floats,
    blank,
    dress,
    legend_above,
)
from ternhost.privacy import cards, certify, outputs, projection
from ternhost.privacy.base import MICRO

_FEW = 8  # so many outputs are drawn as groups of bars, more as lines
_MOST_LEVEL_LABELS = 4  # under the bars; more are written at a slant
_MOST_STEMS = 400  # lines of a panel
_SEPARATE = 64  # so many lines have a gap between them


def card_distribution(
    card: Card, title: str = "", inputs: Sequence[float] = (-1, -0.5, 0, 0.5, 1)
) -> Figure:
    """Draw the exact distribution of a card's outputs for some inputs from -1 to 1.

    A card is the certified table from which a device samples its report. If some outputs disclose
    more than others, a second panel shows the privacy loss of each. title: of the picture; empty:
    none.
    """
    values = np.array(cards.output_values(card))
    probabilities = np.array([cards.distribution(card, round(x * ONE)) for x in inputs])
    loss = np.zeros(1)
    if card.shape != SUM:  # Gaussian noise has no largest loss
        loss = losses(card)

    # What is hardly ever reported would take most of the room.
    is_shown = outputs.shown(values, probabilities)
    values, probabilities = values[is_shown], probabilities[:, is_shown]
    if len(loss) == len(is_shown):
        loss = loss[is_shown]

    are_few = len(values) <= _FEW
    heights = [2.6 if are_few else 4.0]  # of the panels, in inches
    losses_differ = bool(np.ptp(loss) > 1e-3 * loss.max())
    if losses_differ:
        heights.append(1.9)
    title_height = 0.0
    if title:
        title_height = 0.3
    figure = blank(WIDTH, sum(heights) + title_height)
    subfigures = figure.subfigures(len(heights), 1, height_ratios=heights)
    upper, *lower = np.ravel(np.asarray(subfigures))
    if title:
        figure.suptitle(title, fontsize="large")
    if are_few:
        _bars(upper, values, probabilities, inputs)
    else:
        _rows(upper, values, probabilities, inputs, card.shape)
    if losses_differ:
        certified = (card.epsilon or 0) / MICRO
        _loss_panel(lower[0], values, loss, certified)
    return figure


def _loss_panel(figure: SubFigure, values: Floats, loss: Floats, certified: float) -> None:
    """Draw the privacy loss of each output, and the certified epsilon as a line above.

    values: for which the outputs stand. loss: of each output (`losses`).
    """
    axes = figure.subplots()
    dress(axes)
    if len(values) <= _FEW:
        places = range(len(values))
        axes.bar(places, loss, width=0.6, color=LIGHT, edgecolor=INK, label="this output")
        _label_outputs(axes, values)
    else:
        _stems(axes, values, loss, "this output")
    axes.axhline(certified, linestyle="--", color=MIDDLE, label=f"certified: {certified:.6g}")
    highest = max(certified, float(loss.max())) * 1.08
    axes.set(ylim=(0, highest), xlabel="reported value", ylabel="log-likelihood ratio")
    axes.set_title("What it can tell about x, at most (epsilon)", fontsize="medium", pad=24)
    legend_above(axes, columns=2)


def _label_outputs(axes: Axes, values: Floats) -> None:
    """Write the value of each output below its bar; the bars are at 0, 1, 2, ..."""
    axes.set_xticks(range(len(values)), [f"{value:.3g}" for value in values])
    if len(values) > _MOST_LEVEL_LABELS:  # they would overlap
        axes.tick_params(axis="x", labelrotation=45)


def _bars(
    figure: SubFigure, values: Floats, probabilities: Floats, inputs: Sequence[float]
) -> None:
    """Draw the probabilities of a few outputs as groups of bars, with a bar for each input.

    values: for which the outputs stand. probabilities: inputs x outputs.
    """
    axes = figure.subplots()
    dress(axes)
    width = 0.84 / len(inputs)  # the rest of 1 is the gap between two groups
    for number, (row, x) in enumerate(zip(probabilities, inputs, strict=True)):
        # Bars of a group lie side by side, and its middle is at the number of its output.
        bars_from_middle = number - (len(inputs) - 1) / 2
        places = np.arange(len(values)) + bars_from_middle * width
        axes.bar(
            places,
            row,
            width,
            color=SHADES[number % len(SHADES)],
            hatch=HATCHES[number % len(HATCHES)],
            edgecolor=INK,
            linewidth=0.6,
            label=f"x = {x:g}",
        )
    _label_outputs(axes, values)
    axes.set(xlabel="reported value", ylabel="probability")
    _scale_probabilities(axes, probabilities)
    axes.grid(visible=False, axis="x")
    axes.set_title("What is reported for an input x", fontsize="medium", pad=24)
    legend_above(axes, columns=len(inputs))


def _rows(
    figure: SubFigure, values: Floats, probabilities: Floats, inputs: Sequence[float], shape: int
) -> None:
    """Draw the probabilities of many outputs as vertical lines, in a panel for each input.

    values: for which the outputs stand. probabilities: inputs x outputs. shape: of the card.
    """
    panels = figure.subplots(len(inputs), 1, sharex=True, sharey=True)
    for axes, row, x in zip(panels, probabilities, inputs, strict=True):
        dress(axes)
        _stems(axes, values, row)
        if shape != PROJECTION:  # its outputs are directions, on which no input lies
            axes.axvline(x, color=MIDDLE, linestyle="--")
        _scale_probabilities(axes, probabilities)
        if axes.get_yscale() == "linear":
            axes.yaxis.set_major_locator(MaxNLocator(2))
        else:
            axes.yaxis.set_major_locator(LogLocator(numticks=3))
            axes.yaxis.set_minor_locator(NullLocator())
        axes.text(1.01, 0.5, f"x = {x:g}", transform=axes.transAxes, va="center")
    y_label = "probability"
    if outputs.needs_logarithm(probabilities):
        y_label += " (log)"
    figure.supylabel(y_label, fontsize="medium")
    x_label = "reported value"
    title = "What is reported for an input x (dashed)"
    if shape == PROJECTION:
        x_label = "cosine of the reported direction with the vector"
        title = "What is reported for a vector of x radii"
    panels[-1].set_xlabel(x_label)
    panels[0].set_title(title, fontsize="medium")


def _scale_probabilities(axes: Axes, probabilities: Floats) -> None:
    """Set the axis of probabilities: logarithmic where most of them could not be seen otherwise."""
    highest = probabilities.max()
    if outputs.needs_logarithm(probabilities):
        lowest = probabilities[probabilities > 0].min()
        axes.set_yscale("log")
        axes.set_ylim(lowest / 3, highest * 2)
        axes.set_ylabel("probability (log)" if axes.get_ylabel() else "")
    else:
        axes.set_ylim(0, highest * 1.1)


def _stems(axes: Axes, values: Floats, heights: Floats, label: str = "") -> None:
    """Draw a vertical line for each output, from the axis up to its height.

    A filled area would be wrong: it would join outputs between which there are none. If there are
    many outputs, several neighbours share a line, which is as high as the highest of them.

    values: for which the outputs stand. heights: of each output. label: for the legend.
    """
    outputs_of_stem = math.ceil(len(values) / _MOST_STEMS)
    if outputs_of_stem > 1:
        order = np.argsort(values)
        firsts = np.arange(0, len(values), outputs_of_stem)  # the first output of each line
        values = values[order][firsts]
        heights = np.maximum.reduceat(heights[order], firsts)

    # The axes take about 0.8 of the picture's width, and an inch has 72 points. A line takes a
    # share of the room that an output has there: with a gap to the next one, if there are few.
    points_of_output = 72 * 0.8 * WIDTH / len(values)
    share = 1.1
    if len(values) <= _SEPARATE:
        share = 0.7
    width = min(4.0, max(0.5, share * points_of_output))
    bottom = np.finfo(float).tiny  # above 0, which a logarithmic axis does not have
    axes.vlines(values, bottom, heights, color=DARK, linewidth=width, label=label)


def losses(card: Card) -> Floats:
    """Return the privacy loss of each output of a card.

    This is the maximum over all inputs x and y of ln(P(output | x) / P(output | y)).
    """
    if card.shape == LAPLACE:
        # With each step of the grid between input and output, the likelihood falls by exp(-s / t).
        one = 1 << card.grid_bits  # the steps from 0 to 1
        steps = np.abs(np.arange(card.lowest, card.lowest + card.symbols))  # from 0 to the output
        farthest = steps + one  # steps to the input -1 or 1, whichever is farther
        nearest = np.maximum(steps - one, 0.0)  # 0 if the output is itself a possible input
        difference: Floats = farthest - nearest
        return difference * (card.s / card.t)
    if card.shape == PROJECTION:
        # Each direction has weight a if it is near the vector, otherwise b.
        body = projection.of(card)
        return np.full(card.symbols, math.log(body.a / body.b))
    # Between two knots the probabilities of a card are linear, so extremes are at the knots.
    knot_count = len(certify.knots(card))
    rows = [certify.at_knot(card, knot) for knot in range(knot_count)]
    likelihoods = np.array(rows, np.float64)  # knots x outputs
    losses: Floats = np.log(likelihoods.max(axis=0) / likelihoods.min(axis=0))
    return losses
