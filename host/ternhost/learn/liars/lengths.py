"""How far lies move vectors, such as gradients: the l2 norm of the difference."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tern.card import Card
from ternhost.count.rounds import CohortCounts
from ternhost.learn.collecting.estimate import values_of_sums
from ternhost.learn.liars.bounds import (
    SHARE,
    Kind,
    liars_among,
    most_raised,
    outward,
    range_of,
    weight_of,
)
from ternhost.learn.liars.means_and_shares import kinds_of_means
from ternhost.learn.liars.moves import Moves, largest_sum
from ternhost.learn.liars.totals import range_of_sums
from ternhost.privacy import projection, sums


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
    lowest, highest = range_of(kinds)
    heaviest = np.zeros(estimated.shape)
    reach = np.zeros(estimated.shape)
    for kind in kinds:
        has_reports = np.asarray(kind.reports) > 0
        farthest = np.maximum(kind.high - estimated, estimated - kind.low)
        reach = np.where(has_reports, np.maximum(reach, kind.weight * farthest), reach)
        heaviest = np.where(has_reports, np.maximum(heaviest, kind.weight), heaviest)
    moves = Moves(
        lies=np.minimum(liars, reports),
        weight=weight_of(kinds, estimated),
        reach=reach,
        heaviest=heaviest,
        most=np.maximum(highest - estimated, estimated - lowest),
    )
    squared_length = largest_sum(moves.per_lie(power=2), moves.lies, liars * k)
    return outward(math.sqrt(squared_length), highest - lowest)


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
    return length(kinds_of_means(cohorts, tau), mean, k, share)


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
    return float(most_raised(kinds, np.array([-norm_of_mean]), liars)[0])


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
