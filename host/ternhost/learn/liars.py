"""How far devices that report whatever they like can move an estimate.

A liar is a device that sends any symbol of its card (the certified table from which honest devices
draw what they report), and not one drawn for its true value. A card has finitely many symbols, so a
lie changes an estimate by at most an amount that follows from the card's integers. The bounds are
exact: some choice of liars and symbols reaches them, unless a function says otherwise.

Let a share s of the reports about an estimate be lies. With m the estimate of all reports, h the
one that the honest reports alone give, and l the mean of what the lies stand for, both weighted as
in the estimate, m = (1 - s) h + s l. Two questions follow:

- After a run m is known, and h is not: |m - h| is at most s / (1 - s) times the distance between m
  and the farthest value of a symbol (`after`).
- Before a run h may be assumed: |m - h| is at most s times the distance between h and the farthest
  value (`before`).

The share is that of the reports about the estimate. A liar cannot choose which of several values it
is asked about, since that follows from the round and the host's choice. But whoever chooses which
devices to corrupt may choose those that are asked about a certain value.

The smaller epsilon, the farther apart are the values of symbols, and the more a liar can do: local
privacy makes manipulation easier (Cheu, Smith and Ullman, IEEE S&P 2021).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern.card import Card
from tern.sums import Sum
from ternhost.count.rounds import CohortCounts
from ternhost.learn.bin_tree import Distribution, ReportedLevel
from ternhost.learn.estimate import CategoryReports, frequency_law, values_of_sums, worst_variance
from ternhost.privacy import certify, projection, sums

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

SHARE = Fraction(1, 100)  # of the devices that lie, unless the user names another one
# Estimates are computed in floats, so bounds are raised by far more than the errors of these.
_OUTWARD = 1e-11
_MOST_STEPS = 100  # of a search that ends after a few: one for each kind of report at most


class Kind(NamedTuple):
    """Reports that weigh the same in an estimate and have the same symbols, as those of one card.

    An estimate of d values is a weighted mean of what its reports stand for.
    """

    reports: Counts  # how many are about each value (d)
    weight: float  # of one report in the mean
    low: float  # the least value that a symbol stands for, on the scale of the estimate
    high: float  # the largest one


@dataclass(frozen=True)
class Bound:
    """How far lies can move an estimate of d values.

    It is nan where no honest report would be left, as where a single device reported.
    """

    up: Floats  # the most by which lies can raise each value (d)
    down: Floats  # the most by which they can lower it (d)
    liars: Counts  # how many of the reports about each value are lies (d)

    @property
    def most(self) -> Floats:
        """The most by which lies can move each value, up or down (d)."""
        return np.maximum(self.up, self.down)


def liars_among(reports: npt.ArrayLike, share: Fraction | float = SHARE) -> Counts:
    """Return how many of the reports are taken for lies: the share, rounded down, but at least one.

    reports: how many there are about each value.
    Raises ValueError for a share that is not between 0 and 1.
    """
    # The decimal number that the user wrote, and not the float next to it, which may be smaller.
    exact = share if isinstance(share, Fraction) else Fraction(str(share))
    if not 0 < exact < 1:
        raise ValueError(f"a share of liars is between 0 and 1, not {share}")
    counts = np.asarray(reports, np.int64)
    return np.maximum(1, counts * exact.numerator // exact.denominator)


# Weighted means


def after(kinds: Sequence[Kind], estimate: npt.ArrayLike, share: Fraction | float = SHARE) -> Bound:
    """Bound how far lies have moved an estimate, given its value.

    kinds: all reports, those of liars among them.
    estimate: the weighted mean of all reports, m (d).
    """
    mean = np.asarray(estimate, np.float64)
    reports = np.sum([kind.reports for kind in kinds], axis=0)
    liars = liars_among(reports, share)
    up = _moved_up(kinds, mean, liars)
    # Lowering a value is raising its negative.
    down = _moved_up([_negated(kind) for kind in kinds], -mean, liars)
    return _of_enough(up, down, liars, reports)


def before(kinds: Sequence[Kind], honest: npt.ArrayLike, share: Fraction | float = SHARE) -> Bound:
    """Bound how far lies will move an estimate, given what the honest reports alone would give.

    kinds: all reports, those of liars among them.
    honest: the weighted mean of the honest reports, h (d).
    """
    mean = np.asarray(honest, np.float64)
    reports = np.sum([kind.reports for kind in kinds], axis=0)
    liars = liars_among(reports, share)
    up = _to_be_moved_up(kinds, mean, liars)
    down = _to_be_moved_up([_negated(kind) for kind in kinds], -mean, liars)
    return _of_enough(up, down, liars, reports)


def _negated(kind: Kind) -> Kind:
    """Return the same reports, with the negative of every value."""
    return kind._replace(low=-kind.high, high=-kind.low)


def _of_enough(up: Floats, down: Floats, liars: Counts, reports: Counts) -> Bound:
    """Return the bound, without values about which nobody but the liars reports."""
    is_enough = reports > liars
    return Bound(
        up=np.where(is_enough, up, np.nan), down=np.where(is_enough, down, np.nan), liars=liars
    )


class _Lies(NamedTuple):
    """What the worst lies add to a weighted sum, by value (d each)."""

    moved: Floats  # the sum of weight * (value - centre) over all lies
    weight: Floats  # of all lies


def _worst_lies(kinds: Sequence[Kind], centre: Floats, liars: Counts, offset: Floats) -> _Lies:
    """Choose which reports are lies, so that the sum of weight * (value - centre + offset) is largest.

    Each lie is the largest symbol of its kind. The best reports are those with the largest terms;
    reports whose terms would be negative are left out.

    centre: what values are compared with (d). liars: how many lies there are, at most (d).
    offset: a number that is added to each difference (d).
    """
    weights = np.array([kind.weight for kind in kinds])[:, None]
    highs = np.array([kind.high for kind in kinds])[:, None]
    available = np.array([np.broadcast_to(kind.reports, centre.shape) for kind in kinds])
    terms = weights * (highs - centre + offset)  # kinds x d

    # The best kind first, at each value.
    order = np.argsort(-terms, axis=0, kind="stable")
    available = np.take_along_axis(np.where(terms > 0, available, 0), order, axis=0)
    taken_before = np.cumsum(available, axis=0) - available
    lies = np.clip(liars - taken_before, 0, available)
    weight_of_lies = lies * weights[order, 0]
    moved = weight_of_lies * (highs[order, 0] - centre)
    return _Lies(moved.sum(axis=0), weight_of_lies.sum(axis=0))


def _moved_up(kinds: Sequence[Kind], mean: Floats, liars: Counts) -> Floats:
    """Return the most by which lies can have raised a weighted mean of all reports.

    With W the weight of all reports and V that of the lies, m - h is the sum of weight * (value -
    m) over the lies, divided by W - V. Lies of different weights change the divisor as well, so the
    best choice is searched for as usual for a quotient (Dinkelbach 1967): for a guess q of it, the
    lies with the largest sum of weight * (value - m + q) give a better q, until none does.

    mean: m (d). liars: how many lies there are (d).
    """
    weight = _weight_of(kinds, mean)
    lowest, highest = _range_of(kinds)
    raised = np.zeros(mean.shape)
    # What honest reports give is at least the lowest value.
    most = np.maximum(0.0, mean - lowest)
    for _ in range(_MOST_STEPS):
        lies = _worst_lies(kinds, mean, liars, offset=raised)
        honest_weight = weight - lies.weight
        with np.errstate(divide="ignore", invalid="ignore"):  # replaced where nothing is left
            quotient = np.where(honest_weight > 0, lies.moved / honest_weight, np.inf)
        better = np.minimum(np.maximum(raised, quotient), most)
        is_settled = bool(np.all(better <= raised))
        raised = better
        if is_settled:
            break
    return _outward(raised, highest - lowest)


def _to_be_moved_up(kinds: Sequence[Kind], honest: Floats, liars: Counts) -> Floats:
    """Return the most by which lies can raise a weighted mean above that of the honest reports.

    With W the weight of all reports, m - h is the sum of weight * (value - h) over the lies,
    divided by W.

    honest: h (d). liars: how many of the reports are lies (d).
    """
    lies = _worst_lies(kinds, honest, liars, offset=np.zeros(honest.shape))
    lowest, highest = _range_of(kinds)
    with np.errstate(invalid="ignore"):  # nan where nobody reports
        raised = lies.moved / _weight_of(kinds, honest)
    return _outward(raised, highest - lowest)


def _weight_of(kinds: Sequence[Kind], values: Floats) -> Floats:
    """Return the weight of all reports about each value (d)."""
    weight = np.zeros(values.shape)
    for kind in kinds:
        weight += kind.weight * kind.reports
    return weight


def _range_of(kinds: Sequence[Kind]) -> tuple[float, float]:
    """Return the least and the largest value that any symbol stands for."""
    return min(kind.low for kind in kinds), max(kind.high for kind in kinds)


def _outward(bound: Floats, width: float) -> Floats:
    """Raise a bound by more than the errors of the floats in it. width: of the range of values."""
    return bound * (1 + _OUTWARD) + _OUTWARD * width


# Means


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


def extremes(card: Card) -> tuple[float, float]:
    """Return the least and the largest value that a symbol of a card stands for, rounded outward.

    Raises certify.Biased for a card without unbiased values.
    """
    return _extremes_of_card(bytes(card.data))


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
    kinds = []
    scales = np.broadcast_to(tau, len(cohorts)).tolist()
    for (card, counts), scale in zip(cohorts, scales, strict=True):
        reports = np.asarray(counts, np.int64).sum(axis=1)
        kinds.append(kind_of_means(card, reports, scale))
    return after(kinds, mean, share)


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


# Lengths of vectors


def length(
    kinds: Sequence[Kind], mean: npt.ArrayLike, k: int, share: Fraction | float = SHARE
) -> float:
    """Bound the l2 norm of the difference that lies have made to d means, such as a gradient.

    The liars are those devices that can do most: each is asked about k of the values, and in the
    worst case all are asked about the same ones. A value that nobody but liars reported counts as
    0 in what the honest reports alone would give.

    The bound is exact for reports of one kind, if each value has more reports than there are liars;
    for several kinds, and for so few reports, it may be a little larger than what can be reached.

    kinds: the reports of all devices.
    mean: what was estimated from all reports (d); anything where nobody reported.
    k: how many values each device reports.
    Returns nan if there is but one report.
    """
    estimated = np.nan_to_num(np.asarray(mean, np.float64))
    reports = np.sum([kind.reports for kind in kinds], axis=0)
    devices = int(-(-reports.sum() // k))
    liars = int(liars_among(devices, share))
    if devices <= liars:
        return math.nan
    lowest, highest = _range_of(kinds)
    heaviest = np.zeros(estimated.shape)
    reach = np.zeros(estimated.shape)
    for kind in kinds:
        has_reports = np.asarray(kind.reports) > 0
        farthest = np.maximum(kind.high - estimated, estimated - kind.low)
        reach = np.where(has_reports, np.maximum(reach, kind.weight * farthest), reach)
        heaviest = np.where(has_reports, np.maximum(heaviest, kind.weight), heaviest)
    moves = _Moves(
        lies=np.minimum(liars, reports),
        weight=_weight_of(kinds, estimated),
        reach=reach,
        heaviest=heaviest,
        most=np.maximum(highest - estimated, estimated - lowest),
    )
    squared_length = _largest_sum(moves.per_lie(power=2), moves.lies, liars * k)
    return math.sqrt(squared_length) * (1 + _OUTWARD) + _OUTWARD * (highest - lowest)


class _Moves(NamedTuple):
    """How far lies can move each of several values.

    t lies move a value by at most t * reach / (weight - t * heaviest), and by at most `most`.
    """

    lies: Counts  # how many there are about each value, at most
    weight: Floats  # of all reports about it
    reach: Floats  # weight * distance from the estimate, of the worst lie
    heaviest: Floats  # the largest weight of a report
    most: Floats  # no estimate is farther from the one of all reports

    def per_lie(self, power: int) -> Floats:
        """Return the largest move to a power, 1 or 2, divided by the number of lies that it takes.

        The first bound to the power, divided by t, grows with t; the second one falls. So the
        largest quotient is at the last t of the first bound or at the first t of the second one.
        """
        with np.errstate(divide="ignore", invalid="ignore"):  # nobody reports a value
            turning = np.nan_to_num(
                self.most * self.weight / (self.reach + self.most * self.heaviest)
            )
        last = np.minimum(self.lies, np.floor(turning))
        first = np.minimum(self.lies, np.floor(turning) + 1)
        quotients = np.zeros(self.weight.shape)
        for count in (last, first):
            with np.errstate(divide="ignore", invalid="ignore"):  # no lie
                quotient = self._moved(count) ** power / count
            quotients = np.maximum(quotients, np.where(count > 0, quotient, 0.0))
        return quotients

    def _moved(self, lies: npt.ArrayLike) -> Floats:
        """Return how far so many lies about each value can move it."""
        count = np.asarray(lies, np.float64)
        honest_weight = self.weight - count * self.heaviest
        with np.errstate(divide="ignore", invalid="ignore"):  # replaced where nothing is left
            moved = np.where(honest_weight > 0, count * self.reach / honest_weight, np.inf)
        return np.minimum(moved, self.most)


def _largest_sum(worth: Floats, available: Counts, budget: int) -> float:
    """Return the largest sum of worth * count, with counts up to `available`, `budget` in all."""
    order = np.argsort(-worth, kind="stable")
    taken_before = np.cumsum(available[order]) - available[order]
    taken = np.clip(budget - taken_before, 0, available[order])
    return float(taken @ worth[order])


def length_of_means(
    cohorts: Sequence[tuple[Card, npt.ArrayLike]],
    mean: npt.ArrayLike,
    k: int,
    *,
    tau: float | Sequence[float] = 1.0,
    share: Fraction | float = SHARE,
) -> float:
    """Bound the l2 norm of the difference that lies have made to means of `estimate.combine`.

    cohorts, tau: the same as those given to `estimate.combine`.
    mean: what it estimated (d). k: how many values each device reports.
    """
    kinds = []
    scales = np.broadcast_to(tau, len(cohorts)).tolist()
    for (card, counts), scale in zip(cohorts, scales, strict=True):
        kinds.append(kind_of_means(card, np.asarray(counts, np.int64).sum(axis=1), scale))
    return length(kinds, mean, k, share)


def length_of_projections(
    cohorts: Sequence[CohortCounts], mean: npt.ArrayLike, share: Fraction | float = SHARE
) -> float:
    """Bound the l2 norm of the difference that lies have made to a mean of projections.

    A report stands for a direction times a constant, so its length is known. A device can choose
    among its own directions only, which its rotation determines. The bound holds for any rotations:
    it is reached by liars that happen to have the same one, and those with rotations of their own
    reach less.

    cohorts: the same as those given to `estimate.mean_of_projections`.
    mean: what it estimated.
    Returns nan if there is but one report.
    """
    norm_of_mean = float(np.linalg.norm(np.nan_to_num(np.asarray(mean, np.float64))))
    kinds = []
    for cohort in cohorts:
        body, range_ = projection.of(cohort.card), cohort.question.range
        farthest = projection.real_radius(body, range_) / projection.gain(body)
        weight = 1 / projection.variance(body, range_)
        kinds.append(Kind(np.array([cohort.reports]), weight, low=-farthest, high=farthest))
    # The difference between a report and the mean is at most the sum of their lengths, as between a
    # number and another one of the opposite sign.
    reports = np.sum([kind.reports for kind in kinds], axis=0)
    liars = liars_among(reports, share)
    if reports[0] <= liars[0]:
        return math.nan
    return float(_moved_up(kinds, np.array([-norm_of_mean]), liars)[0])


# Sums with noise


class Range(NamedTuple):
    """The least and the largest value of something."""

    low: float
    high: float

    def times(self, factor: float) -> "Range":
        """Return the range of the same values times a factor above 0."""
        return Range(factor * self.low, factor * self.high)


def range_of_sums(body: Sum) -> Range:
    """Return the least and the largest sum that a symbol of a card stands for, in grid steps.

    The room for noise makes a symbol reach much farther than any true sum of a device.
    """
    values = values_of_sums(body)
    return Range(float(values[0]), float(values[-1]))


def length_of_sums(cohort: CohortCounts, share: Fraction | float = SHARE) -> float:
    """Bound the l2 norm of the difference that lies have made to the mean sum of a device.

    All sums but the last one count, which is a tally. The result is in real units.

    cohort: the reports of devices that report all sums.
    Returns nan if there is but one report.
    """
    body = sums.of(cohort.card)
    of_symbol = range_of_sums(body)
    counts = cohort.counts[:-1]
    reports = counts.sum(axis=1)
    mean = counts @ values_of_sums(body) / np.maximum(reports, 1)
    kind = Kind(reports, weight=1.0, low=of_symbol.low, high=of_symbol.high)
    in_grid_steps = length([kind], mean, k=len(counts), share=share)
    return in_grid_steps * sums.grid(body, cohort.question.range)


class Total(NamedTuple):
    """A sum over the reports of all devices."""

    value: float  # as estimated from all reports
    of_report: Range  # what a single report may add to it


def quotient(
    numerator: Total, denominator: Total, reports: int, share: Fraction | float = SHARE
) -> float:
    """Bound how far lies have moved a quotient of two totals, such as a sum over a count.

    A liar reports to both totals whatever it likes. Returns infinity if what the lies have added to
    the denominator may be all of it, and nan if there is but one report.

    numerator, denominator: of all reports; the denominator is above 0.
    reports: how many devices have reported.
    """
    liars = int(liars_among(reports, share))
    if reports <= liars:
        return math.nan
    if denominator.value <= 0:
        return math.inf
    honest_numerators = _honest_range(numerator, reports, liars)
    honest_denominators = _honest_range(denominator, reports, liars)
    if honest_denominators.low <= 0:
        return math.inf
    # A quotient is monotone in each of its parts, so it is farthest at a corner.
    estimated = numerator.value / denominator.value
    moved = 0.0
    for honest_numerator in honest_numerators:
        for honest_denominator in honest_denominators:
            moved = max(moved, abs(estimated - honest_numerator / honest_denominator))
    return moved * (1 + _OUTWARD)


def _honest_range(total: Total, reports: int, liars: int) -> Range:
    """Return in which range the total of the honest reports alone is."""
    low, high = total.of_report
    honest = reports - liars
    return Range(
        low=max(total.value - liars * high, honest * low),
        high=min(total.value - liars * low, honest * high),
    )


# Weighted sums of shares at several levels


class LevelReports(NamedTuple):
    """Reports about one level of bins, and what the shares of its bins count in a result.

    Results are sums over all levels of coefficients times shares, such as the cumulative shares of
    `bin_tree`.
    """

    card: Card  # the table that perturbs bins, or buckets if they are hashed
    hashed: bool
    reports: int
    shares: Floats  # of each bin, by the reports of this level alone (bins)
    coefficients: Floats  # of each bin in each result (results x bins)


def levels_after(levels: Sequence[LevelReports], share: Fraction | float = SHARE) -> Bound:
    """Bound how far lies have moved sums of coefficients times the shares of several levels.

    The coefficients are taken as they are in the estimate, although they depend on the numbers of
    reports, and would be a little different without the lies. In the worst case all liars are asked
    about the same level.

    A hashed report supports all bins that its device hashes to the bucket that it names. The bound
    holds for all hashes: the best bucket has exactly the bins with positive coefficients. Some hash
    of the protocol has such a bucket if these are the first or the last bins, as for a cumulative
    share at its own level. Otherwise the bound may be a little more than what can be reached. For
    bins that are not hashed it is exact.

    levels: with the shares that all reports give. Reports of several cards about the same level are
        an entry each.
    """
    total = sum(level.reports for level in levels)
    liars = int(liars_among(total, share))
    up = _moved_with_levels([_values_of(level) for level in levels], liars)
    down = _moved_with_levels([_values_of(level).negated for level in levels], liars)
    if any(level.reports <= liars for level in levels):  # one may have no honest report at all
        up, down = np.full(up.shape, np.nan), np.full(down.shape, np.nan)
    return Bound(up, down, np.full(up.shape, liars))


def levels_before(levels: Sequence[LevelReports], share: Fraction | float = SHARE) -> Bound:
    """Bound how far lies will move such sums, given the shares that honest reports would give.

    As `levels_after`, but the shares of `levels` are those of honest devices.
    """
    total = sum(level.reports for level in levels)
    liars = int(liars_among(total, share))
    up = _to_be_moved_with_levels([_values_of(level) for level in levels], liars)
    down = _to_be_moved_with_levels([_values_of(level).negated for level in levels], liars)
    return Bound(up, down, np.full(up.shape, liars))


class _LevelValues(NamedTuple):
    """What one report about a level may add to each result, and what the reports add on average."""

    reports: int
    low: Floats  # (results)
    mean: Floats
    high: Floats

    @property
    def negated(self) -> "_LevelValues":
        """The same reports, with the negative of every value."""
        return _LevelValues(self.reports, -self.high, -self.mean, -self.low)


def _values_of(level: LevelReports) -> _LevelValues:
    """Return what one report about a level may add to each result."""
    same, other = frequency_law(level.card, hashed=level.hashed)
    coefficients = np.asarray(level.coefficients, np.float64)
    if level.hashed:  # it supports any bins
        least_support = np.minimum(coefficients, 0).sum(axis=1)
        most_support = np.maximum(coefficients, 0).sum(axis=1)
    else:  # it supports exactly one
        least_support = coefficients.min(axis=1)
        most_support = coefficients.max(axis=1)
    # A report stands for (support - other) / (same - other) of each bin.
    unsupported = other * coefficients.sum(axis=1)
    return _LevelValues(
        reports=level.reports,
        low=(least_support - unsupported) / (same - other),
        mean=coefficients @ np.asarray(level.shares, np.float64),
        high=(most_support - unsupported) / (same - other),
    )


def _moved_with_levels(levels: Sequence[_LevelValues], liars: int) -> Floats:
    """Return the most by which lies can have raised each result (results)."""
    moved = np.zeros(levels[0].mean.shape)
    for i in range(len(moved)):
        reports = np.array([level.reports for level in levels])
        reach = np.array([level.high[i] - level.mean[i] for level in levels])
        most = np.array([level.mean[i] - level.low[i] for level in levels])
        moves = _Moves(
            lies=np.minimum(liars, reports),
            weight=reports.astype(np.float64),
            reach=np.maximum(reach, 0.0),
            heaviest=np.ones(len(levels)),
            most=np.maximum(most, 0.0),
        )
        raised = _largest_sum(moves.per_lie(power=1), moves.lies, liars)
        moved[i] = raised * (1 + _OUTWARD) + _OUTWARD
    return moved


def _to_be_moved_with_levels(levels: Sequence[_LevelValues], liars: int) -> Floats:
    """Return the most by which lies will raise each result above that of honest reports (results)."""
    moved = np.zeros(levels[0].mean.shape)
    reports = np.array([level.reports for level in levels])
    for i in range(len(moved)):
        reach = np.array([level.high[i] - level.mean[i] for level in levels])
        raised = _largest_sum(reach / reports, reports, liars)
        moved[i] = raised * (1 + _OUTWARD) + _OUTWARD
    return moved


# Distributions


def cumulative(distribution: Distribution, share: Fraction | float = SHARE) -> Bound:
    """Bound how far lies have moved the cumulative shares of a tree of bins, as `levels_after` does.

    There is one for the upper edge of each of the finest bins, but for the last one, which is 1.

    distribution: whose levels are all of reports about single bins.
    """
    functions = _up_to_each_edge(distribution.bins)
    levels = []
    for level, of_level in zip(distribution.levels, distribution.coefficients, strict=True):
        if not isinstance(level, ReportedLevel):
            raise TypeError("a level of sums has no shares of its own")
        reports = level.reports
        levels.append(
            LevelReports(
                card=reports.card,
                hashed=reports.hashed_reports is not None,
                reports=reports.reports,
                shares=level.values,
                coefficients=functions @ of_level,
            )
        )
    return levels_after(levels, share)


def reach_of_sums(
    distribution: Distribution, functions: Floats, of_reports: Sequence[Range]
) -> list[Range]:
    """Return what one device can add to linear functions of the numbers of records in bins.

    A device reports a sum for every bin of every level, and can choose each of them by itself.

    distribution: whose levels are all of such sums.
    functions: of the values of its finest bins (m x bins).
    of_reports: for each level what one device may add to a bin.
    """
    least, most = np.zeros(len(functions)), np.zeros(len(functions))
    for of_level, of_report in zip(distribution.coefficients, of_reports, strict=True):
        coefficients = functions @ of_level
        at_low, at_high = coefficients * of_report.low, coefficients * of_report.high
        least += np.minimum(at_low, at_high).sum(axis=1)
        most += np.maximum(at_low, at_high).sum(axis=1)
    return [Range(*ends) for ends in zip(least.tolist(), most.tolist(), strict=True)]


def cumulative_of_sums(
    distribution: Distribution,
    of_reports: Sequence[Range],
    quantile: float,
    reports: int,
    share: Fraction | float = SHARE,
) -> Bound:
    """Bound how far lies have moved cumulative numbers of records less a share of all records.

    distribution, of_reports: as of `reach_of_sums`.
    quantile: the share of all records that is subtracted.
    reports: how many devices reported all sums.
    """
    functions = _up_to_each_edge(distribution.bins) - quantile
    reach = np.array(reach_of_sums(distribution, functions, of_reports))
    liars = int(liars_among(reports, share))
    if reports <= liars:
        reach = np.full_like(reach, np.nan)
    return Bound(
        up=liars * reach[:, 1], down=-liars * reach[:, 0], liars=np.full(len(functions), liars)
    )


def cumulative_shares_of_sums(
    distribution: Distribution,
    of_reports: Sequence[Range],
    reports: int,
    share: Fraction | float = SHARE,
) -> Floats:
    """Bound how far lies have moved the cumulative shares at the edges between the finest bins.

    The other arguments are those of `cumulative_of_sums`. A bound is infinite or nan as that of a
    `quotient`.
    """
    functions = _up_to_each_edge(distribution.bins)
    (of_all,) = reach_of_sums(distribution, np.ones((1, distribution.bins)), of_reports)
    all_records = Total(distribution.total, of_all)
    bounds = []
    reach = reach_of_sums(distribution, functions, of_reports)
    for value, of_edge in zip((functions @ distribution.values).tolist(), reach, strict=True):
        bounds.append(quotient(Total(value, of_edge), all_records, reports, share))
    return np.array(bounds)


def _up_to_each_edge(bins: int) -> Floats:
    """Return the functions that add up all bins up to each edge between bins (bins - 1 x bins)."""
    return np.tril(np.ones((bins, bins)))[:-1]


def quantile_range(distribution: Distribution, quantile: float, bound: Bound) -> Range:
    """Return between which values lies can have moved a quantile.

    It is the quantile of the distribution whose cumulative shares are moved up, or down, by their
    bound: the curve that is fitted to them rises with each of them. All values are possible if no
    honest report is left.

    bound: as of `cumulative`, or of `cumulative_of_sums`.
    """
    if np.isnan(bound.most).any():
        return Range(float(distribution.edges[0]), float(distribution.edges[-1]))
    # What the honest reports alone give is at most `bound.up` lower, and at most `bound.down` higher.
    low, high = distribution.quantiles_if_moved(quantile, [bound.down, -bound.up])
    return Range(low, high)
