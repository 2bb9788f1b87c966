"""Losses of many reports: upper bounds of what is exact, and close to it, alone and
among others.
"""

import itertools
import math
import re
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
from designing import shipped_card
from dp_accounting import rdp
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import special
from spec.cards import sum_card

from tern import wire
from ternhost.count.questions import Question, decode_body, round_body
from ternhost.errors import UsageError
from ternhost.privacy import (
    cards,
    certify,
    composing,
    laws,
    losses,
    mechanisms,
    projection,
    shuffling,
    sums,
)
from ternhost.privacy.base import MICRO
from ternhost.privacy.composing import ReportKind

THREE = ("three-outputs", 1)
CARDS = [
    ("three-outputs", 0.5),
    ("rr3", 1),
    ("grr", 2),
    ("pm-sub", 1, 5),
    ("lhp", 1),
    ("hm", 1),
    ("optimal", 1),
]


def card(name, epsilon, *levels):
    if name in ("lhp", "hm"):
        return shipped_card(name, epsilon)
    return cards.decode(mechanisms.design(name, epsilon, *levels).card)


def report(*named):
    return ReportKind.of(card(*named))


def any_mechanism(epsilon):
    """A report of which only the epsilon is known."""
    return ReportKind(round(epsilon * MICRO))


def rows(*named):
    """The laws of a card at its knots."""
    found = card(*named)
    return [certify.at_knot(found, i) for i in range(len(certify.knots(found)))]


def exact(reports, delta=1e-6):
    return composing.compose_exactly(reports, delta)


# Alone


def binomial_delta(epsilon, total, r):
    """Delta at `total` of r answers of randomised response (Kairouz, Oh and Viswanath 2015, Theorem
    3.3).
    """
    more, less = -math.log1p(math.exp(-epsilon)), -math.log1p(math.exp(epsilon))
    found = []
    for i in range(r + 1):
        loss = (r - 2 * i) * epsilon
        if loss > total:
            ways = math.lgamma(r + 1) - math.lgamma(i + 1) - math.lgamma(r - i + 1)
            found.append(math.exp(ways + (r - i) * more + i * less) * -math.expm1(total - loss))
    return math.fsum(found)


def least(delta_of, delta, most):
    """The least epsilon at which a delta is kept."""
    if delta_of(0.0) <= delta:
        return 0.0
    low, high = 0.0, most
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of(middle) <= delta else (middle, high)
    return high


@pytest.mark.parametrize("delta", [0.5, 1e-3, 1e-6, 1e-12, 1e-40])
@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.3, 2, 20])
@pytest.mark.parametrize("r", [1, 2, 7, 100, 3000])
def test_randomised_response_composes_to_its_binomial_sum(r, epsilon, delta):
    true = least(lambda total: binomial_delta(epsilon, total, r), delta, r * epsilon)
    found = exact({any_mechanism(epsilon): r}, delta)
    assert true * (1 - 1e-8) <= found <= true * 1.001


def product_delta(pairs, e):
    """Delta at e = exp(epsilon) of independent reports, each with laws P and Q."""
    both = [(Fraction(1), Fraction(1))]
    for p, q in pairs:
        both = [(a * x, b * y) for a, b in both for x, y in zip(p, q, strict=True)]
    return sum((max(Fraction(0), p - e * q) for p, q in both), Fraction(0))


def worst_product_delta(laws_of_reports, epsilon):
    e = Fraction(math.exp(epsilon))
    pairs = [list(itertools.permutations(laws_of_one, 2)) for laws_of_one in laws_of_reports]
    return float(max(product_delta(chosen, e) for chosen in itertools.product(*pairs)))


@pytest.mark.parametrize("delta", [0.2, 1e-2, 1e-5])
@pytest.mark.parametrize(
    "asked",
    [
        {("three-outputs", 0.5): 3},
        {("three-outputs", 4): 2},
        {("rr3", 1): 2},
        {("grr", 2): 2},
        {("pm-sub", 1, 4): 3},
        {("three-outputs", 0.3): 1, ("grr", 1): 1, ("pm-sub", 0.7, 4): 1},
    ],
    ids=str,
)
def test_a_small_product_keeps_delta_at_its_epsilon_and_not_much_below(asked, delta):
    ends = [
        [rows(*name)[i] for i in (0, -1)] for name, times in asked.items() for _ in range(times)
    ]
    knots = [rows(*name) for name, times in asked.items() for _ in range(times)]
    found = exact({report(*name): times for name, times in asked.items()}, delta)
    assert worst_product_delta(knots, found) <= delta
    assert worst_product_delta(ends, 0.99 * found) > delta or found == 0


@pytest.mark.parametrize(
    ("name", "r", "delta"),
    [
        (("three-outputs", 0.1), 1000, 1e-6),
        (("rr3", 0.5), 200, 1e-9),
        (("grr", 1, 4), 30, 1e-5),
        (("pm-sub", 1, 7), 60, 1e-6),
        (("pm-sub", 0.2, 64), 365, 1e-6),
    ],
    ids=str,
)
def test_a_card_composes_as_googles_accountant_says(name, r, delta):
    first, last = (
        {i: math.log(p) for i, p in enumerate(row)} for row in (rows(*name)[0], rows(*name)[-1])
    )
    theirs = pld.from_two_probability_mass_functions(
        first, last, value_discretization_interval=name[1] / 400, symmetric=False
    )
    theirs = theirs.self_compose(r).get_epsilon_for_delta(delta)
    assert 0.99 * theirs < exact({report(*name): r}, delta) < theirs * 1.0005


def test_a_thousand_reports_of_a_tenth_cost_a_fifth_of_what_their_sum_says():
    found = composing.compose({report("three-outputs", 0.1): 1000}, 1e-6)
    assert found.pure == 100
    assert found.zcdp == pytest.approx(20.54, abs=0.01)
    assert found.epsilon == found.exact == pytest.approx(19.345, abs=0.01)


@pytest.mark.parametrize("named", CARDS, ids=str)
def test_one_report_costs_its_card_at_any_delta_that_is_small(named):
    certified = card(*named).epsilon / MICRO
    assert 0.97 * certified < exact({report(*named): 1}, 1e-9) <= certified


@pytest.mark.parametrize("named", CARDS, ids=str)
@pytest.mark.parametrize("mixed", [0, 5])
def test_no_card_costs_more_than_any_mechanism_of_its_epsilon(named, mixed):
    one = report(*named)
    found = [exact({each.among(mixed): 5}, 1e-4) for each in (one, ReportKind(one.cost))]
    assert found[0] <= found[1] * (1 + 1e-4)


def test_likely_sets_that_overlap_tell_less_than_opposite_ones():
    body = projection.of(cards.decode(projection.design(MICRO, 32, 1.0).card))
    (part,) = laws.parts(cards.decode(projection.design(MICRO, 32, 1.0).card))
    size, k = 2 * body.size, body.k
    likely = [set(range(k)), set(range(k, 2 * k)), set(range(k // 2, k // 2 + k))]
    each = [
        [Fraction(body.a if j in one else body.b, body.total) for j in range(size)]
        for one in likely
    ]
    for others in (each[:2], [each[0], each[2]]):
        for mixed in (0, 20):
            for g in (Fraction(1), Fraction(3, 2), Fraction(2)):
                of_any = laws.Part.of(Fraction(1), others)
                if mixed:
                    deltas = [shuffling.delta_of([one], 1.0, g, mixed) for one in (part, of_any)]
                else:
                    deltas = [float(laws.profile([one], g)) for one in (part, of_any)]
                assert deltas[0] >= deltas[1] * (1 - 1e-9)
                assert (deltas[0] == pytest.approx(deltas[1], rel=1e-9)) == (others == each[:2])


@pytest.mark.parametrize(
    "named", [*CARDS, ("pm-sub", 1, 255), ("grr", 20), ("duchi", 1e-6)], ids=str
)
def test_a_profile_is_the_largest_of_all_pairs_of_inputs(named):
    found = laws.parts(card(*named))
    for g in (Fraction(1, 3), Fraction(1), Fraction(math.exp(0.2)), Fraction(5)):
        total = Fraction(0)
        for part in found:
            pairs = itertools.permutations(part.rows, 2)
            best = max(
                sum(max(0, p * g.denominator - q * g.numerator) for p, q in zip(*two, strict=True))
                for two in pairs
            )
            total += part.share * Fraction(best, part.whole * g.denominator)
        assert laws.profile(found, g) == total


# Zero-concentrated


def renyi(p, q, alpha):
    return math.log(
        sum(float(x) * math.exp((alpha - 1) * math.log(x / y)) for x, y in zip(p, q, strict=True))
    ) / (alpha - 1)


@pytest.mark.parametrize("named", [each for each in CARDS if each[0] != "hm"], ids=str)
def test_a_report_keeps_the_rho_of_its_epsilon_at_every_alpha(named):
    rho = report(*named).rho / MICRO
    for alpha in (1.0001, 1.1, 1.5, 2, 3, 8, 32, 300):
        assert max(
            renyi(p, q, alpha) for p, q in itertools.permutations(rows(*named), 2)
        ) <= alpha * rho * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "rho"), [(1, 0.462), (2, 1.523), (4, 3.856)])
def test_the_rho_of_randomised_response_is_tight(epsilon, rho):
    p = [1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))]
    kept = any_mechanism(epsilon).rho / MICRO
    assert kept == pytest.approx(rho, abs=5e-4)
    assert renyi(p, p[::-1], 1 + 1e-6) == pytest.approx(kept, rel=1e-5)


@pytest.mark.parametrize(("epsilon", "rho"), [(10, 1.539), (1, 0.02436)])
def test_a_budget_in_rho_is_the_known_one(epsilon, rho):
    assert sums.epsilon_of(round(rho * MICRO), 1e-6) == pytest.approx(epsilon, rel=1e-3)
    orders = [1 + 10 ** (i / 100) for i in range(-200, 400)]
    accountant = rdp.RdpAccountant(orders).compose(dp_accounting.ZCDpEvent(rho))
    assert sums.epsilon_of(round(rho * MICRO), 1e-6) == pytest.approx(
        accountant.get_epsilon(1e-6), rel=1e-4
    )


# Behind an intermediary


def shuffled(rows):
    """The law of the histogram of independent reports with these laws."""
    law = Counter({(0,) * len(rows[0]): Fraction(1)})
    for row in rows:
        further = Counter()
        for seen, p in law.items():
            for symbol, q in enumerate(row):
                further[*seen[:symbol], seen[symbol] + 1, *seen[symbol + 1 :]] += p * q
        law = further
    return law


def counts_of(inputs, others):
    """Both laws of the counts of a round."""
    p, q = (shuffled([*others, row]) for row in inputs)
    return [p[seen] for seen in p], [q[seen] for seen in p]


@pytest.mark.parametrize(("clients", "rounds"), [(2, 1), (2, 3), (3, 2), (4, 2), (5, 1)])
@pytest.mark.parametrize("named", [("three-outputs", 1), ("grr", 2)], ids=str)
def test_counts_of_several_rounds_keep_delta_whatever_the_others_hold(named, clients, rounds):
    knots = rows(*named)
    for delta in (0.05, 1e-3):
        found = exact({report(*named).among(clients): rounds}, delta)
        worst = 0.0
        for others in itertools.combinations_with_replacement(knots, clients - 1):
            for inputs in ((knots[0], knots[-1]), (knots[-1], knots[0])):
                told = [counts_of(inputs, others)] * rounds
                worst = max(worst, float(product_delta(told, Fraction(math.exp(found)))))
        assert worst <= delta
        assert worst > 0.2 * delta


@pytest.mark.parametrize(
    ("clients", "rounds", "delta"), [(10, 1, 1e-3), (30, 5, 1e-3), (100, 10, 1e-6), (300, 50, 1e-6)]
)
def test_counts_of_randomised_response_cost_little_less_than_the_blanket_says(
    clients, rounds, delta
):
    laws_of_ones = ones_of(clients, 1)
    both = [{i: math.log(max(mass, 1e-300)) for i, mass in enumerate(law)} for law in laws_of_ones]
    true = pld.from_two_probability_mass_functions(
        *both, value_discretization_interval=1e-4, pessimistic_estimate=False, symmetric=False
    )
    true = true.self_compose(rounds).get_epsilon_for_delta(delta)
    found = exact({any_mechanism(1).among(clients): rounds}, delta)
    assert true < found < 1.6 * true


def ones_of(clients, epsilon):
    """Both laws of the ones among reports of randomised response, all others holding what tells
    most.
    """
    p, others = 1 / (1 + math.exp(-epsilon)), np.ones(1)
    for _ in range(clients - 1):
        others = np.convolve(others, [p, 1 - p])
    return np.convolve(others, [1 - p, p]), np.convolve(others, [p, 1 - p])


@pytest.mark.parametrize(("clients", "epsilon"), [(10, 1), (100, 1), (300, 2)])
@pytest.mark.parametrize("alpha", [1.1, 2, 8, 40])
def test_counts_have_the_renyi_divergence_of_their_blanket_at_most(clients, epsilon, alpha):
    ones, zeros = ones_of(clients, epsilon)
    true = max(renyi(ones, zeros, alpha), renyi(zeros, ones, alpha))
    found = composing.renyi(any_mechanism(epsilon).among(clients), alpha)
    local = composing.renyi(any_mechanism(epsilon), alpha)
    assert true <= found <= local
    assert found < 3 * true or found > 0.7 * local


@pytest.mark.parametrize("named", [("three-outputs", 1), ("grr", 4), ("pm-sub", 0.1)], ids=str)
@pytest.mark.parametrize("clients", [1, 2, 100, 10_000])
def test_one_round_costs_what_one_report_does_behind_a_shuffler(named, clients):
    one = report(*named)
    of_one = shuffling.account(one.cost, clients, 1e-6, cards.decode(one.card)).card
    assert exact({one.among(clients): 1}, 1e-6) == pytest.approx(of_one, rel=2e-3)


def test_an_intermediary_of_one_device_hides_nothing():
    assert exact({report(*THREE).among(1): 20}) == pytest.approx(
        exact({report(*THREE): 20}), rel=2e-3
    )


@pytest.mark.slow
def test_epsilon_grows_with_rounds_and_falls_with_devices_and_delta():
    one = report(*THREE)
    by_rounds = [exact({one.among(50): r}) for r in (0, 1, 2, 5, 20, 100)]
    by_devices = [exact({one.among(n): 10}) for n in (0, 2, 5, 20, 100, 1000)]
    by_delta = [exact({one.among(50): 10}, delta) for delta in (1e-12, 1e-9, 1e-6, 1e-3)]
    by_epsilon = [exact({report("three-outputs", e).among(50): 10}) for e in (0.1, 0.5, 1, 2, 4)]
    for found in (by_rounds, by_devices[::-1], by_delta[::-1], by_epsilon):
        assert found == sorted(found)
        assert found[-1] > 1.5 * found[1]


def test_kinds_of_reports_cost_more_together_than_apart_and_less_than_their_sum():
    kinds = [
        {report("three-outputs", 0.1): 300},
        {report(*THREE).among(50): 30},
        {report("projection", 2).among(30): 5},
        {ReportKind.of(card("laplace", 0.5), values=4): 2},
    ]
    apart = [exact(kind, 1e-6) for kind in kinds]
    halves = [exact(kind, 1e-6 / len(kinds)) for kind in kinds]
    assert max(apart) < exact({k: n for kind in kinds for k, n in kind.items()}, 1e-6) < sum(halves)


# What an intermediary hides nothing of


def test_sums_and_hashes_are_never_mixed():
    """Neighbours of a sum differ by one unit, so that others' reports are no blanket; a hash is
    each device's own.
    """
    laplace = ReportKind.of(
        cards.decode(sum_card(MICRO, 1, 1, 64, 1 << 14, 32, -32, t=96, bits=12))
    )
    gaussian = ReportKind.of(
        cards.decode(sum_card(MICRO, 2, 1, 64, 1 << 14, 32, -32, t=64, c=40, bits=8, coarse=2))
    )
    for one in (laplace, gaussian):
        assert one.among(1000) == one
    asked = [
        Question(wire.CATEGORIES, [1], 0, card("grr", 1).data, 1, range=range_) for range_ in (0, 1)
    ]
    plain, hashed = (ReportKind.of_question(decode_body(round_body(1, each))) for each in asked)
    assert hashed.among(1000) == hashed
    assert plain.among(1000).mixed == 1000


def test_of_noise_whose_curve_is_not_known_only_rho_is_known():
    found = composing.compose({ReportKind(20_000, gaussian=True): 3}, 1e-6)
    assert (found.pure, found.exact) == (None, None)
    assert found.epsilon == found.zcdp == sums.epsilon_of(60_000, 1e-6)


def test_with_gaussian_noise_and_other_reports_the_rhos_add_up_and_so_do_the_epsilons():
    others = {report(*THREE): 2}
    found = composing.compose({ReportKind(20_000, gaussian=True): 3, **others}, 1e-6)
    assert found.pure is None
    assert found.zcdp == sums.epsilon_of(60_000 + 2 * report(*THREE).rho, 1e-6)
    apart = composing.pure_sum(others) + sums.epsilon_of(60_000, 1e-6)
    in_halves = composing.compose_exactly(others, 5e-7) + sums.epsilon_of(60_000, 5e-7)
    assert found.exact == min(apart, in_halves)


def test_a_large_pure_report_beside_gaussian_noise_costs_its_epsilon_and_no_more():
    rho = sums.rho_of(1, 1e-6)
    noise = ReportKind(rho, gaussian=True, unit=1, normal=rho)
    found = composing.compose({noise: 1, ReportKind(4_300_000): 1}, 1e-6)
    assert found.epsilon <= 4.3 + 0.928 < found.zcdp


# What the guide says

GUIDE = (Path(__file__).parents[2] / "docs/guides/accounting.md").read_text()
TABLE = re.findall(r"^\| ([\d.]+) \| ([\d,]+) \| (.*) \|$", GUIDE, re.MULTILINE)


def test_the_guide_has_a_table():
    assert len(TABLE) == 5


@pytest.mark.slow
@pytest.mark.parametrize("row", TABLE, ids="x".join)
def test_a_row_of_the_guide_is_rounded_up_from_what_is_computed(row):
    epsilon, rounds, figures = (
        float(row[0]),
        int(row[1].replace(",", "")),
        map(float, row[2].split("|")),
    )
    one = report("three-outputs", epsilon)
    local = composing.compose({one: rounds}, 1e-6)
    mixed = [exact({one.among(devices): rounds}) for devices in (100, 1000)]
    for found, told in zip((local.pure, local.zcdp, local.exact, *mixed), figures, strict=True):
        assert found * (1 - 1e-9) <= told <= 1.01 * found


def test_the_rho_of_a_tiny_report_is_overstated_as_the_guide_says():
    assert "one of epsilon .0001 has 200 times its rho" in GUIDE
    tiny = any_mechanism(1e-4)
    assert tiny.rho / MICRO == pytest.approx(200 * 1e-4 * math.tanh(0.5e-4), rel=1e-6)


# Extremes


@pytest.mark.parametrize(
    ("reports", "delta", "epsilon"),
    [
        ({any_mechanism(1): 20}, 1 - 2**-53, 0.0),
        ({any_mechanism(1).among(5): 20}, 1 - 2**-53, 0.0),
        ({any_mechanism(1): 1}, 0.5, 0.0),  # above the distance of its laws
        ({any_mechanism(1e-6).among(10**6): 1}, 0.1, 0.0),
        ({any_mechanism(60): 3}, 1e-6, 180),
        ({any_mechanism(1000): 3}, 1e-6, 3000),
        ({ReportKind.of(card("three-outputs", 8), values=16).among(50): 1}, 1e-300, 16 * 8),
        ({any_mechanism(1).among(1): 0}, 1e-6, 0.0),
        ({}, 1e-6, 0.0),
    ],
)
def test_an_extreme_has_its_epsilon(reports, delta, epsilon):
    assert exact(reports, delta) == pytest.approx(epsilon, rel=1e-4)


def test_a_card_that_tells_nothing_costs_nothing_also_among_others():
    part = laws.Part.of(Fraction(1), [[Fraction(1, 2)] * 2] * 2)
    assert laws.profile([part], Fraction(1)) == 0
    assert shuffling.delta_of([part], 0.0, Fraction(1), 50) == 0


def test_a_million_reports_of_a_millionth_cost_as_gaussian_noise_of_their_length_does():
    """Each loss is 1e-6 or -1e-6, with variance 1e-12.

    Their sum is as a shift by a thousandth of sigma has it.
    """
    mu = 1e-6 * math.sqrt(10**6)

    def delta_of(total):
        above, below = mu / 2 - total / mu, -mu / 2 - total / mu
        return float(special.ndtr(above) - math.exp(total) * special.ndtr(below))

    found = exact({any_mechanism(1e-6): 10**6})
    assert found == pytest.approx(least(delta_of, 1e-6, 1.0), rel=1e-3)


@pytest.mark.parametrize("step", ["1e-13", "1e-9", "1e-4", "0.01", "1"])
def test_a_point_of_the_grid_is_never_above_its_loss(step):
    for i in (-30, -7, -1, 0, 1, 7, 30):
        with localcontext(prec=60):
            x = Decimal(i) * Decimal(float(step))
            point = losses.at(i, float(step))
            lacking = x.exp() - Decimal(point.numerator) / point.denominator
            assert (
                0 <= lacking <= Decimal("1e-13") * (abs(x.exp() - 1) if abs(x) < 0.5 else x.exp())
            )


def test_a_delta_beyond_its_range_is_refused():
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(UsageError, match="delta"):
            composing.compose({report(*THREE): 1}, delta)
