"""Cards of the papers' mechanisms against figures that another program computed to 30 digits."""

import math
from itertools import product

import numpy as np
import pytest
from designing import worst

from tern import card as cards
from tern.fixed import ONE
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.cards import describe_design
from ternhost.privacy.mechanisms import piecewise
from ternpapers.mechanisms import NAMES, hybrid, pdpm, pm

EPSILONS = ("0.5", "1", "2", "3", "4")
VARIANCES = {  # the worst case at each of EPSILONS
    "pm": (21.2225685852, 5.22359745204, 1.22756479228, 0.492947298771, 0.241353886989),
    "pm-opt": (21.0581570802, 5.06568115215, 1.09215695469, 0.385923610453, 0.161847899446),
    "hm": (16.6707923561, 4.28899249328, 1.04233634170, 0.432170374606, 0.218978626206),
    "hm-tp": (16.6707923561, 4.41762595336, 0.984276410358, 0.355417679277, 0.154806589557),
}


@pytest.mark.parametrize("name", VARIANCES)
def test_formulas_equal_the_reference_figures(name):
    stated = [mechanisms.REGISTRY[name].worst_variance(float(epsilon)) for epsilon in EPSILONS]
    assert stated == pytest.approx(VARIANCES[name], rel=1e-11)


@pytest.mark.parametrize("name", ["hm", "hm-tp"])
def test_the_stated_worst_case_of_a_hybrid_is_the_largest_variance_at_any_input(name):
    """Lemma 11 of Zhao et al. states the worst case of HM-TP by a case distinction: sometimes it is
    at 0, sometimes in between, and sometimes at 1.
    """
    hybrid_mechanism = mechanisms.REGISTRY[name]
    inputs = np.linspace(0, 1, 2001).tolist()
    for epsilon in np.arange(0.05, 12, 0.05).tolist():
        largest = max(hybrid_mechanism.variance(epsilon, x) for x in inputs)
        stated = hybrid_mechanism.worst_variance(epsilon)
        # Between two inputs of the grid the parabola is hardly larger.
        assert largest * (1 - 1e-12) <= stated <= largest * (1 + 1e-6)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("pm", 0.98, 1.005),
        ("pm-opt", 0.98, 1.005),
        ("hm", 0.99, 1.001),
        ("hm-tp", 0.99, 1.001),
    ],
)
def test_cards_of_many_levels_are_close_to_their_mechanism(name, least, most):
    """A mechanism has a continuum of outputs, and its card by default 255 levels. The worst-case
    variance of the card is hardly more than the mechanism's. Nor is it much less: that would be
    another, better mechanism.
    """
    for epsilon, variance_of_mechanism in zip(EPSILONS, VARIANCES[name], strict=True):
        variance_of_card = worst(name, epsilon)
        assert least <= variance_of_card / variance_of_mechanism <= most


@pytest.mark.parametrize("name", ["pm", "pm-sub", "pm-opt"])
def test_the_best_windows_are_as_good_as_pm_opt(name):
    for epsilon, reference in zip(EPSILONS, VARIANCES["pm-opt"], strict=True):
        assert worst(name, epsilon, window="best") <= 1.0001 * reference


@pytest.mark.parametrize("merged", [(0, 1), (0, 2), (1, 2)])
def test_what_is_computed_from_a_report_of_pdpm_tells_no_more_than_the_report(merged):
    """Proposition 1 of Shen et al., post-processing: here a host takes two of three outputs for one."""
    card = mechanisms.design("pdpm", 2).decode()
    at_ends = [certify.distribution(card, end) for end in (-ONE, ONE)]
    of_reports = [p / q for p, q in zip(*at_ends, strict=True)]

    of_merged = sum(at_ends[0][i] for i in merged) / sum(at_ends[1][i] for i in merged)

    assert min(of_reports) <= of_merged <= max(of_reports)
    assert math.log(max(of_reports)) <= card.epsilon / 1e6


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_the_card_of_pdpm_has_the_variance_of_its_paper(epsilon):
    stated = pdpm.worst_variance(epsilon)
    assert worst("pdpm", str(epsilon)) == pytest.approx(stated, rel=1e-3)


def test_two_of_three_outputs_of_pdpm_waste_budget():
    """PDPM is a mechanism with three outputs.

    For each, the ratio of its probabilities at the two ends of the range may be exp(epsilon). Only
    one output uses this; the others tell less than they may, and so add more noise than they need.
    """
    epsilon = 2.0
    at_least, at_most = pdpm.probabilities(epsilon, -1), pdpm.probabilities(epsilon, 1)

    ratios = []  # by which an output tells the two ends of the range apart
    for pair in zip(at_least, at_most, strict=True):
        ratios.append(max(pair) / min(pair))

    allowed = math.exp(epsilon)
    wasteful = (allowed + 1) / 2
    assert sorted(ratios) == pytest.approx([wasteful, wasteful, allowed])


def has_card(name, epsilon):
    return epsilon != "0.000001" or name in ("harmony", "hm", "hm-tp")


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [
        (name, epsilon)
        for name, epsilon in product(NAMES, ["0.000001", "0.693148", "20"])
        if has_card(name, epsilon)
    ],
)
def test_mechanisms_cover_the_whole_range_of_epsilon(name, epsilon):
    design = mechanisms.design(name, epsilon)
    figures = describe_design(design)
    assert 0.9 * float(epsilon) - 0.5 < figures["epsilon_certified"] <= float(epsilon)
    assert figures["bias"] == 0
    assert figures["worst_case_variance"] >= figures["variance_at_zero"] > 0
    assert cards.certify(cards.decode(design.card))


def test_harmony_has_duchi_s_card():
    assert mechanisms.design("harmony", 2).card == mechanisms.design("duchi", 2).card


@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_a_shipped_optimal_card_of_eight_levels_beats_hm_tp_and_pm_opt(epsilon):
    optimal = worst("optimal", epsilon, 8)
    assert optimal < hybrid.HM_TP.worst_variance(epsilon)
    assert optimal < piecewise.worst_variance(epsilon, pm.t_opt(epsilon))
