"""Lies never move a cumulative share or a quantile beyond its bound, and can reach it."""

import numpy as np
import pytest
from attacks import ATTACKS, category_reports, designed, require_tight

from tern.collect import PRIME
from ternhost import vectorised
from ternhost.learn import liars
from ternhost.learn.collecting import estimate
from ternhost.learn.collecting.estimate import CategoryReports
from ternhost.learn.distributions.bin_tree import Distribution, ReportedLevel, SummedLevel


def prefix_hash(bins, buckets):
    """The coefficients of a hash whose bucket has exactly the first `bins` of all bins."""
    return np.array([[buckets, PRIME - 1 - buckets * (bins - 1)]])


@pytest.mark.parametrize("bins", [1, 5, 15])
def test_some_hash_has_a_bucket_with_exactly_the_first_bins(bins):
    buckets = vectorised.hashed(prefix_hash(bins, 4), np.arange(16)[None], 4)[0]
    assert np.flatnonzero(buckets == buckets[0]).tolist() == list(range(bins))


def shares_of(card, names):
    """The estimated shares of the bins that reports name."""
    return estimate.combine_frequencies([category_reports(card, names)]).mean


def hashed_shares_of(card, supported):
    """The estimated shares of bins. supported: which of them each report supports (reports x bins)."""
    same, other = estimate.frequency_law(card, hashed=True)
    return (supported.mean(axis=0) - other) / (same - other)


def test_a_thousand_attacks_on_cumulative_shares_stay_within_the_bound_and_the_best_is_close():
    """Two levels, of 4 bins by randomised response and of 16 bins by hashing, are weighted equally
    in the cumulative share of the first 4 or 8 of 16 bins. All liars are asked about one level.
    """
    random = np.random.default_rng(9)
    plain, hashing = designed("grr", "1", 4), designed("grr", "1", 4)
    of_coarse = 0.5 * np.array([[1.0, 0, 0, 0], [1, 1, 0, 0]])
    of_fine = 0.5 * np.array([np.arange(16) < 4, np.arange(16) < 8])
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

        honest_names, honestly_supported = names, supported
        if lying_level == 0:
            honest_names = names[number:]
        else:
            honestly_supported = supported[number:]
        coarse, honest_coarse = (shares_of(plain, each) for each in (names, honest_names))
        fine, honest_fine = (
            hashed_shares_of(hashing, each) for each in (supported, honestly_supported)
        )
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


def part_of_range(everybody, honest, quantile, bound):
    """How far lies moved a quantile, as a part of the way to the end of its range.

    everybody, honest: the distributions by all reports, and by the honest ones alone.
    """
    low, high = liars.quantile_range(everybody, quantile, bound)
    no_move = np.zeros(everybody.bins - 1)
    (of_all,) = everybody.quantiles_if_moved(quantile, [no_move])
    (of_honest,) = honest.quantiles_if_moved(quantile, [no_move])
    if of_honest < of_all:
        return (of_all - of_honest) / (of_all - low)
    return (of_honest - of_all) / (high - of_all)


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
    reports = 1500
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
        bound = liars.cumulative(everybody, "0.05")
        ratios.append(part_of_range(everybody, honest, quantile, bound))
    require_tight(ratios)


def test_a_tree_whose_level_has_liars_only_leaves_all_quantiles_open():
    card, hashing = designed("grr", "1", 4), designed("grr", "1", 4)
    tree = tree_of(card, hashing, np.array([0]), np.array([1, 2]), np.ones((2, 16), bool))
    assert liars.quantile_range(tree, 0.5, liars.cumulative(tree)) == (-1, 1)


def tree_of_sums(coarse, fine):
    """The distribution over 16 bins of the records of boards, from their counts (boards x bins)."""
    levels = [SummedLevel(coarse.sum(axis=0), 10.0), SummedLevel(fine.sum(axis=0), 10.0)]
    return Distribution(levels, whole=None)


@pytest.mark.parametrize("records_of_bin", [-10.0, 0.0, 2.0])
def test_counts_that_may_be_of_no_record_at_all_leave_all_quantiles_open(records_of_bin):
    levels = [
        SummedLevel(np.full(4, 4 * records_of_bin), 50.0),
        SummedLevel(np.full(16, records_of_bin), 50.0),
    ]
    tree = Distribution(levels, whole=None)
    of_report = liars.Range(-60.0, 160.0)
    bound = liars.cumulative_of_sums(tree, [of_report, of_report], 0.5, reports=20)
    assert liars.quantile_range(tree, 0.5, bound) == (-1, 1)


def test_a_thousand_attacks_on_counts_of_records_leave_quantiles_within_their_range():
    """Boards report how many records they have in 4 and in 16 bins. One of 20 reports whatever
    its symbols allow, or what moves the cumulative number at a certain edge most. The best attack
    is close to the end of the range.
    """
    random = np.random.default_rng(11)
    of_report = liars.Range(-60.0, 160.0)
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

        everybody, honest = tree_of_sums(coarse, fine), tree_of_sums(coarse[1:], fine[1:])
        bound = liars.cumulative_of_sums(everybody, [of_report, of_report], 0.5, reports=20)
        ratios.append(part_of_range(everybody, honest, 0.5, bound))
    require_tight(ratios)
