"""Lies never move a gradient, a projection or a sum beyond its bound, and can reach it."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from attacks import ATTACKS, attacks, designed, require_tight, row_of

from tern import card as cards
from tern.wire import LOGISTIC
from ternhost.count.questions import Question
from ternhost.count.rounds import CohortCounts
from ternhost.learn import liars
from ternhost.learn.collecting import estimate
from ternhost.privacy import projection, sums
from ternhost.vectorised import projection as projections

# Gradients


def counts_of(card, asked, symbols):
    """How often each symbol was reported for each of 6 coordinates.

    asked, symbols: the coordinates that each device was asked about, and its reports (devices x k).
    """
    counts = np.zeros((6, card.symbols), np.int64)
    np.add.at(counts, (asked, symbols), 1)
    return counts


def test_a_thousand_attacks_on_a_gradient_stay_within_the_bound_and_the_best_is_close():
    """Each device reports 2 of 6 coordinates. Liars are any devices, or those that are all asked
    about the same coordinates.
    """
    random = np.random.default_rng(5)
    card, d, k = designed("pm-sub", "1"), 6, 2
    pairs = np.array(list(itertools.combinations(range(d), k)))
    ratios = []
    for attack in attacks((40, 150, 600), ("0.05",)):
        devices = attack.reports
        asked = pairs[random.integers(len(pairs), size=devices)]  # devices x k
        is_liar = np.arange(devices) < attack.lies
        if attack.number % 2:  # those that are asked about the coordinates of which the fewest tell
            rarest = np.sort(np.argsort(np.bincount(asked.ravel(), minlength=d))[:k])
            same = np.flatnonzero((asked == rarest).all(axis=1))[: attack.lies]
            is_liar = np.isin(np.arange(devices), same)
        symbols = random.integers(card.symbols, size=(devices, k))
        if attack.number % 4 == 1:
            symbols[is_liar] = int(estimate.symbol_values(card).argmax())

        counts = counts_of(card, asked, symbols)
        honest_counts = counts_of(card, asked[~is_liar], symbols[~is_liar])
        of_all, of_honest = (
            np.nan_to_num(estimate.combine([(card, each)]).mean) for each in (counts, honest_counts)
        )
        bound = liars.length_of_means([(card, counts)], of_all, k, share="0.05")
        ratios.append(float(np.linalg.norm(of_all - of_honest)) / bound)
    require_tight(ratios)


def test_all_symbols_and_liars_show_that_the_bound_of_a_gradient_is_exact():
    """Six devices, each asked about one of two coordinates; any one of them may lie."""
    card = designed("duchi", "1")
    asked = np.array([0, 0, 0, 1, 1, 1])
    ratios = []
    for symbols in itertools.product(range(2), repeat=6):
        counts = np.zeros((2, 2), np.int64)
        np.add.at(counts, (asked, symbols), 1)
        of_all = estimate.combine([(card, counts)]).mean
        bound = liars.length_of_means([(card, counts)], of_all, 1, share=Fraction(1, 6))
        for liar in range(6):
            honest = counts.copy()
            honest[asked[liar], symbols[liar]] -= 1
            of_honest = estimate.combine([(card, honest)]).mean
            ratios.append(np.linalg.norm(of_all - of_honest) / bound)
    assert max(ratios) == pytest.approx(1, rel=1e-9)


def test_a_value_that_only_liars_report_may_vanish_from_a_gradient():
    """A value that nobody reports counts as 0, so that all of it may be a lie."""
    card = designed("duchi", "1")
    counts = np.array([[0, 1], [50, 50]])
    mean = estimate.combine([(card, counts)]).mean
    assert liars.length_of_means([(card, counts)], mean, 1) >= abs(mean[0])


def vectors_of(card, rotations, symbols):
    """The sum of the directions that these symbols stand for, as a round's counts."""
    d = projection.of(card).size
    directions = projections.decode(card, rotations, symbols, d)
    question = Question(
        model=LOGISTIC, parameters=[0] * d, exponent=0, card=bytes(card.data), k=1, range=0
    )
    return CohortCounts(
        card=card,
        k=1,
        counts=row_of(card, symbols),
        reports=len(symbols),
        question=question,
        vectors=directions.sum(axis=0),
    )


def test_a_thousand_attacks_on_projections_stay_within_the_bound_and_the_best_is_close():
    """Liars with the same rotation all report the same direction. With rotations of their own, each
    reports the direction that is nearest to a common one.
    """
    random = np.random.default_rng(6)
    made = projection.design(1_000_000, 32, 1.0)
    card = cards.decode(made.card)
    size, devices = 32, 400
    number = int(liars.liars_among(devices))
    ratios = []
    for attack in range(ATTACKS):
        rotations = random.integers(256, size=(devices, 3 * size // 8)).astype(np.uint8)
        symbols = random.integers(2 * size, size=devices)
        if attack % 2:
            rotations[:number] = rotations[0]
            symbols[:number] = symbols[0]
        if attack % 4 == 2:
            wanted = np.zeros((number, size), np.int32)
            wanted[:, 0] = 1
            turned = projections.turn(wanted, rotations[:number], size)
            symbols[:number] = turned.argmax(axis=1)

        everybody = vectors_of(card, rotations, symbols)
        of_all = estimate.mean_of_projections(everybody).mean
        honest = vectors_of(card, rotations[number:], symbols[number:])
        of_honest = estimate.mean_of_projections(honest).mean
        bound = liars.length_of_projections([everybody], of_all)
        ratios.append(float(np.linalg.norm(of_all - of_honest)) / bound)
    require_tight(ratios)


# Sums


def sums_design(values):
    return sums.design(
        sums.SumPlan(
            cost=1_000_000, unit=1, radius=1.0, clipped=128, kept=0, units=50, values=values
        )
    )


def sums_of(made, symbols):
    """The counts of reports that have these symbols (devices x values)."""
    card = cards.decode(made.card)
    counts = np.zeros((symbols.shape[1], card.symbols), np.int64)
    for value in range(symbols.shape[1]):
        counts[value] = np.bincount(symbols[:, value], minlength=card.symbols)
    question = Question(
        model=LOGISTIC,
        parameters=[0] * (symbols.shape[1] - 1),
        exponent=0,
        card=made.card,
        k=symbols.shape[1],
        range=made.range,
    )
    return CohortCounts(card, symbols.shape[1], counts, len(symbols), question)


def mean_sum(cohort):
    totals, _ = estimate.sums_of(cohort)
    return totals[:-1] / cohort.reports


def test_a_thousand_attacks_on_sums_stay_within_the_bound_and_the_best_is_close():
    random = np.random.default_rng(7)
    made = sums_design(5)
    card = cards.decode(made.card)
    ratios = []
    largest = card.symbols - 1
    for attack in attacks((5, 20, 200), ("0.01",)):
        middle = card.symbols // 2
        honest_symbols = np.rint(random.normal(middle, 20, size=(attack.reports, 5)))
        symbols = np.clip(honest_symbols, 0, largest).astype(np.int64)
        lies = slice(attack.lies)
        if attack.number % 4 == 0:
            symbols[lies] = 0
        elif attack.number % 4 == 1:
            symbols[lies] = largest
        else:
            symbols[lies] = random.integers(card.symbols, size=(attack.lies, 5))
        everybody, honest = sums_of(made, symbols), sums_of(made, symbols[attack.lies :])
        moved = float(np.linalg.norm(mean_sum(everybody) - mean_sum(honest)))
        ratios.append(moved / liars.length_of_sums(everybody))
    require_tight(ratios)


def test_a_thousand_attacks_on_a_quotient_of_totals_stay_within_the_bound_and_the_best_is_close():
    random = np.random.default_rng(8)
    of_numerator, of_denominator = liars.Range(-60.0, 70.0), liars.Range(-20.0, 90.0)
    ratios = []
    for attack in attacks((10, 40, 300), ("0.01",)):
        lies, honest = slice(attack.lies), slice(attack.lies, None)
        numerators = random.uniform(-20, 20, size=attack.reports)
        denominators = random.uniform(40, 60, size=attack.reports)
        numerators[lies] = random.choice(of_numerator, size=attack.lies)
        denominators[lies] = random.choice(of_denominator, size=attack.lies)
        if attack.number % 4 == 0:  # whatever
            numerators[lies] = random.uniform(*of_numerator, size=attack.lies)
        of_all = numerators.sum() / denominators.sum()
        of_honest = numerators[honest].sum() / denominators[honest].sum()
        bound = liars.quotient(
            liars.Total(numerators.sum(), of_numerator),
            liars.Total(denominators.sum(), of_denominator),
            attack.reports,
        )
        ratios.append(abs(of_all - of_honest) / bound)
    require_tight(ratios)


def test_a_quotient_has_no_bound_if_lies_may_be_all_of_its_denominator():
    numerator = liars.Total(1.0, liars.Range(-50.0, 50.0))
    denominator = liars.Total(40.0, liars.Range(-50.0, 50.0))
    assert liars.quotient(numerator, denominator, reports=10) == math.inf
