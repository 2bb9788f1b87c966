"""Counts of symbols give unbiased means, with intervals that cover."""

import math
from array import array
from types import SimpleNamespace

import numpy as np
import pytest

from tern import card as cards
from tern import collect as device
from tern import wire
from tern.collect import PRIME, hash_of
from tern.fixed import ONE
from ternhost import vectorised
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


def test_a_coordinate_without_reports_is_nan_and_does_not_spoil_others():
    card = designed("duchi", "1")
    without_reports = (designed("three-outputs", "1"), [[0, 0, 0], [0, 0, 0]])
    result = estimate.combine([(card, [[0, 0], [3, 5]]), without_reports])
    assert np.isnan(result.mean[0])
    assert result.mean[1] == pytest.approx(2 / 8 * float(certify.scale(card)))
    assert list(result.reports) == [0, 8]


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
