"""Distributions and quantiles of numbers, from answers about bins at several levels.

Numbers in [-1, 1] fall into equal bins. A tree of bins has levels: each bin of a level is divided
into the same number of bins of the next one. Every answer is about a single level, so that it tells
which bin a number is in, coarsely or finely. Least squares makes the answers of all levels
consistent: a bin then has exactly the sum of its parts. The result is linear in the answers, hence
unbiased, and its errors follow from the answers' own.

A cumulative share adds up many fine bins of a flat histogram, with the noise of each. In a tree it
adds up a few bins of each level, which is why a tree is better for quantiles. Sources: Hay et al.,
PVLDB 3, 2010 (consistency); Kulkarni, Cormode and Srivastava, PVLDB 12, 2019 (trees under local
differential privacy).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ternhost.learn.collecting.estimate import (
    QUANTILE,
    CategoryReports,
    Uncertain,
    fieller,
    frequency_law,
)
from ternhost.learn.distributions.rising_curve import RisingCurve, fit

Floats = npt.NDArray[np.float64]

# Bits by which the bins of a level are finer than those of the level before. Four parts of each bin
# are nearly the best at every epsilon.
LEVEL_BITS = 2
_MOST_IN_PICTURE = 64  # bins, whose error bars can still be told apart
_ROUNDING = 1e-12  # of the ends of an interval, which are floats
# The mean standard error of cumulative shares from which there is much noise. With less, the quantiles
# of numbers that are all the same are still within 94 % of the intervals of fitted curves.
_LARGE_ERROR = 0.15


class Level(Protocol):
    """Unbiased estimates for all bins of one level, and their errors."""

    @property
    def values(self) -> Floats:
        """The share of each bin, or its number of records (bins)."""

    @property
    def noise(self) -> float:
        """The variance of each value that is known before any answer: it gives the weight."""

    def covariance(self, coefficients: Floats, shares: Floats) -> Floats:
        """Return the covariance of linear functions of the values (m x m).

        coefficients: of the functions (m x bins). shares: the share of each bin, as far as it is
        known, on which errors depend (bins); they are 0 or more and add up to 1.
        """


@dataclass(frozen=True)
class ReportedLevel:
    """The shares of the bins of a level, from reports of one bin each by randomised response.

    reports: how often each bin is supported, and by which card. At least one report.
    """

    reports: CategoryReports

    @property
    def values(self) -> Floats:
        same, other = self._law
        supported = np.asarray(self.reports.counts) / self._count
        shares: Floats = (supported - other) / (same - other)
        return shares

    @property
    def noise(self) -> float:
        same, other = self._law
        return other * (1 - other) / (same - other) ** 2 / self._count

    def covariance(self, coefficients: Floats, shares: Floats) -> Floats:
        """Return the covariance of linear functions of the estimated shares.

        A report that is not hashed supports a single bin, and so the supports of two bins exclude
        each other. Hashed reports are taken to support two bins independently of each other, given the
        bin that they are about. Their hash makes only pairs of bins independent, so this is an
        approximation. It is good for many bins that few devices share, and poor where nearly all
        devices are in one of 1,024 bins at an epsilon of 8.
        """
        same, other = self._law
        scale = same - other
        support = other + scale * shares  # the probability that a report supports each bin
        if self.reports.hashed_reports is None:
            second_moments = support / scale**2
            first_moments = support / scale
        else:
            second_moments = support * (1 - support) / scale**2 + shares**2
            first_moments = shares
        means = coefficients @ first_moments
        of_one_report = (coefficients * second_moments) @ coefficients.T - np.outer(means, means)
        return np.asarray(of_one_report / self._count)

    @cached_property
    def _law(self) -> tuple[float, float]:
        """The probabilities that a report supports its sender's bin, and any other one."""
        return frequency_law(self.reports.card, hashed=self.reports.hashed_reports is not None)

    @cached_property
    def _count(self) -> int:
        """The number of reports."""
        return self.reports.reports


@dataclass(frozen=True)
class SummedLevel:
    """The numbers of records in the bins of a level, each with independent noise of the same size.

    totals: of the bins (bins). error: the standard deviation of the noise of each.
    """

    totals: Floats
    error: float

    @property
    def values(self) -> Floats:
        return self.totals

    @property
    def noise(self) -> float:
        return self.error**2

    def covariance(self, coefficients: Floats, shares: Floats) -> Floats:
        """Return the covariance of linear functions; it does not depend on the shares."""
        return np.asarray(self.error**2 * coefficients @ coefficients.T)


class Quantile(NamedTuple):
    """A quantile and its 95 % interval, scaled to [-1, 1]."""

    value: float
    low: float
    high: float


class Linear(NamedTuple):
    """Estimates of m linear functions of the values of the finest bins."""

    values: Floats  # m
    covariance: Floats  # m x m
    with_total: Floats  # covariance with what all bins have together (m)

    @property
    def errors(self) -> Floats:
        """The standard errors (m)."""
        return np.asarray(np.sqrt(np.maximum(np.diag(self.covariance), 0)))


class Shares(NamedTuple):
    """Shares of the total, not clipped, and their 95 % intervals, which are cut to [0, 1]."""

    values: Floats  # m
    low: Floats  # m
    high: Floats  # m


def normal_matrix(levels: Sequence[tuple[int, float]]) -> Floats:
    """Return the matrix of the normal equations of least squares for the finest bins (bins x bins).

    levels: for each level its number of bins, which divides that of the finest, and the variance of
        the estimate of each bin.
    """
    finest = max(bins for bins, _variance in levels)
    normal: Floats = np.zeros((finest, finest))
    for bins, variance in levels:
        parts = finest // bins  # finest bins of a bin of the level
        are_of_one_bin = np.kron(np.eye(bins), np.ones((parts, parts)))
        normal += are_of_one_bin / variance
    return normal


class Distribution:
    """How numbers are distributed over bins: consistent values of the bins of all levels.

    edges: of the finest bins, scaled to [-1, 1] (bins + 1). values: of the finest bins, not clipped
    at 0 (bins): shares, which add up to 1, or numbers of records.
    """

    def __init__(self, levels: Sequence[Level], *, whole: float | None = 1.0) -> None:
        """Make the levels consistent by weighted least squares.

        levels: in any order; at least one. The number of bins of each divides that of the finest.
        A level of a single bin is an estimate of the total. whole: what all bins have together, if
        that is known, as it is for shares; None: it is estimated.
        """
        self.levels = levels
        self._whole = whole
        bin_count = max(len(level.values) for level in levels)
        self.edges: Floats = np.linspace(-1, 1, bin_count + 1)

        # Least squares for the values x of the finest bins. With S_l, which adds them up to the bins
        # of the level l, and the estimates y_l of that level, x solves the normal equations
        # (sum of S_l^T S_l / noise_l) x = sum of S_l^T y_l / noise_l.
        inverse = np.linalg.inv(normal_matrix([(len(each.values), each.noise) for each in levels]))
        # How the finest bins share what all of them lack of the whole.
        part_of_rest = inverse.sum(axis=1) / inverse.sum()

        # The coefficients by which x follows from the estimates of each level (finest bins x bins).
        self.coefficients: list[Floats] = []
        self.values: Floats = np.zeros(bin_count)
        if whole is not None:
            self.values = part_of_rest * whole
        for level in levels:
            first_parts = np.arange(0, bin_count, bin_count // len(level.values))
            of_level = np.add.reduceat(inverse, first_parts, axis=1) / level.noise
            if whole is not None:
                of_level = of_level - np.outer(part_of_rest, of_level.sum(axis=0))
            self.coefficients.append(of_level)
            self.values = self.values + of_level @ level.values

    @property
    def bins(self) -> int:
        """The number of the finest bins."""
        return len(self.values)

    @property
    def total(self) -> float:
        """What all bins have together."""
        return float(self.values.sum())

    @cached_property
    def total_error(self) -> float:
        """The standard error of the total; 0, but for rounding, if the total is known."""
        total = self.linear(np.ones((1, self.bins)))
        return float(total.errors[0])

    @property
    def may_be_empty(self) -> bool:
        """Whether the noise is so large that there may be no number at all: quantiles are unknown."""
        return self.total <= QUANTILE * self.total_error

    def linear(self, functions: Floats) -> Linear:
        """Estimate linear functions of the values of the finest bins (m x bins)."""
        with_total = np.vstack([functions, np.ones(self.bins)])
        covariance = np.zeros((len(with_total), len(with_total)))
        for level, of_level in zip(self.levels, self.coefficients, strict=True):
            shares = self._likely_shares.reshape(len(level.values), -1).sum(axis=1)
            covariance += level.covariance(with_total @ of_level, shares)
        return Linear(functions @ self.values, covariance[:-1, :-1], covariance[:-1, -1])

    def shares(self, estimated: Linear) -> Shares:
        """Return estimates as shares of the total, which may itself be an estimate.

        A share may be anything if the total may be 0.
        """
        total = Uncertain(self.total, self.total_error)
        low, high = np.zeros(len(estimated.values)), np.ones(len(estimated.values))
        for i, (value, error) in enumerate(zip(estimated.values, estimated.errors, strict=True)):
            interval = fieller(Uncertain(value, error), total, estimated.with_total[i])
            if interval is not None:
                # The share of all has an interval without length, which rounding may put beside 1.
                widened = interval[0] - _ROUNDING, interval[1] + _ROUNDING
                low[i], high[i] = np.clip(widened, 0, 1)
        return Shares(estimated.values / self.total, low, high)

    @cached_property
    def _likely_shares(self) -> Floats:
        """The shares of the finest bins, none below 0 (bins): errors depend on them a little."""
        positive = np.maximum(self.values, 0)
        if not positive.any():
            return np.full(self.bins, 1 / self.bins)
        shares: Floats = positive / positive.sum()
        return shares

    def histogram(self, bins: int) -> Linear:
        """Estimate the values of so many equal bins; their number divides that of the finest."""
        parts_of_bin = np.repeat(np.eye(bins), self.bins // bins, axis=1)
        return self.linear(parts_of_bin)

    @cached_property
    def cumulative(self) -> Linear:
        """The value of all bins up to and including each of the finest (bins)."""
        return self.linear(np.vstack([below_each_edge(self.bins), np.ones(self.bins)]))

    def picture_bins(self) -> int:
        """Return how many bins a picture can show.

        These are the most whose errors are no larger than the share that each of them has if all
        have the same; at least 4, unless there are fewer, and at most `_MOST_IN_PICTURE`.
        """
        bins = self.bins
        while bins > _MOST_IN_PICTURE:
            bins >>= LEVEL_BITS
        while bins > 4:
            if self.histogram(bins).errors.mean() <= self.total / bins:
                return bins
            bins >>= LEVEL_BITS
        return bins

    def quantile(self, share: float) -> Quantile:
        """Estimate a quantile: the least number such that this share of all numbers are not larger.

        The value of all bins up to an edge, less `share` of the total, is an estimate whose
        expectation rises from bin to bin, and is 0 at the quantile. So the estimates are fitted by
        a curve that never falls, and the quantile is where this passes 0, interpolated within a
        bin. The interval has all bins in which the curve may be 0, by its error.
        """
        if self.may_be_empty:
            return Quantile(0.0, -1.0, 1.0)
        curve = self._curve(share)
        # What bounds the curve at an edge also bounds it at all edges before or behind it.
        highest = np.minimum.accumulate((curve.fitted + curve.half)[::-1])[::-1]
        lowest = np.maximum.accumulate(curve.fitted - curve.half)
        # All numbers of a bin may be at one place of it: so an interval ends at edges of bins.
        low_bin = _crossed_bin(self._with_ends(highest, share))
        high_bin = _crossed_bin(self._with_ends(lowest, share))
        # Where the true curve is flat, the fitted one is mostly too low at the beginning and too high
        # at the end. If there is much noise, that is more than its interval tells, and so bins farther
        # out are tried. Inner edge i is the upper one of bin i, and the lower one of bin i + 1.
        if curve.errors.mean() > _LARGE_ERROR * self.total:
            low_bin = _first(range(low_bin), curve.may_be_above, otherwise=low_bin)
            outer_bins = range(self.bins - 1, high_bin, -1)
            high_bin = _first(
                outer_bins, lambda outer: curve.may_be_below(outer - 1), otherwise=high_bin
            )
        return Quantile(
            value=self._crossing(self._with_ends(curve.fitted, share)),
            low=float(self.edges[low_bin]),
            high=float(self.edges[high_bin + 1]),
        )

    def quantiles_if_moved(self, share: float, moves: Sequence[Floats]) -> list[float]:
        """Estimate a quantile as `quantile` does, if the value of all bins up to an edge were larger.

        moves: in how many ways, and for each by how much larger, at the upper edge of each of the
            finest bins but the last one.
        """
        excess = self._excess(share)
        quantiles = []
        for moved in moves:
            fitted = fit(excess.values + moved, excess.errors, *self._ends(share))
            quantiles.append(self._crossing(self._with_ends(fitted, share)))
        return quantiles

    def _excess(self, share: float) -> Linear:
        """Estimate what is below each edge between two bins, less a share of all (bins - 1)."""
        functions: Floats = below_each_edge(self.bins) - share
        return self.linear(functions)

    def _ends(self, share: float) -> tuple[float, float]:
        """Return what is below the first edge and below the last one, less a share of all."""
        return -share * self.total, (1 - share) * self.total

    def _with_ends(self, curve: Floats, share: float) -> Floats:
        """Add what a curve at the edges between bins is at the first and the last edge (bins + 1)."""
        first, last = self._ends(share)
        return np.array([first, *curve, last])

    def _crossing(self, curve: Floats) -> float:
        """Return where a curve passes 0, interpolated within a bin. curve: at all edges."""
        first = _crossed_bin(curve)
        both = slice(first, first + 2)  # edges of the bin
        return float(np.interp(0, curve[both], self.edges[both]))

    def _curve(self, share: float) -> RisingCurve:
        """Fit the curve of which `share` is a quantile, at the edges between bins (bins - 1)."""
        if self._whole is None:
            return self._fit(share)
        # The whole has no error: the same curve, moved, is that of every share.
        return self._curve_of_no_share.less(share * self._whole)

    @cached_property
    def _curve_of_no_share(self) -> RisingCurve:
        return self._fit(0)

    def _fit(self, share: float) -> RisingCurve:
        """Fit a curve that never falls to the values of all bins up to each inner edge.

        share: this part of the total is subtracted from each of them.
        """
        excess = self._excess(share)
        return RisingCurve.of(excess.values, excess.covariance, *self._ends(share))


def below_each_edge(bins: int) -> Floats:
    """Return the functions that add up all bins below each edge between two (bins - 1 x bins)."""
    functions: Floats = np.tril(np.ones((bins - 1, bins)))
    return functions


def _first(bins: range, is_possible: Callable[[int], bool], otherwise: int) -> int:
    """Return the first of these bins that is possible, of which all later ones are possible, too.

    bins: those that may be possible, from the outermost one. otherwise: what to return if none is.
    """
    if not bins or not is_possible(bins[-1]):
        return otherwise
    return bins[bisect_left(bins, True, hi=len(bins) - 1, key=is_possible)]


def _crossed_bin(curve: Floats) -> int:
    """Return in which bin a curve passes from below 0 to 0 or more.

    curve: its values at the edges of the bins (bins + 1), which never fall.
    """
    first = int(np.searchsorted(curve[1:], 0))  # the first bin with 0 or more at its upper edge
    return min(first, len(curve) - 2)
