"""The central epsilon behind a shuffler: known figures, and upper bounds of exact divergences by
enumeration.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import sampler_walk

from ternhost.privacy import cards, certify, laws, mechanisms, shuffling
from ternhost.privacy.base import MICRO

SEED = 11


def account(epsilon, reports, delta=1e-6, name=None, values=1):
    if name is None:
        return shuffling.account(round(epsilon * MICRO), reports, delta, values=values)
    card = cards.decode(mechanisms.design(name, epsilon).card)
    return shuffling.account(
        cards.describe(card)["epsilon_certified"] * MICRO // 1, reports, delta, card
    )


def shuffled(rows):
    """The distribution of the histogram of independent reports with these distributions."""
    law = {(): Fraction(1)}
    for row in rows:
        further = Counter()
        for seen, p in law.items():
            for symbol, q in enumerate(row):
                if q:
                    further[tuple(sorted((*seen, symbol)))] += p * q
        law = further
    return law


def worst_delta(rows, epsilon, clients):
    """The largest exact hockey-stick divergence between two inputs of a client, over all inputs of
    the others.
    """
    e = Fraction(math.exp(epsilon))
    worst = Fraction(0)
    for others in itertools.combinations_with_replacement(rows, clients - 1):
        for p, q in itertools.permutations([shuffled([*others, row]) for row in rows], 2):
            worst = max(worst, sum(max(Fraction(0), p[h] - e * q.get(h, 0)) for h in p))
    return float(worst)


def local(rows):
    return math.log(sampler_walk.ratio_of(rows))


def rr(epsilon, k=2):
    e = Fraction(round(math.exp(epsilon) * 1000), 1000)
    return [[e / (e + k - 1) if i == j else 1 / (e + k - 1) for j in range(k)] for i in range(k)]


def part(rows):
    return [laws.Part.of(Fraction(1), rows)]


@pytest.mark.parametrize(
    ("epsilon", "reports", "central"), [(4, 20_000, 0.95), (4, 294_000, 0.34), (1, 294_000, 0.043)]
)
def test_the_closed_bound_has_its_known_values(epsilon, reports, central):
    bounds = account(epsilon, reports)
    assert bounds.closed == pytest.approx(central, abs=0.5 * 10 ** -len(str(central).split(".")[1]))
    assert bounds.epsilon == bounds.any_mechanism < 0.35 * bounds.closed


@pytest.mark.parametrize("clients", [1, 2, 5, 8])
def test_the_bound_of_randomised_response_is_close_to_the_exact_delta(clients):
    rows = rr(1.5)
    for epsilon in (0.0, 0.3, 0.9, 1.4):
        exact = worst_delta(rows, epsilon, clients)
        bound = shuffling.delta_at(part(rows), local(rows), epsilon, clients)
        assert exact <= bound <= 1.7 * exact + 1e-9
        if clients == 1:
            assert bound == pytest.approx(exact, rel=1e-3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(6))
def test_the_bound_of_a_mechanism_is_between_its_exact_delta_and_the_bound_of_any(seed):
    random = np.random.default_rng((SEED, seed))
    rows = [[Fraction(int(n)) for n in row] for row in random.integers(1, 9, (3, 3))]
    rows = [[n / sum(row) for n in row] for row in rows]
    for epsilon in (0.0, 0.1, 0.4, 0.8):
        exact = worst_delta(rows, epsilon, 4)
        of_mechanism = shuffling.delta_at(part(rows), local(rows), epsilon, 4)
        of_any = shuffling.delta_at(laws.randomised_response(local(rows)), local(rows), epsilon, 4)
        assert exact <= of_mechanism <= of_any


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["three-outputs", "3r", "grr", "optimal", "pm-sub"])
def test_the_bound_of_a_card_is_the_tightest_and_the_closed_one_the_loosest(name):
    bounds = account(2, 3000, name=name)
    assert bounds.card <= bounds.any_mechanism <= bounds.closed < bounds.local
    assert bounds.epsilon == bounds.card


@pytest.mark.parametrize("name", ["three-outputs", "rr3", "grr"])
def test_the_stated_epsilon_of_a_card_keeps_delta_in_a_tiny_crowd(name):
    card = cards.decode(mechanisms.design(name, 1).card)
    rows = [certify.at_knot(card, i) for i in range(len(certify.knots(card)))]
    for delta in (0.02, 0.1):
        bounds = account(1, 4, delta, name)
        assert bounds.epsilon < 1
        assert worst_delta(rows, bounds.epsilon, 4) <= delta


def test_a_window_cards_two_ends_are_its_worst_pair():
    card = cards.decode(mechanisms.design("pm-sub", 1, 7).card)
    rows = [certify.at_knot(card, i) for i in range(len(certify.knots(card)))]
    for epsilon in (0.05, 0.4):
        ends = shuffling.delta_at(laws.parts(card), 1.0, epsilon, 50)
        assert ends == pytest.approx(shuffling.delta_at(part(rows), 1.0, epsilon, 50), rel=1e-12)


def test_the_bound_equals_a_sum_over_all_counts():
    """For three hundred reports, the expectation equals a sum over multinomial counts."""
    rows, n, epsilon = rr(3.0), 300, 0.5
    low, high = float(min(rows[0])), float(max(rows[0]))
    a, b = (high - math.exp(epsilon) * low) / low, (low - math.exp(epsilon) * high) / low
    total = 0.0
    for i in range(n + 1):
        for j in range(n + 1 - i):
            if i * a + j * b > 0:
                rest = n - i - j
                ways = (
                    math.lgamma(n + 1)
                    - math.lgamma(i + 1)
                    - math.lgamma(j + 1)
                    - math.lgamma(rest + 1)
                )
                weight = ways + (i + j) * math.log(low) + rest * math.log1p(-2 * low)
                total += math.exp(weight) * (i * a + j * b)
    assert total / n < shuffling.delta_at(part(rows), local(rows), epsilon, n) < total / n * 1.01
