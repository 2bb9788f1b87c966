"""Lies never move a share of a category beyond its bound, and can reach it."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from attacks import attacks, category_reports, designed, require_tight

from ternhost import vectorised
from ternhost.learn import liars
from ternhost.learn.collecting import estimate
from ternhost.learn.collecting.estimate import CategoryReports


def test_a_thousand_attacks_on_shares_stay_within_the_bound_and_the_best_is_close():
    random = np.random.default_rng(3)
    card = designed("grr", "1", 5)
    ratios = []
    for attack in attacks():
        honest_count = attack.reports - attack.lies
        honest = random.integers(card.symbols, size=honest_count)
        if attack.number % 2:  # all of them name the same category
            honest = np.full(honest_count, random.integers(card.symbols))
        lies = random.integers(card.symbols, size=attack.lies)
        if attack.number % 3:  # likewise
            lies = np.full(attack.lies, random.integers(card.symbols))

        everybody = category_reports(card, np.concatenate([honest, lies]))
        of_all = estimate.combine_frequencies([everybody]).mean
        of_honest = estimate.combine_frequencies([category_reports(card, honest)]).mean
        bound = liars.frequencies([everybody], of_all, attack.share).most
        ratios.append((abs(of_all - of_honest) / bound).max())
    require_tight(ratios)


def hashed_reports(card, devices, symbols, round_number, categories):
    """Reports of the buckets to which devices hash their category in a round."""
    counts = estimate.supports(devices, symbols, round_number, card.symbols, categories)
    return CategoryReports(card, counts, hashed_reports=len(devices))


def test_a_thousand_attacks_on_shares_by_hashing_stay_within_the_bound_and_the_best_is_close():
    """Liars name the bucket to which their device hashes a category, or any other one."""
    random = np.random.default_rng(4)
    card, categories = designed("grr", "1", 4), 20
    ratios = []
    for attack in attacks():
        devices = random.choice(1 << 20, size=attack.reports, replace=False)
        hashes = vectorised.hashes(devices, attack.number)
        target = np.full((attack.reports, 1), random.integers(categories))
        of_target = vectorised.hashed(hashes, target, card.symbols)[:, 0].astype(np.int64)
        symbols = random.integers(card.symbols, size=attack.reports)
        honest, lies = slice(attack.lies, None), slice(attack.lies)
        if attack.number % 2:  # liars all support a category, or all another one
            symbols[lies] = of_target[lies]
        if attack.number % 3 == 0:  # honest devices do not
            symbols[honest] = (of_target[honest] + 1) % card.symbols

        everybody, honest_reports = (
            hashed_reports(card, devices[some], symbols[some], attack.number, categories)
            for some in (slice(None), honest)
        )
        of_all = estimate.combine_frequencies([everybody]).mean
        of_honest = estimate.combine_frequencies([honest_reports]).mean
        bound = liars.frequencies([everybody], of_all, attack.share).most
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
