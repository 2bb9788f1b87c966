"""Privacy losses of many reports together, composed exactly and rounded upwards.

docs/guides/accounting.md has the theorems.

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
    """`times` independent integers, each `at[j]` with probability `masses[j]`.

    at: ascending. masses: their sum may be below 1.
    """

    at: npt.NDArray[np.int64]
    masses: Floats
    times: int

    @property
    def largest_size(self) -> float:
        """The largest absolute value of one."""
        return float(np.abs(self.at).max())

    def log_moment(self, tilt: float) -> float:
        """ln E[exp(tilt X)] of one."""
        place = -1 if tilt > 0 else 0
        top = float(self.at[place])
        scaled = self.masses * np.exp(tilt * (self.at - top))
        return float(np.log(scaled.sum()) + tilt * top)

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

    wrong: bounds the Euclidean length of the transform's errors in `law`. share: by which rounded
    masses and tilts may raise anything. e**-LOST of the tilted law is not in it.
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
        log_weights = np.minimum(self.log_scale - self.tilt * sums, _MOST_LOG)
        weights = gain(sums) * np.exp(log_weights)
        wrong = self.wrong * math.sqrt(float((weights * weights).sum()))
        return (float((weights * self.law[first:]).sum()) + wrong) * (1 + 1e-9 + self.share)

    def lost(self, threshold: float) -> float:
        """At most what lies beyond the ends, of the law of sums above a threshold.

        threshold: not below `sums`.
        """
        return math.exp(min(0.0, self.log_scale - self.tilt * threshold - LOST))


@dataclass(frozen=True)
class _TiltedDraws:
    """Draws under their tilted law, with its mean and the distances of `at` from it."""

    draws: Draws
    law: Floats
    mean: float
    distances: Floats

    @classmethod
    def of(cls, draws: Draws, tilt: float) -> Self:
        """The draws under the law of this tilt."""
        law = draws.tilted(tilt)
        mean = float((law * draws.at).sum())
        distances: Floats = draws.at.astype(np.float64) - mean
        return cls(draws, law, mean, distances)

    @property
    def variance(self) -> float:
        """Of the sum of all these draws."""
        variance_of_one = float((self.law * self.distances * self.distances).sum())
        return self.draws.times * variance_of_one


def add_up(draws: Sequence[Draws], tilt: float) -> TiltedSum:
    """The law of the sum of all draws, about the mean that this tilt gives it."""
    tilted = [_TiltedDraws.of(each, tilt) for each in draws]
    low, high = _range_of_sum(tilted)
    law = _law_of_sum(tilted, low, high)

    # A transform is wrong by 8 log2(size) ulp of its length at most (Higham, Accuracy and
    # Stability, 2002, 24.1), and a power by as many times that; exponents of tilts round by their
    # size.
    times = sum(each.times for each in draws)
    size = _transform_size(low, high)
    length = math.sqrt(float((law * law).sum()))
    wrong = 8 * _ULP * math.log2(2 * size) * (1 + times) * length
    steepness = sum(each.times * (1 + abs(tilt) * each.largest_size) for each in draws)
    log_scale = sum(each.times * each.log_moment(tilt) for each in draws)
    return TiltedSum(
        sums=np.arange(low, high + 1),
        law=law,
        tilt=tilt,
        log_scale=log_scale,
        wrong=wrong,
        share=8 * _ULP * steepness,
    )


def _range_of_sum(tilted: Sequence[_TiltedDraws]) -> tuple[int, int]:
    """Sums between which all but e**-LOST of the tilted law lies, by Bernstein's inequality."""
    sigma = math.sqrt(sum(each.variance for each in tilted))
    widest = max(float(np.abs(each.distances).max()) for each in tilted)
    slack = LOST * widest / (3 * sigma) if sigma else 0.0
    reach = (slack + math.sqrt(slack * slack + 2 * LOST)) * sigma
    centre = sum(each.draws.times * each.mean for each in tilted)
    lowest = sum(each.draws.times * int(each.draws.at[0]) for each in tilted)
    highest = sum(each.draws.times * int(each.draws.at[-1]) for each in tilted)
    return max(lowest, math.floor(centre - reach)), min(highest, math.ceil(centre + reach))


def _transform_size(low: int, high: int) -> int:
    from scipy import fft  # slow to load

    return int(fft.next_fast_len(high - low + 1, real=True))


def _law_of_sum(tilted: Sequence[_TiltedDraws], low: int, high: int) -> Floats:
    """The probabilities of the sums from low to high, by a Fourier transform of that size."""
    from scipy import fft  # slow to load

    size = _transform_size(low, high)
    spectrum = np.ones(size // 2 + 1, np.complex128)
    lowest = 0
    for each in tilted:
        first = int(each.draws.at[0])
        law_of_one = np.zeros(size)
        np.add.at(law_of_one, (each.draws.at - first) % size, each.law)
        spectrum *= fft.rfft(law_of_one) ** each.draws.times
        lowest += each.draws.times * first
    law: Floats = np.roll(fft.irfft(spectrum, size), (lowest - low) % size)
    return np.abs(law)[: high - low + 1]


# Losses of reports


@dataclass(frozen=True)
class LossDistribution:
    """The law of the loss of one report, under P.

    A loss of `first + j` steps has probability masses[j]; with probability `infinite` the report
    tells everything.
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
        corners = [(Fraction(0), Fraction(1), 0)]
        corners += [(at(i, step), bound, i) for i, bound in points]
        hull = _hull(corners)
        slopes = [(right[1] - left[1]) / (right[0] - left[0]) for left, right in pairwise(hull)]
        slopes.append(Fraction(0))  # beyond the last point: what is left there is infinite

        mass_at: dict[int, float] = {}
        for (g, _, i), (before, after) in zip(hull[1:], pairwise(slopes), strict=True):
            mass_at[i] = float(g * (after - before))
        first, last = min(mass_at), max(mass_at)
        masses = tuple(mass_at.get(i, 0.0) for i in range(first, last + 1))
        return cls(step, first, masses, float(hull[-1][1]))

    def draws(self, times: int) -> Draws:
        """So many independent losses, in steps; the infinite ones are left out."""
        masses = np.array(self.masses)
        at = self.first + np.flatnonzero(masses > 0)
        return Draws(at, masses[masses > 0], times)


@lru_cache(maxsize=1 << 16)
def at(i: int, step: float) -> Fraction:
    """exp(i step), or a little less, so that a loss of it counts as i steps, which is more."""
    loss = i * step
    if abs(loss) < 0.5:  # what matters of a small loss is what it has beyond 1
        more = math.expm1(loss)
        return 1 + Fraction(more - abs(more) * LESS)
    return Fraction(math.exp(loss) * (1 - LESS))


def least(low: float, high: float, share: float, holds: Callable[[float], bool]) -> float:
    """A number at which a condition holds, by less than this share of itself above the least one.

    The condition holds at `high` and from some number on. If it holds everywhere, the result is
    just above `low`.
    """
    while high - low > share * high:
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


Corner = tuple[Fraction, Fraction, int]  # g, the bound of H(g), and the step i of which g is `at`


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
    below = [(-i, 1 - (1 - bound) * at(-i, step)) for i, bound in points if i]
    return [*reversed(below), *points]


def epsilon(reports: Mapping[LossDistribution, int], delta: float) -> float:
    """The least epsilon that is proved at `delta` for so many reports of each kind together.

    All have the same step. Infinity if nothing is proved.
    """
    made = {losses: times for losses, times in reports.items() if times}
    if not made:
        return 0.0
    (step,) = {losses.step for losses in made}
    delta_left = delta - sum(times * losses.infinite for losses, times in made.items())
    if delta_left <= 0:
        return math.inf
    draws = [losses.draws(times) for losses, times in made.items()]
    largest_sum = sum(int(each.at[-1]) * each.times for each in draws)
    if largest_sum <= 0:
        return 0.0

    total = add_up(draws, _tilt(draws, delta_left))

    def is_proved(threshold: float) -> bool:
        excess = total.above(threshold, lambda sums: -np.expm1((threshold - sums) * step))
        return excess + total.lost(threshold) <= delta_left

    low = max(0.0, float(total.sums[0]))
    if is_proved(low):
        return step * low
    return step * least(low, float(largest_sum), _CLOSE, is_proved)


def _tilt(draws: Sequence[Draws], delta: float) -> float:
    """The tilt whose mean has a Chernoff bound of delta.

    Where the largest sum is likelier than that, a lesser tilt.
    """
    log_largest = sum(each.times * math.log(each.masses[-1]) for each in draws)
    log_bound = max(math.log(delta), log_largest / 2)

    def excess(tilt: float) -> float:
        log_chernoff = sum(
            each.times * (each.log_moment(tilt) - tilt * each.mean(tilt)) for each in draws
        )
        return log_chernoff - log_bound

    if excess(0.0) <= 0:  # a delta of nearly 1
        return 0.0
    steepest = _STEEPEST / max(each.largest_size for each in draws)
    if excess(steepest) >= 0:
        return steepest
    return least(0.0, steepest, 1e-3, lambda tilt: excess(tilt) <= 0)
