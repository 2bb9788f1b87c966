"""The privacy loss of many reports: never below the exact one, and close to it.

Reports are composed alone, and among the reports of others of which an observer sees only counts.
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
from designing import law_of_counts, shipped_card
from dp_accounting import rdp
from dp_accounting.pld import privacy_loss_distribution as pld
from spec.cards import sum_card

from tern import wire
from ternhost.count.questions import Question, decode_body, round_body
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
from ternhost.privacy.composing import ReportKind, compose_exactly

# Name, epsilon, and for some the number of levels.
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
    """A report of which only the epsilon is known: randomised response tells as much."""
    return ReportKind(round(epsilon * MICRO))


def laws_at_knots(*named):
    """The probabilities of a card's symbols, a list for each of its knots."""
    of = card(*named)
    return [certify.at_knot(of, i) for i in range(len(certify.knots(of)))]


# Reports alone


def binomial_delta(epsilon, total, reports):
    """Delta of randomised response at the epsilon `total` (Kairouz, Oh and Viswanath 2015,
    Theorem 3.3).
    """
    log_true = -math.log1p(math.exp(-epsilon))
    log_false = -math.log1p(math.exp(epsilon))
    terms = []
    for false in range(reports + 1):
        loss = (reports - 2 * false) * epsilon
        if loss > total:
            log_ways = math.lgamma(reports + 1) - math.lgamma(false + 1)
            log_ways -= math.lgamma(reports - false + 1)
            mass = math.exp(log_ways + (reports - false) * log_true + false * log_false)
            terms.append(mass * -math.expm1(total - loss))
    return math.fsum(terms)


def least_epsilon(delta_of, delta, largest):
    """The least epsilon with this delta, by bisection."""
    if delta_of(0.0) <= delta:
        return 0.0
    low, high = 0.0, largest
    for _ in range(50):
        middle = (low + high) / 2
        if delta_of(middle) <= delta:
            high = middle
        else:
            low = middle
    return high


@pytest.mark.sampled(10)
@pytest.mark.parametrize("delta", [0.5, 1e-3, 1e-6, 1e-12, 1e-40])
@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.3, 2, 20])
@pytest.mark.parametrize("reports", [1, 2, 7, 100, 3000])
def test_randomised_response_composes_to_its_binomial_sum(reports, epsilon, delta):
    """The account states the epsilon that a device has spent with many reports, at a delta. Of
    reports of one epsilon, none tells more than randomised response, whose delta is known in closed
    form. The account is never below the exact epsilon, and at most 0.1 percent above it.
    """

    def delta_of(total):
        return binomial_delta(epsilon, total, reports)

    exact = least_epsilon(delta_of, delta, reports * epsilon)
    composed = compose_exactly({any_mechanism(epsilon): reports}, delta)

    assert exact * (1 - 1e-8) <= composed <= exact * 1.001


def product_delta(pairs, ratio):
    """Delta at ratio = exp(epsilon) of independent reports, each with laws P and Q."""
    masses = [(Fraction(1), Fraction(1))]
    for law_p, law_q in pairs:
        symbols = list(zip(law_p, law_q, strict=True))
        masses = [(p * x, q * y) for p, q in masses for x, y in symbols]
    return sum((max(Fraction(0), p - ratio * q) for p, q in masses), Fraction(0))


def worst_product_delta(laws_of_reports, epsilon):
    """The largest delta over all pairs of inputs of each report."""
    ratio = Fraction(math.exp(epsilon))
    pairs = [itertools.permutations(laws_of_one, 2) for laws_of_one in laws_of_reports]
    return float(max(product_delta(chosen, ratio) for chosen in itertools.product(*pairs)))


@pytest.mark.parametrize("delta", [1e-2, 1e-5])
@pytest.mark.parametrize(
    "reports",
    [
        [("three-outputs", 0.5)] * 3,
        [("three-outputs", 4)] * 2,
        [("rr3", 1)] * 2,
        [("pm-sub", 1, 4)] * 3,
        [("three-outputs", 0.3), ("grr", 1), ("pm-sub", 0.7, 4)],
    ],
    ids=str,
)
def test_a_small_product_keeps_delta_at_its_epsilon_and_not_much_below(reports, delta):
    """For two or three reports, the exact delta at the epsilon that the account states can be
    found: every pair of inputs of every report is compared, in rational numbers.
    """
    kinds = Counter(report(*named) for named in reports)

    epsilon = compose_exactly(kinds, delta)

    all_inputs = [laws_at_knots(*named) for named in reports]
    assert worst_product_delta(all_inputs, epsilon) <= delta
    if epsilon > 0:  # at 0.99 of it, the lowest and the highest input have more than delta
        two_ends = [[knots[0], knots[-1]] for knots in all_inputs]
        assert worst_product_delta(two_ends, 0.99 * epsilon) > delta


@pytest.mark.parametrize(
    ("named", "reports", "delta"),
    [
        (("three-outputs", 0.1), 1000, 1e-6),
        (("rr3", 0.5), 200, 1e-9),
        (("grr", 1, 4), 30, 1e-5),
        (("pm-sub", 0.2, 64), 365, 1e-6),
    ],
    ids=str,
)
def test_a_card_composes_as_googles_accountant_says(named, reports, delta):
    """dp-accounting, Google's library, composes many reports of a mechanism, too. The mechanism is
    given to it by its probabilities at the lowest and the highest input, which differ most.
    """
    lowest, *_, highest = laws_at_knots(*named)
    epsilon_of_a_report = named[1]
    theirs = pld.from_two_probability_mass_functions(
        {symbol: math.log(p) for symbol, p in enumerate(lowest)},
        {symbol: math.log(p) for symbol, p in enumerate(highest)},
        value_discretization_interval=epsilon_of_a_report / 400,
        symmetric=False,
    )
    their_epsilon = theirs.self_compose(reports).get_epsilon_for_delta(delta)

    our_epsilon = compose_exactly({report(*named): reports}, delta)

    # Theirs is an upper bound, too, on a coarser grid.
    assert 0.99 * their_epsilon < our_epsilon < their_epsilon * 1.0005


PROJECTION_CARD = cards.decode(projection.design(MICRO, 32, 1.0).card)


def projection_laws(overlap):
    """The laws of two directions of PROJECTION_CARD whose sets of likely symbols share so many."""
    body = projection.of(PROJECTION_CARD)
    rows = []
    for first_likely in (0, body.k - overlap):
        likely = range(first_likely, first_likely + body.k)
        weights = [body.a if symbol in likely else body.b for symbol in range(2 * body.size)]
        rows.append([Fraction(weight, body.total) for weight in weights])
    return laws.Part.of(Fraction(1), rows)


@pytest.mark.parametrize("others", [0, 20], ids=["alone", "among 20"])
@pytest.mark.parametrize("ratio", [Fraction(1), Fraction(2)], ids=float)  # exp(epsilon)
def test_a_projection_card_tells_as_much_as_opposite_directions_and_more_than_near_ones(
    others, ratio
):
    """A projection card states how a device reports a direction: it sends, out of a circle of
    symbols, more likely one near its own. What a report tells (delta, exactly for one report,
    bounded if it is mixed with 20 `others`) is what it tells between opposite directions, which
    have no likely symbol in common. Near ones share half of them, and are harder to tell apart.
    """

    def delta_of(part):
        if others:
            return shuffling.delta_of([part], 1.0, ratio, others)
        return float(laws.profile([part], ratio))

    (of_card,) = laws.parts(PROJECTION_CARD)
    likely_symbols = projection.of(PROJECTION_CARD).k
    opposite = projection_laws(overlap=0)
    near = projection_laws(overlap=likely_symbols - likely_symbols // 2)

    assert delta_of(of_card) == pytest.approx(delta_of(opposite), rel=1e-9)
    assert delta_of(of_card) > delta_of(near) * (1 + 1e-9)


@pytest.mark.parametrize("named", [*CARDS, ("grr", 20), ("duchi", 1e-6)], ids=str)
@pytest.mark.parametrize("ratio", [Fraction(1, 3), Fraction(1), Fraction(5)], ids=float)
def test_a_profile_is_the_largest_of_all_pairs_of_inputs(named, ratio):
    """The privacy profile at a ratio, exp(epsilon), is the least delta: the sum over the symbols of
    what P(symbol) exceeds ratio Q(symbol), for the two inputs P and Q for which it is largest.
    Computed here for all pairs of inputs, in integers.
    """
    parts = laws.parts(card(*named))
    largest = Fraction(0)
    for part in parts:
        worst_excess = 0
        for law_p, law_q in itertools.permutations(part.rows, 2):
            excess = 0
            for p, q in zip(law_p, law_q, strict=True):
                excess += max(0, p * ratio.denominator - q * ratio.numerator)
            worst_excess = max(worst_excess, excess)
        largest += part.share * Fraction(worst_excess, part.whole * ratio.denominator)
    assert laws.profile(parts, ratio) == largest


# Zero-concentrated


def renyi(law_p, law_q, alpha):
    moment = 0.0
    for p, q in zip(law_p, law_q, strict=True):
        moment += float(p) * math.exp((alpha - 1) * math.log(p / q))
    return math.log(moment) / (alpha - 1)


@pytest.mark.parametrize("named", [each for each in CARDS if each[0] != "hm"], ids=str)
def test_a_report_keeps_the_rho_of_its_epsilon_at_every_alpha(named):
    """rho-zCDP: the Renyi divergence of order alpha is at most alpha rho, for any two inputs."""
    rho = report(*named).rho / MICRO
    for alpha in (1.0001, 1.5, 2, 8, 300):
        for law_p, law_q in itertools.permutations(laws_at_knots(*named), 2):
            assert renyi(law_p, law_q, alpha) <= alpha * rho * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "rho"), [(10, 1.539), (1, 0.02436)])
def test_a_budget_in_rho_has_the_epsilon_that_googles_accountant_says(epsilon, rho):
    orders = [1 + 10 ** (i / 100) for i in range(-200, 400)]
    theirs = rdp.RdpAccountant(orders).compose(dp_accounting.ZCDpEvent(rho)).get_epsilon(1e-6)
    ours = sums.epsilon_of(round(rho * MICRO), 1e-6)
    assert ours == pytest.approx(epsilon, rel=1e-3)
    assert ours == pytest.approx(theirs, rel=1e-4)


# Among others, of whose reports only counts are seen


def worst_delta_among(knots, clients, rounds, epsilon):
    """The largest delta of counts, over the inputs of the others and both orders of two inputs."""
    worst = 0.0
    for others in itertools.combinations_with_replacement(knots, clients - 1):
        for one, another in ((knots[0], knots[-1]), (knots[-1], knots[0])):
            law_p, law_q = law_of_counts([*others, one]), law_of_counts([*others, another])
            pair = (list(law_p.values()), [law_q[counts] for counts in law_p])
            delta = product_delta([pair] * rounds, Fraction(math.exp(epsilon)))
            worst = max(worst, float(delta))
    return worst


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("clients", "rounds", "named"),
    [(2, 2, ("three-outputs", 1)), (3, 2, ("grr", 2)), (5, 1, ("three-outputs", 1))],
    ids=str,
)
@pytest.mark.parametrize("delta", [0.05, 1e-3])
def test_counts_of_several_rounds_keep_delta_whatever_the_others_hold(
    clients, rounds, named, delta
):
    """Reports of several clients are mixed, so that an observer sees only how many of them have
    each symbol. The exact delta at the epsilon that the account states is found by enumerating all
    counts, for all inputs of the other clients.
    """
    epsilon = compose_exactly({report(*named).among(clients): rounds}, delta)
    exact = worst_delta_among(laws_at_knots(*named), clients, rounds, epsilon)
    assert 0.2 * delta < exact <= delta, "no more, and not much less"


def ones_among(clients, epsilon):
    """Both laws of the ones among reports of randomised response, for a one and for a zero of
    one client; all others hold ones, which tells most.
    """
    p = 1 / (1 + math.exp(-epsilon))
    of_others = np.ones(1)
    for _ in range(clients - 1):
        of_others = np.convolve(of_others, [p, 1 - p])
    return np.convolve(of_others, [1 - p, p]), np.convolve(of_others, [p, 1 - p])


@pytest.mark.parametrize(("clients", "epsilon"), [(10, 1), (300, 2)])
@pytest.mark.parametrize("alpha", [1.1, 8, 40])
def test_counts_have_the_renyi_divergence_of_their_blanket_at_most(clients, epsilon, alpha):
    """Renyi divergences of order alpha measure what reports tell. Some of the reports of others do
    not depend on what they hold: the blanket that hides one client. The bound counts on no more
    than that, so that it is above the exact divergence.
    """
    ones, zeros = ones_among(clients, epsilon)
    exact = max(renyi(ones, zeros, alpha), renyi(zeros, ones, alpha))

    report_alone = any_mechanism(epsilon)
    bound = composing.renyi(report_alone.among(clients), alpha)
    bound_alone = composing.renyi(report_alone, alpha)

    assert exact <= bound <= bound_alone
    # The bound is not loose: it is near the exact divergence at small alpha. At large alpha other
    # reports hide next to nothing, and it is near the one of a report alone.
    assert bound < 3 * exact or bound > 0.7 * bound_alone


# Reports that others do not hide


def test_sums_are_never_mixed():
    """Neighbours of a sum differ by one unit, so that others' reports are no blanket."""
    laplace = sum_card(MICRO, 1, 1, 64, 1 << 14, 32, -32, t=96, bits=12)
    gaussian = sum_card(MICRO, 2, 1, 64, 1 << 14, 32, -32, t=64, c=40, bits=8, coarse=2)
    for data in (laplace, gaussian):
        kind = ReportKind.of(cards.decode(data))
        assert kind.among(1000) == kind


@pytest.mark.parametrize(("hashed", "others"), [(0, 1000), (1, 0)])
def test_hashes_are_never_mixed_since_each_device_has_its_own(hashed, others):
    question = Question(wire.CATEGORIES, [1], 0, card("grr", 1).data, 1, range=hashed)
    kind = ReportKind.of_question(decode_body(round_body(1, question)))
    assert kind.among(1000).mixed == others


# Gaussian noise


# A device has made reports with Gaussian noise, whose price is a rho, and others, whose price is an
# epsilon: `PURE`.
RHO_OF_GAUSSIAN = 20_000  # millionths
GAUSSIAN = ReportKind(RHO_OF_GAUSSIAN, gaussian=True)
GAUSSIANS = 3
PURE = report("three-outputs", 1)
PURES = 2
MIXED_DELTA = 1e-6


@pytest.fixture(scope="module")
def mixed_account():
    """The bounds for all these reports together, by several ways of accounting."""
    return composing.compose({GAUSSIAN: GAUSSIANS, PURE: PURES}, MIXED_DELTA)


def test_reports_with_gaussian_noise_among_others_have_no_epsilon_without_a_delta(mixed_account):
    assert mixed_account.pure is None


def test_the_rhos_of_reports_with_and_without_gaussian_noise_add_up(mixed_account):
    rho = GAUSSIANS * RHO_OF_GAUSSIAN + PURES * PURE.rho
    assert mixed_account.zcdp == sums.epsilon_of(rho, MIXED_DELTA)


def test_the_epsilons_of_reports_with_and_without_gaussian_noise_add_up(mixed_account):
    """Gaussian noise has an epsilon only at a delta, and the others have a smaller one at a delta.
    Either the Gaussian reports get all of delta, or both get half of it: the lesser sum counts.
    """
    rho = GAUSSIANS * RHO_OF_GAUSSIAN
    half = MIXED_DELTA / 2
    all_to_gaussian = composing.pure_sum({PURE: PURES}) + sums.epsilon_of(rho, MIXED_DELTA)
    half_to_each = compose_exactly({PURE: PURES}, half) + sums.epsilon_of(rho, half)
    assert mixed_account.exact == min(all_to_gaussian, half_to_each)


# The table of the guide

GUIDE = (Path(__file__).parents[2] / "docs/guides/accounting.md").read_text()
TABLE = re.findall(r"^\| ([\d.]+) \| ([\d,]+) \| (.*) \|$", GUIDE, re.MULTILINE)


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", TABLE, ids="x".join)
def test_a_row_of_the_guide_is_rounded_up_from_what_is_computed(row):
    """docs/guides/accounting.md has a table of the epsilon of many reports, by five ways of
    accounting. No figure is below the computed one, nor more than one percent above it.
    """
    epsilon_cell, rounds_cell, other_cells = row
    epsilon, rounds = float(epsilon_cell), int(rounds_cell.replace(",", ""))
    stated = [float(cell) for cell in other_cells.split("|")]

    kind = report("three-outputs", epsilon)
    alone = composing.compose({kind: rounds}, 1e-6)
    among = [compose_exactly({kind.among(devices): rounds}, 1e-6) for devices in (100, 1000)]
    computed = [alone.pure, alone.zcdp, alone.exact, *among]

    for of_guide, exact in zip(stated, computed, strict=True):
        assert exact * (1 - 1e-9) <= of_guide <= 1.01 * exact


# Extremes


@pytest.mark.parametrize(
    ("reports", "delta", "epsilon"),
    [
        ({any_mechanism(epsilon=1): 20}, 1 - 2**-53, 0.0),
        # The laws of one report of epsilon 1 are (e - 1) / (e + 1) = 0.46 apart.
        ({any_mechanism(epsilon=1): 1}, 0.5, 0.0),
        ({any_mechanism(epsilon=1000): 3}, 1e-6, 3 * 1000),
        ({}, 1e-6, 0.0),
    ],
    ids=["a delta next to 1", "a delta beyond the distance", "a huge epsilon", "no reports"],
)
def test_an_extreme_composition_does_not_break_the_account(reports, delta, epsilon):
    """Where delta permits everything, epsilon is 0; where it permits next to nothing, it is the sum."""
    assert compose_exactly(reports, delta) == pytest.approx(epsilon, rel=1e-4)


@pytest.mark.parametrize("step", ["1e-13", "1e-4", "1"])
@pytest.mark.parametrize("index", [-30, -1, 0, 1, 30])
def test_a_point_of_the_grid_is_never_above_its_loss(step, index):
    """Privacy losses are rounded to a grid of multiples of a step. The factor exp(loss) of a grid
    point is kept as a rational number, at most the true one, so that rounding never makes a
    guarantee too good; and short of it by a part of 1e-13.
    """
    step = float(step)
    with localcontext(prec=60):
        loss = index * Decimal(step)
        ratio = loss.exp()
        point = losses.exp_of_steps(index, step)

        missing = ratio - Decimal(point.numerator) / point.denominator
        # Near 1, the error is small beside the distance from 1.
        scale = abs(ratio - 1) if abs(loss) < 0.5 else ratio
        assert 0 <= missing <= Decimal("1e-13") * scale
