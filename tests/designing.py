"""Helpers for tests of designed cards."""

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
