"""From counts of symbols to unbiased means, with confidence intervals.

`counts[i, j]` is how often symbol j was reported for coordinate i. Matrices of one card merge by
addition. The choice of coordinates depends on no data, so that the mean over those who reported a
coordinate is unbiased for all devices.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple, Self

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
_STEADY = 1e-4  # weight of the variance in that fit
_BIASED = 0.1  # the largest usable error of a mean of |x|
_BLUNT = 5.0  # the largest usable standard deviation of one report's score
# Reports from which on a sample variance is trusted: of fewer, all may well be equal.
_LARGE = 30
_AT_ONCE = 1 << 21  # hashes in memory at a time


@dataclass(frozen=True)
class Estimate:
    """Means of d coordinates in units of [-1, 1], with normal intervals at CONFIDENCE.

    They are nan without reports. They are not clamped to [-1, 1], since that would bias them.
    """

    mean: Floats
    standard_error: Floats
    low: Floats
    high: Floats
    reports: Counts

    @classmethod
    def of(cls, mean: Floats, error: Floats, reports: Counts) -> Self:
        """The estimate of these means and standard errors."""
        half = QUANTILE * error
        return cls(mean, error, mean - half, mean + half, reports)

    def summary(self) -> dict[str, Any]:
        """For JSON: a list for each field, by coordinate, with None where there are no reports."""
        return {
            "confidence": CONFIDENCE,
            "mean": _numbers(self.mean),
            "low": _numbers(self.low),
            "high": _numbers(self.high),
            "reports": self.reports.tolist(),
        }


def _numbers(values: Floats) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


# Symbols of a card


class _CardValues(NamedTuple):
    values: Floats  # of each symbol
    worst_variance: float
    worst_second_moment: float


@lru_cache(maxsize=256)
def _card_values(data: bytes) -> _CardValues:
    card = cards.decode(data)
    moments = certify.moments(card)
    values = np.array([float(value) for value in certify.values(card)])
    values.setflags(write=False)
    worst_variance, _ = moments.worst_variance()
    return _CardValues(values, float(worst_variance), float(moments.worst_second_moment()))


def symbol_values(card: Card) -> Floats:
    """The value of every symbol of a card, read-only.

    Raises certify.Biased for a card without unbiased values.
    """
    return _card_values(bytes(card.data)).values


@dataclass(frozen=True)
class Magnitude:
    """An estimator of the mean of |x|: about the mean of `scores` over the reported symbols."""

    scores: Floats  # of each symbol
    deviation: float  # the largest standard deviation of one report's score, over all x


@lru_cache(maxsize=256)
def magnitude(card: bytes) -> Magnitude | None:
    """The estimator of the mean of |x| from reports of a card.

    None where it is poor or impossible, as for Duchi's card.
    """
    inputs = np.arange(-ONE, ONE + 1, ONE // _SIZES)
    decoded = cards.decode(card)
    laws = np.array([distribution(decoded, int(x)) for x in inputs])  # inputs x symbols
    sizes = np.abs(inputs) / ONE
    # Least squares for scores whose mean is |x|, with a little weight on their variance. It is
    # solved over the inputs, which are few: a laplace card may have 65,535 symbols.
    relative = laws / np.maximum(laws.mean(axis=0), np.finfo(np.float64).tiny)
    system = relative @ laws.T + _STEADY * len(inputs) * np.eye(len(inputs))
    scores = relative.T @ np.linalg.solve(system, sizes)

    means = laws @ scores
    errors = means - sizes
    deviation = float(np.sqrt((laws @ scores**2 - means**2).max()))
    if np.abs(errors).max() > _BIASED or deviation > _BLUNT:
        return None
    return Magnitude(scores, deviation)


# Means


def combine(
    cohorts: Sequence[tuple[Card, npt.ArrayLike]],
    *,
    bound: bool = False,
    tau: float | Sequence[float] = 1.0,
) -> Estimate:
    """Combine the counts (d x card.symbols) of one or several cards by inverse variance.

    A cohort's weight at a coordinate is its reports there over the card's worst-case variance. It
    depends on no report's content, so the result is unbiased if cohorts differ in their budgets
    only. The interval covers the mean of the population from which the reporters were drawn.

    bound: take the variance of each cohort from its card instead of its sample: the worst-case
    second moment, which V(x) + Var(x) does not exceed. Below 30 reports that is done in any case.

    tau: the factor by which values were divided before they were clipped, of all cohorts or of
    each. Means are multiplied by it, and are unbiased for values within it.

    Raises ValueError for counts of another shape.
    """
    weights, means, variances, reports = [], [], [], []
    scales = np.broadcast_to(tau, len(cohorts)).tolist()
    for (card, counts), scale in zip(cohorts, scales, strict=True):
        values, worst_variance, worst_second_moment = _card_values(bytes(card.data))
        matrix = np.asarray(counts, np.int64)
        if matrix.ndim != 2 or matrix.shape[1] != card.symbols:
            raise ValueError(f"counts must be d x {card.symbols}, not {matrix.shape}")

        n = matrix.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = matrix @ values / n
            sample = (matrix @ values**2 - n * mean**2) / (n - 1)
        is_trusted = (n >= _LARGE) & (not bound)
        variance = np.where(is_trusted, np.maximum(sample, 0), worst_second_moment)
        means.append(np.where(n > 0, scale * mean, 0))
        variances.append(np.where(n > 0, scale**2 * variance / np.maximum(n, 1), 0))
        weights.append(n / (scale**2 * worst_variance))
        reports.append(n)

    weight = np.array(weights)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = weight / weight.sum(axis=0)
        combined = (share * means).sum(axis=0)
        error = np.sqrt((share**2 * variances).sum(axis=0))
    return Estimate.of(combined, error, np.sum(reports, axis=0))


def mean_of_projections(*cohorts: CohortCounts) -> Estimate:
    """The mean over all reporting clients of their vectors, in units of [-1, 1].

    Each vector was clipped to its card's radius. Classes of devices are combined by inverse
    variance. The mean has a small bias (cards.md, projection). Raises ValueError for cards that are
    no projections.
    """
    total = np.zeros(values_of(cohorts[0].question))
    precision = 0.0
    reports = 0
    for cohort in cohorts:
        if cohort.vectors is None:
            raise ValueError("these cards are no projections")
        body, range_ = projection.of(cohort.card), cohort.question.range
        weight = 1 / projection.variance(body, range_)
        total += weight * projection.unit(body, range_) * cohort.vectors
        precision += weight * cohort.reports
        reports += cohort.reports
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total / precision
        error = np.sqrt(1 / np.full(len(total), precision))
    return Estimate.of(mean, error, np.full(len(total), reports))


# Sums


def sums_of(*cohorts: CohortCounts) -> tuple[Floats, Floats]:
    """The total of each value of a sum over all reporting clients, and its standard error.

    Totals are in real units; the tally, which comes last, is in its own integer units. Both are nan
    for a value that nobody reported. If a report has k of v values, a total is the sum over the
    clients that reported the value, divided by their share. The error is that of the noise alone.
    Raises ValueError for cards that are no sums.
    """
    # Counts of one question, from several cohorts or sites, are added up.
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
        grid_steps = 1 << body.coarse  # that a symbol stands for
        values = (np.arange(body.symbols) - body.symbols // 2) * grid_steps
        if grid_steps > 1:  # their mean is half a grid step below the symbol's
            values = values - 0.5

        n = counts.sum(axis=1)
        unit = np.where(n > 0, reports / np.maximum(n, 1), np.nan)
        unit[:-1] *= sums.grid(body, range_)
        total += unit * (counts @ values)
        variance += unit**2 * n * (sums.variance(body) + (grid_steps**2 - 1) / 12)
    return total, np.sqrt(variance)


# Shares and frequencies


def share_interval(share: float, n: int) -> tuple[float, float]:
    """The interval of Wilson (1927) for a share that was observed in n trials.

    It is valid near 0, near 1, and for few trials.
    """
    scale = 1 + QUANTILE**2 / n
    middle = (share + QUANTILE**2 / (2 * n)) / scale
    spread = math.sqrt(share * (1 - share) / n + QUANTILE**2 / (4 * n * n))
    half = QUANTILE / scale * spread
    return max(0.0, middle - half), min(1.0, middle + half)  # rounding may leave [0, 1]


def frequency_law(card: Card, hashed: bool = False) -> tuple[float, float]:
    """The probabilities that a report supports its sender's category, and that it supports another.

    Both protocols are pure (Wang et al., USENIX Security 2017): generalised randomised response (a
    window card with W = 1) and, with hashed categories (arithmetic.md), optimised local hashing.
    Raises ValueError for other cards.
    """
    if card.shape != cards.WINDOW or card.window != 1:
        raise ValueError("frequencies need a window card of window 1")
    same = card.threshold / cards.T
    other = (1 - same) / (card.symbols - 1)
    if hashed:
        shares = np.bincount(np.arange(PRIME) % card.symbols) / PRIME  # of hashes, by bucket
        collision = float(shares @ shares)
        other += collision * (same - other)
    return same, other


def frequency_variance(card: Card, categories: int, hashed: bool = False) -> float:
    """The variance of one report's estimate of a frequency, if all categories are as frequent."""
    same, other = frequency_law(card, hashed)
    support = other + (same - other) / categories
    return support * (1 - support) / (same - other) ** 2


def supports(
    devices: npt.ArrayLike, symbols: Counts, number: int, buckets: int, categories: int
) -> Counts:
    """How many hashed reports of a round support each category (categories).

    symbols: of the reports of these devices (n). number: of the round.
    """
    ids = np.asarray(devices, np.int64)
    total = np.zeros(categories, np.int64)
    step = max(1, _AT_ONCE // categories)
    for start in range(0, len(ids), step):
        hashes = vectorised.hashes(ids[start : start + step], number)
        hashed = vectorised.hashed(hashes, np.arange(categories)[None], buckets)
        total += np.count_nonzero(hashed == symbols[start : start + step, None], axis=0)
    return total


def combine_frequencies(classes: Sequence[tuple[Card, npt.ArrayLike, int | None]]) -> Estimate:
    """Unbiased frequencies of c categories from classes of devices; nan without reports.

    A class: its card, how many of its reports support each category (c), and the number of its
    hashed reports (None: they are not hashed). Its weight is its reports over the variance of one
    report at a frequency of 0.
    """
    mean, variance = np.zeros((2, len(np.asarray(classes[0][1]))))
    weight = np.float64(0)
    reports = 0
    for card, counts, hashed in classes:
        supported = np.asarray(counts, np.int64)
        n = int(supported.sum()) if hashed is None else hashed
        if not n:
            continue
        same, other = frequency_law(card, hashed is not None)
        share = supported / n
        class_weight = n * (same - other) ** 2 / (other * (1 - other))
        support = np.clip(share, other, same)  # the probability of a report to support a category
        report_variance = support * (1 - support) if n >= _LARGE else 0.25
        mean += class_weight * (share - other) / (same - other)
        variance += class_weight**2 * report_variance / n / (same - other) ** 2
        weight = weight + class_weight
        reports += n
    with np.errstate(invalid="ignore"):
        return Estimate.of(mean / weight, np.sqrt(variance) / weight, np.full(len(mean), reports))
