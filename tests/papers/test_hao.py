"""The figures of Hao et al. 2023: reuse of reports, groups, and the level of another number."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tern.fixed import ONE
from ternhost import datasets
from ternhost.learn import judging
from ternhost.privacy import certify
from ternpapers import baseline
from ternpapers.base import Options
from ternpapers.mechanisms import lhp
from ternpapers.papers import hao


def test_the_more_often_reports_count_the_larger_is_the_error():
    assert len(hao._SHAPES) == 7
    rows = [
        row
        for unit in hao._UNITS
        for source in hao._SHAPES
        for row in hao._reused(unit, source, clients=100_000, seed=1)
    ]
    ranges = {}
    for mu in hao._MUS:
        more = [100 * (row["over_mu_1"] - 1) for row in rows if row["mu"] == mu]
        assert len(more) == 28
        ranges[mu] = f"{min(more):.3g} to {max(more):.3g} %"
    assert ranges == {
        1: "0 to 0 %",
        2: "2.87 to 10.6 %",
        3: "6.12 to 11.2 %",
        4: "4.46 to 12.1 %",
        5: "3.29 to 28.6 %",
    }
    assert list(hao._about_mu(rows).values()) == [False]


def test_regression_with_hiera_is_on_the_named_data_set_in_the_paper_s_groups():
    for number in ("1", "2", "3"):
        cells = hao.FIGURES[number].cells(Options("diabetes", quick=True))
        named = {cell.arguments.get("dataset", cell.arguments.get("source")) for cell in cells}
        assert named == {"diabetes"}
    d = datasets.load("diabetes").dimension
    (row,) = hao._on_devices(1.0, "diabetes", 2000, range(1))
    assert (row["panel"], row["group"]) == ("diabetes", math.ceil(d * math.log(d)))
    assert hao._group(0.1, d, 10_000) == math.ceil(100 * d * math.log(d))
    assert hao._group(0.1, d, 1000) == 1000
    weights = np.full(d, 0.25)
    figure = judging.figures(datasets.load("diabetes"), 1, weights)["squared_error"]
    assert hao._squared_error(datasets.load("diabetes"), weights) == pytest.approx(figure)


@pytest.mark.parametrize(("unit", "cost"), [(0.1, "0.972"), (0.5, "4.65"), (1.0, "9.04")])
def test_taking_the_level_of_another_number_costs_more(unit, cost):
    levels = hao.levels(unit)
    assert lhp.budgets_of(levels) == tuple(round(budget * unit * 1e6) for budget in (1, 2, 3, 4, 5))
    most = Fraction(0)
    for reported, card in enumerate(levels.body.value_cards):  # brute force over both numbers
        for sign in (0, 1):
            probabilities = [
                certify.at_knot(level_card, level)[reported]
                * certify.distribution(card, value)[sign]
                for level, level_card in enumerate(levels.body.level_cards)
                for value in (-ONE, -5000, 0, 77, ONE)
            ]
            most = max(most, Fraction(max(probabilities)) / Fraction(min(probabilities)))
    assert hao.loss_by_attribute(levels) == pytest.approx(math.log(most))
    assert f"{hao.loss_by_attribute(levels):.3g}" == cost
    assert hao.loss_by_attribute(levels) > levels.epsilon / 1e6


def test_reports_by_the_attribute_s_level_are_unbiased_and_less_noisy_for_a_low_attribute():
    levels, n = hao.levels(0.5), 200_000
    spread = []
    for attribute in (-0.9, 0.9):
        estimates = hao._by_attribute(
            levels, np.full(n, 0.3), np.full(n, attribute), baseline.generator(6)
        )
        assert abs(estimates.mean() - 0.3) < 5 * estimates.std() / n**0.5
        spread.append(estimates.std())
        graded = hao._graded(levels, np.full(n, 0.3), np.full(n, attribute), baseline.generator(7))
        assert graded.std() == pytest.approx(2**1.5 / (2.5 if attribute < 0 else 0.5), rel=0.02)
    assert spread[0] < spread[1], "the lowest range has the largest budget"
