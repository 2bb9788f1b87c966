"""Devices that report whatever they like never move a mean beyond its bound, and can reach it."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from attacks import ATTACKS, SHARES, attacks, designed, drawn, lies_of, require_tight, row_of

from ternhost.learn import liars
from ternhost.learn.collecting import estimate

# How many liars there are


def test_a_share_of_few_reports_is_one_liar():
    assert liars.liars_among([1, 99, 199, 200]).tolist() == [1, 1, 1, 2]


def test_a_share_is_the_decimal_number_that_was_written():
    # The float 0.29 is a little less than 29/100, so that 28.999... of 100 would be liars.
    assert liars.liars_among(100, 0.29) == 29


@pytest.mark.parametrize("share", [0, 1, -0.5, 2])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match="share"):
        liars.liars_among(100, share)


def test_a_single_report_has_no_bound():
    kind = liars.kind_of_means(designed("duchi", "1"), [1, 2])
    assert np.isnan(liars.after([kind], [0.0, 0.0]).most).tolist() == [True, False]


def test_without_reports_there_is_no_bound():
    kind = liars.kind_of_means(designed("duchi", "1"), [0])
    assert np.isnan(liars.after([kind], [np.nan]).most[0])


# Means


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [("duchi", "0.5"), ("three-outputs", "2"), ("pm-sub", "1"), ("laplace", "1"), ("rr3", "4")],
)
def test_a_thousand_attacks_on_a_mean_stay_within_the_bound_and_the_best_is_close(name, epsilon):
    random = np.random.default_rng(1)
    card = designed(name, epsilon)
    after, before = [], []
    for attack in attacks():
        honest_count = attack.reports - attack.lies
        honest = drawn(card, random.choice([-1, 0, 0.3, 1]), honest_count, random)
        lies = lies_of(card, attack.lies, attack.number % 4, random)

        honest_counts = row_of(card, honest)
        counts = honest_counts + row_of(card, lies)
        of_all = estimate.combine([(card, counts)]).mean
        of_honest = estimate.combine([(card, honest_counts)]).mean
        moved = abs(of_all - of_honest)[0]
        after.append(moved / liars.means([(card, counts)], of_all, share=attack.share).most[0])
        kind = liars.kind_of_means(card, [attack.reports])
        before.append(moved / liars.before([kind], of_honest, attack.share).most[0])

    require_tight(after)
    require_tight(before)


def test_a_thousand_attacks_on_a_mean_of_classes_stay_within_the_bound_and_the_best_is_close():
    """Devices of a small epsilon move values far, but their reports weigh little. Some clip values
    to a half.
    """
    random = np.random.default_rng(2)
    cohort_cards = [designed("duchi", "0.5"), designed("pm-sub", "2"), designed("duchi", "4")]
    taus = [1.0, 0.5, 1.0]
    after, before = [], []
    for attack in range(ATTACKS):
        share = SHARES[attack % len(SHARES)]
        reports = random.integers(2, 200, size=3)
        number = int(liars.liars_among(reports.sum(), share))
        all_cohorts, honest_cohorts, kinds = [], [], []
        # The liars are of one class, or of random ones.
        classes = random.integers(3, size=number)
        if attack % 3:
            classes = np.full(number, attack % 3)
        lies_by_class = np.minimum(np.bincount(classes, minlength=3), reports)
        for card, tau, total, lying in zip(cohort_cards, taus, reports, lies_by_class, strict=True):
            honest = row_of(card, drawn(card, random.choice([-1, 0, 1]), total - lying, random))
            lies = row_of(card, lies_of(card, lying, attack % 4, random))
            honest_cohorts.append((card, honest))
            all_cohorts.append((card, honest + lies))
            kinds.append(liars.kind_of_means(card, [total], tau))

        of_all = estimate.combine(all_cohorts, tau=taus).mean
        of_honest = estimate.combine(honest_cohorts, tau=taus).mean
        moved = abs(of_all - of_honest)[0]
        bound = liars.means(all_cohorts, of_all, tau=taus, share=share)
        after.append(moved / bound.most[0])
        before.append(moved / liars.before(kinds, of_honest, share).most[0])

    require_tight(after)
    require_tight(before)


@pytest.mark.parametrize("number", [1, 2])
def test_all_symbols_of_few_devices_show_that_the_bound_of_a_mean_before_a_run_is_exact(number):
    """Four devices, of which one or two lie: whatever the others report, some lies reach the bound,
    and none goes beyond it.
    """
    card = designed("three-outputs", "1")
    kind = liars.kind_of_means(card, [4])
    for honest in itertools.product(range(card.symbols), repeat=4 - number):
        of_honest = estimate.combine([(card, row_of(card, honest))]).mean
        moves = []
        for lies in itertools.product(range(card.symbols), repeat=number):
            of_all = estimate.combine([(card, row_of(card, honest + lies))]).mean
            moves.append(abs(of_all - of_honest)[0])
        bound = liars.before([kind], of_honest, Fraction(number, 4)).most[0]
        assert max(moves) == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize("number", [1, 2])
def test_all_symbols_of_few_devices_show_that_the_bound_of_a_mean_after_a_run_is_exact(number):
    card = designed("three-outputs", "1")
    ratios = []
    for symbols in itertools.product(range(card.symbols), repeat=5):
        counts = row_of(card, symbols)
        of_all = estimate.combine([(card, counts)]).mean
        bound = liars.means([(card, counts)], of_all, share=Fraction(number, 5)).most[0]
        for lying in itertools.combinations(range(5), number):
            honest = [symbols[device] for device in range(5) if device not in lying]
            of_honest = estimate.combine([(card, row_of(card, honest))]).mean
            ratios.append(abs(of_all - of_honest)[0] / bound)
    assert max(ratios) == pytest.approx(1, rel=1e-9)


def test_all_symbols_of_two_classes_show_that_their_bound_is_exact():
    """Three devices of a small epsilon and two of a large one, of which any two lie."""
    few, many = designed("duchi", "0.5"), designed("three-outputs", "3")
    ratios = []
    for symbols in itertools.product(*[range(2)] * 3, *[range(3)] * 2):
        everybody = [(few, row_of(few, symbols[:3])), (many, row_of(many, symbols[3:]))]
        of_all = estimate.combine(everybody).mean
        bound = liars.means(everybody, of_all, share=Fraction(2, 5)).most[0]
        for lying in itertools.combinations(range(5), 2):
            of_few = [symbols[i] for i in range(3) if i not in lying]
            of_many = [symbols[i] for i in range(3, 5) if i not in lying]
            honest = [
                (few, row_of(few, np.array(of_few, np.int64))),
                (many, row_of(many, np.array(of_many, np.int64))),
            ]
            of_honest = estimate.combine(honest).mean
            ratios.append(abs(of_all - of_honest)[0] / bound)
    assert max(ratios) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("name", ["duchi", "pm-sub", "three-outputs"])
def test_a_bound_falls_with_epsilon(name):
    bounds = []
    for epsilon in ("0.5", "1", "2", "4"):
        kind = liars.kind_of_means(designed(name, epsilon), [1000])
        bounds.append(liars.before([kind], [0.0]).most[0])
    assert bounds == sorted(bounds, reverse=True)
