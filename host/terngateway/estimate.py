"""A quick estimate of the largest epsilon of a report that keeps a bound.

The search for this epsilon (`planning.largest_epsilon`) begins here, and proves what it returns. So a
wrong estimate makes the search slower, and nothing else.

A device makes some reports. Each is by randomised response with the local epsilon e0, and mixed with
those of other devices, n in all. For one report, the delta of shuffled reports is known
(`shuffling.delta_at`). Many reports together disclose about as much as normal noise. By the
variable X of that module, whose variance at g = 1 is v = 2 (e - 1)**2 / (e + 1) for e = exp(e0), a
report has the delta sqrt(v / (2 pi n)) at epsilon 0. Normal noise has this delta for
rho = v / (2 n) = (e - 1)**2 / ((e + 1) n), and rho adds up.
"""

import math
from collections.abc import Callable

from tern.fixed import MAX_EPSILON
from ternhost.privacy import gaussian_curve, losses, shuffling
from ternhost.privacy.base import MICRO
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.laws import randomised_response

_LARGEST = MAX_EPSILON / MICRO  # no report may cost more
# From so many reports on, the estimate by normal noise is good enough to begin with.
_MANY = 20
_CLOSE = 1.002  # the ratio of two numbers at which a bisection ends
# The grids on which epsilons are proved make the proved ones a little smaller.
_LOST_BY_GRIDS = 0.9985
# Fewer reports are less like normal noise, which is taken for an upper limit, but for this factor.
_WIDER = 1.1
_FAR = 1.5  # the upper limit is most often less than this factor above the result
_CELLS = 24  # of the coarse grid of privacy losses on which they are composed
_TAIL = 1e-4  # the share of delta that losses beyond that grid take
# The factor by which the coarse grid makes the epsilon of all reports larger.
_LOST_BY_COARSE_GRID = 1.0055


def largest_epsilon(epsilon: float, delta: float, mixed: int, times: int) -> float:
    """Return about the largest local epsilon of a report that keeps a bound.

    epsilon, delta: the bound of all reports of a device together, toward a reader of the sums.
    mixed: how many reports are added up each time. times: how many reports each device makes.
    """
    # The local epsilons of all reports may always add up to the bound.
    share = epsilon / times
    if mixed == 0 or share >= _LARGEST:
        return share
    if times == 1:
        return max(share, _for_one_report(epsilon, delta, mixed))
    estimate = max(share, _LOST_BY_GRIDS * _by_normal_noise(epsilon, delta, mixed, times))
    if times >= _MANY:
        return estimate
    high = min(_WIDER * estimate, _LARGEST)
    return _by_coarse_grid(epsilon, delta, mixed, times, low=share, high=high)


def _for_one_report(epsilon: float, delta: float, mixed: int) -> float:
    """Return the largest local epsilon of which one report keeps a bound."""

    def keeps_bound(local: float) -> bool:
        """Whether a report with this local epsilon keeps the bound."""
        laws = randomised_response(local)
        return shuffling.delta_at(laws, local, epsilon, mixed) <= delta

    return _LOST_BY_GRIDS * _largest(keeps_bound, 1 / MICRO, _LARGEST)


def _by_normal_noise(epsilon: float, delta: float, mixed: int, times: int) -> float:
    """Return the local epsilon of reports that disclose as much as normal noise within a bound."""

    def keeps_bound(micro_rho: float) -> bool:
        """Whether normal noise with this rho keeps the bound."""
        return gaussian_curve.delta_of(int(micro_rho), epsilon) <= delta

    rho = _largest(keeps_bound, 1, 1000 * MICRO) / MICRO
    # This solves times (e - 1)**2 / ((e + 1) n) = rho.
    c = rho * mixed / times
    e = (2 + c + math.sqrt(c * c + 8 * c)) / 2
    return math.log(e)


def _by_coarse_grid(
    epsilon: float, delta: float, mixed: int, times: int, low: float, high: float
) -> float:
    """Return the local epsilon of reports that keep a bound if composed on a coarse grid.

    low, high: numbers between which the result is.
    """

    def keeps_bound(local: float) -> bool:
        """Whether reports with this local epsilon keep the bound."""
        report = ReportKind(int(local * MICRO)).among(mixed)
        tail = _TAIL * delta / times
        largest_loss = report.largest(tail)
        if not largest_loss:
            return True
        distribution = report.losses(largest_loss / _CELLS, tail)
        return losses.epsilon({distribution: times}, delta) <= _LOST_BY_COARSE_GRID * epsilon

    # Most often it is not far below the upper limit.
    likely_low = max(low, high / _FAR)
    if keeps_bound(likely_low):
        low = likely_low
    return _largest(keeps_bound, low, high)


def _largest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return about the largest number between two at which a condition holds, by bisection.

    holds: the condition. If it is true at a number, it is true at all smaller ones.
    """
    while high > _CLOSE * low:
        middle = math.sqrt(low * high)
        if holds(middle):
            low = middle
        else:
            high = middle
    return low
