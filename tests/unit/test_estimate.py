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
from ternhost.learn.collecting import estimate
from ternhost.learn.collecting.estimate import CategoryReports
from ternhost.privacy import base, certify, mechanisms


def designed(name, epsilon, levels=None):
    return cards.decode(mechanisms.design(name, epsilon, levels).card)


def counts_of(card, inputs, reports, random):
    """Counts of symbols that are drawn from the exact distribution at each input."""
    counts = []
    for x in inputs:
        law = np.array([float(p) for p in certify.distribution(card, round(x * ONE))])
        counts.append(random.multinomial(reports, law / law.sum()))
    return np.array(counts)


@pytest.mark.parametrize(
    ("bound", "least"),
    [
        (True, 0.94),  # the variance that the mechanism has at most
        (False, 0.93),  # the variance of the sample, which makes shorter intervals
    ],
)
def test_means_are_unbiased_and_intervals_cover(bound, least):
    """From counts of noisy reports, the host estimates means with intervals of 95 percent. Over 400
    collections of 500 reports, the means show no bias, and the intervals hold the truth about as
    often as they say.
    """
    random = np.random.default_rng(7)
    inputs = np.linspace(-1, 1, 9)
    card = designed("three-outputs", "2")

    means, covered = [], []
    for _ in range(400):
        counts = counts_of(card, inputs, 500, random)
        result = estimate.combine([(card, counts)], bound=bound)
        means.append(result.mean)
        covered.append((result.low <= inputs) & (inputs <= result.high))

    assert np.mean(covered) >= least
    # The mean of a report has a variance of at most 1.93.
    standard_error = np.sqrt(1.93 / (400 * 500))
    assert np.abs(np.mean(means, axis=0) - inputs).max() < 4.5 * standard_error


def test_a_coordinate_without_reports_is_nan_and_does_not_spoil_others():
    card = designed("duchi", "1")
    without_reports = (designed("three-outputs", "1"), [[0, 0, 0], [0, 0, 0]])
    result = estimate.combine([(card, [[0, 0], [3, 5]]), without_reports])
    assert np.isnan(result.mean[0])
    assert result.mean[1] == pytest.approx(2 / 8 * float(certify.scale(card)))
    assert list(result.reports) == [0, 8]


@pytest.mark.parametrize("true", [0.5, 0.9, 0.97])
def test_the_interval_of_a_share_covers_it_with_its_probability(true):
    """Some of 57 devices say yes: the interval of the share is to hold the true one in 95 of 100
    cases. Computed exactly, over all numbers of devices that may say yes, by the binomial law.
    """
    devices = 57
    covered = 0.0
    for count in range(devices + 1):
        low, high = estimate.share_interval(count / devices, devices)
        if low <= true <= high:
            ways = math.comb(devices, count)
            covered += ways * true**count * (1 - true) ** (devices - count)
    assert 0.92 < covered < 0.98


@pytest.mark.parametrize("devices", [1, 15, 57, 10**6])
def test_the_interval_of_a_share_has_the_share_that_was_observed(devices):
    for count in {0, 1, devices // 2, devices - 1, devices}:
        share = count / devices
        low, high = estimate.share_interval(share, devices)
        assert 0 <= low <= share <= high <= 1


# Frequencies of categories: hashes on both sides, the support of a category, and intervals


def values_of_device(client, number, categories, buckets):
    """The values that the device library gives to the sampler for a client with these categories."""
    width = len(categories)
    request = SimpleNamespace(
        model=wire.CATEGORIES, range=1, exponent=0, round=number, d=width, asked=[1] * width
    )

    def read(index, row):
        row[:width] = array("h", categories)

    holder = SimpleNamespace(device=client, start=0, records=1)
    card = SimpleNamespace(symbols=buckets)
    values = device.Answerer(request).values(holder, SimpleNamespace(read=read), card)
    return list(values[:width])


@pytest.mark.parametrize(("number", "buckets"), [(1, 2), (2**30 - 1, 256)])
def test_the_host_hashes_as_devices_do(number, buckets):
    """Where there are many categories, a device hashes its own into few buckets before it reports,
    by a hash that is its own in each round. The host computes the same hashes of all clients at
    once, with NumPy.
    """
    # The least and largest ids and categories, those around the prime 8191, and random clients.
    random = np.random.default_rng(1)
    clients = [1, 2, 7, 2**32 - 2, *random.integers(1, 2**32 - 1, 100).tolist()]
    categories = np.array([0, 1, 103, 8190, 8191, 32767, -1, -32768])

    hashes = vectorised.hashes(clients, number)
    hashed = vectorised.hashed(hashes, categories[None], buckets)

    for i, client in enumerate(clients):
        assert tuple(hashes[i].tolist()) == hash_of(client, number)
        assert hashed[i].tolist() == values_of_device(client, number, categories, buckets)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("first", "second"), [(17, 8190), (0, 1)])
def test_any_two_categories_collide_as_often_as_the_law_says(first, second):
    """Devices hash their category by a x + b modulo a prime, into few buckets, where two categories
    may collide: a report of one then supports the other. The estimate corrects for that. Counted
    here over all PRIME**2 hashes.
    """
    collisions = {2: 0, 4: 0, 55: 0}  # by the number of buckets
    b = np.arange(PRIME)
    for a in range(PRIME):
        hash_of_first, hash_of_second = (a * first + b) % PRIME, (a * second + b) % PRIME
        for buckets in collisions:
            equal = hash_of_first % buckets == hash_of_second % buckets
            collisions[buckets] += int(np.count_nonzero(equal))

    for buckets, count in collisions.items():
        share = count / PRIME**2
        card = cards.decode(base.window(buckets, 1, cards.T // 2 + 1))
        # The probabilities of reporting the own bucket, and a certain other one:
        same, other = estimate.frequency_law(card)
        law = (same, share * same + (1 - share) * other)
        assert estimate.frequency_law(card, hashed=True) == pytest.approx(law, rel=1e-12)


def plain_counts(card, truth, devices, random):
    """The counts of symbols of devices with these frequencies of categories."""
    same, _ = estimate.frequency_law(card)
    categories = random.choice(len(truth), devices, p=truth)
    lies = (categories + random.integers(1, len(truth), devices)) % len(truth)
    reported = np.where(random.random(devices) < same, categories, lies)
    return np.bincount(reported, minlength=len(truth))


def hashed_support(card, truth, devices, random):
    """How many reports of devices with these frequencies support each category."""
    same, other = estimate.frequency_law(card, hashed=True)
    categories = random.choice(len(truth), devices, p=truth)
    is_own = np.arange(len(truth)) == categories[:, None]
    is_supported = random.random((devices, len(truth))) < np.where(is_own, same, other)
    return is_supported.sum(axis=0)


RARE = np.array([0.6, 0.3, 0.1, *[0] * 17])  # the frequencies of twenty categories


def share_covered(parts):
    """The share of RARE that the intervals of these parts cover; none of them is a point."""
    covered = []
    for part in parts:
        frequencies = estimate.combine_frequencies([part])
        assert (frequencies.low < frequencies.high).all()
        covered.append((frequencies.low <= RARE) & (frequencies.high >= RARE))
    return np.mean(covered)


def test_intervals_cover_rare_categories_too():
    card, devices = mechanisms.design("grr", "2", len(RARE)).decode(), 100
    random = np.random.default_rng(5)
    parts = []
    for _ in range(300):
        counts = plain_counts(card, RARE, devices, random)
        parts.append(CategoryReports(card, counts, hashed_reports=None))
    assert share_covered(parts) > 0.93  # intervals of 95 %


def test_intervals_of_hashed_categories_cover_rare_ones_too():
    card, devices = mechanisms.design("grr", "2", 4).decode(), 100
    random = np.random.default_rng(5)
    parts = []
    for _ in range(300):
        support = hashed_support(card, RARE, devices, random)
        parts.append(CategoryReports(card, support, hashed_reports=devices))
    assert share_covered(parts) > 0.93  # intervals of 95 %
