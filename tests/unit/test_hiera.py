"""HierA: the true loss of a report, unbiased means at every mu, and the device's report draw for draw."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from tern.card import Card, CardError, decode
from tern.card import certify as certify_on_device
from tern.entropy import Replay
from tern.fixed import exp_lower
from tern.lhp import Hierarchy
from ternhost import datasets
from ternhost.algorithms import levels as hiera
from ternhost.errors import UsageError
from ternhost.mechanisms import certify
from ternhost.vectorised import RandomLanes, ReplayLanes, random_bits


def _levels(e: float) -> hiera.Levels:
    return hiera.levels([round(budget * e * 1_000_000) for budget in (5, 4, 3, 2, 1)])


@pytest.mark.parametrize(("e", "loss"), [(0.1, 0.899), (0.5, 3.95), (1, 8.07)])
def test_the_true_joint_loss(e: float, loss: float) -> None:
    of = _levels(e)
    ratio = of.composite.joint_ratio()
    assert isinstance(ratio, Fraction)
    found = math.log(ratio)
    assert float(f"{found:.3g}") == loss
    assert of.epsilon == pytest.approx(found * 1e6, rel=1e-3)  # of Q1.14 inputs, where bounds are rounded
    assert of.epsilon_stated == round(5e6 * e)
    assert found > 5 * e


def test_every_pair_of_inputs_keeps_the_joint_loss() -> None:
    # every 8th value and the neighbours of all bounds, by brute force over what the device's cards do
    of = _levels(1)
    bounds = [16384, *of.device.bounds, -16384]
    grid = sorted(
        {*range(-16384, 16385, 8), *(v + o for v in bounds for o in (-1, 0, 1) if abs(v + o) <= 16384)}
    )
    levels = [of.device.level(v) for v in grid]
    worst = Fraction(1)
    for reported, card in enumerate(of.device.value_cards):
        told = [certify.at_knot(of.device.level_cards[level], level)[reported] for level in range(5)]
        for symbol in (0, 1):
            joint = [
                told[level] * certify.distribution(card, v)[symbol]
                for level, v in zip(levels, grid, strict=True)
            ]
            worst = max(worst, max(joint) / min(joint))
    stated = of.composite.joint_ratio()
    assert stated * Fraction(999, 1000) < worst <= stated


def test_reports_are_the_devices() -> None:
    rng = np.random.default_rng(1)
    of = _levels(0.5)
    xs = rng.integers(-17000, 17000, 400).astype(np.int16)
    xs[:10] = [*of.device.bounds, *(b - 1 for b in of.device.bounds), 32767, -32768]
    streams = rng.integers(0, 256, (400, 64), np.uint8)
    found = hiera.draw(of, ReplayLanes(streams), xs)
    expected = [of.device.draw(Replay(streams[i].tobytes()), int(xs[i])) for i in range(400)]
    assert found.tolist() == expected


@pytest.mark.parametrize("mu", [0, 0.3, 1])
def test_the_estimate_is_unbiased(mu: float) -> None:
    rng = np.random.default_rng(2)
    values = np.clip(rng.normal(-0.55, 0.3, 2000), -1, 1)  # most in the most private ranges
    fixed = datasets.to_fixed(values)
    truth = fixed.mean() / 16384
    of = _levels(0.5)
    found = [
        float(hiera.estimate(of, hiera.collect(of, fixed, seed), mu, seed=seed)) for seed in range(1, 401)
    ]
    error = np.std(found) / 20
    assert abs(np.mean(found) - truth) < 4 * error
    assert error < 0.02


def test_unbiased_by_exact_expectation() -> None:
    # E[counts] of one value, put through the (linear) estimator without reuse, is the value itself
    of = _levels(1)
    for v in (-16384, -9830, -3277, 0, 12345, 16384):
        told = certify.at_knot(of.device.level_cards[of.device.level(v)], of.device.level(v))
        mean = Fraction(0)
        for level, card in enumerate(of.device.value_cards):
            row, values = certify.distribution(card, v), certify.values(card)
            mean += told[level] * sum(p * y for p, y in zip(row, values, strict=True))
        assert mean == Fraction(v, 16384)


def test_a_naive_merge_of_levels_is_biased() -> None:
    # What the weights of `estimate` put right: reports that count once per level they are converted to
    rng = np.random.default_rng(2)
    values = datasets.to_fixed(rng.uniform(-1, 1, 400_000))
    of = _levels(1)
    counts = hiera.collect(of, values, 3)
    scale = of.values[:, 1]
    merged = np.zeros((5, 2), np.int64)
    for source in range(5):
        for target in range(source, 5):
            merged[target] += hiera.convert(counts[source], scale[source], scale[target], rng)
    naive = (scale * (merged[:, 1] - merged[:, 0])).sum() / merged.sum()
    truth = values.mean() / 16384
    assert abs(naive - truth) > 0.05
    assert abs(float(hiera.estimate(of, counts, 1)) - truth) < 0.02


def test_conversion_makes_reports_of_the_other_level() -> None:
    rng = np.random.default_rng(4)
    of = _levels(1)
    scale = of.values[:, 1]
    counts = np.array([300_000, 700_000])
    for source, target in pairwise(range(5)):
        moved = hiera.convert(counts, scale[source], scale[target], rng)
        assert moved.sum() == counts.sum()
        before = scale[source] * (counts[1] - counts[0]) / 1e6
        after = scale[target] * (moved[1] - moved[0]) / 1e6
        assert abs(before - after) < 5 * scale[target] * 1e-3


def test_clamping_is_optional() -> None:
    of = _levels(0.1)
    counts = np.zeros((5, 2), np.int64)
    counts[0, 1] = 3
    assert float(hiera.estimate(of, counts)) > 1
    assert float(hiera.estimate(of, counts, clamp=True)) == 1


def test_no_reports_make_no_mean() -> None:
    assert np.isnan(hiera.estimate(_levels(1), np.zeros((3, 5, 2), np.int64))).all()


def test_regression_by_mini_batches() -> None:
    rng = np.random.default_rng(6)
    n = 30_000
    x = np.concatenate([np.ones((n, 1)), rng.uniform(-1, 1, (n, 2))], axis=1)
    y = x @ [0.3, 0.4, -0.2]
    data = datasets.Dataset(
        "line",
        datasets.REGRESSION,
        ("1", "a", "b"),
        datasets.to_fixed(x),
        datasets.to_fixed(y),
        datasets.held_out(n),
    )
    result = hiera.train(_levels(1), data, reports=25_000, group=500)
    assert result["squared_error"] < 0.3 * np.var(y)
    assert result["squared_error_nonprivate"] <= result["squared_error"]
    assert result["epsilon"] == pytest.approx(8.07, abs=0.005)
    assert result["epsilon_stated"] == 5


@pytest.mark.parametrize(
    "budgets", [[], [1_000_000], [1_000_000, 0], [1_000_000] * 17, [15_000_000, 19_000_000]]
)
def test_what_makes_no_levels(budgets: list[int]) -> None:
    with pytest.raises(UsageError):
        hiera.levels(budgets)


def test_own_bytes_follow_the_same_law() -> None:
    of = _levels(0.5)
    n = 300_000
    v = -5000
    counts = np.bincount(
        hiera.draw(of, RandomLanes(random_bits(3), n), np.full(n, v, np.int16)), minlength=10
    )
    told = certify.at_knot(of.device.level_cards[3], 3)
    expected = [
        float(told[i] * p) for i, c in enumerate(of.device.value_cards) for p in certify.distribution(c, v)
    ]
    assert ((counts - n * np.array(expected)) ** 2 / (n * np.array(expected))).sum() < 35


def _true_ratio(card: Card) -> Fraction:
    # of level and sign, by enumeration over the ends of the ranges: a sign's law is linear in x in between
    of: Hierarchy = card.hierarchy
    m = len(of.level_cards)
    laws = []
    for level in range(m):
        low = of.bounds[level] if level < m - 1 else -16384
        high = of.bounds[level - 1] - 1 if level else 16384
        told = certify.at_knot(of.level_cards[level], level)
        for v in (low, high):
            assert of.level(v) == level
            laws.append([told[t] * p for t in range(m) for p in certify.distribution(of.value_cards[t], v)])
    return max(max(column) / min(column) for column in zip(*laws, strict=True))


def test_a_card_altered_in_any_bit_is_refused_or_keeps_what_it_claims() -> None:
    good = hiera.levels([1_200_000, 600_000, 900_000]).card
    kept = 0
    for bit in range(8 * len(good.data)):
        data = bytearray(good.data)
        data[bit // 8] ^= 1 << bit % 8
        try:
            card = decode(bytes(data))
        except CardError:
            continue
        ratio = _true_ratio(card)
        if certified := certify_on_device(card):
            assert math.log(ratio) <= card.epsilon / 1e6
        assert certified == (ratio * (1 << 40) <= exp_lower(card.epsilon))
        kept += certified
    assert 0 < kept < 8 * len(good.data)
