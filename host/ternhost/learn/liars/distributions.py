"""How far lies move the distribution of a number over bins, and its quantiles."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ternhost.learn.distributions.bin_tree import Distribution, ReportedLevel, below_each_edge
from ternhost.learn.liars.bounds import SHARE, Bound, Floats, liars_among
from ternhost.learn.liars.levels import LevelReports, levels_after
from ternhost.learn.liars.totals import Range, Total, quotient


def cumulative(distribution: Distribution, share: Fraction | float = SHARE) -> Bound:
    """Bound how far lies have moved the cumulative shares of a tree of bins, as `levels_after` does.

    There is one for the upper edge of each of the finest bins, but for the last one, which is 1.

    distribution: whose levels are all of reports about single bins.
    """
    functions = below_each_edge(distribution.bins)
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
    functions = below_each_edge(distribution.bins) - quantile
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
    functions = below_each_edge(distribution.bins)
    (of_all,) = reach_of_sums(distribution, np.ones((1, distribution.bins)), of_reports)
    all_records = Total(distribution.total, of_all)
    bounds = []
    reach = reach_of_sums(distribution, functions, of_reports)
    for value, of_edge in zip((functions @ distribution.values).tolist(), reach, strict=True):
        bounds.append(quotient(Total(value, of_edge), all_records, reports, share))
    return np.array(bounds)


def quantile_range(distribution: Distribution, quantile: float, bound: Bound) -> Range:
    """Return between which values lies can have moved a quantile.

    It is the quantile of the distribution whose cumulative shares are moved up, or down, by their
    bound: the curve that is fitted to them rises with each of them. All values are possible if no
    honest report is left, or if the distribution may be empty.

    bound: as of `cumulative`, or of `cumulative_of_sums`.
    """
    if distribution.may_be_empty or np.isnan(bound.most).any():
        return Range(float(distribution.edges[0]), float(distribution.edges[-1]))
    # What the honest reports alone give is at most `bound.up` lower, and at most `bound.down` higher.
    low, high = distribution.quantiles_if_moved(quantile, [bound.down, -bound.up])
    return Range(low, high)
