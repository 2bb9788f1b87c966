"""Devices that report whatever they like never move an estimate beyond its bound, and can reach it.

An attack is a set of honest reports and of lies. Its estimates, of all reports and of the honest
ones alone, are made by the host's own code.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tern import card as cards
from tern.collect import PRIME
from tern.fixed import ONE
from tern.wire import LOGISTIC
from ternhost import vectorised
from ternhost.count.questions import Question
from ternhost.count.rounds import CohortCounts
from ternhost.learn import estimate, liars
from ternhost.learn.bin_tree import Distribution, ReportedLevel, SummedLevel
from ternhost.learn.estimate import CategoryReports
from ternhost.privacy import certify, mechanisms, projection, sums
from ternhost.vectorised import projection as projections
from ternpapers import levels

ATTACKS = 1000
CLOSE = 0.95  # of its bound, the best attack reaches at least that
SHARES = ("0.01", "0.05", "0.2")
NUMBERS = (4, 30, 100, 1000)  # of reports


def designed(name, epsilon, levels=None):
    return cards.decode(mechanisms.design(name, epsilon, levels).card)


def row_of(card, symbols):
    """How often each symbol was reported, as counts of one value."""
    return np.bincount(symbols, minlength=card.symbols)[None]


def drawn(card, x, number, random):
    """Symbols of so many honest devices that all have the value x."""
    law = np.array([float(p) for p in certify.distribution(card, round(x * ONE))])
    return random.choice(card.symbols, size=number, p=law / law.sum())


def lies_of(card, number, strategy, random):
    """Symbols of so many liars: all the largest value, all the least one, or whatever."""
    values = estimate.symbol_values(card)
    if strategy == 0:
        return np.full(number, int(values.argmax()))
    if strategy == 1:
        return np.full(number, int(values.argmin()))
    if strategy == 2:
        return random.integers(card.symbols, size=number)
    return np.full(number, random.integers(card.symbols))


def require_tight(ratios):
    """No attack is beyond its bound, and the best one is close to it."""
    assert len(ratios) == ATTACKS
    assert max(ratios) <= 1
    assert max(ratios) >= CLOSE


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
    for attack in range(ATTACKS):
        reports = NUMBERS[attack % len(NUMBERS)]
        share = SHARES[attack % len(SHARES)]
        number = int(liars.liars_among(reports, share))
        honest = drawn(card, random.choice([-1, 0, 0.3, 1]), reports - number, random)
        lies = lies_of(card, number, attack % 4, random)

        honest_counts = row_of(card, honest)
        counts = honest_counts + row_of(card, lies)
        of_all = estimate.combine([(card, counts)]).mean
        of_honest = estimate.combine([(card, honest_counts)]).mean
        moved = abs(of_all - of_honest)[0]
        after.append(moved / liars.means([(card, counts)], of_all, share=share).most[0])
        kind = liars.kind_of_means(card, [reports])
        before.append(moved / liars.before([kind], of_honest, share).most[0])

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


def test_a_thousand_attacks_on_a_mean_of_levels_stay_within_the_bound_and_the_best_is_close():
    """HierA reports a level and a sign; those of the most private level count most."""
    random = np.random.default_rng(12)
    card = levels.design(1_000_000)
    ratios = []
    for attack in range(ATTACKS):
        reports = NUMBERS[attack % len(NUMBERS)]
        share = SHARES[attack % len(SHARES)]
        number = int(liars.liars_among(reports, share))
        honest = random.integers(card.symbols, size=reports - number)
        lies = np.full(number, random.integers(card.symbols))
        if attack % 3 == 0:  # whatever
            lies = random.integers(card.symbols, size=number)
        honest_counts = row_of(card, honest)
        counts = honest_counts + row_of(card, lies)
        of_all = levels.combine([(card, counts)])
        of_honest = levels.combine([(card, honest_counts)])
        bound = liars.after([levels.kind_of(card, np.array([reports]))], of_all, share)
        ratios.append(abs(of_all - of_honest)[0] / bound.most[0])
    require_tight(ratios)


@pytest.mark.parametrize("name", ["duchi", "pm-sub", "three-outputs"])
def test_a_bound_falls_with_epsilon(name):
    bounds = []
    for epsilon in ("0.5", "1", "2", "4"):
        kind = liars.kind_of_means(designed(name, epsilon), [1000])
        bounds.append(liars.before([kind], [0.0]).most[0])
    assert bounds == sorted(bounds, reverse=True)


# Shares of categories


def category_reports(card, symbols):
    return CategoryReports(card, row_of(card, symbols)[0], hashed_reports=None)


def test_a_thousand_attacks_on_shares_stay_within_the_bound_and_the_best_is_close():
    random = np.random.default_rng(3)
    card = designed("grr", "1", 5)
    ratios = []
    for attack in range(ATTACKS):
        reports = NUMBERS[attack % len(NUMBERS)]
        share = SHARES[attack % len(SHARES)]
        number = int(liars.liars_among(reports, share))
        honest = random.integers(card.symbols, size=reports - number)
        if attack % 2:  # all of them name the same category
            honest = np.full(reports - number, random.integers(card.symbols))
        lies = random.integers(card.symbols, size=number)
        if attack % 3:  # likewise
            lies = np.full(number, random.integers(card.symbols))

        everybody = category_reports(card, np.concatenate([honest, lies]))
        of_all = estimate.combine_frequencies([everybody]).mean
        of_honest = estimate.combine_frequencies([category_reports(card, honest)]).mean
        bound = liars.frequencies([everybody], of_all, share).most
        ratios.append((abs(of_all - of_honest) / bound).max())
    require_tight(ratios)


def test_a_thousand_attacks_on_shares_by_hashing_stay_within_the_bound_and_the_best_is_close():
    """Liars name the bucket to which their device hashes a category, or any other one."""
    random = np.random.default_rng(4)
    card, categories = designed("grr", "1", 4), 20
    ratios = []
    for attack in range(ATTACKS):
        reports = NUMBERS[attack % len(NUMBERS)]
        share = SHARES[attack % len(SHARES)]
        number = int(liars.liars_among(reports, share))
        devices = random.choice(1 << 20, size=reports, replace=False)
        hashes = vectorised.hashes(devices, attack)
        target = np.full((reports, 1), random.integers(categories))
        of_target = vectorised.hashed(hashes, target, card.symbols)[:, 0].astype(np.int64)
        symbols = random.integers(card.symbols, size=reports)
        honest, lies = slice(number, None), slice(number)
        if attack % 2:  # liars all support a category, or all another one
            symbols[lies] = of_target[lies]
        if attack % 3 == 0:  # honest devices do not
            symbols[honest] = (of_target[honest] + 1) % card.symbols

        def estimated(some):
            counts = estimate.supports(devices[some], symbols[some], attack, 4, categories)  # noqa: B023
            class_ = CategoryReports(card, counts, hashed_reports=len(devices[some]))  # noqa: B023
            return class_, estimate.combine_frequencies([class_]).mean

        everybody, of_all = estimated(slice(None))
        _, of_honest = estimated(honest)
        bound = liars.frequencies([everybody], of_all, share).most
        ratios.append((abs(of_all - of_honest) / bound).max())
    require_tight(ratios)


def test_all_symbols_of_few_devices_show_that_the_bound_of_shares_is_exact():
    card = designed("grr", "1", 3)
    ratios = []
    for symbols in itertools.product(range(3), repeat=5):
        everybody = category_reports(card, np.array(symbols))
        of_all = estimate.combine_frequencies([everybody]).mean
        bound = liars.frequencies([everybody], of_all, Fraction(2, 5)).most
        for lying in itertools.combinations(range(5), 2):
            honest = [symbols[device] for device in range(5) if device not in lying]
            of_honest = estimate.combine_frequencies(
                [category_reports(card, np.array(honest))]
            ).mean
            ratios.append((abs(of_all - of_honest) / bound).max())
    assert max(ratios) == pytest.approx(1, rel=1e-9)


# Gradients


def test_a_thousand_attacks_on_a_gradient_stay_within_the_bound_and_the_best_is_close():
    """Each device reports 2 of 6 coordinates. Liars are any devices, or those that are all asked
    about the same coordinates.
    """
    random = np.random.default_rng(5)
    card, d, k = designed("pm-sub", "1"), 6, 2
    pairs = np.array(list(itertools.combinations(range(d), k)))
    ratios = []
    for attack in range(ATTACKS):
        devices = (40, 150, 600)[attack % 3]
        number = int(liars.liars_among(devices, "0.05"))
        asked = pairs[random.integers(len(pairs), size=devices)]  # devices x k
        is_liar = np.arange(devices) < number
        if attack % 2:  # those that are asked about the coordinates of which the fewest tell
            rarest = np.sort(np.argsort(np.bincount(asked.ravel(), minlength=d))[:k])
            same = np.flatnonzero((asked == rarest).all(axis=1))[:number]
            is_liar = np.isin(np.arange(devices), same)
        symbols = random.integers(card.symbols, size=(devices, k))
        if attack % 4 == 1:
            symbols[is_liar] = int(estimate.symbol_values(card).argmax())

        def mean_of(some):
            counts = np.zeros((d, card.symbols), np.int64)
            np.add.at(counts, (asked[some], symbols[some]), 1)  # noqa: B023
            return counts, np.nan_to_num(estimate.combine([(card, counts)]).mean)

        counts, of_all = mean_of(np.full(devices, True))
        _, of_honest = mean_of(~is_liar)
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
        rotations = random.choice(np.array([-1, 1], np.int32), size=(devices, 3, size))
        symbols = random.integers(2 * size, size=devices)
        if attack % 2:
            rotations[:number] = rotations[0]
            symbols[:number] = symbols[0]
        if attack % 4 == 2:
            wanted = np.zeros((number, size), np.int32)
            wanted[:, 0] = 1
            for i in range(3):
                wanted = projections.transform(wanted * rotations[:number, i])
            symbols[:number] = wanted.argmax(axis=1)

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
    for attack in range(ATTACKS):
        devices = (5, 20, 200)[attack % 3]
        number = int(liars.liars_among(devices))
        middle = card.symbols // 2
        symbols = np.clip(
            np.rint(random.normal(middle, 20, size=(devices, 5))), 0, card.symbols - 1
        ).astype(np.int64)
        if attack % 4 == 0:
            symbols[:number] = 0
        elif attack % 4 == 1:
            symbols[:number] = card.symbols - 1
        else:
            symbols[:number] = random.integers(card.symbols, size=(number, 5))
        everybody, honest = sums_of(made, symbols), sums_of(made, symbols[number:])
        moved = float(np.linalg.norm(mean_sum(everybody) - mean_sum(honest)))
        ratios.append(moved / liars.length_of_sums(everybody))
    require_tight(ratios)


def test_a_thousand_attacks_on_a_quotient_of_totals_stay_within_the_bound_and_the_best_is_close():
    random = np.random.default_rng(8)
    of_numerator, of_denominator = liars.Range(-60.0, 70.0), liars.Range(-20.0, 90.0)
    ratios = []
    for attack in range(ATTACKS):
        devices = (10, 40, 300)[attack % 3]
        number = int(liars.liars_among(devices))
        numerators = random.uniform(-20, 20, size=devices)
        denominators = random.uniform(40, 60, size=devices)
        numerators[:number] = random.choice(of_numerator, size=number)
        denominators[:number] = random.choice(of_denominator, size=number)
        if attack % 4 == 0:  # whatever
            numerators[:number] = random.uniform(*of_numerator, size=number)
        of_all = numerators.sum() / denominators.sum()
        of_honest = numerators[number:].sum() / denominators[number:].sum()
        bound = liars.quotient(
            liars.Total(numerators.sum(), of_numerator),
            liars.Total(denominators.sum(), of_denominator),
            devices,
        )
        ratios.append(abs(of_all - of_honest) / bound)
    require_tight(ratios)


def test_a_quotient_has_no_bound_if_lies_may_be_all_of_its_denominator():
    numerator = liars.Total(1.0, liars.Range(-50.0, 50.0))
    denominator = liars.Total(40.0, liars.Range(-50.0, 50.0))
    assert liars.quotient(numerator, denominator, reports=10) == math.inf


# Weighted sums of shares at several levels, and quantiles


def prefix_hash(bins, buckets):
    """The coefficients of a hash whose bucket has exactly the first `bins` of all bins."""
    return np.array([[buckets, PRIME - 1 - buckets * (bins - 1)]])


@pytest.mark.parametrize("bins", [1, 5, 15])
def test_some_hash_has_a_bucket_with_exactly_the_first_bins(bins):
    buckets = vectorised.hashed(prefix_hash(bins, 4), np.arange(16)[None], 4)[0]
    assert np.flatnonzero(buckets == buckets[0]).tolist() == list(range(bins))


def test_a_thousand_attacks_on_cumulative_shares_stay_within_the_bound_and_the_best_is_close():
    """Two levels, of 4 bins by randomised response and of 16 bins by hashing, are weighted equally
    in the cumulative share of the first 4 or 8 of 16 bins. All liars are asked about one level.
    """
    random = np.random.default_rng(9)
    plain, hashing = designed("grr", "1", 4), designed("grr", "1", 4)
    of_coarse = 0.5 * np.array([[1.0, 0, 0, 0], [1, 1, 0, 0]])
    of_fine = 0.5 * np.array([np.arange(16) < 4, np.arange(16) < 8])
    fine_same, fine_other = estimate.frequency_law(hashing, hashed=True)
    ratios = []
    for attack in range(ATTACKS):
        reports = (60, 150, 500)[attack % 3]
        number = int(liars.liars_among(2 * reports, "0.05"))
        names = random.integers(4, size=reports)  # the bins that reports name
        hashes = random.integers(PRIME, size=(reports, 2))
        buckets = random.integers(4, size=reports)
        lying_level = attack % 2
        if lying_level == 0:
            names[:number] = random.choice([0, 3])
        else:
            hashes[:number] = prefix_hash(4 * random.integers(1, 3), 4)
            own = vectorised.hashed(hashes[:number], np.zeros((number, 1)), 4)[:, 0]
            buckets[:number] = (own + random.integers(2)) % 4
        supported = vectorised.hashed(hashes, np.arange(16)[None], 4) == buckets[:, None]

        def shares(honest_only):
            first = [number, 0] if lying_level == 0 else [0, number]  # noqa: B023
            if not honest_only:
                first = [0, 0]
            of_names = names[first[0] :]  # noqa: B023
            coarse = estimate.combine_frequencies([category_reports(plain, of_names)]).mean
            support = supported[first[1] :].mean(axis=0)  # noqa: B023
            return coarse, (support - fine_other) / (fine_same - fine_other)

        coarse, fine = shares(honest_only=False)
        honest_coarse, honest_fine = shares(honest_only=True)
        levels = [
            liars.LevelReports(plain, False, reports, coarse, of_coarse),
            liars.LevelReports(hashing, True, reports, fine, of_fine),
        ]
        bound = liars.levels_after(levels, "0.05").most
        moved = of_coarse @ (coarse - honest_coarse) + of_fine @ (fine - honest_fine)
        ratios.append((abs(moved) / bound).max())
    require_tight(ratios)


def test_honest_devices_of_a_level_leave_the_same_bound_before_a_run():
    """With honest shares h and n reports, l lies move a share by l / n times their distance to h."""
    card = designed("grr", "2", 4)
    same, other = estimate.frequency_law(card)
    honest = np.array([0.4, 0.3, 0.2, 0.1])
    level = liars.LevelReports(card, False, 200, honest, np.array([[1.0, 0, 0, 0]]))
    highest = (1 - other) / (same - other)
    lowest = -other / (same - other)
    farthest = max(highest - 0.4, 0.4 - lowest)
    assert liars.levels_before([level]).most[0] == pytest.approx(2 / 200 * farthest, rel=1e-9)


def tree_of(card, hashing, names, buckets, supported):
    """The distribution over 16 bins, from reports about 4 and about 16 bins."""
    fine = CategoryReports(hashing, supported.sum(axis=0), hashed_reports=len(buckets))
    return Distribution([ReportedLevel(category_reports(card, names)), ReportedLevel(fine)])


def test_a_thousand_attacks_leave_quantiles_within_their_range_and_the_best_is_close():
    """Liars are all asked about 4 bins, and all name the same one, or are all asked about 16 bins,
    and name a bucket with exactly the first bins, or one without them.
    """
    random = np.random.default_rng(10)
    card, hashing = designed("grr", "1", 4), designed("grr", "1", 4)
    kept = estimate.frequency_law(card)[0]  # the probability that a report is true
    reports, no_move = 1500, np.zeros(15)
    number = int(liars.liars_among(2 * reports, "0.05"))
    ratios = []
    for attack in range(ATTACKS):
        is_kept = random.random(reports) < kept
        names = np.where(
            is_kept, random.integers(4, size=reports), random.integers(4, size=reports)
        )
        hashes = random.integers(PRIME, size=(reports, 2))
        true = random.integers(16, size=reports)
        lies_about_16_bins = attack % 2 == 1
        if lies_about_16_bins:
            hashes[:number] = prefix_hash(random.integers(1, 16), 4)
            true[:number] = 0  # of the first bins
        else:
            names[:number] = random.integers(4)
        bucket_of_bin = vectorised.hashed(hashes, np.arange(16)[None], 4)
        own_bucket = bucket_of_bin[np.arange(reports), true]
        buckets = np.where(is_kept, own_bucket, random.integers(4, size=reports))
        buckets[:number] = (own_bucket[:number] + random.integers(2)) % 4
        supported = bucket_of_bin == buckets[:, None]

        everybody = tree_of(card, hashing, names, buckets, supported)
        honest_names, honest_fine = names[number:], slice(None)
        if lies_about_16_bins:
            honest_names, honest_fine = names, slice(number, None)
        honest = tree_of(card, hashing, honest_names, buckets[honest_fine], supported[honest_fine])
        quantile = (0.25, 0.5, 0.9)[attack % 3]
        low, high = liars.quantile_range(everybody, quantile, liars.cumulative(everybody, "0.05"))
        (of_all,) = everybody.quantiles_if_moved(quantile, [no_move])
        (of_honest,) = honest.quantiles_if_moved(quantile, [no_move])
        if of_honest < of_all:
            ratios.append((of_all - of_honest) / (of_all - low))
        else:
            ratios.append((of_honest - of_all) / (high - of_all))
    require_tight(ratios)


def test_a_tree_whose_level_has_liars_only_leaves_all_quantiles_open():
    card, hashing = designed("grr", "1", 4), designed("grr", "1", 4)
    tree = tree_of(card, hashing, np.array([0]), np.array([1, 2]), np.ones((2, 16), bool))
    assert liars.quantile_range(tree, 0.5, liars.cumulative(tree)) == (-1, 1)


def test_a_thousand_attacks_on_counts_of_records_leave_quantiles_within_their_range():
    """Boards report how many records they have in 4 and in 16 bins. One of 20 reports whatever
    its symbols allow, or what moves the cumulative number at a certain edge most. The best attack
    is close to the end of the range.
    """
    random = np.random.default_rng(11)
    of_report, no_move = liars.Range(-60.0, 160.0), np.zeros(15)
    empty = [SummedLevel(np.zeros(4), 10.0), SummedLevel(np.zeros(16), 10.0)]
    coefficients = Distribution(empty, whole=None).coefficients
    ratios = []
    for attack in range(ATTACKS):
        coarse = random.multinomial(100, np.ones(4) / 4, size=20).astype(float)
        fine = random.multinomial(100, np.ones(16) / 16, size=20).astype(float)
        coarse[0] = random.choice(of_report, size=4)
        fine[0] = random.choice(of_report, size=16)
        if attack % 2:
            up_to_edge = (np.arange(16) < random.integers(1, 16)) - 0.5
            direction = random.choice([-1, 1]) * up_to_edge
            coarse[0] = np.where(direction @ coefficients[0] > 0, *reversed(of_report))
            fine[0] = np.where(direction @ coefficients[1] > 0, *reversed(of_report))

        def tree(boards):
            levels = [SummedLevel(coarse[boards].sum(axis=0), 10.0)]  # noqa: B023
            levels.append(SummedLevel(fine[boards].sum(axis=0), 10.0))  # noqa: B023
            return Distribution(levels, whole=None)

        everybody, honest = tree(slice(None)), tree(slice(1, None))
        bound = liars.cumulative_of_sums(everybody, [of_report, of_report], 0.5, reports=20)
        low, high = liars.quantile_range(everybody, 0.5, bound)
        (of_all,) = everybody.quantiles_if_moved(0.5, [no_move])
        (of_honest,) = honest.quantiles_if_moved(0.5, [no_move])
        if of_honest < of_all:
            ratios.append((of_all - of_honest) / (of_all - low))
        else:
            ratios.append((of_honest - of_all) / (high - of_all))
    require_tight(ratios)
