"""Pictures show exactly the numbers that they are given, have named axes, and can be read in grey."""

import math

import numpy as np
import pytest
import sampler_walk
from designing import shipped_card
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import ternhost.privacy.cards
from tern import card as cards
from ternhost.plots import accounts, canvas, runs
from ternhost.plots import cards as card_plots
from ternhost.plots.curves import Curve, Panel, draw
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


def test_a_baseline_that_would_flatten_the_curve_is_left_out():
    words = {"label": "private", "measure": "AUC on held-out records", "floor": "guessing"}
    axes = runs.judged([0.89, 0.9], 0.91, 0.5, reports=[100, 200], **words).axes[0]
    assert [text.get_text() for text in axes.figure.legends[0].get_texts()] == [
        "without privacy",
        "private",
    ]
    assert axes.get_ylim()[0] > 0.88
    refused = runs.judged([0.89, 0.9], 0.91, 0.5, reports=[100, 100], **words)
    assert not refused.axes[0].child_axes, (
        "rounds without reports have no place on an axis of reports"
    )


def test_a_card_of_very_many_outputs_is_a_picture_of_few_lines():
    card = cards.decode(base.laplace(1, 1600, 8, -10_000, 10_000))
    figure = card_plots.card_distribution(card, "laplace")
    for axes in figure.axes:
        (stems,) = [found for found in axes.collections if isinstance(found, LineCollection)]
        assert len(stems.get_paths()) <= 400
    highest = max(path.vertices[1][1] for path in stems.get_paths())
    assert highest == pytest.approx(card_plots.losses(card).max()), (
        "of some neighbours, the highest is drawn"
    )
    assert len(canvas.svg(figure, "card")) < 1_000_000
    assert figure._suptitle.get_position()[0] == 0.5, "its title is centred"
    assert figure._suptitle.get_horizontalalignment() == "center"


def test_bars_show_the_bytes_of_frames():
    axes = FIGURES["bytes"]().axes[0]
    assert [bar.get_width() for bar in axes.patches] == [17, 17, 1, 112]
    assert [text.get_text() for text in axes.texts] == ["18 bytes", "129 bytes\n7.2 times as many"]


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


def test_bars_differ_without_colour():
    shades = (canvas.LIGHT, canvas.MIDDLE, canvas.DARK)
    grey = [np.dot(to_rgb(colour), (0.299, 0.587, 0.114)) for colour in shades]
    assert min(np.abs(np.diff(grey))) > 0.1
    assert len(set(canvas.HATCHES)) == len(canvas.SHADES) == 5


@pytest.mark.parametrize(("name", "levels"), [("hm-tp", None), ("pm-sub", 15)])
def test_many_outputs_are_drawn_as_stems_of_exact_probabilities(name, levels):
    card = shipped_card(name, 2) if levels is None else decoded(name, levels=levels)
    for axes, v in zip(
        card_plots.card_distribution(card, inputs=(-0.5, 1)).axes[:2], (-8192, 16384), strict=True
    ):
        (stems,) = [
            collection for collection in axes.collections if isinstance(collection, LineCollection)
        ]
        assert len(axes.collections) == 1
        drawn = np.array([path.vertices[1] for path in stems.get_paths()])
        values = ternhost.privacy.cards.output_values(card)
        exact = [float(p) for p in certify.distribution(card, v)]
        assert drawn == pytest.approx(np.column_stack([values, exact]), abs=1e-12)


# Pictures of experiments


def test_ticks_of_numbers_of_devices_are_of_one_kind_and_bars_may_differ_in_length():
    curve = Curve(
        "", [1_000, 30_000, 1_000_000], [0.4, 0.9, 0.95], ([0.4, 0.1, 0.1], [0.1, 0.1, 0.05])
    )
    (axes,) = draw([Panel("title", "devices", "AUC", [curve], log_x=True)], columns=2).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1k", "30k", "1M"]
    assert len(axes.get_xticks(minor=True)) == 0
    ends = [path.vertices[:, 1] for path in axes.containers[0][2][0].get_paths()]
    assert np.array(ends) == pytest.approx(np.array([[0, 0.5], [0.8, 1.0], [0.85, 1.0]]))


def test_a_line_joins_three_points_or_a_constant():
    x = [1.0, 2.0, 3.0]
    for curve, joined in (
        (Curve("", x, [1.0, 3.0, 2.0]), True),
        (Curve("", x[:2], [1.0, 3.0]), False),  # two points suggest no law
        (Curve("", x, [1.0, math.nan, 2.0]), False),
        (Curve("", x[:2], [1.0, 1.0]), True),  # a constant
    ):
        (axes,) = draw([Panel("title", "x", "y", [curve])]).axes
        assert (axes.containers[0].lines[0].get_linestyle() != "None") == joined
        assert axes.containers[0].lines[0].get_marker() != "None"


def test_too_many_curves_are_divided_among_panels_with_equal_axes():
    curves = [Curve(f"curve {i}", [1, 2, 3], [i + 1, 2 * i + 1, i + 1]) for i in range(13)]
    bound = Curve("bound", [1, 2, 3], [0.5, 0.5, 0.5], everywhere=True)
    figure = draw(
        [Panel("many", "x", "y", [bound, *curves], log_y=True), Panel("few", "x", "y", curves[:2])]
    )
    first, second, few = (axes for axes in figure.axes if axes.has_data())
    assert [axes.get_title() for axes in (first, second, few)] == [
        "many (1 of 2)",
        "many (2 of 2)",
        "few",
    ]
    assert [len(axes.containers) for axes in (first, second, few)] == [8, 7, 2]
    assert first.get_ylim() == second.get_ylim()
    assert first.get_ylim()[0] < 0.5
    assert first.get_ylim()[1] > 25
    assert few.get_ylim() != first.get_ylim()
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == [*(f"curve {i}" for i in range(13)), "bound"]
