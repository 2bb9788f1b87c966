"""From counts of symbols to unbiased means, with confidence intervals.

`counts[i, j]` is how often symbol j was reported for coordinate i. Matrices of one card merge by
addition. The choice of coordinates depends on no data, so that the mean over those who reported a
coordinate is unbiased for all devices.
"""

import math
from collections.abc import Iterable, Sequence
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
from tern.sums import Sum
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
LARGE = 30
_AT_ONCE = 1 << 21  # hashes in memory at a time


@dataclass(frozen=True)
class Estimate:
    """Uncertain means of d coordinates in units of [-1, 1], with normal intervals at CONFIDENCE.

    They are nan without reports. They are not clamped to [-1, 1], since that would bias them.
    """

    mean: Floats
    standard_error: Floats
    low: Floats  # the lower end of the interval
    high: Floats
    reports: Counts  # how many have the coordinate

    @classmethod
    def of(cls, mean: Floats, error: Floats, reports: Counts) -> Self:
        """Return the estimate of these means and standard errors, with its intervals."""
        half = QUANTILE * error
        return cls(
            mean=mean, standard_error=error, low=mean - half, high=mean + half, reports=reports
        )

    def summary(self) -> dict[str, Any]:
        """Return the estimate for JSON: lists by coordinate, with None where there is no report."""
        return {
            "confidence": CONFIDENCE,
            "mean": _numbers(self.mean),
            "low": _numbers(self.low),
            "high": _numbers(self.high),
            "reports": self.reports.tolist(),
        }


def _numbers(values: Floats) -> list[float | None]:
    """Return the values for JSON, which has no nan: None instead."""
    return [None if math.isnan(value) else value for value in values.tolist()]


# Symbols of a card


class _CardValues(NamedTuple):
    """What the symbols of a card stand for, and how noisy one reported value is."""

    values: Floats  # of each symbol
    worst_variance: float  # the largest for any input in [-1, 1]
    worst_second_moment: float  # likewise, around 0


@lru_cache(maxsize=256)
def _card_values(data: bytes) -> _CardValues:
    """Return the value that each symbol of a card stands for, so that the mean of reports is
    unbiased.

    A card is a table of probabilities, from which a device draws the symbol that it reports instead
    of its value. Also returns the variance and the second moment of one reported value at the worst
    input.

    data: the card as bytes.
    """
    card = cards.decode(data)
    moments = certify.moments(card)
    values = np.array([float(value) for value in certify.values(card)])
    values.setflags(write=False)
    worst_variance, _ = moments.worst_variance()
    return _CardValues(
        values=values,
        worst_variance=float(worst_variance),
        worst_second_moment=float(moments.worst_second_moment()),
    )


def symbol_values(card: Card) -> Floats:
    """The value of every symbol of a card, read-only.

    Raises certify.Biased for a card without unbiased values.
    """
    return _card_values(bytes(card.data)).values


def worst_variance(card: Card) -> float:
    """The variance of one reported value of a card at the input where it is largest.

    Raises certify.Biased for a card without unbiased values.
    """
    return _card_values(bytes(card.data)).worst_variance


@dataclass(frozen=True)
class Magnitude:
    """An estimator of the mean of |x|: about the mean of `scores` over the reported symbols."""

    scores: Floats  # of each symbol
    deviation: float  # the largest standard deviation of one report's score, over all x


@lru_cache(maxsize=256)
def magnitude(card: bytes) -> Magnitude | None:
    """Find scores of a card's symbols whose mean over many reports is the mean of |x|.

    A card is the table of the probabilities p(symbol | x) with which a device that has the value x
    draws the symbol to report. The scores s are fitted by least squares at several inputs, so that
    sum(p(symbol | x) * s) is about |x| at each; a little weight on their variance keeps them small.

    card: the card as bytes.
    Returns None if the estimator is poor or impossible, as for Duchi's card, whose two symbols tell
    nothing of the size.
    """
    inputs = np.arange(-ONE, ONE + 1, ONE // _SIZES)
    sizes = np.abs(inputs) / ONE
    decoded = cards.decode(card)
    # The probability of each symbol at each input: inputs x symbols.
    probabilities = np.array([distribution(decoded, int(x)) for x in inputs])

    # With P the probabilities, D the diagonal matrix of their means, and n inputs, the scores s
    # minimise |P s - sizes|**2 + _STEADY * n * s^T D s. This form of the solution has a system of
    # inputs x inputs only, since a laplace card may have 65,535 symbols:
    #   s = D^-1 P^T (P D^-1 P^T + _STEADY * n * I)^-1 sizes.
    mean_probabilities = np.maximum(probabilities.mean(axis=0), np.finfo(np.float64).tiny)
    relative = probabilities / mean_probabilities
    system = relative @ probabilities.T + _STEADY * len(inputs) * np.eye(len(inputs))
    scores = relative.T @ np.linalg.solve(system, sizes)

    # How good they are: the bias and the variance of a report's score at each input.
    means = probabilities @ scores
    errors = means - sizes
    variances = probabilities @ scores**2 - means**2
    deviation = float(np.sqrt(variances.max()))
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
    """Estimate the mean of each coordinate from the reports of one or several cohorts of devices.

    The estimates of the cohorts are combined by inverse variance: a cohort's weight at a coordinate
    is its number of reports there, over the worst-case variance of its card. It depends on no
    report's content, so the result is unbiased if cohorts differ in their budgets only. The
    intervals cover the mean of the population from which the reporters were drawn.

    cohorts: for each its card (the table that perturbs values), and how often each symbol was
        reported for each coordinate (d x symbols).
    bound: whether to take the variance of a report from the card instead of the sample. It is the
        worst-case second moment, which noise and spread of the values together do not exceed. For
        fewer than 30 reports that is done in any case.
    tau: devices divided their values by tau before they clipped them to [-1, 1]; one number for all
        cohorts, or one for each. Means are multiplied by it, and are unbiased for values within it.
    Raises ValueError for counts of another shape.
    """
    weights, means, variances, reports = [], [], [], []  # of each cohort, by coordinate
    scales = np.broadcast_to(tau, len(cohorts)).tolist()
    for (card, counts), scale in zip(cohorts, scales, strict=True):
        means_of_cohort = _scaled_means(card, counts, scale, bound)
        means.append(means_of_cohort.mean)
        variances.append(means_of_cohort.variance)
        weights.append(means_of_cohort.weight)
        reports.append(means_of_cohort.reports)

    weight = np.array(weights)  # cohorts x d
    with np.errstate(divide="ignore", invalid="ignore"):  # nan where nobody reported
        share = weight / weight.sum(axis=0)
        combined = (share * means).sum(axis=0)
        error = np.sqrt((share**2 * variances).sum(axis=0))
    return Estimate.of(combined, error, np.sum(reports, axis=0))


class _CohortMeans(NamedTuple):
    """The means of one cohort by coordinate (d each); 0 where nobody reported."""

    mean: Floats
    variance: Floats  # of the mean
    weight: Floats  # reports over the worst-case variance of one of them
    reports: Counts


def _scaled_means(card: Card, counts: npt.ArrayLike, scale: float, bound: bool) -> _CohortMeans:
    """Estimate the mean of each coordinate from the reports of one cohort of devices.

    card: the table that perturbs values.
    counts: how often each symbol was reported for each coordinate (d x symbols).
    scale: devices divided values by it, and clipped them to [-1, 1].
    bound: whether to take the variance of a report from the card instead of the sample. The card
        gives the second moment at the worst input, which is never too small.
    Raises ValueError for counts of another shape.
    """
    values, worst_variance, worst_second_moment = _card_values(bytes(card.data))
    matrix = np.asarray(counts, np.int64)
    if matrix.ndim != 2 or matrix.shape[1] != card.symbols:
        raise ValueError(f"counts must be d x {card.symbols}, not {matrix.shape}")

    reports = matrix.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # replaced below where nobody reported
        mean = matrix @ values / reports
        # The usual estimator (sum of x**2 - n mean**2) / (n - 1), of n reports.
        sample_variance = (matrix @ values**2 - reports * mean**2) / (reports - 1)
    is_sample_used = (reports >= LARGE) & (not bound)
    variance = np.where(is_sample_used, np.maximum(sample_variance, 0), worst_second_moment)
    is_reported = reports > 0
    return _CohortMeans(
        mean=np.where(is_reported, scale * mean, 0),
        variance=np.where(is_reported, scale**2 * variance / np.maximum(reports, 1), 0),
        weight=reports / (scale**2 * worst_variance),
        reports=reports,
    )


def mean_of_projections(*cohorts: CohortCounts) -> Estimate:
    """Estimate the mean of the vectors of all reporting clients, in units of [-1, 1].

    Each client clipped its vector to a norm, the radius of its card (a table of probabilities), and
    reported a single symbol, which stands for a random direction. The sum of these directions,
    times a constant of the card, estimates the sum of the vectors, with a small bias (cards.md,
    projection). Cohorts are combined by inverse variance.

    cohorts: for each, the sum of the reported directions, and the number of reports.
    Raises ValueError for cards that are no projections.
    """
    weighted_sum = np.zeros(values_of(cohorts[0].question))
    precision = 0.0  # of the mean: its inverse variance
    reports = 0
    for cohort in cohorts:
        if cohort.vectors is None:
            raise ValueError("these cards are no projections")
        # Devices multiplied their vectors by 2**range_, so the radius in real units depends on it.
        body, range_ = projection.of(cohort.card), cohort.question.range
        weight = 1 / projection.variance(body, range_)  # of one report
        # `unit` is the constant of the card by which a direction becomes an estimated vector.
        weighted_sum += weight * projection.unit(body, range_) * cohort.vectors
        precision += weight * cohort.reports
        reports += cohort.reports

    with np.errstate(divide="ignore", invalid="ignore"):  # nan if nobody reported
        mean = weighted_sum / precision
        error = np.sqrt(1 / np.full(len(mean), precision))
    return Estimate.of(mean, error, np.full(len(mean), reports))


# Sums


def sums_of(*cohorts: CohortCounts) -> tuple[Floats, Floats]:
    """Estimate the total of each value over all reporting clients; also return its standard error.

    Each client reports sums over its own records, with noise. The last value is a tally, a counter.
    Totals are in real units, but for that of the tally, which is in its own integer units.
    Both are nan for a value that nobody reported. If a report has k of v values, a total is the sum
    over the clients that reported the value, divided by their share. The error is that of the noise
    alone.

    cohorts: counts of reported symbols for the same question, or for questions that differ in their
        cards (the tables of noise).
    Raises ValueError for cards that are no sums.
    """
    value_count = len(cohorts[0].counts)
    total, variance = np.zeros(value_count), np.zeros(value_count)
    for pool in _pools_by_card(cohorts):
        card = cards.decode(pool.card_data)
        if card.shape != cards.SUM:
            raise ValueError("totals need cards of sums")
        body = sums.of(card)
        pool_total, variance_of_report = _total_in_grid_steps(body, pool.counts)

        # From the clients that reported a value to all that reported, and to real units.
        value_reports = pool.counts.sum(axis=1)
        inverse_share = pool.reports / np.maximum(value_reports, 1)
        scale = np.where(value_reports > 0, inverse_share, np.nan)
        scale[:-1] *= sums.grid(body, pool.range)  # all but the tally
        total += scale * pool_total
        variance += scale**2 * value_reports * variance_of_report
    return total, np.sqrt(variance)


@dataclass
class _Pool:
    """The reports of all cohorts that answered the same question with the same card."""

    card_data: bytes  # the card (the table of noise) as bytes
    range: int  # of the question: devices multiplied values by 2**range
    counts: Counts  # how often each symbol was reported (values x symbols)
    reports: int


def _pools_by_card(cohorts: Iterable[CohortCounts]) -> list[_Pool]:
    """Add up the counts of cohorts, perhaps of several sites, with the same card and question.

    A cohort has the counts of the reports that answered one question in a round.
    """
    pools: dict[tuple[bytes, int, int], _Pool] = {}
    for cohort in cohorts:
        card_data, range_ = bytes(cohort.card.data), cohort.question.range
        key = card_data, range_, cohort.k
        if key in pools:
            pool = pools[key]
            pool.counts = pool.counts + cohort.counts
            pool.reports += cohort.reports
        else:
            pools[key] = _Pool(card_data, range_, cohort.counts, cohort.reports)
    return list(pools.values())


def _total_in_grid_steps(body: Sum, counts: Counts) -> tuple[Floats, float]:
    """Return the total of each reported value in grid steps, and the variance of one report.

    body: the card (the table of noise) of the sums.
    counts: how often each symbol was reported (values x symbols).
    """
    symbol_width = 1 << body.coarse  # grid steps that a symbol stands for
    # The variance of a uniform integer among `symbol_width`, beside that of the noise.
    rounding_variance = (symbol_width**2 - 1) / 12
    return counts @ values_of_sums(body), sums.variance(body) + rounding_variance


def values_of_sums(body: Sum) -> Floats:
    """Return the sum that each symbol of a card of noisy sums stands for, in grid steps."""
    symbol_width = 1 << body.coarse  # grid steps that a symbol stands for
    # The middle symbol stands for 0.
    symbols = np.arange(body.symbols, dtype=np.float64)
    values: Floats = (symbols - body.symbols // 2) * symbol_width
    # Devices round to the next symbol, up if in the middle: so the steps that share a symbol lie
    # from half a width below it to one less above it, and their mean is half a step below it.
    if symbol_width > 1:
        values = values - 0.5
    return values


class Uncertain(NamedTuple):
    """An estimate that is about normal, and its standard error."""

    value: float
    error: float


def fieller(
    numerator: Uncertain, denominator: Uncertain, covariance: float = 0.0
) -> list[float] | None:
    """Return the 95 % interval of the quotient a / b of two normal estimates.

    It has all quotients q for which a - q b is within z = 1.96 standard deviations of 0: (a - q
    b)**2 <= z**2 (a_error**2 - 2 q covariance + q**2 b_error**2), a quadratic inequality in q.
    Source: Fieller, Journal of the Royal Statistical Society B 16, 1954.

    covariance: of the two estimates. Returns None if b may be 0: then the interval has no end.
    """
    z_squared = QUANTILE**2
    # The inequality in the form quadratic * q**2 - 2 * linear * q + constant <= 0.
    quadratic = denominator.value * denominator.value - z_squared * denominator.error**2
    linear = numerator.value * denominator.value - z_squared * covariance
    constant = numerator.value * numerator.value - z_squared * numerator.error**2
    if denominator.value <= 0 or quadratic <= 0:
        return None
    root = math.sqrt(max(0.0, linear * linear - quadratic * constant))
    return [(linear - root) / quadratic, (linear + root) / quadratic]


# Shares and frequencies


def share_interval(share: float, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval for a share p that was observed in n trials.

    With z = 1.96 it is (p + z**2 / (2 n) +- z sqrt(p (1 - p) / n + z**2 / (4 n**2))) / (1 + z**2 /
    n). It is valid near 0, near 1, and for few trials. Source: Wilson, Journal of the American
    Statistical Association 22, 1927.
    """
    scale = 1 + QUANTILE**2 / n
    middle = (share + QUANTILE**2 / (2 * n)) / scale
    spread = math.sqrt(share * (1 - share) / n + QUANTILE**2 / (4 * n * n))
    half = QUANTILE / scale * spread
    # Rounding may leave [0, 1], and at a share of 0 or 1 it may leave out the share itself.
    low = min(share, max(0.0, middle - half))
    high = max(share, min(1.0, middle + half))
    return low, high


def frequency_law(card: Card, hashed: bool = False) -> tuple[float, float]:
    """Return the probabilities that a report supports its sender's category, and any other one.

    A report supports a category if it may be of a sender that has it. From these two probabilities
    the frequency of each category follows without bias (Wang et al., USENIX Security 2017). There
    are two protocols: generalised randomised response, where a report supports the category that it
    names, and optimised local hashing, where categories are hashed to buckets, and a report
    supports all categories in the bucket that it names.

    card: the table by which categories, or buckets, are perturbed.
    hashed: whether categories are hashed to buckets first (arithmetic.md).
    Raises ValueError for a card that is no randomised response.
    """
    # A window card draws a symbol near the true one with a higher probability than all others. Of
    # window 1, only the true symbol itself is near: that is randomised response.
    if card.shape != cards.WINDOW or card.window != 1:
        raise ValueError("frequencies need a window card of window 1")
    same = card.threshold / cards.T  # the probability of the true symbol, in fixed point
    other = (1 - same) / (card.symbols - 1)  # all other symbols are equally likely
    if hashed:
        # A hash is uniform from 0 to PRIME - 1, and its bucket is the remainder of a division by
        # the number of buckets. Two categories share a bucket with the probability `collision`.
        bucket_shares = np.bincount(np.arange(PRIME) % card.symbols) / PRIME
        collision = float(bucket_shares @ bucket_shares)
        other += collision * (same - other)
    return same, other


def frequency_variance(card: Card, categories: int, hashed: bool = False) -> float:
    """Return the variance of a frequency that is estimated from one report.

    A report supports a category with the probability s, and the estimate is (support - other) /
    (same - other), so that the variance is s (1 - s) / (same - other)**2. All categories are taken
    to be equally frequent.

    card: the table that perturbs categories. hashed: whether they are hashed to buckets first.
    """
    same, other = frequency_law(card, hashed)
    support = other + (same - other) / categories
    return support * (1 - support) / (same - other) ** 2


def supports(
    devices: npt.ArrayLike, symbols: Counts, number: int, buckets: int, categories: int
) -> Counts:
    """Count how many hashed reports of a round support each category.

    Each device hashes categories to buckets in its own way, and reports a bucket. Its report
    supports all categories that the device hashes to it.

    devices: ids of the devices (n).
    symbols: the bucket that each of them reported (n).
    number: the number of the round, on which hashes depend.
    buckets: the number of buckets.
    categories: the number of categories, which is also the length of the result.
    """
    ids = np.asarray(devices, np.int64)
    counts = np.zeros(categories, np.int64)
    devices_at_once = max(1, _AT_ONCE // categories)  # so that memory is enough
    for start in range(0, len(ids), devices_at_once):
        end = start + devices_at_once
        hashes = vectorised.hashes(ids[start:end], number)
        # The bucket of each category on each device: devices x categories.
        bucket_of_category = vectorised.hashed(hashes, np.arange(categories)[None], buckets)
        is_supported = bucket_of_category == symbols[start:end, None]
        counts += np.count_nonzero(is_supported, axis=0)
    return counts


class CategoryReports(NamedTuple):
    """The reports of a class of devices, which share an epsilon, about one categorical attribute."""

    card: Card  # the table that perturbs categories
    counts: npt.ArrayLike  # how many reports support each category (categories)
    # The number of reports, if categories are hashed. None: they are not, and each report supports
    # exactly one category, so that the number is the sum of the counts.
    hashed_reports: int | None

    @property
    def reports(self) -> int:
        """The number of reports."""
        if self.hashed_reports is not None:
            return self.hashed_reports
        return int(np.asarray(self.counts, np.int64).sum())


class _WeightedFrequencies(NamedTuple):
    """What one class of devices contributes to a weighted mean of frequencies."""

    weight: float
    weighted: Floats  # weight * frequency, of each category
    variance: Floats  # of `weighted`
    reports: int


def combine_frequencies(classes: Sequence[CategoryReports]) -> Estimate:
    """Estimate the frequency of each category, without bias, from the reports of several classes.

    A class of devices has reports of the same epsilon. The estimate is the mean of the frequencies
    of all classes, weighted by `_weighted_frequencies`. It is nan without reports.

    classes: the reports of each class.
    """
    category_count = len(np.asarray(classes[0].counts))
    weighted_sum, variance = np.zeros(category_count), np.zeros(category_count)
    weight_sum = np.float64(0)
    reports = 0
    for class_ in classes:
        part = _weighted_frequencies(class_)
        if part is None:  # nobody of the class has reported
            continue
        weighted_sum += part.weighted
        variance += part.variance
        weight_sum = weight_sum + part.weight
        reports += part.reports

    with np.errstate(invalid="ignore"):  # nan without reports
        frequencies = weighted_sum / weight_sum
        errors = np.sqrt(variance) / weight_sum
    return Estimate.of(frequencies, errors, np.full(category_count, reports))


def _weighted_frequencies(class_: CategoryReports) -> _WeightedFrequencies | None:
    """Estimate the frequencies of categories from the reports of one class, with their weight.

    From the share s of the reports that support a category, its frequency is (s - other) / (same -
    other), where `same` and `other` are the probabilities that a report supports its sender's
    category, and any other one (`frequency_law`). So the variance of a frequency is that of s,
    divided by (same - other)**2. The weight is the number of reports over the variance of one
    report at a frequency of 0, where s is `other`. Source: Wang et al., USENIX Security 2017.

    Returns None without reports.
    """
    is_hashed = class_.hashed_reports is not None
    supporting = np.asarray(class_.counts, np.int64)
    reports = class_.reports
    if not reports:
        return None
    same, other = frequency_law(class_.card, hashed=is_hashed)
    support_share = supporting / reports
    weight = reports * (same - other) ** 2 / (other * (1 - other))

    # The variance p (1 - p) of whether a report supports the category. Of few reports the share
    # says little about p, so the largest variance, that of p = 1/2, is taken.
    support_variance: Floats | float = 0.25
    if reports >= LARGE:
        support_probability = np.clip(support_share, other, same)
        support_variance = support_probability * (1 - support_probability)
    return _WeightedFrequencies(
        weight=weight,
        weighted=weight * (support_share - other) / (same - other),
        variance=np.asarray(weight**2 * support_variance / reports / (same - other) ** 2),
        reports=reports,
    )
