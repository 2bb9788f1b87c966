"""The equations and lemmas of Zhao et al. 2021, of which docs/papers.md has a row each.

The numbers are those of the journal's article. E is e**epsilon.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from tern import card as cards
from tern.fixed import ONE
from ternhost.learn.designs import coordinates_by_rule
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.mechanisms import piecewise, three_outputs
from ternpapers import baseline, laws, perturbing
from ternpapers.comparison.reports import reported
from ternpapers.mechanisms import hybrid, pm
from ternpapers.piecewise_law import PiecewiseLaw

EPSILONS = (0.3, 0.75, 1.0, 2.0, 4.0)
SHAPES = {"pm": pm.t_pm, "pm-opt": pm.t_opt, "pm-sub": piecewise.t_sub}  # t, by epsilon
INPUTS = np.linspace(-1, 1, 41)
EACH_EPSILON = pytest.mark.parametrize("epsilon", EPSILONS)

# Three-Outputs: (2) to (25), Lemmas 1 to 5. A mechanism has the outputs -C, 0 and C.


def outer_probabilities(x, c, zero):
    """P(C) and P(-C) at x of the unbiased mechanism that reports 0 with probability `zero`."""
    return (1 - zero + x / c) / 2, (1 - zero - x / c) / 2


def loss(x, c, zero):
    """The epsilon of an unbiased mechanism with the outputs -C, 0 and C.

    x: all inputs. zero: the probability of 0 at each of them.
    """
    laws = (*outer_probabilities(x, c, zero), zero)
    return max(math.log(law.max() / law.min()) for law in laws)


def variance(x, c, zero):
    """The variance at x of the same mechanism."""
    return c**2 * (1 - zero) - x**2


def corrected_probabilities(epsilon, x):
    """P(-C), P(0) and P(C) at x by (2) to (4), as shared_specs/errata.md corrects them."""
    e, a = math.exp(epsilon), three_outputs.zero_probability(epsilon)
    at_0, at_1 = (1 - a) / 2, (e - a) / (e + 1)  # P(C) at x = 0 and x = 1
    zero = a - (a - a / e) * abs(x)
    likely = at_0 + (at_1 - at_0) * abs(x)
    unlikely = at_0 - (at_0 - at_1 / e) * abs(x)
    if x < 0:
        return likely, zero, unlikely
    return unlikely, zero, likely


@EACH_EPSILON
def test_the_card_of_three_outputs_has_the_corrected_probabilities(epsilon):
    card = cards.decode(mechanisms.design("three-outputs", epsilon).card)
    for x in (-1, -0.5, 0, 0.25, 1):
        expected = corrected_probabilities(epsilon, x)
        if three_outputs.zero_probability(epsilon) == 0:
            expected = expected[::2]  # the card of two outputs, Duchi's
        drawn = [float(count) for count in certify.distribution(card, round(x * ONE))]
        assert drawn == pytest.approx(expected, abs=2e-5)


@EACH_EPSILON
def test_three_outputs_is_unbiased_and_keeps_epsilon(epsilon):
    """Conditions (9), and (19): the probability of C at 1 is E times that at -1."""
    c = three_outputs.constant(epsilon, three_outputs.zero_probability(epsilon))
    laws = np.array([corrected_probabilities(epsilon, x) for x in INPUTS])
    assert laws.sum(axis=1) == pytest.approx(1)
    assert c * (laws[:, 2] - laws[:, 0]) == pytest.approx(INPUTS)
    assert laws[-1, 2] / laws[0, 2] == pytest.approx(math.exp(epsilon))
    losses = [math.log(law.max() / law.min()) for law in laws.T if law.any()]
    assert max(losses) == pytest.approx(epsilon)


@EACH_EPSILON
def test_the_variance_of_three_outputs_is_that_of_its_probabilities(epsilon):
    """Equation (25), with the constant C that makes the mechanism unbiased."""
    a = three_outputs.zero_probability(epsilon)
    e = math.exp(epsilon)
    c = (e + 1) / ((e - 1) * (1 - a / e))
    for x in INPUTS.tolist():
        minus, _, plus = corrected_probabilities(epsilon, x)
        of_its_law = c**2 * (minus + plus) - x**2
        by_equation = c**2 * (1 - a + (a - a / e) * abs(x)) - x**2
        assert by_equation == pytest.approx(of_its_law)
        assert three_outputs.variance(epsilon, x) == pytest.approx(by_equation)


@pytest.mark.parametrize("seed", range(5))
def test_a_mechanism_is_no_worse_when_it_is_made_symmetric(seed):
    """Lemma 1: by (11) and (12), the probability of 0 at x becomes the mean of those at x and -x."""
    c = 3.0
    zero = np.random.default_rng(seed).uniform(0.2, 0.4, INPUTS.size)  # at each input
    symmetric = (zero + zero[::-1]) / 2

    assert loss(INPUTS, c, symmetric) <= loss(INPUTS, c, zero) + 1e-12
    assert variance(INPUTS, c, symmetric).max() <= variance(INPUTS, c, zero).max()


def test_a_mechanism_that_does_not_use_its_epsilon_can_report_0_more_often():
    """Lemma 2: (21) to (23) take as much from P(C) and P(-C) as epsilon allows."""
    epsilon, c = 1.0, 3.0
    e = math.exp(epsilon)
    zero = np.full(INPUTS.size, 0.2)
    plus, _ = outer_probabilities(INPUTS, c, zero)
    plus_at_minus_1, plus_at_1 = plus[0], plus[-1]
    assert plus_at_1 < e * plus_at_minus_1  # the corrected condition (20)

    taken = (e * plus_at_minus_1 - plus_at_1) / (e - 1)
    more_zero = zero + 2 * taken

    plus, _ = outer_probabilities(INPUTS, c, more_zero)
    assert plus[-1] == pytest.approx(e * plus[0])  # equation (19)
    assert loss(INPUTS, c, more_zero) == pytest.approx(epsilon)
    assert variance(INPUTS, c, more_zero).max() < variance(INPUTS, c, zero).max()


@pytest.mark.parametrize("x", [0.0, 0.5, 1.0])
def test_the_variance_is_least_if_0_is_as_rare_at_1_as_epsilon_allows(x):
    """Lemma 3: of all P(0) at 1, the least that keeps epsilon is a / E, where a is P(0) at 0.

    The variance rises with P(0) at 1. (The lemma calls it decreasing, and draws the right
    conclusion.)
    """
    e, a = math.e, 0.3
    variances = []
    for zero_at_1 in np.linspace(a / e, a, 50):
        c = (e + 1) / ((e - 1) * (1 - zero_at_1))  # from (9b) and (19)
        zero = a - (a - zero_at_1) * x
        variances.append(variance(x, c, zero))
    assert (np.diff(variances) > 0).all()


# PM-OPT and PM-SUB: (26) to (33), Lemmas 6 and 7.


def window(epsilon, t, x):
    """The bounds A, L and R of the outputs and of the window around x, by (29)."""
    e = math.exp(epsilon)
    unit = (e + t) / (t * (e - 1))
    return unit * (t + 1), unit * (x * t - 1), unit * (x * t + 1)


def densities(epsilon, t):
    """The densities c inside of the window and d outside, by (27) and (28)."""
    e = math.exp(epsilon)
    outside = t * (e - 1) / (2 * (t + e) ** 2)
    return e * outside, outside


@EACH_EPSILON
@pytest.mark.parametrize("name", SHAPES)
def test_the_density_of_a_piecewise_mechanism_adds_up_to_1_and_keeps_epsilon(name, epsilon):
    """Equations (26) to (29): as printed, for each of the three mechanisms."""
    t = SHAPES[name](epsilon)
    inside, outside = densities(epsilon, t)
    for x in INPUTS:
        bound, low, high = window(epsilon, t, x)
        width = high - low
        assert inside * width + outside * (2 * bound - width) == pytest.approx(1)
        assert max(-low, high) <= bound + 1e-9  # at x = -1 and x = 1 the two are equal
    assert inside / outside == pytest.approx(math.exp(epsilon))
    assert PiecewiseLaw(epsilon, t).bound == pytest.approx(bound)


@EACH_EPSILON
@pytest.mark.parametrize("name", SHAPES)
def test_a_piecewise_mechanism_has_the_mean_and_variance_of_its_density(name, epsilon):
    """Lemma 6, (31) and (32): the worst case is at 1."""
    t = SHAPES[name](epsilon)
    inside, outside = densities(epsilon, t)
    variances = []
    for x in INPUTS:
        bound, low, high = window(epsilon, t, x)
        mean = (inside - outside) * (high**2 - low**2) / 2
        square = outside * 2 * bound**3 / 3 + (inside - outside) * (high**3 - low**3) / 3
        variances.append(square - mean**2)
        assert mean == pytest.approx(x)
        assert mechanisms.REGISTRY.named(name).variance(epsilon, x) == pytest.approx(variances[-1])
    assert variances[-1] == pytest.approx(max(variances))
    assert mechanisms.REGISTRY.named(name).worst_variance(epsilon) == pytest.approx(variances[-1])


@EACH_EPSILON
def test_the_worst_variance_of_pm_sub_is_that_of_33(epsilon):
    e = math.exp(epsilon)
    terms = 5 * e ** (4 / 3) + 6 * e + 5 * e ** (2 / 3)
    by_equation = terms / (3 * (e - 1) ** 2)
    stated = piecewise.worst_variance(epsilon, piecewise.t_sub(epsilon))
    assert stated == pytest.approx(by_equation)


# Discrete outputs: (34), (35), Lemmas 8 and 9.


def test_algorithm_5_rounds_to_the_two_neighbours_with_the_stated_probabilities():
    """Lemma 8, on the grid of (34): y = 0.37 lies between 1/3 and 2/3, as m = 3 and C = 1."""
    y, m, n = 0.37, 3, 100_000
    round_only = perturbing.rounded(lambda x, rng: x, bound=1.0, outputs=2 * m + 1)
    values, counts = np.unique(round_only(np.full(n, y), baseline.generator(1)), return_counts=True)

    assert values == pytest.approx([1 / m, 2 / m])
    below, above = 2 - y * m, y * m - 1  # (35) with k = 1
    error = math.sqrt(below * above / n)
    assert counts / n == pytest.approx([below, above], abs=5 * error)


@EACH_EPSILON
@pytest.mark.parametrize("m", [1, 2, 7, 1000])
def test_discrete_outputs_never_lower_the_worst_variance(epsilon, m):
    """Lemma 9: at every input, rounding at random adds a variance."""
    continuous = laws.variances("pm-sub", epsilon, INPUTS)
    discrete = laws.variances("pm-sub", epsilon, INPUTS, outputs=2 * m + 1)
    assert (discrete > continuous).all()


# HM-TP: Lemmas 10 and 11. Its worst case is at 0, at 1 or in between.


@pytest.mark.parametrize("epsilon", [0.3, 0.62, 0.69, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0])
def test_the_worst_variance_of_hm_tp_is_that_of_lemma_11(epsilon):
    e, t = math.exp(epsilon), piecewise.t_sub(epsilon)
    a, beta = three_outputs.zero_probability(epsilon), hybrid.hm_tp_share(epsilon)

    def of_mixture(x):
        of_three_outputs = three_outputs.variance(epsilon, x)
        return beta * piecewise.variance(epsilon, t, x) + (1 - beta) * of_three_outputs

    last_term = a * e * (e + 1) ** 2
    numerator = 2 * (e - a) ** 2 * (e - 1) - last_term
    denominator = 2 * (e - a) ** 2 * (e + t) - last_term
    worst = max(of_mixture(0), of_mixture(1))
    if 0 < beta < numerator / denominator:
        x = (beta - 1) * last_term / (2 * (e - a) ** 2 * (beta * (e + t) - e + 1))
        worst = of_mixture(x)

    assert hybrid.HM_TP.worst_variance(epsilon) == pytest.approx(worst, rel=1e-9)


# Several numbers: (36), Algorithm 6, Lemma 12.


@pytest.mark.parametrize("d", [1, 2, 16])
def test_the_rule_for_k_is_that_of_36(d):
    for epsilon in (0.5, 2.4, 2.5, 4.99, 5.0, 7.6, 50.0):
        expected = max(1, min(d, math.floor(epsilon / 2.5)))
        assert coordinates_by_rule("paper", round(epsilon * 1e6), d) == expected


@pytest.mark.parametrize("name", ["three-outputs", "pm-sub", "hm-tp"])
def test_a_report_of_algorithm_6_has_k_numbers_at_epsilon_over_k(name, monkeypatch):
    """Lemma 12: k mechanisms at epsilon / k together keep epsilon. d / k makes up for the others."""
    epsilon, d, k = 5.0, 8, 2
    at = []

    def perturb_at(given):
        at.append(given)
        return lambda x, rng: x  # without noise, to see what is reported

    monkeypatch.setitem(perturbing.MECHANISMS, name, perturb_at)
    x = np.full((1000, d), 0.5)
    reports = reported(x, name, epsilon, baseline.generator(1))

    assert at == [epsilon / k]
    assert ((reports != 0).sum(axis=1) == k).all()
    assert set(reports[reports != 0]) == {0.5 * d / k}
    assert k * Fraction(at[0]) == epsilon
