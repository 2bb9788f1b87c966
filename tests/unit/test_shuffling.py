"""The central epsilon behind a shuffler: known figures, and upper bounds of exact divergences by
enumeration.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import sampler_walk
from designing import law_of_counts

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


def worst_delta(rows, epsilon, clients):
    """The largest exact delta between two inputs of a client, over all inputs of the others."""
    ratio = Fraction(math.exp(epsilon))
    worst = Fraction(0)
    for others in itertools.combinations_with_replacement(rows, clients - 1):
        laws_of_counts = [law_of_counts([*others, row]) for row in rows]
        for p, q in itertools.permutations(laws_of_counts, 2):
            excess = [max(Fraction(0), p[counts] - ratio * q.get(counts, 0)) for counts in p]
            worst = max(worst, sum(excess))
    return float(worst)


def local(rows):
    return math.log(sampler_walk.ratio_of(rows))


def randomised_response(epsilon, symbols=2):
    """Its probabilities, a row for each input; exp(epsilon) to three decimals."""
    odds = Fraction(round(math.exp(epsilon) * 1000), 1000)
    true, false = odds / (odds + symbols - 1), 1 / (odds + symbols - 1)
    return [[true if i == j else false for j in range(symbols)] for i in range(symbols)]


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
    """Shuffled reports, whose senders nobody knows, hide each client among the others: delta is how
    much more than exp(epsilon) a change of one client can show. The bound holds, and exceeds the
    exact delta, from an enumeration of all counts, by at most 70 %.
    """
    rows = randomised_response(1.5)
    for epsilon in (0.0, 0.3, 0.9, 1.4):
        exact = worst_delta(rows, epsilon, clients)
        bound = shuffling.delta_at(part(rows), local(rows), epsilon, clients)
        assert exact <= bound <= 1.7 * exact + 1e-9  # the last is for rounding
        if clients == 1:  # there is nobody to hide among
            assert bound == pytest.approx(exact, rel=1e-3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(6))
def test_the_bound_of_a_mechanism_is_between_its_exact_delta_and_the_bound_of_any(seed):
    """A random mechanism of three inputs and three symbols, with shuffled reports of four clients.
    The bound that knows its probabilities holds, and it is at least as tight as the one for any
    mechanism of the same local epsilon, which is that of randomised response.
    """
    random = np.random.default_rng((SEED, seed))
    # The probabilities of the symbols (columns) for each input (rows), exact fractions.
    rows = [[Fraction(int(n)) for n in row] for row in random.integers(1, 9, (3, 3))]
    rows = [[n / sum(row) for n in row] for row in rows]
    for epsilon in (0.0, 0.1, 0.4, 0.8):
        exact = worst_delta(rows, epsilon, 4)
        of_mechanism = shuffling.delta_at(part(rows), local(rows), epsilon, 4)
        of_any = shuffling.delta_at(laws.randomised_response(local(rows)), local(rows), epsilon, 4)
        assert exact <= of_mechanism <= of_any


@pytest.mark.parametrize("name", ["three-outputs", "rr3", "grr"])
def test_the_stated_epsilon_of_a_card_keeps_delta_in_a_tiny_crowd(name):
    card = cards.decode(mechanisms.design(name, 1).card)
    rows = [certify.at_knot(card, i) for i in range(len(certify.knots(card)))]
    for delta in (0.02, 0.1):
        bounds = account(1, 4, delta, name)
        assert bounds.epsilon < 1
        assert worst_delta(rows, bounds.epsilon, 4) <= delta


@pytest.mark.parametrize("name", ["pm", "three-outputs", "optimal"])
def test_the_largest_profile_is_that_of_the_worst_pair_of_inputs(name):
    (of_card,) = laws.parts(cards.decode(mechanisms.design(name, 1).card))
    scale, e = 1000, 1300
    weights = [-2000, -1, 0, 300, 5000]
    expected = []
    for weight in weights:
        sums = []
        for p, q in itertools.permutations(of_card.rows.tolist(), 2):
            blanket = of_card.blanket.tolist()
            columns = zip(p, q, blanket, strict=True)
            sums.append(sum(max(0, scale * a - e * b - weight * c) for a, b, c in columns))
        expected.append(max(sums))
    assert of_card.largest(scale, e, weights).tolist() == expected
