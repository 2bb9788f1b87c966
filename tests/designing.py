"""Helpers for tests of designed cards."""

from collections import Counter
from fractions import Fraction

from tern import card as cards
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.mechanisms import shipped


def worst_variance(card):
    """The worst-case variance of a card."""
    return float(certify.moments(card).worst_variance()[0])


def worst(name, epsilon, levels=None, **options):
    """The worst-case variance of the card of a mechanism."""
    return worst_variance(mechanisms.design(name, epsilon, levels, **options).decode())


def shipped_card(name, epsilon):
    """A card of shared_specs/cards, also of a mechanism whose package may not be there."""
    return cards.decode(shipped.load(name, round(epsilon * 1_000_000)))


def law_of_counts(laws_of_reports):
    """The law of the reports of independent clients in any order: by their sorted symbols."""
    law = {(): Fraction(1)}
    for of_report in laws_of_reports:
        longer = Counter()
        for symbols, mass in law.items():
            for symbol, p in enumerate(of_report):
                if p:
                    longer[tuple(sorted((*symbols, symbol)))] += mass * p
        law = longer
    return law
