"""How far lies move means of numbers, and shares of categories."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern.card import Card
from ternhost.learn.collecting.estimate import CategoryReports, frequency_law, worst_variance
from ternhost.learn.liars.bounds import SHARE, Bound, Kind, after
from ternhost.privacy import certify

# Means


def extremes(card: Card) -> tuple[float, float]:
    """Return the least and the largest value that a symbol of a card stands for, rounded outward.

    Raises certify.Biased for a card without unbiased values.
    """
    return _extremes_of_card(bytes(card.data))


@lru_cache(maxsize=256)
def _extremes_of_card(data: bytes) -> tuple[float, float]:
    """Return the least and the largest value of a card's symbols, rounded outward.

    data: the card as bytes.
    """
    values = certify.values(cards.decode(data))
    return _rounded_down(min(values)), -_rounded_down(-max(values))


def _rounded_down(value: Fraction) -> float:
    """Return the largest float that is at most this number."""
    nearest = float(value)
    if Fraction(nearest) <= value:
        return nearest
    return math.nextafter(nearest, -math.inf)


def kind_of_means(
    card: Card, reports: npt.ArrayLike, tau: float = 1.0, weight: float | None = None
) -> Kind:
    """Return the kind of reports with which a card takes part in a mean.

    card: the table that perturbs values.
    reports: how many are about each of the d values.
    tau: devices divided their values by tau before they clipped them to [-1, 1].
    weight: of one report; None: by inverse variance, as `estimate.combine` weighs it.
    """
    low, high = extremes(card)
    if weight is None:
        weight = 1 / (tau**2 * worst_variance(card))
    return Kind(np.asarray(reports, np.int64), weight, low=tau * low, high=tau * high)


def means(
    cohorts: Sequence[tuple[Card, npt.ArrayLike]],
    mean: npt.ArrayLike,
    *,
    tau: float | Sequence[float] = 1.0,
    share: Fraction | float = SHARE,
) -> Bound:
    """Bound how far lies have moved means that `estimate.combine` estimated.

    cohorts, tau: the same as those given to `estimate.combine`.
    mean: what it estimated (d).
    """
    return after(kinds_of_means(cohorts, tau), mean, share)


def kinds_of_means(
    cohorts: Sequence[tuple[Card, npt.ArrayLike]], tau: float | Sequence[float]
) -> list[Kind]:
    """Return the kinds of reports with which cohorts take part in means of `estimate.combine`.

    cohorts, tau: the same as those given to `estimate.combine`.
    """
    kinds = []
    scales = np.broadcast_to(tau, len(cohorts)).tolist()
    for (card, counts), scale in zip(cohorts, scales, strict=True):
        reports = np.asarray(counts, np.int64).sum(axis=1)
        kinds.append(kind_of_means(card, reports, scale))
    return kinds


# Shares of categories


def kind_of_categories(card: Card, reports: int, categories: int, *, hashed: bool) -> Kind:
    """Return the kind of reports with which a class of devices takes part in shares of categories.

    A report supports a category or it does not, and a liar can choose that. The values for both are
    those of `estimate.combine_frequencies`, and so is the weight.

    card: the table that perturbs categories, or buckets if they are `hashed`.
    reports: how many there are; each is about all categories.
    """
    same, other = frequency_law(card, hashed=hashed)
    return Kind(
        reports=np.full(categories, reports, np.int64),
        weight=(same - other) ** 2 / (other * (1 - other)),
        low=-other / (same - other),
        high=(1 - other) / (same - other),
    )


def frequencies(
    classes: Sequence[CategoryReports], shares: npt.ArrayLike, share: Fraction | float = SHARE
) -> Bound:
    """Bound how far lies have moved shares of categories that `combine_frequencies` estimated.

    Each share is bounded by itself: a report that supports one category may not support another.

    classes: the same as those given to `estimate.combine_frequencies`.
    shares: what it estimated (categories).
    """
    kinds = []
    for class_ in classes:
        counts = np.asarray(class_.counts, np.int64)
        is_hashed = class_.hashed_reports is not None
        kinds.append(kind_of_categories(class_.card, class_.reports, len(counts), hashed=is_hashed))
    return after(kinds, shares, share)
