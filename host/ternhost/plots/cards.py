"""Pictures of a card: the distribution of its outputs, and what each can tell about the input."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from tern.card import LAPLACE, MIXTURE, PROJECTION, SUM, Card
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
from ternhost.privacy import cards, certify, projection
from ternhost.privacy.base import MICRO

_FEW = 8  # outputs that fit as groups of bars
_MOST_STEMS = 400
_SEPARATE = 64  # outputs between which there is room for a gap


def card_distribution(
    card: Card, title: str = "", inputs: Sequence[float] = (-1, -0.5, 0, 0.5, 1)
) -> Figure:
    """Draw the exact distribution of a card's outputs for some inputs from -1 to 1.

    A second panel shows how much each output can disclose about the input, if outputs differ in
    that. title: of the picture; empty: none.
    """
    values = np.array(cards.output_values(card))
    rows = np.array([cards.distribution(card, round(x * ONE)) for x in inputs])
    loss = np.zeros(1)
    if card.shape != SUM:  # Gaussian noise has no bound
        loss = losses(card)

    are_few = len(values) <= _FEW
    heights = [2.6 if are_few else 4.0]  # of the panels, in inches
    outputs_differ = bool(np.ptp(loss) > 1e-3 * loss.max())
    if outputs_differ:
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
        _bars(upper, values, rows, inputs)
    else:
        _rows(upper, values, rows, inputs, card.shape)
    if outputs_differ:
        _loss_panel(lower[0], values, loss, certified=(card.epsilon or 0) / MICRO)
    return figure


def _loss_panel(figure: SubFigure, values: Floats, loss: Floats, certified: float) -> None:
    """Draw the privacy loss of each output, and the certified epsilon as a line above.

    values, loss: of each output.
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
    legend_above(axes, 2)


def _label_outputs(axes: Axes, values: Floats) -> None:
    axes.set_xticks(range(len(values)), [f"{value:.3g}" for value in values])


def _bars(figure: SubFigure, values: Floats, rows: Floats, inputs: Sequence[float]) -> None:
    """Draw the probabilities of few outputs as groups of bars, with a bar for each input.

    values: of the outputs. rows: a row of probabilities for each input.
    """
    axes = figure.subplots()
    dress(axes)
    width = 0.84 / len(inputs)
    for i, (probabilities, x) in enumerate(zip(rows, inputs, strict=True)):
        # The bars of a group are centred about its output.
        places = np.arange(len(values)) + (i - (len(inputs) - 1) / 2) * width
        axes.bar(
            places,
            probabilities,
            width,
            color=SHADES[i % len(SHADES)],
            hatch=HATCHES[i % len(HATCHES)],
            edgecolor=INK,
            linewidth=0.6,
            label=f"x = {x:g}",
        )
    _label_outputs(axes, values)
    axes.set(xlabel="reported value", ylabel="probability")
    axes.grid(visible=False, axis="x")
    axes.set_title("What is reported for an input x", fontsize="medium", pad=24)
    legend_above(axes, len(inputs))


def _rows(
    figure: SubFigure, values: Floats, rows: Floats, inputs: Sequence[float], shape: int
) -> None:
    """Draw the probabilities of many outputs as lines, in a panel for each input.

    values: of the outputs. rows: a row of probabilities for each input. shape: of the card.
    """
    panels = figure.subplots(len(inputs), 1, sharex=True, sharey=True)
    for axes, probabilities, x in zip(panels, rows, inputs, strict=True):
        dress(axes)
        _stems(axes, values, probabilities)
        if shape != PROJECTION:  # its outputs are directions, on which no input lies
            axes.axvline(x, color=MIDDLE, linestyle="--")
        if shape == MIXTURE:  # a few outputs are far more likely than the others
            axes.set_yscale("log")
            axes.set_ylim(rows.min() / 2, rows.max() * 2)
        else:
            axes.set_ylim(0, rows.max() * 1.1)
            axes.yaxis.set_major_locator(MaxNLocator(2))
        axes.text(1.01, 0.5, f"x = {x:g}", transform=axes.transAxes, va="center")
    figure.supylabel("probability", fontsize="medium")
    output, title = "reported value", "What is reported for an input x (dashed)"
    if shape == PROJECTION:
        output = "cosine of the reported direction with the vector"
        title = "What is reported for a vector of x radii"
    panels[-1].set_xlabel(output)
    panels[0].set_title(title, fontsize="medium")


def _stems(axes: Axes, values: Floats, heights: Floats, label: str = "") -> None:
    """Draw a line up from the axis for each output; an area would join the halves of a mixture.

    values, heights: of the outputs. If they are many, several neighbours share a line, which is as
    high as the highest of them.
    """
    outputs_of_stem = math.ceil(len(values) / _MOST_STEMS)
    if outputs_of_stem > 1:
        order = np.argsort(values)
        firsts = np.arange(0, len(values), outputs_of_stem)
        values = values[order][firsts]
        heights = np.maximum.reduceat(heights[order], firsts)
    # The width of a line in points: a share of the place that each output has. The axes take about
    # 0.8 of the picture's width; an inch has 72 points.
    share = 0.7 if len(values) <= _SEPARATE else 1.1
    width = min(4.0, max(0.5, share * 72 * 0.8 * WIDTH / len(values)))
    axes.vlines(values, np.finfo(float).tiny, heights, color=DARK, linewidth=width, label=label)


def losses(card: Card) -> Floats:
    """Return the privacy loss of each output: its largest log-likelihood ratio of two inputs."""
    if card.shape == LAPLACE:
        # The likelihood falls by exp(-s/t) with each step between input and output.
        one = 1 << card.grid_bits
        outputs = np.abs(np.arange(card.lowest, card.lowest + card.symbols))
        farthest = outputs + one  # steps to the farthest input
        nearest = np.maximum(outputs - one, 0.0)
        difference: Floats = farthest - nearest
        return difference * (card.s / card.t)
    if card.shape == PROJECTION:
        body = projection.of(card)
        return np.full(card.symbols, math.log(body.a / body.b))
    rows = [certify.at_knot(card, knot) for knot in range(len(certify.knots(card)))]
    likelihoods = np.array(rows, np.float64)  # a row for each knot, a column for each output
    losses: Floats = np.log(likelihoods.max(axis=0) / likelihoods.min(axis=0))
    return losses
