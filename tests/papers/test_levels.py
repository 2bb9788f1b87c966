"""LHP and HierA's estimator: the true loss of a report, exact bias and variance at every mu, and the
draws of devices.
"""

import math
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
import sampler_walk
from scipy import stats
from spec import cards as spec
from streams import Replay

from tern.card import CardError, T, decode
from tern.card import certify as certify_on_device
from tern.fixed import exp_lower
from ternhost.errors import UsageError
from ternhost.privacy import cards, certify
from ternhost.vectorised import ReplayLanes, sample
from ternpapers import levels as hiera
from ternpapers.mechanisms import lhp

ONE = 16384


def card_of(*budgets):
    """A card whose levels have these budgets, in epsilon."""
    return decode(lhp.card([round(budget * 1_000_000) for budget in budgets]))


def paper_card(unit):
    """The card of the paper, with budgets of 5, 4, 3, 2 and 1 units."""
    return card_of(*(level * unit for level in (5, 4, 3, 2, 1)))


def level_law(card, level):
    """The exact probability of every reported level, for a value in a level."""
    return certify.at_knot(card.body.level_cards[level], level)


def law(card, value):
    """The exact probability of every symbol, level and sign, for a value."""
    probabilities = []
    levels = level_law(card, card.body.level(value))
    for likely, value_card in zip(levels, card.body.value_cards, strict=True):
        probabilities += [likely * sign for sign in certify.distribution(value_card, value)]
    return probabilities


@pytest.mark.parametrize(("unit", "loss"), [(0.1, 0.899), (0.5, 3.95), (1, 8.07)])
def test_the_true_joint_loss(unit, loss):
    card = paper_card(unit)
    true_loss = math.log(sampler_walk.likelihood_ratio(card))
    assert float(f"{true_loss:.3g}") == loss
    assert true_loss > 5 * unit, "the paper's statement"
    assert card.epsilon == pytest.approx(true_loss * 1e6, rel=1e-3)  # bounds are rounded to Q1.14


@pytest.mark.slow
def test_every_pair_of_inputs_keeps_the_joint_loss():
    """A report by LHP of Hao et al. has a level and a sign.

    Its stated loss bounds how much likelier one value makes a report than another: by brute force
    over the device's cards, at the neighbours of all bounds and a grid.
    """
    card = paper_card(1)
    grid = {*range(-ONE, ONE + 1, 64)}
    for bound in (ONE - 1, *card.body.bounds, 1 - ONE):
        grid |= {bound - 1, bound, bound + 1}
    laws = [law(card, value) for value in grid]
    worst = max(max(symbol) / min(symbol) for symbol in zip(*laws, strict=True))
    stated = sampler_walk.likelihood_ratio(card)
    assert stated * Fraction(999, 1000) < worst <= stated


@pytest.mark.parametrize("unit", [0.1, 0.5, 1])
def test_the_level_alone_keeps_the_larger_budget_of_two_values(unit):
    """Definition 2 of Hao et al. for the reported level, the first part of their Theorem 2."""
    card = paper_card(unit)
    budgets = lhp.budgets_of(card)
    for one, other in product(range(5), repeat=2):
        ratios = []
        for p, q in zip(level_law(card, one), level_law(card, other), strict=True):
            ratios.append(Fraction(p, q))
        assert math.log(max(ratios)) * 1e6 <= max(budgets[one], budgets[other])


@pytest.mark.parametrize("unit", [0.1, 0.5, 1])
def test_the_sign_alone_keeps_the_larger_budget_of_two_reported_levels(unit):
    """The second part of Theorem 2 of Hao et al.: signs of any values at any two reported levels."""
    card = paper_card(unit)
    budgets = lhp.budgets_of(card)
    for one, other in product(range(5), repeat=2):
        ratios = []
        for value, other_value in product((-ONE, -5000, 0, ONE), repeat=2):
            signs = certify.distribution(card.body.value_cards[one], value)
            other_signs = certify.distribution(card.body.value_cards[other], other_value)
            ratios += [Fraction(p, q) for p, q in zip(signs, other_signs, strict=True)]
        assert math.log(max(ratios)) * 1e6 <= max(budgets[one], budgets[other])


def test_reports_equal_those_of_the_device():
    """Simulated fleets draw reports of LHP, a level and a sign, for many devices at once in NumPy:
    each is what a device would draw from the same random bytes, also at the bounds of levels.
    """
    rng, card = np.random.default_rng(1), paper_card(0.5)
    values = rng.integers(-17000, 17000, 400).astype(np.int16)
    just_below = [bound - 1 for bound in card.body.bounds]
    special = [*card.body.bounds, *just_below, 32767, -32768]
    values[: len(special)] = special
    streams = rng.integers(0, 256, (400, 64), np.uint8)  # the random bytes of each device

    symbols = sample(card, ReplayLanes(streams), values)

    for symbol, stream, value in zip(symbols, streams, values, strict=True):
        assert symbol == card.body.draw(Replay(stream.tobytes()), int(value))


# Bias and variance


def copies_of_outcomes(card, value, mu):
    """All outcomes of one report of a value, by brute force: (probability, its copies at mu).

    A copy is a level and a sign. A report of one of m levels is used at its own and converted to
    each of the next mu - 1. If k of these are beyond the most private level, the report itself is
    used k times more.
    """
    scales = certify.scales(card)
    order = sorted(range(len(scales)), key=lambda level: scales[level])
    for symbol, likely in enumerate(law(card, value)):
        level, sign = symbol // 2, 2 * (symbol % 2) - 1
        others = order[order.index(level) + 1 :][: mu - 1]
        for signs in product((sign, -sign), repeat=len(others)):
            converted = list(zip(others, signs, strict=True))
            q = likely
            for other, converted_sign in converted:
                q *= (1 + converted_sign * sign * scales[level] / scales[other]) / 2
            yield q, [(level, sign)] * (mu - len(others)) + converted


@pytest.mark.parametrize("mu", [1, 2, 3])
def test_bias_and_variance_are_exact_by_enumeration(mu):
    """HierA of Hao et al. estimates a mean from reports that count mu times each.

    Over all outcomes of two devices, its estimate has the true mean and the stated variance.
    Without the copies of step 5, the mean would lean to the less private range.
    """
    card = card_of(0.5, 1, 2.5)
    scales, values = certify.scales(card), (card.body.bounds[0], -13_000)
    outcomes = [list(copies_of_outcomes(card, value, mu)) for value in values]

    mean = square = without_copies = Fraction(0)
    for (p, first), (q, second) in product(*outcomes):
        estimate = sum(sign * scales[level] for level, sign in first + second) / (2 * mu)
        used_once = [*dict.fromkeys(first), *dict.fromkeys(second)]
        once = sum(sign * scales[level] for level, sign in used_once) / len(used_once)
        mean += p * q * estimate
        square += p * q * estimate**2
        without_copies += p * q * once

    truth = Fraction(sum(values), 2 * ONE)  # the mean of the two values
    assert mean == truth
    assert square - mean**2 == hiera.variance(card, np.array(values, np.int16), mu)
    assert without_copies == truth if mu == 1 else without_copies < truth - Fraction(1, 100)


# Step 5, as the paper prints it. Levels have numbers from 1, the least private, to K.

K = 5
PAPER_CARD = card_of(1, 2, 3, 4, 5)  # from the highest range down: the lowest one is level 1


def merged_by_the_listing(level, mu):
    """Whose reports the listing of step 5 merges for a level: the levels that they were made at."""
    if level + mu - 1 > K:
        return [level] * (mu - K + level)
    if level < mu or mu <= level < K - mu + 2:
        return [*range(max(1, level - mu + 1), level + 1)]
    return [level]


def merged_by_the_sentence(level, mu):
    """The same by the sentence below the listing, which adds mu - K + level sets of the level."""
    added = 0
    if level + mu - 1 > K:
        added = mu - K + level
    return [*range(max(1, level - mu + 1), level + 1)] + added * [level]


def merged_here(level, mu):
    """The same as tern does it: these sets take the place of the level's own reports."""
    missing_conversions = max(0, mu - K + level - 1)
    return [*range(max(1, level - mu + 1), level + 1)] + missing_conversions * [level]


def counted(merged, mu):
    """How often a report counts, by the level that it was made at."""
    sources = [source for level in range(1, K + 1) for source in merged(level, mu)]
    return [sources.count(level) for level in range(1, K + 1)]


def bias(weights):
    """By how much the estimate of very many reports leans: exactly, without a draw.

    weights: how often a report counts, by its level. Every copy of a report has the mean of its
    value. The values have the distribution Gaussian(0.3, 0.2) on [-1, 1], and e is 1.
    """
    card = PAPER_CARD
    bounds = np.array([-ONE, *reversed(card.body.bounds), ONE]) / ONE
    values = stats.truncnorm((-1 - 0.3) / 0.2, (1 - 0.3) / 0.2, loc=0.3, scale=0.2)
    total = counted_reports = 0.0
    for true_level, (low, high) in enumerate(pairwise(bounds), start=1):
        laws = [float(p) for p in reversed(level_law(card, K - true_level))]  # cards: from the top
        copies = np.dot(laws, weights)
        total += copies * values.expect(lb=low, ub=high)  # of values in this range
        counted_reports += copies * (values.cdf(high) - values.cdf(low))
    return total / counted_reports - values.mean()


@pytest.mark.parametrize(
    ("mu", "weights", "leans"),
    [
        (2, [2, 2, 2, 1, 2], -0.0191),
        (3, [3, 2, 1, 2, 3], 0.0348),
        (4, [2, 1, 2, 3, 4], 0.0202),
        (5, [1, 2, 3, 4, 5], 0.0123),
    ],
)
def test_the_listing_of_step_5_is_biased_as_printed(mu, weights, leans):
    assert counted(merged_by_the_listing, mu) == weights
    assert bias(weights) == pytest.approx(leans, abs=5e-5)


@pytest.mark.parametrize(
    ("mu", "weights", "leans"), [(2, [2, 2, 2, 2, 3], 0.0055), (3, [3, 3, 3, 4, 4], 0.0118)]
)
def test_the_sentence_below_the_listing_counts_some_reports_once_more_and_is_biased(
    mu, weights, leans
):
    assert counted(merged_by_the_sentence, mu) == weights
    assert bias(weights) == pytest.approx(leans, abs=5e-5)


@pytest.mark.parametrize("mu", range(1, K + 1))
def test_a_report_of_any_level_counts_mu_times_here_which_is_unbiased(mu):
    weights = counted(merged_here, mu)
    assert weights == [mu] * K
    assert bias(weights) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("mu", range(1, K + 1))
def test_the_estimate_merges_for_each_level_what_is_named_here(mu):
    """The copies of a report are those that tern converts, and the rest at its own level."""
    magnitudes = lhp.magnitudes(PAPER_CARD)[::-1]  # the least private level first
    merged = {level: [] for level in range(1, K + 1)}
    for source, targets in enumerate(hiera.targets_of(magnitudes, mu), start=1):
        for level in (*[source] * (mu - len(targets)), *(target + 1 for target in targets)):
            merged[level].append(source)
    for level, sources in merged.items():
        assert sorted(sources) == sorted(merged_here(level, mu))


@pytest.mark.parametrize("mu", [1, 5])
def test_the_estimate_is_unbiased_and_has_the_exact_variance(mu):
    """HierA of Hao et al. estimates the mean of six devices' values from counts of levels and
    signs. Over 50,000 simulated runs, in which each report counts mu times, the estimates have the
    true mean and the variance that we compute.
    """
    rng, runs = np.random.default_rng(4), 50_000
    card, values = paper_card(1), np.array([-16_000, -9000, -100, 500, 4000, 15_000], np.int16)
    levels, signs = 5, 2
    counts = np.zeros((runs, levels * signs), np.int64)
    for value in values:
        counts += rng.multinomial(1, np.array(law(card, int(value)), float), runs)

    means = hiera.estimate(card, counts.reshape(runs, levels, signs), mu)

    exact_variance = float(hiera.variance(card, values, mu))
    standard_error = (exact_variance / runs) ** 0.5
    assert abs(means.mean() - values.mean() / ONE) < 4 * standard_error
    assert means.var() == pytest.approx(exact_variance, rel=0.025)  # four standard errors


def test_a_clamped_mean_of_one_report_is_never_beyond_1_but_biased():
    """The estimate from one noisy report lies far outside of -1..1.

    To clamp it looks better, but makes the mean over all outcomes much too small.
    """
    card, value = paper_card(0.2), 8000
    each_outcome = np.eye(10, dtype=np.int64).reshape(10, 5, 2)  # a report of each level and sign
    probabilities = np.array(law(card, value), float)

    plain = hiera.estimate(card, each_outcome, clamp=False)
    clamped = hiera.estimate(card, each_outcome, clamp=True)

    assert probabilities @ plain == pytest.approx(value / ONE)
    assert np.abs(plain).min() > 1
    assert np.abs(clamped).max() == 1
    assert probabilities @ clamped < 0.5 * value / ONE


def test_clamping_cuts_the_corrected_numbers_of_both_signs_in_each_level():
    """Steps 6 and 7 of Hao et al.: with p, the probability that a sign is right, the number n1 of
    plus signs among n is corrected to (p n - n2) / (2 p - 1), and cut to [0, n]; so is that of
    minus signs. The estimate is the sum of the differences, divided by the number of reports.
    """
    card = paper_card(0.5)
    counts = np.array([[30, 2], [9, 11], [0, 25], [14, 3], [7, 7]])  # minus, plus

    total = 0.0
    has_cut = False
    for (minus, plus), magnitude in zip(counts, lhp.magnitudes(card), strict=True):
        n, p = minus + plus, (1 + 1 / magnitude) / 2
        corrected_plus = (p * n - minus) / (2 * p - 1)
        corrected_minus = (p * n - plus) / (2 * p - 1)
        has_cut |= not 0 <= corrected_plus <= n
        total += np.clip(corrected_plus, 0, n) - np.clip(corrected_minus, 0, n)

    assert has_cut
    assert hiera.estimate(card, counts, clamp=True) == pytest.approx(total / counts.sum())


# Cards


@pytest.mark.parametrize(
    "budgets", [(5, 4, 3, 2, 1), (0.3, 2.1, 0.6, 0.6)], ids=["falling", "in any order"]
)
def test_a_report_is_unbiased_and_has_the_stated_second_moment(budgets):
    """A report by LHP of Hao et al. stands for a value whose mean is the true input x, with a
    stated mean square. By exact sums over all symbols, inside of ranges and on both sides of their
    bounds.
    """
    card = card_of(*budgets)
    symbol_values = certify.values(card)
    stated = certify.moments(card)
    below_bounds = [bound - 1 for bound in card.body.bounds]

    for value in (-ONE, -9830, 0, 1, 12345, ONE, *card.body.bounds, *below_bounds):
        probabilities, x = law(card, value), Fraction(value, ONE)
        outcomes = list(zip(probabilities, symbol_values, strict=True))
        assert certify.distribution(card, value) == probabilities
        assert sum(p * y for p, y in outcomes) == x
        assert sum(p * y * y for p, y in outcomes) == stated.second_moment(x)


def hierarchy(bounds, low, high):
    """A card of ranges with these bounds. low, high: of T draws, those of -1 for -1 and for 1."""
    m = len(bounds) + 1
    levels = [spec.window(1_000_000, m, 1, T // m + T // 8)] * m
    return spec.hierarchy(20_000_000, bounds, levels, [spec.two_levels(1_000_000, low, high)] * m)


NOT_OF_LHP = {
    "unequal ranges": hierarchy((5462, -5462), T // 2 + 9, T // 2 - 9),
    "biased": hierarchy((5462, -5461), T // 2 + 9, T // 2 - 8),
    "reversed": hierarchy((0,), T // 2 - 9, T // 2 + 9),
}


@pytest.mark.parametrize("data", NOT_OF_LHP.values(), ids=NOT_OF_LHP)
def test_a_hierarchy_that_is_not_of_lhp_is_refused_by_the_host(data):
    assert certify_on_device(decode(data)), "devices do not mind"
    assert not cards.check(data, 20_000_000)["certified"]
    with pytest.raises(UsageError, match="not a card of LHP"):
        cards.decode(data, "x.card")


def test_a_card_altered_in_any_bit_is_refused_or_keeps_its_claims():
    """A card is the table that a device draws its noise from, and a host may send any.

    Whichever bit of a good one is flipped, the device certifies it only if its true loss is at
    most the epsilon that it states.
    """
    good = lhp.card([1_200_000, 600_000, 900_000])
    certified_cards = 0
    for bit in range(8 * len(good)):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        try:
            card = decode(bytes(data))
        except CardError:
            continue
        ratio = true_ratio(card)
        is_certified = certify_on_device(card)
        assert is_certified == (ratio * (1 << 40) <= exp_lower(card.epsilon))
        if is_certified:
            assert math.log(ratio) <= card.epsilon / 1e6
            certified_cards += 1
    assert 0 < certified_cards < 8 * len(good)


def true_ratio(card):
    """The largest ratio of a symbol's probabilities for two values.

    They are at the ends of the ranges: in between, the law of a sign is linear in the value.
    """
    bounds, laws = [ONE + 1, *card.body.bounds, -ONE], []
    for level in range(len(bounds) - 1):
        for value in (bounds[level + 1], bounds[level] - 1):
            assert card.body.level(value) == level
            laws.append(law(card, value))
    return max(max(symbol) / min(symbol) for symbol in zip(*laws, strict=True))


def test_levels_share_a_given_epsilon():
    card = hiera.design(4_000_000, (3, 1))
    assert 3_999_000 < card.epsilon <= 4_000_000
    of_high_range, of_low_range = lhp.budgets_of(card)
    assert of_low_range == pytest.approx(3 * of_high_range, rel=1e-3), "named from the lowest up"


# Classes of devices


def test_combined_classes_are_unbiased_by_enumeration():
    """Devices of different privacy classes are combined to one mean, which is unbiased: over all
    outcomes of three devices, two of one class and one of another.
    """
    first_card, second_card = card_of(2, 1), card_of(3, 1.5)
    first_values, second_value = (-9000, 12_000), 3000
    laws = [
        law(first_card, first_values[0]),
        law(first_card, first_values[1]),
        law(second_card, second_value),
    ]

    mean = Fraction(0)
    for a, b, c in product(range(4), repeat=3):  # the symbols of the devices
        first_counts, second_counts = np.zeros((1, 4), np.int64), np.zeros((1, 4), np.int64)
        first_counts[0, a] += 1
        first_counts[0, b] += 1
        second_counts[0, c] += 1
        (estimate,) = hiera.combine([(first_card, first_counts), (second_card, second_counts)])
        probability = laws[0][a] * laws[1][b] * laws[2][c]
        mean += probability * Fraction(float(estimate))

    # Classes are weighted by the number of their devices over the square of their noise.
    first_weight = 2 / float(lhp.magnitudes(first_card).max()) ** 2
    second_weight = 1 / float(lhp.magnitudes(second_card).max()) ** 2
    class_means = [sum(first_values) / 2 / ONE, second_value / ONE]
    expected = np.average(class_means, weights=[first_weight, second_weight])
    assert float(mean) == pytest.approx(expected, abs=1e-9)


def test_a_coordinate_reported_by_one_class_has_the_estimate_of_this_class():
    """Two privacy classes report three coordinates.

    The first is reported by nobody, the second by one class, the third by both; a row holds the
    counts of two levels with two signs.
    """
    classes = [hiera.design(4_000_000, (2, 1)), hiera.design(8_000_000, (2, 1))]
    first = np.array([[0, 0, 0, 0], [1, 2, 3, 4], [1, 2, 3, 4]])
    second = np.array([[0, 0, 0, 0], [0, 0, 0, 0], [5, 6, 7, 8]])
    by_nobody, by_one, by_both = hiera.combine(list(zip(classes, (first, second), strict=True)))
    assert np.isnan(by_nobody)
    assert by_one == pytest.approx(float(hiera.estimate(classes[0], first[1].reshape(2, 2))))
    assert np.isfinite(by_both)
