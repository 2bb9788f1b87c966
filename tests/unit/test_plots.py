"""Pictures show exactly the numbers that they are given, have named axes, and can be read in grey."""

import pytest
from designing import shipped_card

import ternhost.privacy.cards
from tern import card as cards
from ternhost.plots import accounts, canvas, runs
from ternhost.plots import cards as card_plots
from ternhost.privacy import base, certify, mechanisms


def decoded(name, epsilon=2, levels=None):
    return cards.decode(mechanisms.design(name, epsilon, levels=levels).card)


def accuracy(rounds=30):
    """The picture of a run whose accuracy grows from .8 towards .9."""
    private = [0.8 + 0.1 * i / rounds for i in range(rounds)]
    reports = range(100, 100 * rounds + 1, 100)
    words = {
        "label": "private",
        "measure": "accuracy on held-out records",
        "floor": "always the majority",
    }
    return runs.judged(private, 0.9, 0.76, reports=reports, **words)


def of_card(card):
    return lambda: card_plots.card_distribution(card)


FIGURES = {
    "one round": lambda: accuracy(1),
    "bytes": lambda: runs.frame_bytes({"a": 1, "b": 112}, 17),
    "spent": lambda: accounts.epsilon_spent({0.0: 5, 2.0: 100}, 2.0, "epsilon of a record"),
    "a hierarchy": of_card(shipped_card("lhp", 2)),
    "laplace": of_card(cards.decode(base.laplace(3, 160, 8, -200, 200))),
}


@pytest.mark.parametrize("name", FIGURES)
def test_axes_are_named_and_figures_can_be_saved(name, tmp_path, coarse):
    figure = FIGURES[name]()
    assert any(axes.get_xlabel() for axes in figure.axes)
    assert any(axes.get_ylabel() or axes.get_yticklabels() for axes in figure.axes)
    canvas.save(figure, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_card_of_few_levels_is_drawn_exactly():
    card = decoded("three-outputs")
    (axes,) = card_plots.card_distribution(card, inputs=(-1, 0.25)).axes
    heights = [bar.get_height() for bar in axes.patches]
    expected = []
    for v in (-16384, 4096):  # -1 and 0.25 in fixed point
        expected += [float(p) for p in certify.distribution(card, v)]
    assert heights == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("v", [-16384, -5000, 0, 77, 16384])
def test_laplace_in_floats_equals_the_exact_distribution(v):
    card = cards.decode(base.laplace(3, 16, 8, -20, 20))
    exact = [float(p) for p in certify.distribution(card, v)]
    assert ternhost.privacy.cards.distribution(card, v) == pytest.approx(exact, abs=1e-14)
