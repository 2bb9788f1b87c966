"""Optimal tables against the mechanisms that they should beat, and against the certified lower
bound.
"""

import math
from contextlib import suppress
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import sampler_walk
from designing import worst_variance

from tern import card as cards
from ternhost.errors import UsageError
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.mechanisms import duchi, lower_bound, optimal, programme, three_outputs

MICRO = 1_000_000
# Tern's own; 3R, one of them, is within 1e-5 of the best four levels near epsilon 1.25.
NOT_RIVALS = ("optimal", "auto", "3r")


def designed(epsilon, levels, **options):
    """A card that is certified, unbiased and as small as requested."""
    card = cards.decode(optimal.design(round(epsilon * MICRO), levels, **options).card)
    assert cards.certify(card)
    assert card.epsilon <= round(epsilon * MICRO)
    assert card.symbols <= levels
    assert certify.bias(card) == 0
    assert sampler_walk.likelihood_ratio(card) <= Fraction(math.exp(epsilon)) * (
        1 + Fraction(1, 10**12)
    )
    return card


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("epsilon", [0.5, 6.0])
def test_four_levels_beat_every_mechanism_of_two_bits(epsilon):
    ours, rivals = worst_variance(designed(epsilon, 4)), {}
    for name, levels in product(set(mechanisms.OWN) - set(NOT_RIVALS), (2, 3, 4)):
        with suppress(UsageError):  # no such number of levels
            card = mechanisms.design(name, str(epsilon), levels).decode()
            assert card.symbols <= 4
            rivals[name, levels] = worst_variance(card)
    assert {name for name, _ in rivals} >= {
        "duchi",
        "three-outputs",
        "rr3",
        "pm-sub",
        "grr",
    }
    assert ours < min(rivals.values())
    assert ours < three_outputs.better_worst_variance(epsilon)  # 3R


@pytest.mark.exhaustive
@pytest.mark.parametrize(("epsilon", "levels"), [(3, 16), (1, 8), (0.75, 8), (5, 8), (4, 4)])
def test_a_shipped_card_is_as_good_as_one_designed_now(epsilon, levels):
    """test_mechanisms_auto.py checks the variances of the shipped cards."""
    shipped = mechanisms.design("optimal", epsilon, levels)
    assert shipped.notes == ("a shipped card",)
    now = worst_variance(designed(epsilon, levels))
    assert now == pytest.approx(worst_variance(shipped.decode()), rel=1e-4)


@pytest.mark.slow
def test_the_lower_bound_equals_the_reference():
    assert lower_bound.worst_variance(1.0, steps=24) == pytest.approx(3.9905405, rel=5e-4)


@pytest.mark.slow
def test_duchi_minimises_the_worst_second_moment():
    assert designed(1.0, 4, objective="worst-second-moment").data == duchi.card(MICRO)


@pytest.mark.slow
def test_rr3_minimises_the_mean_second_moment_under_a_prior_at_zero():
    """The prior has all its mass within 1/101 of 0, where 3-ary randomised response is optimal."""
    e = math.e
    card = designed(1.0, 3, objective="mean-second-moment", prior=(0,) * 50 + (1,) + (0,) * 50)
    at_zero = float(certify.moments(card).variance(Fraction(0)))
    assert at_zero == pytest.approx(2 * (e + 2) / (e - 1) ** 2, rel=2e-3)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(("prior", "other"), [("small", "uniform"), ("uniform", "small")])
def test_a_card_is_best_under_the_prior_of_its_design(prior, other):
    def mean_second_moment(card):
        points, masses = programme.prior_points(prior)
        moments = certify.moments(card)
        knots = [float(x) for x in moments.knots]
        seconds = [float(second) for second in moments.second_moments]
        return float(masses @ np.interp(points, knots, seconds))

    common = {"objective": "mean-second-moment", "knots": 9}
    right = designed(2.0, 4, prior=prior, **common)
    wrong = designed(2.0, 4, prior=other, **common)
    assert mean_second_moment(right) < 0.985 * mean_second_moment(wrong)


@pytest.mark.slow
def test_a_card_for_one_of_many_coordinates_has_the_least_second_moment():
    """If one of many coordinates is sampled, the second moment decides."""
    for_one_of_one = certify.moments(designed(1.0, 3, share=1, knots=9))
    for_one_of_many = certify.moments(designed(1.0, 3, share=28, knots=9))
    assert for_one_of_many.worst_second_moment() < for_one_of_one.worst_second_moment()
    assert for_one_of_many.worst_variance() > for_one_of_one.worst_variance()


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("epsilon", "levels", "knots"),
    [
        (0.000001, 4, 9),
        (0.000001, 4, 33),
        (0.01, 3, 33),
        (12.0, 4, 33),
        (20.0, 4, 33),
        (20.0, 3, 33),
        (20.0, 3, 9),
    ],
)
def test_tables_are_as_good_as_duchi_at_the_ends_of_the_range_of_epsilon(epsilon, levels, knots):
    two_levels = 1.005 * duchi.worst_variance(epsilon)  # the counts of its card are whole, too
    for options in ({}, {"objective": "mean-second-moment", "prior": "small"}):
        assert worst_variance(designed(epsilon, levels, knots=knots, **options)) <= two_levels


@pytest.mark.parametrize(
    "options",
    [
        {"objective": "least"},
        {"knots": 65},
        {"prior": "uniform"},  # with the worst variance as its objective
        {"objective": "mean-second-moment", "prior": "odd"},
        {"objective": "mean-second-moment", "prior": (1, -1)},
        {"objective": "worst-second-moment", "share": 2},
        {"levels": 17},
    ],
    ids=str,
)
def test_inconsistent_options_are_refused(options):
    with pytest.raises(UsageError):
        optimal.design(MICRO, **options)


def test_the_lower_bound_rests_on_an_exact_minimum():
    """For random dual variables, the minimum over the line, which is found at finitely many points,
    is that over a dense grid: of the mean over both signs s of the function f(w y**2 - b s y - a),
    where f(g) is g, or 4 g below 0.
    """
    random = np.random.default_rng(5)
    for _ in range(20):
        weights, sums, means = random.random(7), random.normal(size=7), random.normal(size=7)
        weights[0] = 0
        points, minima = lower_bound._minima(4.0, weights, sums, means)
        y = np.concatenate([np.linspace(-20, 20, 400_001), points])
        total = np.zeros_like(y)
        for w, a, b in zip(weights, sums, means, strict=True):
            for sign in (1, -1):
                g = w * y * y - b * sign * y - a
                total += np.where(g < 0, 4.0 * g, g) / 2
        assert minima.min() <= total.min() + 1e-12
        assert minima.min() == pytest.approx(total.min(), abs=1e-6)
