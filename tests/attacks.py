"""Attacks by devices that report whatever they like, for tests of how far these move an estimate.

An attack is a set of honest reports and of lies. Its estimates, of all reports and of the honest
ones alone, are made by the host's own code.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tern import card as cards
from tern.fixed import ONE
from ternhost.learn import liars
from ternhost.learn.collecting import estimate
from ternhost.learn.collecting.estimate import CategoryReports
from ternhost.privacy import certify, mechanisms

ATTACKS = 1000
CLOSE = 0.95  # of its bound, the best attack reaches at least that
SHARES = ("0.01", "0.05", "0.2")  # of reports that are lies
NUMBERS = (4, 30, 100, 1000)  # of reports


class Attack(NamedTuple):
    """One of many attacks. number: counted from 0. share: of the reports, those that are lies."""

    number: int
    reports: int
    share: str

    @property
    def lies(self):
        """How many of the reports are lies."""
        return int(liars.liars_among(self.reports, self.share))


def attacks(numbers=NUMBERS, shares=SHARES):
    """Attacks with each of these numbers of reports and each of these shares of lies."""
    for number in range(ATTACKS):
        yield Attack(number, numbers[number % len(numbers)], shares[number % len(shares)])


def require_tight(ratios):
    """No attack is beyond its bound, and the best one is close to it.

    ratios: how far each attack moved the estimate, as a part of its bound.
    """
    assert len(ratios) == ATTACKS
    assert max(ratios) <= 1
    assert max(ratios) >= CLOSE


def designed(name, epsilon, levels=None):
    """The card of a mechanism."""
    return cards.decode(mechanisms.design(name, epsilon, levels).card)


def row_of(card, symbols):
    """How often each symbol was reported, as counts of one value."""
    return np.bincount(symbols, minlength=card.symbols)[None]


def category_reports(card, symbols):
    """Reports about categories that were not hashed."""
    return CategoryReports(card, row_of(card, symbols)[0], hashed_reports=None)


def drawn(card, x, number, random):
    """Symbols of so many honest devices that all have the value x."""
    return random.choice(card.symbols, size=number, p=_law(bytes(card.data), x))


@lru_cache
def _law(data, x):
    """The probabilities of the symbols of a card for a value. data: the card as bytes."""
    law = np.array([float(p) for p in certify.distribution(cards.decode(data), round(x * ONE))])
    return law / law.sum()


def lies_of(card, number, strategy, random):
    """Symbols of so many liars: all the largest value, all the least one, or whatever."""
    values = estimate.symbol_values(card)
    if strategy == 0:
        return np.full(number, int(values.argmax()))
    if strategy == 1:
        return np.full(number, int(values.argmin()))
    if strategy == 2:
        return random.integers(card.symbols, size=number)
    return np.full(number, random.integers(card.symbols))
