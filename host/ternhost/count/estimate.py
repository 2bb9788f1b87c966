"""Counts of symbols -> unbiased means with confidence intervals.

`counts[i, j]` is how often symbol j was reported for coordinate i; matrices of one card merge by
addition. The choice of coordinates depends on no data, so the mean over the reporters of one is
unbiased for all devices.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern.card import Card
from tern.collect import PRIME
from tern.fixed import ONE
from ternhost import vectorised
from ternhost.count.questions import values_of
from ternhost.count.rounds import CohortCounts
from ternhost.privacy import certify, projection, sums
from ternhost.privacy.cards import distribution

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

CONFIDENCE = 0.95
QUANTILE = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_SIZES = 16  # inputs of each sign at which a card's estimate of |x| is fitted
_STEADY = 1e-4
_BIASED = 0.1  # the largest usable error of a mean of |x|
_BLUNT = 5.0  # the largest usable standard deviation of one report's score
_LARGE = 30  # reports from which on a sample variance is trusted: three reports may well be equal
_AT_ONCE = 1 << 21  # hashes in memory at a time


@dataclass(frozen=True)
class Estimate:
    """Means of d coordinates in units of [-1, 1], nan without reports, with normal intervals
    (CONFIDENCE). They are not clamped, since that would bias them.
    """

    mean: Floats
    standard_error: Floats
    low: Floats
    high: Floats
    reports: Counts

    @classmethod
    def of(cls, mean: Floats, error: Floats, reports: Counts) -> Self:
        return cls(mean, error, mean - QUANTILE * error, mean + QUANTILE * error, reports)

    def summary(self) -> dict[str, Any]:
        """For JSON: a list by coordinate for each field, with None where there are no reports."""
        lists = {
            name: [None if math.isnan(value) else value for value in getattr(self, name).tolist()]
            for name in ("mean", "low", "high")
        }
        return {"confidence": CONFIDENCE, **lists, "reports": self.reports.tolist()}


@lru_cache(maxsize=256)
def _card_floats(data: bytes) -> tuple[Floats, float, float]:
    card = cards.decode(data)
    moments = certify.moments(card)
    values = np.array([float(value) for value in certify.values(card)])
    values.setflags(write=False)
    return values, float(moments.worst_variance()[0]), float(moments.worst_second_moment())


def symbol_values(card: Card) -> Floats:
    """The value of every symbol of `card`, read-only.

    Raises certify.Biased for a card without unbiased values.
    """
    return _card_floats(bytes(card.data))[0]


@dataclass(frozen=True)
class Magnitude:
    """Estimates |x| from reports: the mean of `scores` over reported symbols is about the mean of
    |x|.
    """

    scores: Floats
    deviation: float  # the largest standard deviation of one report's score, over all x


@lru_cache(maxsize=256)
def magnitude(card: bytes) -> Magnitude | None:
    """The estimator of the mean of |x| from reports of a card; None where it is poor or impossible,
    as for Duchi's.
    """
    inputs = np.arange(-ONE, ONE + 1, ONE // _SIZES)
    decoded = cards.decode(card)
    rows = np.array([distribution(decoded, int(x)) for x in inputs])
    sizes = np.abs(inputs) / ONE
    # Least squares for scores whose mean is |x|, with a little weight on their variance: solved
    # over the inputs, which are few, and not over the outputs: a laplace card may have 65,535.
    over = rows / np.maximum(rows.mean(axis=0), np.finfo(np.float64).tiny)
    scores = over.T @ np.linalg.solve(
        over @ rows.T + _STEADY * len(inputs) * np.eye(len(inputs)), sizes
    )
    errors = rows @ scores - sizes
    deviation = float(np.sqrt((rows @ scores**2 - (rows @ scores) ** 2).max()))
    if np.abs(errors).max() > _BIASED or deviation > _BLUNT:
        return None
    return Magnitude(scores, deviation)


def combine(
    cohorts: Sequence[tuple[Card, npt.ArrayLike]],
    *,
    bound: bool = False,
    tau: float | Sequence[float] = 1.0,
) -> Estimate:
    """Combine count matrices (d x card.symbols) of one or several cards by inverse variance
    (personalised budgets).

    A cohort's weight at a coordinate is its reports there over the card's worst-case variance. It
    does not depend on the content of reports, so the result is unbiased if cohorts differ in their
    budgets only. The interval covers the mean of the population that the reporters were drawn from.
    Its variance is the sample's; below 30 reports, or with `bound`, the card's worst-case second
    moment, which V(x) + Var(x) does not exceed. tau: the divisor of values before they were
    clipped, of all cohorts or of each; means are multiplied by it, and are unbiased for values
    within it. Raises ValueError for counts of another shape.
    """
    weights, means, variances, reports = [], [], [], []
    for (card, counts), scale in zip(
        cohorts, np.broadcast_to(tau, len(cohorts)).tolist(), strict=True
    ):
        values, worst_variance, worst_second = _card_floats(bytes(card.data))
        matrix = np.asarray(counts, np.int64)
        if matrix.ndim != 2 or matrix.shape[1] != card.symbols:
            raise ValueError(f"counts must be d x {card.symbols}, not {matrix.shape}")
        n = matrix.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = matrix @ values / n
            sample = (matrix @ values**2 - n * mean**2) / (n - 1)
            variance = np.where((n >= _LARGE) & (not bound), np.maximum(sample, 0), worst_second)
            means.append(np.where(n > 0, scale * mean, 0))
            variances.append(np.where(n > 0, scale**2 * variance / np.maximum(n, 1), 0))
        weights.append(n / (scale**2 * worst_variance))
        reports.append(n)
    weight = np.array(weights)
    total = weight.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = weight / total
        mean = (share * means).sum(axis=0)
        error = np.sqrt((share**2 * variances).sum(axis=0))
    return Estimate.of(mean, error, np.sum(reports, axis=0))


def mean_of_projections(*cohorts: CohortCounts) -> Estimate:
    """The mean over all reporting clients of their vectors, each clipped to the card's radius, in
    units of [-1, 1]; classes of devices are combined by inverse variance. It has a small bias
    (cards.md, projection). Raises ValueError for cards that are no projections.
    """
    total, precision, reports = np.zeros(values_of(cohorts[0].question)), 0.0, 0
    for cohort in cohorts:
        if cohort.vectors is None:
            raise ValueError("these cards are no projections")
        body, range_ = projection.of(cohort.card), cohort.question.range
        weight = 1 / projection.variance(body, range_)
        total += weight * projection.unit(body, range_) * cohort.vectors
        precision += weight * cohort.reports
        reports += cohort.reports
    with np.errstate(divide="ignore", invalid="ignore"):
        mean, error = total / precision, np.sqrt(1 / np.full(len(total), precision))
    return Estimate.of(mean, error, np.full(len(total), reports))


def sums_of(*cohorts: CohortCounts) -> tuple[Floats, Floats]:
    """The total over all reporting clients of each value of a sum, in real units (the tally, last,
    in its own integer units), and the standard error that the noise gives it; nan for a value that
    nobody reported.

    Counts of one question, from several cohorts or sites, are added up. With k of v values a total is
    the sum over those clients that reported the value, times their share: its error is that of the
    noise alone. Raises ValueError for cards that are no sums.
    """
    pools: dict[tuple[bytes, int, int], tuple[Any, int]] = {}
    for cohort in cohorts:
        key = bytes(cohort.card.data), cohort.question.range, cohort.k
        counts, reports = pools.get(key, (0, 0))
        pools[key] = counts + cohort.counts, reports + cohort.reports
    total, variance = np.zeros((2, len(cohorts[0].counts)))
    for (data, range_, _), (counts, reports) in pools.items():
        card = cards.decode(data)
        if card.shape != cards.SUM:
            raise ValueError("totals need cards of sums")
        body = sums.of(card)
        step = 1 << body.coarse
        steps = (np.arange(body.symbols) - body.symbols // 2) * step
        if (
            step > 1
        ):  # of the 2**q numbers that round to a symbol, the mean is half a grid step below it
            steps = steps - 0.5
        n = counts.sum(axis=1)
        real = np.where(n > 0, reports / np.maximum(n, 1), np.nan)
        real[:-1] *= sums.grid(body, range_)
        total += real * (counts @ steps)
        variance += real**2 * n * (sums.variance(body) + (step**2 - 1) / 12)
    return total, np.sqrt(variance)


def share_interval(share: float, n: int) -> tuple[float, float]:
    """The interval of Wilson (1927) for a share observed in n trials: valid near 0, near 1, and for
    few trials.
    """
    middle = (share + QUANTILE**2 / (2 * n)) / (1 + QUANTILE**2 / n)
    half = (
        QUANTILE
        / (1 + QUANTILE**2 / n)
        * math.sqrt(share * (1 - share) / n + QUANTILE**2 / (4 * n * n))
    )
    return max(0.0, middle - half), min(1.0, middle + half)  # rounding may leave [0, 1]


def frequency_law(card: Card, hashed: bool = False) -> tuple[float, float]:
    """The probabilities that a report supports the category of its sender, and any other category.

    Both protocols are pure (Wang et al., USENIX Security 2017): generalised randomised response (a
    window card with W = 1) and, with hashed categories (arithmetic.md), optimised local hashing.
    Raises ValueError for other cards.
    """
    if card.shape != cards.WINDOW or card.window != 1:
        raise ValueError("frequencies need a window card of window 1")
    same = card.threshold / cards.T
    other = (1 - same) / (card.symbols - 1)
    if hashed:
        sizes = np.bincount(np.arange(PRIME) % card.symbols)
        collide = float((sizes / PRIME) @ (sizes / PRIME))
        other += collide * (same - other)
    return same, other


def frequency_variance(card: Card, categories: int, hashed: bool = False) -> float:
    """The variance of one report's estimate of a frequency, where all `categories` are equally
    frequent.
    """
    same, other = frequency_law(card, hashed)
    support = other + (same - other) / categories
    return support * (1 - support) / (same - other) ** 2


def supports(
    devices: npt.ArrayLike, symbols: Counts, number: int, buckets: int, categories: int
) -> Counts:
    """The number of hashed reports (n symbols of n devices) in the round `number` that support each
    category.
    """
    ids, total = np.asarray(devices, np.int64), np.zeros(categories, np.int64)
    step = max(1, _AT_ONCE // categories)
    for start in range(0, len(ids), step):
        hashes = vectorised.hashes(ids[start : start + step], number)
        named = vectorised.hashed(hashes, np.arange(categories)[None], buckets)
        total += np.count_nonzero(named == symbols[start : start + step, None], axis=0)
    return total


def combine_frequencies(classes: Sequence[tuple[Card, npt.ArrayLike, int | None]]) -> Estimate:
    """Unbiased frequencies of c categories from classes of devices (personalised budgets); nan
    without reports.

    A class: its card, the reports that support each category, and the number of hashed reports
    (None: not hashed). Its weight is its reports over the variance of one report at a frequency of
    0.
    """
    mean, variance = np.zeros((2, len(np.asarray(classes[0][1]))))
    weight, reports = np.float64(0), 0
    for card, counts, hashed in classes:
        supported = np.asarray(counts, np.int64)
        n = int(supported.sum()) if hashed is None else hashed
        if not n:
            continue
        same, other = frequency_law(card, hashed is not None)
        share = supported / n
        class_weight = n * (same - other) ** 2 / (other * (1 - other))
        probability = np.clip(share, other, same)  # of a report to support a category
        each = probability * (1 - probability) if n >= _LARGE else 0.25
        mean += class_weight * (share - other) / (same - other)
        variance += class_weight**2 * each / n / (same - other) ** 2
        weight, reports = weight + class_weight, reports + n
    with np.errstate(invalid="ignore"):
        return Estimate.of(mean / weight, np.sqrt(variance) / weight, np.full(len(mean), reports))
