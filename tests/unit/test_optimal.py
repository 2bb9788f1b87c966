"""Optimal tables against the mechanisms that they should beat, and against the certified lower
bound.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
import sampler_walk
from designing import worst_variance

from tern import card as cards
from ternhost.privacy import certify
from ternhost.privacy.mechanisms import duchi, lower_bound, optimal, programme

MICRO = 1_000_000


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
def test_duchi_minimises_the_worst_second_moment():
    assert designed(1.0, 4, objective="worst-second-moment").data == duchi.card(MICRO)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(("prior", "other"), [("small", "uniform"), ("uniform", "small")])
def test_a_card_is_best_under_the_prior_of_its_design(prior, other):
    """A card, a table of probabilities, can be designed for the least mean error over inputs that
    follow a prior. Under that prior it beats a card for another prior by 1.5 % or more.
    """

    def mean_second_moment(card):
        # Between the knots of a card, its second moment is linear in the input.
        points, masses = programme.prior_points(prior)
        moments = certify.moments(card)
        knots = [float(x) for x in moments.knots]
        seconds = [float(second) for second in moments.second_moments]
        return float(masses @ np.interp(points, knots, seconds))

    common = {"objective": "mean-second-moment", "knots": 9}
    right = designed(epsilon=2.0, levels=4, prior=prior, **common)
    wrong = designed(epsilon=2.0, levels=4, prior=other, **common)
    assert mean_second_moment(right) < 0.985 * mean_second_moment(wrong)


@pytest.mark.slow
def test_a_card_for_one_of_many_coordinates_has_the_least_second_moment():
    """If one of many coordinates is sampled, the second moment decides."""
    for_one_of_one = certify.moments(designed(1.0, 3, coordinates=1, knots=9))
    for_one_of_many = certify.moments(designed(1.0, 3, coordinates=28, knots=9))
    assert for_one_of_many.worst_second_moment() < for_one_of_one.worst_second_moment()
    assert for_one_of_many.worst_variance() > for_one_of_one.worst_variance()


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("epsilon", "levels", "knots"), [(0.000001, 4, 33), (12.0, 4, 33), (20.0, 3, 9)]
)
def test_tables_are_as_good_as_duchi_at_the_ends_of_the_range_of_epsilon(epsilon, levels, knots):
    """Duchi's mechanism has two levels. A table of more could do the same, so that it is worse only
    if the programme that designs it fails numerically.
    """
    rounding = 1.005  # the probabilities of a card are multiples of 2**-30
    variance = worst_variance(designed(epsilon, levels, knots=knots))
    assert variance <= rounding * duchi.worst_variance(epsilon)


def test_the_lower_bound_rests_on_an_exact_minimum():
    """The proof that no mechanism has a smaller variance needs the minimum of a function over the
    whole line. The code looks at finitely many points only: for random dual variables, their
    minimum is that over a dense grid. The function is the mean over both signs s of f(w y**2 - b s
    y - a), where f(g) is g, or 4 g below 0.
    """
    random = np.random.default_rng(5)
    for _ in range(20):
        weights, sums, means = random.random(7), random.normal(size=7), random.normal(size=7)
        weights[0] = 0
        points, minima = lower_bound._minima(4.0, weights, sums, means)

        # The function, on a grid that contains these points.
        y = np.concatenate([np.linspace(-20, 20, 400_001), points])
        total = np.zeros_like(y)
        for w, a, b in zip(weights, sums, means, strict=True):
            for sign in (1, -1):
                g = w * y * y - b * sign * y - a
                total += np.where(g < 0, 4.0 * g, g) / 2

        assert minima.min() <= total.min() + 1e-12
        assert minima.min() == pytest.approx(total.min(), abs=1e-6)
