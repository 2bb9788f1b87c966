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
from typing import NamedTuple, Self

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
        """Return ln E[exp(tilt X)] of one draw X."""
        # exp(tilt * at) is divided by its largest value, so that it does not overflow.
        place_of_largest = -1 if tilt > 0 else 0
        largest = float(self.at[place_of_largest])
        scaled = self.masses * np.exp(tilt * (self.at - largest))
        return float(np.log(scaled.sum()) + tilt * largest)

    def tilted(self, tilt: float) -> Floats:
        """Return the tilted law of one draw X: its masses times exp(tilt X), normalised to 1."""
        raised = self.masses * np.exp(tilt * self.at - self.log_moment(tilt))
        law: Floats = raised / raised.sum()
        return law

    def mean(self, tilt: float) -> float:
        """The mean of one under its tilted law."""
        return float((self.tilted(tilt) * self.at).sum())


@dataclass(frozen=True)
class TiltedSum:
    """The law of a sum of draws: of `sums[i]`, exp(log_scale - tilt sums[i]) law[i].

    law_error: bounds the Euclidean length of the transform's errors in `law`. relative_error: by
    which rounded masses and tilts may raise anything. e**-LOST of the tilted law is not in it.
    """

    sums: npt.NDArray[np.int64]
    law: Floats
    tilt: float
    log_scale: float
    law_error: float
    relative_error: float

    def above(self, threshold: float, gain: Callable[[Floats], Floats]) -> float:
        """Return an upper bound of E[gain(s)] over the sums s above a threshold.

        gain: a function of an array of sums, nowhere negative. What lies beyond the ends is not
        included: see `lost`.
        """
        first = int(np.searchsorted(self.sums, threshold, side="right"))
        sums = self.sums[first:].astype(np.float64)
        # The law was multiplied by exp(tilt s); this takes the tilt back.
        log_weights = np.minimum(self.log_scale - self.tilt * sums, _MOST_LOG)
        weights = gain(sums) * np.exp(log_weights)
        # Cauchy and Schwarz bound the effect of the transform's errors.
        error = self.law_error * math.sqrt(float((weights * weights).sum()))
        expectation = float((weights * self.law[first:]).sum())
        return (expectation + error) * (1 + 1e-9 + self.relative_error)

    def lost(self, threshold: float) -> float:
        """Return an upper bound of the probability beyond the ends, of sums above a threshold.

        threshold: not below the least of `sums`.
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
    """Return the law of the sum of all draws, computed under a tilt.

    The tilt moves the mean to where the law must be exact. draws: all independent. The result says
    how wrong it may be.
    """
    tilted = [_TiltedDraws.of(kind, tilt) for kind in draws]
    low, high = _range_of_sum(tilted)
    law = _law_of_sum(tilted, low, high)

    # A transform is wrong by 8 log2(size) ulp of its length at most (Higham, Accuracy and
    # Stability, 2002, 24.1), and a power by as many times that.
    times = sum(kind.times for kind in draws)
    size = _transform_size(low, high)
    length = math.sqrt(float((law * law).sum()))
    law_error = 8 * _ULP * math.log2(2 * size) * (1 + times) * length
    # The exponent of a tilt rounds by its size.
    steepness = sum(kind.times * (1 + abs(tilt) * kind.largest_size) for kind in draws)
    log_scale = sum(kind.times * kind.log_moment(tilt) for kind in draws)
    return TiltedSum(
        sums=np.arange(low, high + 1),
        law=law,
        tilt=tilt,
        log_scale=log_scale,
        law_error=law_error,
        relative_error=8 * _ULP * steepness,
    )


def _range_of_sum(tilted: Sequence[_TiltedDraws]) -> tuple[int, int]:
    """Return the ends between which the tilted sum lies with all but probability e**-LOST.

    Bernstein's inequality: for draws within b of their means, with variance sigma**2 in all, the
    sum leaves its mean by more than t with probability exp(-t**2 / (2 sigma**2 + 2 b t / 3)).
    """
    # The least and the largest sum that can be at all.
    lowest = sum(kind.draws.times * int(kind.draws.at[0]) for kind in tilted)
    highest = sum(kind.draws.times * int(kind.draws.at[-1]) for kind in tilted)

    mean = sum(kind.draws.times * kind.mean for kind in tilted)
    sigma = math.sqrt(sum(kind.variance for kind in tilted))
    widest = max(float(np.abs(kind.distances).max()) for kind in tilted)  # b
    slack = 0.0
    if sigma:
        slack = LOST * widest / (3 * sigma)
    reach = (slack + math.sqrt(slack * slack + 2 * LOST)) * sigma  # t
    return max(lowest, math.floor(mean - reach)), min(highest, math.ceil(mean + reach))


def _transform_size(low: int, high: int) -> int:
    """Return a size of a Fourier transform that holds the sums from low to high and is fast."""
    from scipy import fft  # slow to load

    return int(fft.next_fast_len(high - low + 1, real=True))


def _law_of_sum(tilted: Sequence[_TiltedDraws], low: int, high: int) -> Floats:
    """Return the probabilities of the sums from low to high.

    The spectrum of a sum is the product of its draws' spectra. Sums beyond the ends wrap around.
    """
    from scipy import fft  # slow to load

    size = _transform_size(low, high)
    spectrum = np.ones(size // 2 + 1, np.complex128)
    lowest = 0
    for kind in tilted:
        first = int(kind.draws.at[0])
        law_of_one = np.zeros(size)  # shifted, so that its least value is at 0
        np.add.at(law_of_one, (kind.draws.at - first) % size, kind.law)
        spectrum *= fft.rfft(law_of_one) ** kind.draws.times
        lowest += kind.draws.times * first
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
        """Return the distribution of losses whose profile joins these points by straight lines.

        points: (i, bound) by ascending i, where `bound` is an upper bound of the profile H(g) at g
        = exp(i step). What is left of H at the last point counts as an infinite loss. At a bend of
        the profile, the loss ln g has the probability g times the change of slope.
        """
        corners = [Corner(Fraction(0), Fraction(1), 0)]
        corners += [Corner(at(i, step), bound, i) for i, bound in points]
        hull = _hull(corners)
        slopes = [left.slope_to(right) for left, right in pairwise(hull)]
        slopes.append(Fraction(0))  # beyond the last point

        mass_at: dict[int, float] = {}
        for corner, (before, after) in zip(hull[1:], pairwise(slopes), strict=True):
            mass_at[corner.i] = float(corner.g * (after - before))
        first, last = min(mass_at), max(mass_at)
        masses = tuple(mass_at.get(i, 0.0) for i in range(first, last + 1))
        return cls(step, first, masses, infinite=float(hull[-1].bound))

    def draws(self, times: int) -> Draws:
        """So many independent losses, in steps; the infinite ones are left out."""
        masses = np.array(self.masses)
        at = self.first + np.flatnonzero(masses > 0)
        return Draws(at, masses[masses > 0], times)


@lru_cache(maxsize=1 << 16)
def at(i: int, step: float) -> Fraction:
    """Return exp(i step), rounded down a little, for i steps of the grid of losses.

    Rounding down is safe: the logarithm then counts as i steps, which is more.
    """
    loss = i * step
    if abs(loss) < 0.5:  # exp is close to 1: only the difference from 1 is rounded
        difference = math.expm1(loss)
        return 1 + Fraction(difference - abs(difference) * LESS)
    return Fraction(math.exp(loss) * (1 - LESS))


def least(low: float, high: float, relative_error: float, holds: Callable[[float], bool]) -> float:
    """Return nearly the least number above `low` at which a condition holds, by bisection.

    holds: a condition that is true at `high` and from some number on; it is true at the result.
    relative_error: by which the result may be too large. If the condition holds everywhere, the
    result is just above `low`.
    """
    while high - low > relative_error * high:
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


class Corner(NamedTuple):
    """A point of a profile: g, which is `at` step i, and an upper bound of H(g)."""

    g: Fraction
    bound: Fraction
    i: int

    def slope_to(self, other: Self) -> Fraction:
        """The slope of the line from this point to another one."""
        return (other.bound - self.bound) / (other.g - self.g)


def _hull(points: Sequence[Corner]) -> list[Corner]:
    """Return the lower convex hull of the points, which are sorted by g.

    They are upper bounds of a convex function, so the hull is one, too.
    """
    hull: list[Corner] = []
    for point in points:
        while len(hull) > 1 and _turns_down(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _turns_down(a: Corner, b: Corner, c: Corner) -> bool:
    """Whether b lies on the line from a to c, or above it."""
    return (b.bound - a.bound) * (c.g - a.g) >= (c.bound - a.bound) * (b.g - a.g)


def both_sides(points: Sequence[tuple[int, Fraction]], step: float) -> list[tuple[int, Fraction]]:
    """Return a profile's points at losses of either sign, from those at i >= 0.

    points: (i, bound) as in `LossDistribution.of_profile`. The profile is to hold for two laws in
    either order, for which H(1/g) = 1 - 1/g + H(g)/g.
    """
    below = [(-i, 1 - (1 - bound) * at(-i, step)) for i, bound in points if i]
    return [*reversed(below), *points]


def epsilon(reports: Mapping[LossDistribution, int], delta: float) -> float:
    """Return the least epsilon that is proved at `delta` for many reports together.

    reports: how many reports have each distribution of the loss, all on a grid of one step. The
    result is infinite if nothing is proved.
    """
    reports = {losses: times for losses, times in reports.items() if times}
    if not reports:
        return 0.0
    (step,) = {losses.step for losses in reports}  # it is the same for all
    # Infinite losses are paid from delta.
    delta_left = delta - sum(times * losses.infinite for losses, times in reports.items())
    if delta_left <= 0:
        return math.inf
    draws = [losses.draws(times) for losses, times in reports.items()]
    largest_sum = sum(int(kind.at[-1]) * kind.times for kind in draws)
    if largest_sum <= 0:
        return 0.0

    total = add_up(draws, _tilt(draws, delta_left))

    def is_proved(threshold: float) -> bool:
        """Whether delta suffices at an epsilon of this many steps: E[max(0, 1 - e**(eps - L))]."""
        excess = total.above(threshold, lambda sums: -np.expm1((threshold - sums) * step))
        return excess + total.lost(threshold) <= delta_left

    low = max(0.0, float(total.sums[0]))
    if is_proved(low):
        return step * low
    return step * least(low, float(largest_sum), _CLOSE, is_proved)


def _tilt(draws: Sequence[Draws], delta: float) -> float:
    """Return the tilt under which the mean of the sum has a Chernoff bound of delta.

    That is where the law must be exact for an epsilon at delta. If the largest sum is likelier than
    delta, no tilt has that bound, and a lesser one is taken.
    """
    log_largest = sum(kind.times * math.log(kind.masses[-1]) for kind in draws)
    log_bound = max(math.log(delta), log_largest / 2)

    def excess(tilt: float) -> float:
        """By how much the logarithm of the Chernoff bound of the tilted mean is too large."""
        log_chernoff = sum(
            kind.times * (kind.log_moment(tilt) - tilt * kind.mean(tilt)) for kind in draws
        )
        return log_chernoff - log_bound

    if excess(0.0) <= 0:  # a delta of nearly 1
        return 0.0
    steepest = _STEEPEST / max(kind.largest_size for kind in draws)
    if excess(steepest) >= 0:
        return steepest
    return least(0.0, steepest, 1e-3, lambda tilt: excess(tilt) <= 0)
