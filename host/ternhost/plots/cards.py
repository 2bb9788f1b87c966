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

_FEW = 8  # outputs that fit as groups of bars
_MOST_STEMS = 400
_SEPARATE = 64  # outputs between which there is room for a gap


def card_distribution(
    card: Card, title: str = "", inputs: Sequence[float] = (-1, -0.5, 0, 0.5, 1)
) -> Figure:
    """The exact distribution of a card's outputs for some inputs, and how much each output can tell
    about the input.
    """
    values = np.array(cards.output_values(card))
    rows = np.array([cards.distribution(card, round(x * ONE)) for x in inputs])
    epsilon = (card.epsilon or 0) / 1e6
    loss = np.zeros(1) if card.shape == SUM else losses(card)  # Gaussian noise has no bound

    few = len(values) <= _FEW
    # Else a panel of equal bars would say nothing.
    telling = card.shape != SUM and bool(np.ptp(loss) > 1e-3 * loss.max())
    heights = [2.6 if few else 4.0, *[1.9] * telling]
    figure = blank(WIDTH, sum(heights) + (0.3 if title else 0))
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
            range(len(values)), loss, width=0.6, color=LIGHT, edgecolor=INK, label="this output"
        )
        axes.set_xticks(range(len(values)), [f"{value:.3g}" for value in values])
    else:
        _stems(axes, values, loss, "this output")
    axes.axhline(epsilon, linestyle="--", color=MIDDLE, label=f"certified: {epsilon:.6g}")
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
            color=SHADES[i % 5],
            hatch=HATCHES[i % 5],
            edgecolor=INK,
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
            axes.axvline(x, color=MIDDLE, linestyle="--")
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
    width = min(4.0, max(0.5, share * 72 * 0.8 * WIDTH / len(values)))
    axes.vlines(values, np.finfo(float).tiny, heights, color=DARK, linewidth=width, label=label)


def losses(card: Card) -> Floats:
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
