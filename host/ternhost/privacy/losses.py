"""Privacy losses of many reports together, composed exactly and rounded upwards
(docs/guides/accounting.md).

A report's *profile* is H(g), an upper bound of sum over y of max(0, P(y) - g Q(y)) for the laws P
and Q of the report at any two inputs, at g = e**epsilon: the least delta there. Points of H, joined
by straight lines, are the profile of a pair of laws whose losses ln P/Q lie on a grid, and which
tells at least as much (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi, "Connect the dots", PoPETs
2022). What one pair bounds, report by report, the product of the pairs bounds for all reports
together, even if later questions depend on earlier answers (Zhu, Dong and Wang, "Optimal accounting
of differential privacy via characteristic function", AISTATS 2022, Theorem 10).

The masses are computed exactly, from a card's integers. A Fourier transform adds losses up, tilted
so that its errors are relative to delta; what they can be, and what lies beyond its ends, is added.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LOST = 46.0  # e**-46 of a tilted law may lie beyond a transform's ends; it is added
_ULP = 2.0**-52
_CLOSE = 1e-6  # the bisection for an epsilon ends where its ends differ by this share
LESS = 1e-14  # the share of `at` by which floats may be wrong, for losses up to `MOST`
MOST = 40.0  # of a loss
_MOST_LOG = 300.0  # of a probability that is above 1 in any case
_STEEPEST = 700.0  # of a tilt over the largest loss


# Sums of draws


@dataclass(frozen=True)
class Draws:
    """`times` independent integers, each `at[j]` with probability `masses[j]` (their sum may be
    below 1).
    """

    at: npt.NDArray[np.int64]
    masses: Floats
    times: int

    def log_moment(self, tilt: float) -> float:
        """ln E[exp(tilt X)] of one."""
        top = float(self.at[-1] if tilt > 0 else self.at[0])
        return float(np.log((self.masses * np.exp(tilt * (self.at - top))).sum()) + tilt * top)

    def tilted(self, tilt: float) -> Floats:
        """The law of one, times exp(tilt X), made to add up to 1."""
        raised = self.masses * np.exp(tilt * self.at - self.log_moment(tilt))
        law: Floats = raised / raised.sum()
        return law

    def mean(self, tilt: float) -> float:
        """The mean of one under its tilted law."""
        return float((self.tilted(tilt) * self.at).sum())


@dataclass(frozen=True)
class TiltedSum:
    """The law of a sum of draws: of `sums[i]`, exp(log_scale - tilt sums[i]) law[i].

    `wrong` bounds the Euclidean length of the transform's errors in law, `share` the share by which
    rounded masses and tilts may raise anything, and e**-46 of the tilted law is not in it.
    """

    sums: npt.NDArray[np.int64]
    law: Floats
    tilt: float
    log_scale: float
    wrong: float
    share: float

    def above(self, threshold: float, gain: Callable[[Floats], Floats]) -> float:
        """At least the sum of gain(s) over the law of the sums s above a threshold, 0 <= gain(s)."""
        first = int(np.searchsorted(self.sums, threshold, side="right"))
        sums = self.sums[first:].astype(np.float64)
        weights = gain(sums) * np.exp(np.minimum(self.log_scale - self.tilt * sums, _MOST_LOG))
        wrong = self.wrong * math.sqrt(float((weights * weights).sum()))
        return (float((weights * self.law[first:]).sum()) + wrong) * (1 + 1e-9 + self.share)

    def lost(self, threshold: float) -> float:
        """At most what lies beyond the ends, of the law of sums above a threshold that is not below
        `sums`.
        """
        return math.exp(min(0.0, self.log_scale - self.tilt * threshold - LOST))


def add_up(draws: Sequence[Draws], tilt: float) -> TiltedSum:
    """The law of the sum of all draws, about the mean that this tilt gives it."""
    from scipy import fft  # slow to load

    laws = [each.tilted(tilt) for each in draws]
    means = [float((law * each.at).sum()) for law, each in zip(laws, draws, strict=True)]
    spreads = [each.at - mean for each, mean in zip(draws, means, strict=True)]
    variance = sum(
        each.times * float((law * spread * spread).sum())
        for each, law, spread in zip(draws, laws, spreads, strict=True)
    )
    sigma, widest = math.sqrt(variance), max(float(np.abs(spread).max()) for spread in spreads)
    # Bernstein's inequality: less than e**-LOST of the tilted sum lies further out than this
    slack = LOST * widest / (3 * sigma) if sigma else 0.0
    reach = (slack + math.sqrt(slack * slack + 2 * LOST)) * sigma
    centre = sum(each.times * mean for each, mean in zip(draws, means, strict=True))
    lowest = sum(each.times * int(each.at[0]) for each in draws)
    highest = sum(each.times * int(each.at[-1]) for each in draws)
    low, high = max(lowest, math.floor(centre - reach)), min(highest, math.ceil(centre + reach))
    size = fft.next_fast_len(high - low + 1, real=True)
    spectrum = np.ones(size // 2 + 1, np.complex128)
    for each, law in zip(draws, laws, strict=True):
        one = np.zeros(size)
        np.add.at(one, (each.at - each.at[0]) % size, law)
        spectrum *= fft.rfft(one) ** each.times
    law = np.abs(np.roll(fft.irfft(spectrum, size), (lowest - low) % size))[: high - low + 1]
    # A transform is wrong by 8 log2(size) ulp of its length at most (Higham, Accuracy and
    # Stability, 2002, 24.1), and a power by as many times that; exponents of tilts round by their
    # size.
    times = sum(each.times for each in draws)
    wrong = 8 * _ULP * math.log2(2 * size) * (1 + times) * math.sqrt(float((law * law).sum()))
    steepness = sum(each.times * (1 + abs(tilt) * float(np.abs(each.at).max())) for each in draws)
    log_scale = sum(each.times * each.log_moment(tilt) for each in draws)
    return TiltedSum(np.arange(low, high + 1), law, tilt, log_scale, wrong, 8 * _ULP * steepness)


# Losses of reports


@dataclass(frozen=True)
class LossDistribution:
    """The law of the loss of one report, under P: loss `first + j` steps with probability
    masses[j]; with probability `infinite` the report tells everything.
    """

    step: float
    first: int
    masses: tuple[float, ...]
    infinite: float = 0.0

    @classmethod
    def of_profile(cls, points: Sequence[tuple[int, Fraction]], step: float) -> Self:
        """Of a profile's upper bounds at ascending (i, H): H(exp(i step)).

        At the last point H counts as infinite.
        """
        corners = _hull([(Fraction(0), Fraction(1), 0), *((at(i, step), h, i) for i, h in points)])
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(corners)]
        slopes.append(Fraction(0))  # beyond the last point: what is left there is infinite
        found = {
            i: float(g * (after - before))
            for (g, _, i), (before, after) in zip(corners[1:], pairwise(slopes), strict=True)
        }
        first, last = min(found), max(found)
        masses = tuple(found.get(i, 0.0) for i in range(first, last + 1))
        return cls(step, first, masses, float(corners[-1][1]))

    def draws(self, times: int) -> Draws:
        masses = np.array(self.masses)
        at = self.first + np.flatnonzero(masses > 0)
        return Draws(at, masses[masses > 0], times)


@lru_cache(maxsize=1 << 16)
def at(i: int, step: float) -> Fraction:
    """exp(i step), or a little less, so that a loss of it counts as i steps, which is more."""
    x = i * step
    if abs(x) < 0.5:  # what matters of a small loss is what it has beyond 1
        more = math.expm1(x)
        return 1 + Fraction(more - abs(more) * LESS)
    return Fraction(math.exp(x) * (1 - LESS))


def least(low: float, high: float, share: float, holds: Callable[[float], bool]) -> float:
    """A number at which a condition holds that holds at `high` and from some number on: by less
    than this share of itself above one at which it does not hold, or above `low`.
    """
    while high - low > share * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


Corner = tuple[Fraction, Fraction, int]


def _hull(points: Sequence[Corner]) -> list[Corner]:
    """The lower convex hull of upper bounds of a convex function: upper bounds, too."""
    hull: list[Corner] = []
    for point in points:
        while len(hull) > 1 and _turns_down(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _turns_down(a: Corner, b: Corner, c: Corner) -> bool:
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])


def both_sides(points: Sequence[tuple[int, Fraction]], step: float) -> list[tuple[int, Fraction]]:
    """A profile for two laws in either order, from its points at i >= 0: H(1/g) = 1 - 1/g + H(g)/g."""
    below = [(-i, 1 - (1 - h) * at(-i, step)) for i, h in points if i]
    return [*reversed(below), *points]


def epsilon(reports: Mapping[LossDistribution, int], delta: float) -> float:
    """The least epsilon that is proved for so many reports of each kind together, at `delta`; inf
    if none is. All have the same step.
    """
    asked = {losses: times for losses, times in reports.items() if times}
    if not asked:
        return 0.0
    (step,) = {losses.step for losses in asked}
    left = delta - sum(times * losses.infinite for losses, times in asked.items())
    if left <= 0:
        return math.inf
    draws = [losses.draws(times) for losses, times in asked.items()]
    most = sum(int(each.at[-1]) * each.times for each in draws)
    if most <= 0:
        return 0.0
    total = add_up(draws, _tilt(draws, left))

    def proved(threshold: float) -> bool:
        found = total.above(threshold, lambda sums: -np.expm1((threshold - sums) * step))
        return found + total.lost(threshold) <= left

    low = max(0.0, float(total.sums[0]))
    return step * (low if proved(low) else least(low, float(most), _CLOSE, proved))


def _tilt(draws: Sequence[Draws], delta: float) -> float:
    """The tilt whose mean has a Chernoff bound of delta; where the largest sum is likelier than
    that, a lesser one.
    """
    likeliest = max(
        math.log(delta), sum(each.times * math.log(each.masses[-1]) for each in draws) / 2
    )

    def excess(tilt: float) -> float:
        return (
            sum(each.times * (each.log_moment(tilt) - tilt * each.mean(tilt)) for each in draws)
            - likeliest
        )

    if excess(0.0) <= 0:  # a delta of nearly 1
        return 0.0
    steepest = _STEEPEST / max(float(np.abs(each.at).max()) for each in draws)
    return (
        steepest
        if excess(steepest) >= 0
        else least(0.0, steepest, 1e-3, lambda tilt: excess(tilt) <= 0)
    )
