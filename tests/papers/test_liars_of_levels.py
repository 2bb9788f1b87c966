"""Devices that report whatever they like never move a mean of levels beyond its bound."""

import numpy as np
from attacks import attacks, require_tight, row_of

from ternhost.learn import liars
from ternpapers import levels


def test_a_thousand_attacks_on_a_mean_of_levels_stay_within_the_bound_and_the_best_is_close():
    """HierA reports a level and a sign; those of the most private level count most."""
    random = np.random.default_rng(12)
    card = levels.design(1_000_000)
    ratios = []
    for attack in attacks():
        honest = random.integers(card.symbols, size=attack.reports - attack.lies)
        lies = np.full(attack.lies, random.integers(card.symbols))
        if attack.number % 3 == 0:  # whatever
            lies = random.integers(card.symbols, size=attack.lies)
        honest_counts = row_of(card, honest)
        counts = honest_counts + row_of(card, lies)
        of_all = levels.combine([(card, counts)])
        of_honest = levels.combine([(card, honest_counts)])
        kind = levels.kind_of(card, np.array([attack.reports]))
        bound = liars.after([kind], of_all, attack.share)
        ratios.append(abs(of_all - of_honest)[0] / bound.most[0])
    require_tight(ratios)
