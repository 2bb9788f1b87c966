"""LHP and HierA's estimator: the true loss of a report, exact bias and variance at every mu, the
device's draws.
"""

import math
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pytest
import sampler_walk
from spec import cards as spec
from streams import Replay

from tern.card import CardError, T, decode
from tern.card import certify as certify_on_device
from tern.fixed import exp_lower
from ternhost import datasets
from ternhost.errors import UsageError
from ternhost.privacy import cards, certify
from ternhost.vectorised import RandomLanes, ReplayLanes, random_bits, sample
from ternpapers import levels as hiera
from ternpapers.mechanisms import lhp


def _levels(e):
    return decode(lhp.card([round(budget * e * 1_000_000) for budget in (5, 4, 3, 2, 1)]))


def _collect(card, values, seed):
    """The counts (levels x 2) of one report for each value."""
    drawn = sample(card, RandomLanes(random_bits(seed), len(values)), values)
    return np.bincount(drawn, minlength=card.symbols).reshape(-1, 2)


@pytest.mark.parametrize(("e", "loss"), [(0.1, 0.899), (0.5, 3.95), (1, 8.07)])
def test_the_true_joint_loss(e, loss):
    card = _levels(e)
    ratio = sampler_walk.likelihood_ratio(card)
    assert isinstance(ratio, Fraction)
    true_loss = math.log(ratio)
    assert float(f"{true_loss:.3g}") == loss
    assert card.epsilon == pytest.approx(true_loss * 1e6, rel=1e-3)  # bounds are rounded to Q1.14
    assert max(lhp.budgets_of(card)) == round(5e6 * e)
    assert true_loss > 5 * e


@pytest.mark.slow
def test_every_pair_of_inputs_keeps_the_joint_loss():
    # every 8th value and the neighbours of all bounds, by brute force over the device's cards
    card = _levels(1)
    around = {v + o for v in (16384, *card.body.bounds, -16384) for o in (-1, 0, 1)}
    grid = sorted({*range(-16384, 16385, 8), *(v for v in around if abs(v) <= 16384)})
    levels = [card.body.level(v) for v in grid]
    worst = Fraction(1)
    for reported, value_card in enumerate(card.body.value_cards):
        shares = [_level_law(card, level)[reported] for level in range(5)]
        for symbol in (0, 1):
            pairs = zip(levels, grid, strict=True)
            joint = [
                shares[level] * certify.distribution(value_card, v)[symbol] for level, v in pairs
            ]
            worst = max(worst, max(joint) / min(joint))
    stated = sampler_walk.likelihood_ratio(card)
    assert stated * Fraction(999, 1000) < worst <= stated


def test_reports_equal_those_of_the_device():
    rng, card = np.random.default_rng(1), _levels(0.5)
    xs = rng.integers(-17000, 17000, 400).astype(np.int16)
    xs[:10] = *card.body.bounds, *(b - 1 for b in card.body.bounds), 32767, -32768
    streams = rng.integers(0, 256, (400, 64), np.uint8)
    symbols = sample(card, ReplayLanes(streams), xs)
    expected = [card.body.draw(Replay(streams[i].tobytes()), int(xs[i])) for i in range(400)]
    assert symbols.tolist() == expected


@pytest.mark.parametrize("mu", [1, 2, 5])
def test_the_estimate_is_unbiased(mu):
    rng = np.random.default_rng(2)
    fixed = datasets.to_fixed(
        np.clip(rng.normal(-0.55, 0.3, 2000), -1, 1)
    )  # most in private ranges
    truth, card, seeds = fixed.mean() / 16384, _levels(0.5), range(1, 401)
    estimates = [
        float(hiera.estimate(card, _collect(card, fixed, seed), mu, seed=seed)) for seed in seeds
    ]
    error = np.std(estimates) / 20
    assert abs(np.mean(estimates) - truth) < 4 * error
    assert error < 0.02


def _copies(card, v, mu):
    """All outcomes of one report of an input: its probability, and its copies at mu as (level,
    sign), by brute force.

    A report of one of m levels is used at its own and converted to each of the next mu - 1. If k of
    these are beyond the most private level, the report itself is used k times more.
    """
    scales, m = certify.scales(card), len(card.body.value_cards)
    order = sorted(range(m), key=lambda level: scales[level])
    for symbol, p in enumerate(_law(card, v)):
        level, sign = symbol // 2, 2 * (symbol % 2) - 1
        more = order[order.index(level) + 1 :][: mu - 1]
        for signs in product((sign, -sign), repeat=len(more)):
            q = p
            for other, converted in zip(more, signs, strict=True):
                q *= (1 + converted * sign * scales[level] / scales[other]) / 2
            yield q, [(level, sign)] * (mu - len(more)) + list(zip(more, signs, strict=True))


@pytest.mark.parametrize("mu", [1, 2, 3])
def test_bias_and_variance_are_exact_by_enumeration(mu):
    """All outcomes of two reports: without the copies of step 5, the mean leans to the less private
    range.
    """
    card = decode(lhp.card([500_000, 1_000_000, 2_500_000]))
    scales, values = certify.scales(card), (card.body.bounds[0], -13_000)
    laws = [list(_copies(card, v, mu)) for v in values]
    total = mean = square = naive = Fraction(0)
    for (p, first), (q, second) in product(*laws):
        copies = first + second
        estimated = sum(sign * scales[level] for level, sign in copies) / (2 * mu)
        once = [
            *dict.fromkeys(first),
            *dict.fromkeys(second),
        ]  # copies of a report at its own level are equal
        total += p * q
        mean += p * q * estimated
        square += p * q * estimated**2
        naive += p * q * sum(sign * scales[level] for level, sign in once) / len(once)
    truth = Fraction(sum(values), 2 * 16384)
    assert (total, mean) == (1, truth)
    assert square - mean**2 == hiera.variance(card, np.array(values, np.int16), mu)
    assert naive == truth if mu == 1 else naive < truth - Fraction(1, 100)


@pytest.mark.parametrize("mu", [1, 3, 5])
def test_the_estimate_has_the_exact_variance(mu):
    rng, runs = np.random.default_rng(4), 50_000
    card, values = _levels(1), np.array([-16_000, -9000, -100, 500, 4000, 15_000], np.int16)
    laws = [np.array(_law(card, int(v)), float) for v in values]
    counts = sum(rng.multinomial(1, law, runs) for law in laws).reshape(runs, 5, 2)
    means = hiera.estimate(card, counts, mu)
    exact = float(hiera.variance(card, values, mu))
    assert abs(means.mean() - values.mean() / 16384) < 4 * (exact / runs) ** 0.5
    assert means.var() == pytest.approx(exact, rel=0.025)


def test_conversion_makes_reports_of_the_other_level():
    p = [math.exp(e) / (1 + math.exp(e)) for e in (2, 1)]
    c = [1 / (2 * each - 1) for each in p]  # what a sign stands for
    flip = (1 - c[0] / c[1]) / 2
    assert flip == pytest.approx((p[0] - p[1]) / (2 * p[0] - 1)), "the paper's 1 - q"
    n = 1_000_000
    before, after = ([round(n * (0.5 + sign * 0.7 / (2 * each))) for sign in (-1, 1)] for each in c)
    converted = hiera.convert(np.array(before), *c, np.random.default_rng(3))
    assert converted.sum() == n
    assert converted[1] == pytest.approx(after[1], abs=5 * n**0.5 / 2)
    assert before[1] > after[1] + 50_000


def test_a_clamped_mean_is_never_beyond_1_but_biased():
    """Clamping a single report keeps nothing but its sign; of many reports it changes nothing."""
    card, x = _levels(0.2), 8000
    counts = np.eye(10, dtype=np.int64).reshape(10, 5, 2)  # each outcome of one report
    law = np.array(_law(card, x), float)
    plain, clamped = (hiera.estimate(card, counts, clamp=clamp) for clamp in (False, True))
    assert law @ plain == pytest.approx(x / 16384)
    assert np.abs(plain).min() > 1
    assert np.abs(clamped).max() == 1
    assert law @ clamped < 0.5 * x / 16384
    many = _collect(card, np.full(20_000, x, np.int16), 1)
    assert hiera.estimate(card, many, clamp=True) == hiera.estimate(card, many)


@pytest.mark.parametrize("mu", [0, 6, -1, 0.5])
def test_reports_count_from_once_to_as_often_as_there_are_levels(mu):
    counts = np.ones((5, 2), np.int64)
    for refused in (
        lambda: hiera.estimate(_levels(1), counts, mu),
        lambda: hiera.variance(_levels(1), np.zeros(2, np.int16), mu),
    ):
        with pytest.raises(
            UsageError, match=f"--mu must be 1 to 5, the number of levels, not {mu}"
        ):
            refused()


def _level_law(card, level):
    """The exact probability of every reported level, for a value in a level."""
    return certify.at_knot(card.body.level_cards[level], level)


def _law(card, v):
    """The exact probability of every symbol, level and sign, for an input."""
    pairs = zip(_level_law(card, card.body.level(v)), card.body.value_cards, strict=True)
    return [p * q for p, value_card in pairs for q in certify.distribution(value_card, v)]


@pytest.mark.parametrize(
    "budgets", [(3, 6, 9, 12, 15), (50, 40, 30, 20, 10), (3, 6), (9, 9, 3), (3, 21, 6, 6)]
)
def test_figures_of_a_card_follow_from_its_report_probabilities(budgets):
    card = decode(lhp.card([budget * 100_000 for budget in budgets]))
    moments, values = certify.moments(card), certify.values(card)
    bounds = card.body.bounds
    for v in (-16384, -9830, -3277, 0, 1, 12345, 16384, *bounds, *(bound - 1 for bound in bounds)):
        law, x = _law(card, v), Fraction(v, 16384)
        assert certify.distribution(card, v) == law
        assert sum(p * y for p, y in zip(law, values, strict=True)) == x
        assert sum(p * y * y for p, y in zip(law, values, strict=True)) == moments.second_moment(x)
    rows = map(partial(certify.at_knot, card), range(2 * len(budgets)))
    for x, row in zip(moments.knots, rows, strict=True):
        assert sum(p * y for p, y in zip(row, values, strict=True)) == x


def _hierarchy(bounds, low, high):
    """A card of ranges with these bounds; in `low` and `high` of T draws, inputs of -1 and of 1
    give -1.
    """
    m = len(bounds) + 1
    levels = [spec.window(1_000_000, m, 1, T // m + T // 8)] * m
    return spec.hierarchy(20_000_000, bounds, levels, [spec.two_levels(1_000_000, low, high)] * m)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (_hierarchy((5462, -5461), T // 2 + 9, T // 2 - 9), None),
        (
            _hierarchy((5462, -5462), T // 2 + 9, T // 2 - 9),
            "not a card of LHP: its ranges are not equal",
        ),
        (_hierarchy((1,), T // 2 + 9, T // 2 - 9), "not a card of LHP: its ranges are not equal"),
        (_hierarchy((5462, -5461), T // 2 + 9, T // 2 - 8), "not a card of LHP: biased"),
        (_hierarchy((0,), T // 2 - 9, T // 2 + 9), "not a card of LHP: biased"),
    ],
)
def test_a_hierarchy_that_is_not_of_lhp_is_refused(data, reason):
    assert certify_on_device(decode(data)), "devices do not mind"
    checked = cards.check(data, 20_000_000)
    if reason is None:
        assert (cards.decode(data).symbols, checked["bias"]) == (6, 0)
        return
    assert (checked["certified"], checked["reason"]) == (False, f"it is not a card: {reason}")
    with pytest.raises(UsageError, match=f"x.card is not a card: {reason}"):
        cards.decode(data, "x.card")


def test_combined_classes_are_unbiased_by_enumeration():
    # all outcomes of three devices, two of one class and one of another, with their exact
    # probabilities
    classes = [
        decode(lhp.card(budgets)) for budgets in ([2_000_000, 1_000_000], [3_000_000, 1_500_000])
    ]
    inputs = [(0, (-9000, 12_000)), (1, (3000,))]  # (class, the values of its devices)
    laws = [(c, _law(classes[c], v)) for c, values in inputs for v in values]
    mean = total = Fraction(0)
    for outcome in product(range(4), repeat=len(laws)):
        counts = [np.zeros((1, 4), np.int64) for _ in classes]
        p = Fraction(1)
        for symbol, (c, law) in zip(outcome, laws, strict=True):
            counts[c][0, symbol] += 1
            p *= law[symbol]
        total += p
        mean += p * Fraction(float(hiera.combine(list(zip(classes, counts, strict=True)))[0]))
    assert total == 1
    weights = [len(values) / float(lhp.magnitudes(classes[c]).max()) ** 2 for c, values in inputs]
    of_class = [sum(values) / len(values) / 16384 for _, values in inputs]
    assert float(mean) == pytest.approx(np.average(of_class, weights=weights), abs=1e-9)


def test_combined_classes_estimate_better_than_the_stricter_class():
    mu = 3
    values = datasets.to_fixed(np.clip(np.random.default_rng(5).normal(0.3, 0.3, 2000), -1, 1))
    strict, loose = hiera.design(2_000_000), hiera.design(10_000_000)
    together, alone = [], []
    for seed in range(200):
        counts = [_collect(card, values, 2 * seed + i) for i, card in enumerate((strict, loose))]
        flat = [table.reshape(1, -1) for table in counts]
        together.append(
            hiera.combine(list(zip((strict, loose), flat, strict=True)), mu, seed=seed)[0]
        )
        alone.append(float(hiera.estimate(strict, counts[0], mu, seed=seed)))
    error = np.std(together) / 200**0.5
    assert abs(np.mean(together) - values.mean() / 16384) < 4 * error
    assert np.var(together) < 0.5 * np.var(alone)


def test_a_coordinate_reported_by_one_class_has_the_estimate_of_this_class():
    classes = [hiera.design(4_000_000, (2, 1)), hiera.design(8_000_000, (2, 1))]
    first = np.array([[0, 0, 0, 0], [1, 2, 3, 4], [1, 2, 3, 4]])
    second = np.array([[0, 0, 0, 0], [0, 0, 0, 0], [5, 6, 7, 8]])
    mean = hiera.combine(list(zip(classes, (first, second), strict=True)))
    assert np.isnan(mean[0])
    assert mean[1] == pytest.approx(float(hiera.estimate(classes[0], first[1].reshape(2, 2))))
    assert np.isfinite(mean[2])


def test_levels_share_a_given_epsilon():
    card = hiera.design(4_000_000, (3, 1))
    assert 3_999_000 < card.epsilon <= 4_000_000
    budgets = lhp.budgets_of(card)
    assert budgets[1] == pytest.approx(3 * budgets[0], rel=1e-3), "named from the lowest range up"
    moments = certify.moments(card)
    assert moments.variance(Fraction(-1, 2)) < moments.variance(Fraction(1, 2))


def test_no_reports_make_no_mean():
    assert np.isnan(hiera.estimate(_levels(1), np.zeros((3, 5, 2), np.int64))).all()


@pytest.mark.parametrize("budgets", [(), (1,), (1, 0), (1,) * 17, (1, math.inf)])
def test_invalid_budgets_make_no_levels(budgets):
    with pytest.raises(UsageError):
        hiera.design(1_000_000, budgets)


def _true_ratio(card):
    # the ratio for level and sign, over the ends of the ranges: in between, a sign's law is linear
    # in x
    bounds, laws = [16385, *card.body.bounds, -16384], []
    for level in range(len(bounds) - 1):
        for v in (bounds[level + 1], bounds[level] - 1):
            assert card.body.level(v) == level
            laws.append(_law(card, v))
    return max(max(column) / min(column) for column in zip(*laws, strict=True))


def test_a_card_altered_in_any_bit_is_refused_or_keeps_its_claims():
    good = decode(lhp.card([1_200_000, 600_000, 900_000]))
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
