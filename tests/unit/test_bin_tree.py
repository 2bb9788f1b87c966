"""Distributions from answers about bins at several levels: unbiased, consistent, with intervals."""

import numpy as np
import pytest

from ternhost.learn.collecting.attributes import _hashing, _response, variance_of_bins
from ternhost.learn.collecting.estimate import CategoryReports, frequency_law, frequency_variance
from ternhost.learn.designs import DeviceClass
from ternhost.learn.distributions.bin_levels import bits_for, cumulative_variance, levels_of
from ternhost.learn.distributions.bin_tree import Distribution, ReportedLevel, SummedLevel

EPSILON = 1_000_000


def exact_level(shares, reports=1_000_000):
    """A level whose reports are as frequent as expected, for these shares of its bins."""
    card = _response(len(shares), EPSILON)
    same, other = frequency_law(card)
    counts = np.round(reports * (other + (same - other) * np.asarray(shares))).astype(np.int64)
    return ReportedLevel(CategoryReports(card, counts, None))


def drawn_level(bins, bits, hashed, rng):
    """A level of 2**bits bins, from reports of devices that are in these bins of 2**bits."""
    size = 2**bits
    if not hashed:
        card = _response(size, EPSILON)
        same, _ = frequency_law(card)
        is_kept = rng.random(len(bins)) < same
        others = (bins + rng.integers(1, size, len(bins))) % size
        counts = np.bincount(np.where(is_kept, bins, others), minlength=size)
        return ReportedLevel(CategoryReports(card, counts, None))
    card = _hashing(size, EPSILON)
    same, other = frequency_law(card, hashed=True)
    # Pairwise independent supports, as those of reports by optimised local hashing are.
    supports = rng.random((len(bins), size)) < other
    supports[np.arange(len(bins)), bins] = rng.random(len(bins)) < same
    return ReportedLevel(CategoryReports(card, supports.sum(axis=0), len(bins)))


def variance_of(bits):
    return variance_of_bins(DeviceClass(EPSILON, 1.0), bits)


SHARES = np.array(
    [0.05, 0.1, 0.15, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05, 0.02, 0.02, 0.02, 0.01, 0.01, 0.01, 0.01]
)


def test_levels_without_noise_give_the_shares_of_the_finest_bins():
    distribution = Distribution(
        [exact_level(SHARES.reshape(4, 4).sum(axis=1)), exact_level(SHARES)]
    )
    assert distribution.values == pytest.approx(SHARES, abs=1e-5)


def test_shares_of_all_bins_add_up_to_one():
    rng = np.random.default_rng(1)
    bins = rng.choice(16, 300, p=SHARES)
    distribution = Distribution([drawn_level(bins, 4, False, rng)])
    assert distribution.total == pytest.approx(1)


def test_a_bin_has_the_sum_of_its_parts():
    rng = np.random.default_rng(1)
    bins = rng.choice(16, 1000, p=SHARES)
    levels = [drawn_level(bins[:500] // 4, 2, False, rng), drawn_level(bins[500:], 4, True, rng)]
    distribution = Distribution(levels)
    coarse = distribution.histogram(4).values
    assert coarse == pytest.approx(distribution.values.reshape(4, 4).sum(axis=1))


def test_a_more_exact_level_has_the_larger_weight():
    coarse = exact_level([0.4, 0.3, 0.2, 0.1], reports=10_000_000)
    fine = exact_level(np.full(16, 1 / 16), reports=1000)
    assert Distribution([coarse, fine]).histogram(4).values == pytest.approx(
        [0.4, 0.3, 0.2, 0.1], abs=0.002
    )


@pytest.mark.parametrize("hashed", [False, True])
def test_errors_are_those_of_many_runs(hashed):
    rng = np.random.default_rng(2)
    values, errors = [], []
    for _ in range(400):
        bins = rng.choice(16, 2000, p=SHARES)
        coarse = drawn_level(bins[:1000] // 4, 2, False, rng)
        fine = drawn_level(bins[1000:], 4, hashed, rng)
        cumulative = Distribution([coarse, fine]).cumulative
        values.append(cumulative.values[:-1])
        errors.append(cumulative.errors[:-1])
    assert np.std(values, axis=0) == pytest.approx(np.mean(errors, axis=0), rel=0.15)


def test_estimates_are_unbiased():
    rng = np.random.default_rng(3)
    values = []
    for _ in range(400):
        bins = rng.choice(16, 1000, p=SHARES)
        levels = [
            drawn_level(bins[:500] // 4, 2, False, rng),
            drawn_level(bins[500:], 4, True, rng),
        ]
        values.append(Distribution(levels).values)
    error = np.std(values, axis=0) / 20
    assert np.all(np.abs(np.mean(values, axis=0) - SHARES) < 4 * error)


def test_a_quantile_is_interpolated_within_its_bin():
    distribution = Distribution([exact_level(np.full(16, 1 / 16))])
    assert distribution.quantile(0.53).value == pytest.approx(-1 + 2 * 0.53, abs=1e-3)


def test_an_interval_ends_at_edges_of_bins():
    shares = np.zeros(16)
    shares[5] = 1
    quantile = Distribution([exact_level(shares)]).quantile(0.5)
    assert (quantile.low, quantile.high) == (-1 + 2 * 5 / 16, -1 + 2 * 6 / 16)


def test_an_interval_in_the_last_bin_reaches_the_bound():
    quantile = Distribution([exact_level(np.full(16, 1 / 16))]).quantile(0.99)
    assert quantile.high == 1


def intervals_of_few(shares, reports, quantile, rng):
    """The intervals of a quantile in 200 runs, each of so many reports about each of two levels."""
    shares = np.asarray(shares)
    intervals = []
    for _ in range(200):
        bins = rng.choice(len(shares), 2 * reports, p=shares)
        levels = [
            drawn_level(bins[:reports] // 4, 2, False, rng),
            drawn_level(bins[reports:], 4, True, rng),
        ]
        intervals.append(Distribution(levels).quantile(quantile))
    return intervals


@pytest.mark.parametrize("reports", [5, 10, 30])
def test_intervals_hold_if_few_devices_are_all_at_the_lower_bound(reports):
    rng = np.random.default_rng(reports)
    intervals = intervals_of_few(np.eye(16)[0], reports, 0.99, rng)
    assert np.mean([interval.low == -1 for interval in intervals]) >= 0.93


@pytest.mark.parametrize("reports", [5, 10, 30])
def test_intervals_hold_if_few_devices_are_all_at_the_upper_bound(reports):
    rng = np.random.default_rng(reports)
    intervals = intervals_of_few(np.eye(16)[15], reports, 0.01, rng)
    assert np.mean([interval.high == 1 for interval in intervals]) >= 0.93


def test_with_much_noise_an_interval_of_a_median_between_two_values_has_one_of_them():
    rng = np.random.default_rng(6)
    half_each = (np.eye(16)[0] + np.eye(16)[15]) / 2
    intervals = intervals_of_few(half_each, 20, 0.5, rng)
    assert np.mean([interval.low == -1 for interval in intervals]) >= 0.93
    assert np.mean([interval.high == 1 for interval in intervals]) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_intervals_of_quantiles_hold(share):
    rng = np.random.default_rng(4)
    held = 0
    for _ in range(400):
        numbers = rng.normal(0.03, 0.3, 4000).clip(-1, 1)
        bins = np.minimum((numbers + 1) * 32, 63).astype(int)
        levels = [
            drawn_level(bins[:1300] // 16, 2, False, rng),
            drawn_level(bins[1300:2600] // 4, 4, True, rng),
            drawn_level(bins[2600:], 6, True, rng),
        ]
        quantile = Distribution(levels).quantile(share)
        truth = 0.03 + 0.3 * {0.5: 0, 0.9: 1.2816}[share]
        held += quantile.low <= truth <= quantile.high
    assert 0.93 <= held / 400 <= 0.99


def test_sums_of_records_give_quantiles_without_knowing_how_many_records_there_are():
    levels = [
        SummedLevel(np.array([400.0, 300, 200, 100]), 1.0),
        SummedLevel(np.array([1000.0]), 1.0),
    ]
    distribution = Distribution(levels, whole=None)
    assert distribution.quantile(0.4).value == pytest.approx(-0.5, abs=0.01)


def test_intervals_of_shares_hold_where_the_number_of_records_is_an_estimate():
    """The number is 1,000, with a standard error of 150. Intervals that take it for exact are too
    long, and hold in 98 % of the runs.
    """
    counts, rng = 1_000 * SHARES, np.random.default_rng(3)
    true = np.cumsum(SHARES)[:-1]
    are_inside = []
    for _ in range(400):
        levels = []
        for totals, error in ((counts.reshape(4, 4).sum(axis=1), 80.0), (counts, 80.0)):
            levels.append(SummedLevel(totals + rng.normal(0, error, len(totals)), error))
        distribution = Distribution(levels, whole=None)
        shares = distribution.shares(distribution.cumulative)
        are_inside.append((shares.low[:-1] <= true) & (true <= shares.high[:-1]))
    coverage = np.mean(are_inside, axis=0)
    assert (coverage > 0.92).all()
    assert np.mean(coverage) < 0.97


@pytest.mark.parametrize("seed", range(20))
def test_the_interval_of_the_share_of_all_has_one(seed):
    counts = np.random.default_rng(seed).uniform(0, 1, 16)
    distribution = Distribution([SummedLevel(counts, 0.1)])
    assert distribution.shares(distribution.cumulative).high[-1] == 1


def test_a_quantile_of_perhaps_no_records_may_be_anywhere():
    distribution = Distribution([SummedLevel(np.array([30.0, 20, 10, 5]), 40.0)], whole=None)
    assert (distribution.quantile(0.5).low, distribution.quantile(0.5).high) == (-1, 1)


def test_noise_of_sums_is_known():
    distribution = Distribution([SummedLevel(np.full(4, 100.0), 3.0)], whole=None)
    assert distribution.histogram(4).errors == pytest.approx(np.full(4, 3.0))


def test_a_level_of_one_bin_estimates_the_total():
    levels = [SummedLevel(np.full(4, 100.0), 1.0), SummedLevel(np.array([480.0]), 0.001)]
    assert Distribution(levels, whole=None).total == pytest.approx(480, abs=0.01)


def test_more_devices_get_finer_bins():
    bits = [bits_for(devices, variance_of) for devices in (100, 10_000, 1_000_000)]
    assert bits == sorted(set(bits))


def test_the_chosen_levels_are_better_than_a_flat_histogram():
    assert cumulative_variance(levels_of(6, variance_of), variance_of) < 0.5 * cumulative_variance(
        (6,), variance_of
    )


def test_cumulative_variance_is_that_of_the_distribution():
    levels = (2, 4)
    reports = 1_000_000
    uniform = [exact_level(np.full(2**bits, 2.0**-bits), reports // 2) for bits in levels]
    errors = Distribution(uniform).cumulative.errors[:-1]

    def variance_of_response(bits):
        return frequency_variance(_response(2**bits, EPSILON), 2**bits)

    expected = cumulative_variance(levels, variance_of_response)
    assert np.mean(errors**2) * reports == pytest.approx(expected, rel=0.15)
