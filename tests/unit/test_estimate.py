"""Counts of symbols give unbiased means, with intervals that cover."""

import math
from array import array
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from tern import card as cards
from tern import collect as device
from tern import wire
from tern.collect import PRIME, hash_of
from tern.fixed import ONE
from ternhost import datasets, vectorised
from ternhost.learn import estimate
from ternhost.privacy import base, certify, mechanisms


def designed(name, epsilon, levels=None):
    return cards.decode(mechanisms.design(name, epsilon, levels).card)


def counts_of(card, inputs, reports, rng):
    """Counts of symbols that are drawn from the exact distribution at each input."""
    rows = [
        np.array([float(p) for p in certify.distribution(card, round(x * ONE))]) for x in inputs
    ]
    return np.array([rng.multinomial(reports, row / row.sum()) for row in rows])


@pytest.mark.parametrize("name", ["duchi", "three-outputs", "pm-sub", "3r"])
def test_expected_counts_give_the_input_back(name):
    # Counts that equal their expectation: 2**44 reports at an input of few bits.
    card = designed(name, "1.25", 15 if name == "pm-sub" else None)
    v = ONE // 4
    row = certify.distribution(card, v)
    unit = np.lcm.reduce([p.denominator for p in row], dtype=object)
    counts = [[int(p * unit) for p in row]]
    values = certify.values(card)
    mean = sum(n * value for n, value in zip(counts[0], values, strict=True)) / Fraction(int(unit))
    assert mean == Fraction(1, 4)
    if unit < 2**62:
        assert estimate.combine([(card, counts)]).mean[0] == pytest.approx(0.25, abs=1e-9)


def test_means_are_unbiased_and_intervals_cover():
    rng = np.random.default_rng(7)
    inputs = np.linspace(-1, 1, 9)
    card = designed("three-outputs", "2")
    for bound, least in ((True, 0.94), (False, 0.93)):
        covered = total = 0
        means = []
        for _ in range(400):
            result = estimate.combine([(card, counts_of(card, inputs, 500, rng))], bound=bound)
            covered += int(np.sum((result.low <= inputs) & (inputs <= result.high)))
            total += len(inputs)
            means.append(result.mean)
            assert (result.reports == 500).all()
        assert covered / total >= least
        error = np.mean(means, axis=0) - inputs
        assert np.abs(error).max() < 4.5 * np.sqrt(1.93 / (400 * 500))


def test_personalised_budgets_combine_better_than_either_alone():
    rng = np.random.default_rng(3)
    inputs = np.array([-0.75, 0.0, 0.5])
    strict, loose = designed("three-outputs", "0.8"), designed("pm-sub", "4", 31)
    alone, together = [], []
    for _ in range(300):
        few, many = counts_of(loose, inputs, 60, rng), counts_of(strict, inputs, 1500, rng)
        alone.append(estimate.combine([(loose, few)]).mean)
        together.append(estimate.combine([(strict, many), (loose, few)]).mean)
    assert np.abs(np.mean(together, axis=0) - inputs).max() < 0.03
    assert (np.var(together, axis=0) < np.var(alone, axis=0)).all()


def test_a_coordinate_without_reports_is_nan_and_does_not_spoil_others():
    card = designed("duchi", "1")
    without_reports = (designed("three-outputs", "1"), [[0, 0, 0], [0, 0, 0]])
    result = estimate.combine([(card, [[0, 0], [3, 5]]), without_reports])
    assert np.isnan(result.mean[0])
    assert result.mean[1] == pytest.approx(2 / 8 * float(certify.scale(card)))
    assert list(result.reports) == [0, 8]


@pytest.mark.parametrize("counts", [[1, 2], [[1, 2, 3]], np.zeros((1, 2, 2))])
def test_counts_of_another_shape_are_refused(counts):
    with pytest.raises(ValueError, match="counts must be"):
        estimate.combine([(designed("duchi", "1"), counts)])


def test_frequencies_of_expected_counts_are_the_true_ones():
    card = cards.decode(base.window(4, 1, cards.T // 2))
    truth = np.array([0.5, 0.3, 0.2, 0.0])
    counts = np.round(60_000 * (truth * 0.5 + (1 - truth) * 0.5 / 3))
    assert estimate.combine_frequencies([(card, counts, None)]).mean == pytest.approx(
        truth, abs=1e-4
    )
    with pytest.raises(ValueError, match="window 1"):
        estimate.combine_frequencies([(designed("pm-sub", "1"), np.ones(255), None)])


def test_the_interval_of_a_share_covers_it_with_its_probability():
    n = 57
    for true in (0.5, 0.9, 0.97):
        covered = 0.0
        for observed in range(n + 1):
            low, high = estimate.share_interval(observed / n, n)
            if low <= true <= high:
                covered += math.comb(n, observed) * true**observed * (1 - true) ** (n - observed)
        assert 0.92 < covered < 0.98
    low, high = estimate.share_interval(1.0, n)
    assert 0.93 < low < high == pytest.approx(1)
    ends = [estimate.share_interval(share, n) for share in (0.0, 1.0) for n in range(1, 300)]
    assert all(0 <= low < high <= 1 for low, high in ends)


def test_few_equal_reports_do_not_look_certain():
    card = designed("duchi", "1")
    for n in (1, 2, 29):
        observed = estimate.combine([(card, [[0, n]])])
        bound = estimate.combine([(card, [[0, n]])], bound=True)
        assert observed.standard_error[0] == bound.standard_error[0] > 0


# Frequencies of categories: hashes on both sides, the support of a category, and intervals


def test_the_host_hashes_as_devices_do():
    rng = np.random.default_rng(1)
    clients = [1, 2, 7, 2**32 - 2, *rng.integers(1, 2**32 - 1, 200).tolist()]
    categories = np.array([0, 1, 103, 8190, 8191, 32767, -1, -32768])
    for number, buckets in ((1, 2), (77, 4), (2**30 - 1, 256)):
        hashes = vectorised.hashes(clients, number)
        assert [tuple(pair) for pair in hashes.tolist()] == [
            hash_of(client, number) for client in clients
        ]
        hashed = vectorised.hashed(hashes, categories[None], buckets).tolist()
        assert hashed == [_hashed_by(client, number, categories, buckets) for client in clients]


def _hashed_by(client, number, row, buckets):
    """The values that the device library gives to the sampler."""
    request = SimpleNamespace(
        model=wire.CATEGORIES, range=1, round=number, d=len(row), asked=[1] * len(row)
    )
    records = SimpleNamespace(
        read=lambda index, out: out.__setitem__(slice(0, len(row)), array("h", row))
    )
    answerer = device.Answerer(request)
    holder = SimpleNamespace(device=client, start=0, records=1)
    return list(answerer.values(holder, records, SimpleNamespace(symbols=buckets))[: len(row)])


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("first", "second"), [(17, 8190), (0, 1)])
def test_any_two_categories_collide_as_often_as_the_law_says(first, second):
    """Over all 8191**2 hashes."""
    buckets = np.array([2, 4, 55])
    b, collisions = np.arange(PRIME), np.zeros(3, np.int64)
    for a in range(PRIME):
        x, y = (a * first + b) % PRIME, (a * second + b) % PRIME
        collisions += [int(np.count_nonzero(x % n == y % n)) for n in buckets]
    for n, share in zip(buckets.tolist(), (collisions / PRIME**2).tolist(), strict=True):
        card = cards.decode(base.window(n, 1, cards.T // 2 + 1))
        same, guess = estimate.frequency_law(card)
        law = (same, share * same + (1 - share) * guess)
        assert estimate.frequency_law(card, hashed=True) == pytest.approx(law, rel=1e-12)


def test_a_symbol_supports_the_categories_that_hash_to_it():
    card, number = cards.decode(base.window(5, 1, cards.T // 2)), 9
    clients, symbols = [3, 8, 1000], [0, 4, 2]
    counts = estimate.supports(np.array(clients), np.array(symbols), number, card.symbols, 300)
    expected = np.zeros(300, int)
    for client, symbol in zip(clients, symbols, strict=True):
        a, b = hash_of(client, number)
        expected += (a * np.arange(300) + b) % PRIME % 5 == symbol
    assert counts.tolist() == expected.tolist()
    with pytest.raises(ValueError, match="window 1"):
        estimate.frequency_law(cards.decode(base.window(5, 2, cards.T // 2)), hashed=True)


def test_the_table_of_flights_has_numbers_and_categories():
    table = datasets.flights_table()
    assert table.codes is not None
    assert (table.numeric.shape, table.codes.shape) == ((327_346, 5), (327_346, 14))
    for j, values in enumerate(table.categories):
        assert len(set(values)) == len(values)
        assert 0 <= table.codes[:, j].min() <= table.codes[:, j].max() < len(values)
    sizes = dict(zip(table.categorical_names, map(len, table.categories), strict=True))
    assert (sizes["destination"], sizes["airline"], sizes["origin"]) == (104, 16, 3)
    codes = table.codes[:, table.categorical_names.index("arrival")]
    assert np.mean(codes >= 2) == pytest.approx(0.237, abs=1e-3)  # late
    assert np.abs(table.numeric.mean(axis=0) / 16384).max() < 0.4


@pytest.mark.parametrize("epsilon", ["2", "6"])
@pytest.mark.parametrize("hashed", [False, True])
def test_intervals_cover_rare_categories_too(epsilon, hashed):
    """The interval of a category without devices, or without reports, is no point."""
    size, n = 20, 100
    truth = np.array([0.6, 0.3, 0.1, *[0] * (size - 3)])
    card = mechanisms.design("grr", epsilon, 4 if hashed else size).decode()
    same, other = estimate.frequency_law(card, hashed)
    rng, inside, draws = np.random.default_rng(5), 0, 300
    for _ in range(draws):
        categories = rng.choice(size, n, p=truth)
        if hashed:
            supported = rng.random((n, size)) < np.where(
                np.arange(size) == categories[:, None], same, other
            )
            counts, reports = supported.sum(axis=0), n
        else:
            lies = (categories + rng.integers(1, size, n)) % size
            counts = np.bincount(np.where(rng.random(n) < same, categories, lies), minlength=size)
            reports = None
        frequencies = estimate.combine_frequencies([(card, counts, reports)])
        assert (frequencies.low < frequencies.high).all()
        inside += int(((frequencies.low <= truth) & (truth <= frequencies.high)).sum())
    assert inside / (draws * size) > 0.93
