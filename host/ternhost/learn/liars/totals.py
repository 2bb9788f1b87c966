"""How far lies move sums over all devices, and quotients of two of them."""

import math
from fractions import Fraction
from typing import NamedTuple

from tern.sums import Sum
from ternhost.learn.collecting.estimate import values_of_sums
from ternhost.learn.liars.bounds import SHARE, liars_among, outward


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
    return outward(moved, width=0.0)


def _honest_range(total: Total, reports: int, liars: int) -> Range:
    """Return in which range the total of the honest reports alone is."""
    low, high = total.of_report
    honest = reports - liars
    return Range(
        low=max(total.value - liars * high, honest * low),
        high=min(total.value - liars * low, honest * high),
    )
