"""Reports about whole gradients: their design for a class of devices, and their radius.

Specification: shared_specs/cards.md, projection.
"""

import math
from dataclasses import replace
from typing import NamedTuple

from tern import card as cards
from tern.fixed import MAX_EPSILON
from ternhost.learn.designs import DeviceClass, ReportDesign
from ternhost.privacy import projection, sums
from ternhost.privacy.base import MICRO

NAME = "projection"
# Reports of a smaller epsilon than this (in millionths) need not be tried: half the epsilon makes
# their variance more than twice as large, so that fewer reports are better.
_LEAST_SPLIT = 3 * MICRO
# The radius as a share of the length of a typical gradient. Half of the best one costs little,
# twice that much.
_SHORT = 0.6


def design(device_class: DeviceClass, values: int) -> ReportDesign:
    """Design a report that is about a whole vector, such as a gradient, at once.

    Devices clip the vector to the norm 1, and report one symbol, which stands for a random
    direction near it. The design's `variance` is that of each value of the mean vector, for one
    report.

    device_class: the devices, which share an epsilon.
    values: the number of values in the vector.
    Raises UsageError.
    """
    projected = projection.design(device_class.epsilon, values, 1.0)
    return ReportDesign(
        card=cards.decode(projected.card),
        k=1,  # one symbol stands for a whole vector
        variance=projected.variance,
        mechanism=NAME,
        epsilon=device_class.epsilon,
        share=device_class.share,
        what="vector",
    )


def with_radius(report: ReportDesign, values: int, radius: float) -> tuple[ReportDesign, int]:
    """Return the same design for vectors that devices clip to another norm, the radius.

    values: the number of values in the vector.
    Also returns the range r of the question: devices multiply values by 2**r.
    """
    projected = projection.design(report.card.epsilon, values, radius)
    return replace(report, card=cards.decode(projected.card)), projected.range


def radius(size: float, values: int) -> float:
    """Return the norm to which devices should clip gradients.

    It is a share of a typical gradient's norm. If the sizes of coordinates are exponential with
    mean m, their mean square is 2 m**2, and the norm of d of them is about m sqrt(2 d).

    size: m, the mean absolute value of a coordinate.
    values: d, the number of coordinates.
    """
    return _SHORT * size * math.sqrt(2 * values)


class Split(NamedTuple):
    """Equal reports among which a device divides the budget of its life."""

    reports: int
    epsilon: int  # of each report, in millionths
    variance: float  # of each value of their mean vector, if vectors are clipped to the norm 1


def split(budget: int, values: int, reports: int, in_rho: bool = False) -> Split:
    """Return what so many equal reports tell, for which a device spends its whole budget.

    The mean of k reports has the variance of one of them, divided by k.

    budget: in millionths, of epsilon, or of rho for a ledger that adds up rho.
    values: the number of values in the vector.
    in_rho: what the budget is in. A ledger in rho prices a report of epsilon at about
        epsilon**2 / 2 (`sums.rho_of_pure`).
    Raises UsageError if the epsilon of a report is too little for a projection.
    """
    share = budget // reports
    if in_rho:
        epsilon = sums.pure_of(share)
    else:
        epsilon = min(share, MAX_EPSILON)
    variance = projection.design(epsilon, values, 1.0).variance / reports
    return Split(reports, epsilon, variance)


def best_split(budget: int, values: int, in_rho: bool = False) -> Split:
    """Return the number of equal reports whose mean has the least variance, for a device's budget.

    A ledger in epsilon favours one report up to an epsilon of about 9. Beyond it, a larger epsilon
    makes a single symbol hardly more precise, and two reports tell more; from about 16 on, three
    do. A ledger in rho favours one report up to a rho of about 9.

    Parameters as of `split`. Raises UsageError if the budget is too little for one report.
    """
    best = candidate = split(budget, values, 1, in_rho)
    while candidate.epsilon > _LEAST_SPLIT:
        candidate = split(budget, values, candidate.reports + 1, in_rho)
        if candidate.variance < best.variance:
            best = candidate
    return best


def part_in_words(mechanism: str, k: int) -> str:
    """Say how many values a report of a mechanism is about, for people: "all", or "3 of"."""
    if mechanism == NAME:
        return "all"
    return f"{k} of"
