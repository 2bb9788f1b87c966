"""The picture of a card shows its exact probabilities."""

import numpy as np
import pytest

import ternhost.privacy.cards
from tern import card as cards
from ternhost.plots import cards as card_plots
from ternhost.privacy import base, certify, mechanisms


def test_a_card_of_few_levels_is_drawn_exactly():
    """The picture of a card, the table from which a device draws its report, has a bar for each
    report and input; their heights are the exact probabilities.
    """
    card = mechanisms.design("three-outputs", 2).decode()
    (axes,) = card_plots.card_distribution(card, inputs=(-1, 0.25)).axes
    heights = [bar.get_height() for bar in axes.patches]

    expected = []
    for v in (-16384, 4096):  # -1 and 0.25 in fixed point
        expected += [float(p) for p in certify.distribution(card, v)]
    assert heights == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.5, 2, 8])
@pytest.mark.parametrize("name", ["three-outputs", "pm-sub", "laplace", "optimal", "grr"])
def test_most_outputs_of_a_card_can_be_seen_in_its_picture(name, epsilon):
    """Half of the drawn probabilities stand at a fiftieth of the axis or higher."""
    card = mechanisms.design(name, epsilon_micro=round(epsilon * 1e6)).decode()
    figure = card_plots.card_distribution(card)
    for axes in figure.axes[: 1 if card.symbols <= 8 else 5]:
        heights = [bar.get_height() for bar in axes.patches]
        for lines in axes.collections:
            heights += [top for (_, _), (_, top) in lines.get_segments()]
        bottom, top = axes.get_ylim()
        if axes.get_yscale() == "log":
            positions = np.log(np.array(heights) / bottom) / np.log(top / bottom)
        else:
            positions = np.array(heights) / top
        assert np.median(positions) > 1 / 50


@pytest.mark.parametrize("v", [-16384, -5000, 0, 77, 16384])
def test_laplace_in_floats_equals_the_exact_distribution(v):
    card = cards.decode(base.laplace(3, 16, 8, -20, 20))
    exact = [float(p) for p in certify.distribution(card, v)]
    assert ternhost.privacy.cards.distribution(card, v) == pytest.approx(exact, abs=1e-14)
