"""How far lies move weighted sums of the shares of bins at several levels."""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from tern.card import Card
from ternhost.learn.collecting.estimate import frequency_law
from ternhost.learn.liars.bounds import SHARE, Bound, Floats, liars_among, outward
from ternhost.learn.liars.moves import Moves, largest_sum


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
        moves = Moves(
            lies=np.minimum(liars, reports),
            weight=reports.astype(np.float64),
            reach=np.maximum(reach, 0.0),
            heaviest=np.ones(len(levels)),
            most=np.maximum(most, 0.0),
        )
        raised = largest_sum(moves.per_lie(power=1), moves.lies, liars)
        moved[i] = outward(raised, width=1.0)
    return moved


def _to_be_moved_with_levels(levels: Sequence[_LevelValues], liars: int) -> Floats:
    """Return the most by which lies will raise each result above that of honest reports (results)."""
    moved = np.zeros(levels[0].mean.shape)
    reports = np.array([level.reports for level in levels])
    for i in range(len(moved)):
        reach = np.array([level.high[i] - level.mean[i] for level in levels])
        raised = largest_sum(reach / reports, reports, liars)
        moved[i] = outward(raised, width=1.0)
    return moved
