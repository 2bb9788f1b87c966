"""The curve of Gaussian noise: never below what discrete noise tells, and close to the normal
distribution's own.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import common, privacy_loss_mechanism
from spec.cards import sum_card

from tern.sums import Sum
from ternhost.privacy import gaussian_curve, sums
from ternhost.privacy.base import MICRO

RECORD, DEVICE = 1, 0


def card_of(variance, radius, unit=RECORD):
    """A card of this variance, in grid steps squared: c t."""
    t = max(t for t in range(1, math.isqrt(variance) + 1) if variance % t == 0)
    return Sum(sum_card(1, 2, unit, radius, t=t, c=variance // t))


def discrete_normal(variance, reach):
    """The law of discrete Gaussian noise on -reach .. reach, which holds nearly all of it."""
    at = np.arange(-reach, reach + 1, dtype=float)
    law = np.exp(-(at**2) / (2 * variance))
    return law / law.sum()


def exact_delta(law, shift, epsilon):
    """The delta at epsilon of a law and the same law moved by `shift`."""
    moved = np.roll(law, shift)
    moved[:shift] = 0
    return float(np.maximum(0, law - math.exp(epsilon) * moved).sum())


@pytest.mark.parametrize("unit", [RECORD, DEVICE])
@pytest.mark.parametrize(("variance", "radius"), [(256, 8), (256, 20), (1600, 30), (40_000, 200)])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0])
def test_discrete_noise_tells_no_more_than_the_curve_says(unit, variance, radius, epsilon):
    card = card_of(variance, radius, unit)
    law = discrete_normal(variance, 14 * math.isqrt(variance))
    moved = radius if unit else 2 * radius
    told = exact_delta(law, moved, epsilon)
    bound = gaussian_curve.delta_of(gaussian_curve.rho_of_card(card), epsilon)
    assert told <= bound


def test_the_curve_of_a_fine_grid_is_hardly_above_what_the_noise_tells():
    card = card_of(40_000, 200)
    law = discrete_normal(40_000, 2800)
    bound = gaussian_curve.delta_of(gaussian_curve.rho_of_card(card), 1.0)
    assert bound <= 1.01 * exact_delta(law, 200, 1.0)


def test_two_reports_tell_no_more_than_the_sum_of_their_rhos():
    """Rho, the measure of what Gaussian noise leaks, adds up over reports: over coordinates, or
    over rounds. The delta of two reports together, summed over all pairs of values of discrete
    noise, is at most that of the summed rho.
    """
    variance, shifts = 400, (12, 20)
    reach = 14 * 20  # of the noise: 14 standard deviations
    at = np.arange(-reach, reach + 1, dtype=float)
    law = discrete_normal(variance, reach)
    losses = [(2 * at * shift + shift**2) / (2 * variance) for shift in shifts]
    joint_losses = np.add.outer(*losses).reshape(-1)
    masses = np.multiply.outer(law, law).reshape(-1)

    rho = sum(gaussian_curve.rho_of_card(card_of(variance, shift)) for shift in shifts)
    for epsilon in (0.5, 1.0, 3.0):
        told = float((masses * np.maximum(0, 1 - np.exp(epsilon - joint_losses))).sum())
        assert told <= gaussian_curve.delta_of(rho, epsilon)


# A curve gives the delta of Gaussian noise, measured by its rho, at each epsilon.
AT_POINTS_OF_THE_CURVE = pytest.mark.parametrize(
    ("rho", "epsilon"),
    list(itertools.product([0.005, 0.0244, 0.311, 1.539], [0.2, 1.0, 3.0, 9.0])),
)


def delta_of_normal_noise(rho, epsilon):
    """The delta at epsilon by dp-accounting, which integrates the normal distribution."""
    standard_deviation = 1 / math.sqrt(2 * rho)
    noise = privacy_loss_mechanism.GaussianPrivacyLoss(standard_deviation)
    return noise.get_delta_for_epsilon(epsilon)


@AT_POINTS_OF_THE_CURVE
def test_the_curve_is_not_below_that_of_the_normal_distribution(rho, epsilon):
    rounding = 1e-6  # the relative error of dp-accounting's floats
    known = delta_of_normal_noise(rho, epsilon)
    assert gaussian_curve.delta_of(round(rho * MICRO), epsilon) * (1 + rounding) >= known


@AT_POINTS_OF_THE_CURVE
def test_the_curve_is_close_to_that_of_the_normal_distribution(rho, epsilon):
    known = delta_of_normal_noise(rho, epsilon)
    found = gaussian_curve.delta_of(round(rho * MICRO), epsilon)
    assert found == pytest.approx(known, rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-2])
@pytest.mark.parametrize("rho", [1, 24_355, 311_064, 10_000_000])
def test_an_epsilon_of_the_curve_has_its_delta(rho, delta):
    """The curve states the epsilon of Gaussian noise at a delta, by its rho (in millionths). At
    that epsilon, delta is kept, and dp-accounting finds that no more noise was needed than there
    is.
    """
    epsilon = gaussian_curve.epsilon_of(rho, delta)
    assert gaussian_curve.delta_of(rho, epsilon) <= delta
    if not epsilon:  # at this delta, nothing is told
        return
    parameters = common.DifferentialPrivacyParameters(epsilon, delta)
    theirs = privacy_loss_mechanism.GaussianPrivacyLoss.from_privacy_guarantee(parameters)
    deviation = 1 / math.sqrt(2 * rho / MICRO)  # of the noise that has this rho
    assert theirs.standard_deviation <= deviation * (1 + 1e-4)


# A budget for life is stated as an epsilon at this delta, and kept as a rho.
DELTA_OF_LIFE = 1e-6
# How many steps of a sum, whose rho grows with their square, are at stake: 1 for whether a run of
# records is there, 2 for what it says, and 4 for an event that changes two runs.
STEPS_AT_STAKE = (1, 2, 4)


@pytest.mark.parametrize(
    ("life", "epsilons"),  # of the budget, and of each of STEPS_AT_STAKE
    [
        (1, [0.927374, 1.966210, 4.242748]),
        (2, [1.861665, 4.010281, 8.921649]),
        (4, [3.737552, 8.283680, 19.366594]),
    ],
)
def test_a_life_of_sums_has_the_epsilons_that_were_computed_before(life, epsilons):
    rho = sums.rho_of(life, DELTA_OF_LIFE)
    found = [gaussian_curve.epsilon_of(steps**2 * rho, DELTA_OF_LIFE) for steps in STEPS_AT_STAKE]
    assert found == pytest.approx(epsilons, abs=2e-6)


@pytest.mark.parametrize("life", [1, 2, 4])
@pytest.mark.parametrize("steps", STEPS_AT_STAKE)
def test_a_life_of_sums_tells_less_than_its_rho_would_allow(life, steps):
    """The general bound holds for whatever has this rho, and the curve for Gaussian noise."""
    rho = steps**2 * sums.rho_of(life, DELTA_OF_LIFE)
    general_bound = sums.epsilon_of(rho, DELTA_OF_LIFE)
    assert gaussian_curve.epsilon_of(rho, DELTA_OF_LIFE) < general_bound


def test_cards_of_a_budget_have_at_most_the_rho_of_the_budget():
    """A card is the certified table from which a device draws its noise. Ten cards share a budget
    of rho: `rho_of_cards` bounds what they tell together from the budget and one of them.
    """
    budget, radius = 300_000, 128  # millionths of rho; in steps of the card's grid
    share = Fraction(budget, 10)
    # The least multiple of 512 that keeps rho = radius**2 / (2 variance) within the share.
    variance = math.ceil(Fraction(MICRO * radius**2, 2) / share / 512) * 512
    card = card_of(variance, radius)

    assert card.keeps(int(share))
    assert 10 * gaussian_curve.rho_of_card(card) <= gaussian_curve.rho_of_cards(budget, card)
