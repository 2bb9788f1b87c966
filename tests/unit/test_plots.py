"""Pictures show exactly the numbers that they are given, have named axes, and can be read in grey."""


import numpy as np
import pytest
import sampler_walk
from designing import shipped_card
from matplotlib.figure import Figure

import ternhost.privacy.cards
from tern import card as cards
from ternhost.plots import accounts, canvas, runs
from ternhost.plots import cards as card_plots
from ternhost.privacy import base, certify, mechanisms


def decoded(name, epsilon=2, levels=None):
    return cards.decode(mechanisms.design(name, epsilon, levels=levels).card)


def accuracy(rounds=30):
    private = [0.8 + 0.1 * i / rounds for i in range(rounds)]
    words = {
        "label": "private",
        "measure": "accuracy on held-out records",
        "floor": "always the majority",
    }
    return runs.judged(private, 0.9, 0.76, reports=range(100, 100 * rounds + 1, 100), **words)


FIGURES = {
    "accuracy": accuracy,
    "one round": lambda: accuracy(1),
    "bytes": lambda: runs.frame_bytes({"a": 1, "b": 112}, 17),
    "spent": lambda: accounts.epsilon_spent({0.0: 5, 2.0: 100}, 2.0, "epsilon of a record"),
    "three levels": lambda: card_plots.card_distribution(decoded("three-outputs"), "three"),
    "fifteen levels": lambda: card_plots.card_distribution(decoded("pm-sub", levels=15)),
    "a hierarchy": lambda: card_plots.card_distribution(shipped_card("lhp", 2)),
    "laplace": lambda: card_plots.card_distribution(
        cards.decode(base.laplace(3, 160, 8, -200, 200))
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_axes_are_named_and_figures_can_be_saved(name, tmp_path, coarse):
    figure = FIGURES[name]()
    assert isinstance(figure, Figure)
    assert any(axes.get_xlabel() for axes in figure.axes)
    named = [
        axes.get_ylabel() or [t.get_text() for t in axes.get_yticklabels()] for axes in figure.axes
    ]
    assert any(named)
    canvas.save(figure, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_accuracy_shows_the_three_lines():
    axes = accuracy(30).axes[0]
    optimum, private, baseline = axes.get_lines()
    assert private.get_ydata()[-1] == pytest.approx(0.8 + 0.1 * 29 / 30)
    assert list(private.get_xdata()) == list(range(1, 31))
    assert set(optimum.get_ydata()) == {0.9}
    assert set(baseline.get_ydata()) == {0.76}
    assert len({line.get_linestyle() for line in (private, optimum, baseline)}) == 3
    texts = [text.get_text() for text in axes.figure.legends[0].get_texts()]
    assert texts == ["without privacy", "private", "always the majority"]
    (top,) = axes.child_axes
    assert top.get_xlabel() == "reports so far"
    low, high = axes.get_ylim()
    assert low < 0.76 < 0.9 < high


def test_a_card_of_few_levels_is_drawn_exactly():
    card = decoded("three-outputs")
    (upper,) = card_plots.card_distribution(card, inputs=(-1, 0.25)).axes
    heights = [bar.get_height() for bar in upper.patches]
    expected = [float(p) for v in (-16384, 4096) for p in certify.distribution(card, v)]
    assert heights == pytest.approx(expected, abs=1e-12)
    exact = float(np.log(float(sampler_walk.likelihood_ratio(card))))
    assert card_plots.losses(card) == pytest.approx([exact] * 3, abs=1e-9), (
        "a panel of equal bars is left out"
    )
    assert exact <= card.epsilon / 1e6
    card = shipped_card("pdpm", 2)
    _, lower = card_plots.card_distribution(card).axes
    assert [bar.get_height() for bar in lower.patches] == pytest.approx(card_plots.losses(card))
    exact = float(np.log(float(sampler_walk.likelihood_ratio(card))))
    assert max(bar.get_height() for bar in lower.patches) == pytest.approx(exact, abs=1e-9)


def test_laplace_in_floats_equals_the_exact_distribution():
    card = cards.decode(base.laplace(3, 16, 8, -20, 20))
    for v in (-16384, -5000, 0, 77, 16384):
        exact = [float(p) for p in certify.distribution(card, v)]
        assert ternhost.privacy.cards.distribution(card, v) == pytest.approx(exact, abs=1e-14)
    knots = np.array([certify.at_knot(card, i) for i in range(len(certify.knots(card)))], float)
    assert card_plots.losses(card) == pytest.approx(np.log(knots.max(axis=0) / knots.min(axis=0)))


# Pictures of experiments
