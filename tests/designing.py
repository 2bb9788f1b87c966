"""Helpers for tests of designed cards."""

from ternhost.privacy import certify, mechanisms


def worst_variance(card):
    """The worst-case variance of a card."""
    return float(certify.moments(card).worst_variance()[0])


def worst(name, epsilon, levels=None, **options):
    """The worst-case variance of the card of a mechanism."""
    return worst_variance(mechanisms.design(name, epsilon, levels, **options).decode())
