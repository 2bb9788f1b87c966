"""How clients of figure 3 report a gradient: by HierA or one of its rivals, in floats."""

from collections.abc import Callable
from functools import partial

import numpy as np

from tern.card import Card, T
from ternhost.datasets import Floats
from ternhost.privacy import certify
from ternpapers import baseline, levels
from ternpapers.mechanisms import lhp
from ternpapers.papers.hao.budgets import HIERA, LAPLACE, MU, laplace_scales, level_of, rivals
from ternpapers.perturbing import MECHANISMS

Noise = Callable[[Floats, Floats, np.random.Generator], Floats]
"""Takes values of a gradient, the attributes that belong to them, and a generator."""


def noise_of(trainer: str, unit: float, card: Card, cost: float) -> tuple[float | None, Noise]:
    """Return the epsilon of a trainer's report, and the function that adds its noise.

    The epsilon is None if the trainer keeps none. cost: the epsilon of a report of HierA whose
    level is that of another number.
    """
    if trainer == LAPLACE:
        return None, partial(graded_laplace, card)
    if trainer == HIERA:
        return cost, partial(by_attribute, card)

    mechanism, epsilon = rivals(unit, cost)[trainer]
    perturb = MECHANISMS[mechanism](epsilon)

    def noise(values: Floats, _attributes: Floats, rng: np.random.Generator) -> Floats:
        """Perturb values. The attributes make no difference to this mechanism."""
        return perturb(values, rng)

    return epsilon, noise


def mean_gradient(noise: Noise, rng: np.random.Generator) -> Callable[..., Floats]:
    """Return a function that estimates the mean gradient of records, for `baseline.descend`.

    Each record reports one coordinate of its gradient, with this noise.
    """

    def mean(x: Floats, y: Floats, weights: Floats) -> Floats:
        """Estimate the mean gradient (d) of records with features x and labels y."""
        n, d = x.shape
        coordinates = baseline.choose(n, d, 1, rng)
        attributes = np.take_along_axis(x, coordinates, axis=1)
        slopes = 2 * baseline.slopes("linear", x, y, weights)
        values = np.clip(slopes[:, None] * attributes, -1, 1)
        reports = noise(values, attributes, rng)
        return baseline.mean_of(coordinates, reports, x.shape)

    return mean


def graded_laplace(
    card: Card, values: Floats, attributes: Floats, rng: np.random.Generator
) -> Floats:
    """Add Laplace noise to values, at the budget of the range in which each one's attribute lies.

    attributes: of the shape of the values.
    """
    return values + rng.laplace(0, laplace_scales(card, attributes))


def by_attribute(
    card: Card, values: Floats, attributes: Floats, rng: np.random.Generator
) -> Floats:
    """Perturb values by LHP, the local part of HierA, at the levels of their attributes.

    The level is kept with a probability that depends on it, else replaced by any other one. A
    report is C or -C, where C is Duchi's magnitude at the reported level; C has the probability
    (1 + x / C) / 2. Returns the mean of the MU copies of each report that HierA counts.
    """
    level = level_of(card, attributes)
    level_cards = certify.hierarchy(card).level_cards
    keeping_probability = np.array([level_card.threshold for level_card in level_cards]) / T
    # A shift by 1 to levels - 1, cyclically, leads to every other level with the same probability.
    shift = rng.integers(1, len(level_cards), level.shape)
    other_level = (level + shift) % len(level_cards)
    is_kept = rng.random(level.shape) < keeping_probability[level]
    reported_level = np.where(is_kept, level, other_level)

    magnitudes = lhp.magnitudes(card)
    c = magnitudes[reported_level]
    is_positive = rng.random(level.shape) < 0.5 + values / (2 * c)
    signs = np.where(is_positive, 1, -1)
    return levels.mean_of_copies(magnitudes, reported_level, signs, MU, rng)
