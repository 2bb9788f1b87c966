"""Privacy losses of many reports together, composed exactly and rounded upwards.

docs/guides/accounting.md has the theorems.

The *privacy profile* of a report is a function H(g). Let P and Q be the laws of the report at any
two inputs; then H(g) is an upper bound of the sum over outputs y of max(0, P(y) - g Q(y)). In other
words, it bounds the least delta at epsilon = ln g.

We compute points of H and join them by straight lines. The result is the profile of another pair of
laws, which discloses at least as much, and whose losses ln P/Q lie on a grid (Doroshenko, Ghazi,
Kamath, Kumar and Manurangsi, "Connect the dots", PoPETs 2022). What one such pair bounds for each
report, the product of the pairs bounds for all reports together, even if later questions depend on
earlier answers (Zhu, Dong and Wang, "Optimal accounting of differential privacy via characteristic
function", AISTATS 2022, Theorem 10).

The probabilities of losses are computed exactly, from the integers of a card. A Fourier transform
then adds losses up. It works on laws that are tilted (weighted by an exponential), so that its
errors are small relative to delta. A bound on these errors, and on what lies beyond the ends of the
transform, is added to the result.
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
Complex = npt.NDArray[np.complex128]

# A tilted law is computed up to a probability of e**-46 beyond the transform's ends. That much is
# added to every bound.
TAIL_EXPONENT = 46.0
ROUNDING = 1e-9  # the share by which bounds are raised, far above what a few operations add
_NEGLIGIBLE_EXPONENT = 60.0  # entries of a spectrum below e**-60 count as 0
LARGEST_LOSS = 40.0  # losses beyond this are not computed
FLOAT_ERROR = 1e-14  # the relative error of exp(loss) in floats, for losses up to LARGEST_LOSS
_ULP = 2.0**-52  # the relative rounding error of one operation on floats
_CLOSE = 1e-6  # the bisection for an epsilon ends where its ends differ by this share
_MOST_LOG = 300.0  # logarithms are cut here, so that exp does not overflow; the bound is void there
_STEEPEST = 700.0  # the largest tilt times loss, since exp of more overflows


# Sums of draws


@dataclass(frozen=True)
class Draws:
    """`times` independent random integers that all have one law.

    Each is `values[j]` with probability `masses[j]`. The values are in ascending order. The masses
    may add up to less than 1, where some outcomes were left out.
    """

    values: npt.NDArray[np.int64]
    masses: Floats
    times: int

    @property
    def largest_size(self) -> float:
        """The largest absolute value of one draw."""
        return float(np.abs(self.values).max())

    def log_moment(self, tilt: float) -> float:
        """Return ln E[exp(tilt X)] of one draw X, the logarithm of its moment generating function."""
        # exp(tilt X) is divided by its largest value, so that it does not overflow. That is at the
        # last value for a positive tilt, and at the first for a negative one.
        place_of_largest = -1 if tilt > 0 else 0
        value_of_largest = float(self.values[place_of_largest])
        scaled = self.masses * np.exp(tilt * (self.values - value_of_largest))
        return float(np.log(scaled.sum()) + tilt * value_of_largest)

    def tilted(self, tilt: float) -> Floats:
        """Return the tilted law of one draw X: its masses times exp(tilt X), divided by their sum.

        A tilt above 0 makes large values likelier, so that rare sums can be computed accurately.
        """
        weighted = self.masses * np.exp(tilt * self.values - self.log_moment(tilt))
        law: Floats = weighted / weighted.sum()
        return law

    def mean(self, tilt: float) -> float:
        """Return the mean of one draw under its tilted law."""
        return float((self.tilted(tilt) * self.values).sum())


@dataclass(frozen=True)
class TiltedSum:
    """The law of the sum of many draws, computed under a tilt by a Fourier transform.

    The sum is `sums[i]` with the probability exp(log_scale - tilt sums[i]) law[i]. Sums beyond the
    ends, which have the probability exp(-TAIL_EXPONENT) under the tilted law, are not in it.

    law_error: a bound of the transform's errors in `law`, as the Euclidean length of the vector of
    all errors. relative_error: the share by which the rounding of masses and tilts may have raised
    or lowered any probability.
    """

    sums: npt.NDArray[np.int64]
    law: Floats
    tilt: float
    log_scale: float
    law_error: float
    relative_error: float

    def above(self, threshold: float, gain: Callable[[Floats], Floats]) -> float:
        """Return an upper bound of E[gain(S); S > threshold], for the sum S of the draws.

        The law of S was computed by a Fourier transform, with each sum s weighted by exp(tilt s).

        gain: takes an array of sums and returns a number for each, nowhere negative. The sums
        beyond the transform's ends are not included; `lost` bounds their probability.
        """
        first = int(np.searchsorted(self.sums, threshold, side="right"))
        sums = self.sums[first:].astype(np.float64)
        # The tilt multiplied the law by exp(tilt s - log_scale), which is undone here.
        log_weights = np.minimum(self.log_scale - self.tilt * sums, _MOST_LOG)
        weights = gain(sums) * np.exp(log_weights)
        expectation = float((weights * self.law[first:]).sum())
        # By Cauchy and Schwarz the transform's errors change it by the product of two lengths at
        # most: that of the weights, and that of the errors.
        error = self.law_error * math.sqrt(float((weights * weights).sum()))
        return (expectation + error) * (1 + ROUNDING + self.relative_error)

    def lost(self, threshold: float) -> float:
        """Return an upper bound of the probability of sums above a threshold beyond the ends.

        threshold: not below the least of `sums`.
        """
        # The tilted law has exp(-TAIL_EXPONENT) beyond the ends; undoing the tilt multiplies that
        # by exp(log_scale - tilt s), which is largest at s = threshold.
        return math.exp(min(0.0, self.log_scale - self.tilt * threshold - TAIL_EXPONENT))


@dataclass(frozen=True)
class TiltedDraws:
    """Draws with the tilted law of one of them, its mean, and the values' distances from it."""

    draws: Draws
    law: Floats
    mean: float
    distances: Floats

    @classmethod
    def of(cls, draws: Draws, tilt: float) -> Self:
        """Return the draws under the law of this tilt."""
        law = draws.tilted(tilt)
        mean = float((law * draws.values).sum())
        distances: Floats = draws.values.astype(np.float64) - mean
        return cls(draws=draws, law=law, mean=mean, distances=distances)

    @property
    def variance(self) -> float:
        """The variance of the sum of all these draws."""
        variance_of_one = float((self.law * self.distances * self.distances).sum())
        return self.draws.times * variance_of_one


def add_up(draws: Sequence[Draws], tilt: float) -> TiltedSum:
    """Return the law of the sum of many random integers, with bounds on the errors of computing it.

    The law is computed with each sum s weighted by exp(tilt s). That moves the mean to where the
    law must be exact: a Fourier transform loses probabilities that are tiny beside the largest.

    draws: the integers, all independent. An entry stands for `times` integers of one law. tilt: see
    above; 0 leaves the law as it is. The errors are stored in the result, so that what is computed
    from it can be raised by them.
    """
    tilted_draws = [TiltedDraws.of(kind, tilt) for kind in draws]
    low, high = range_of_sum(tilted_draws)
    law = _law_of_sum(tilted_draws, low, high)

    # A Fourier transform of this size is wrong by 8 log2(size) ulp of the law's Euclidean length at
    # most (Higham, Accuracy and Stability, 2002, 24.1). The power of a spectrum multiplies that by
    # the number of draws.
    number_of_draws = sum(kind.times for kind in draws)
    size = _transform_size(low, high)
    length = math.sqrt(float((law * law).sum()))
    law_error = 8 * _ULP * math.log2(2 * size) * (1 + number_of_draws) * length
    law_error += math.exp(-_NEGLIGIBLE_EXPONENT)

    log_scale = sum(kind.times * kind.log_moment(tilt) for kind in draws)
    return TiltedSum(
        sums=np.arange(low, high + 1),
        law=law,
        tilt=tilt,
        log_scale=log_scale,
        law_error=law_error,
        relative_error=relative_error(draws, tilt),
    )


def relative_error(draws: Sequence[Draws], tilt: float) -> float:
    """Return by which share the rounding of masses and tilts may change a probability of the sum."""
    # In exp(tilt X) the exponent is rounded by its own size times an ulp, for each draw.
    exponents = sum(kind.times * (1 + abs(tilt) * kind.largest_size) for kind in draws)
    return 8 * _ULP * exponents


def range_of_sum(tilted_draws: Sequence[TiltedDraws]) -> tuple[int, int]:
    """Return ends between which the tilted sum lies, but for a probability of e**-TAIL_EXPONENT.

    They follow from Bernstein's inequality: for draws within b of their means, with variance
    sigma**2 in all, the sum is more than t above its mean with a probability of at most
    exp(-t**2 / (2 sigma**2 + 2 b t / 3)). Solved for t with the exponent L = TAIL_EXPONENT:
    t = (s + sqrt(s**2 + 2 L)) sigma, where s = L b / (3 sigma).

    tilted_draws: the random integers that are added up; an entry stands for several of one law.
    """
    # The least and the largest sum that is possible at all.
    lowest = sum(kind.draws.times * int(kind.draws.values[0]) for kind in tilted_draws)
    highest = sum(kind.draws.times * int(kind.draws.values[-1]) for kind in tilted_draws)

    mean = sum(kind.draws.times * kind.mean for kind in tilted_draws)
    sigma = math.sqrt(sum(kind.variance for kind in tilted_draws))
    farthest = max(float(np.abs(kind.distances).max()) for kind in tilted_draws)  # b
    slack = 0.0  # s
    if sigma:
        slack = TAIL_EXPONENT * farthest / (3 * sigma)
    reach = (slack + math.sqrt(slack * slack + 2 * TAIL_EXPONENT)) * sigma  # t
    low = max(lowest, math.floor(mean - reach))
    high = min(highest, math.ceil(mean + reach))
    return low, high


def _transform_size(low: int, high: int) -> int:
    """Return the size of a fast Fourier transform with room for the sums from low to high."""
    from scipy import fft  # slow to load

    return int(fft.next_fast_len(high - low + 1, real=True))


def _law_of_sum(tilted_draws: Sequence[TiltedDraws], low: int, high: int) -> Floats:
    """Return the probabilities of the sums from low to high under the tilted laws.

    A law is the probability of each integer. The spectrum (Fourier transform) of the sum's law is
    the product of the spectra of all draws. Sums beyond the ends wrap around and are added at the
    other end. Entries of the spectrum below exp(-_NEGLIGIBLE_EXPONENT) are taken to be 0, which
    changes the Euclidean length of the law by that much at most.
    """
    from scipy import fft  # slow to load

    size = _transform_size(low, high)
    spectra = []  # of one draw of each kind
    log_sizes = np.zeros(size // 2 + 1)  # of the entries of the spectrum of the sum
    lowest = 0  # the sum that stands at index 0 of the inverse transform
    for kind in tilted_draws:
        first_value = int(kind.draws.values[0])
        law_of_one = np.zeros(size)  # at index i the probability of first_value + i
        np.add.at(law_of_one, (kind.draws.values - first_value) % size, kind.law)
        spectrum_of_one = fft.rfft(law_of_one)
        spectra.append(spectrum_of_one)
        with np.errstate(divide="ignore"):  # the logarithm of 0
            log_sizes += kind.draws.times * np.log(np.abs(spectrum_of_one))
        lowest += kind.draws.times * first_value

    # Powers of complex numbers take long, and many of them are negligible.
    matters = np.flatnonzero(log_sizes > -_NEGLIGIBLE_EXPONENT)
    spectrum = np.zeros(size // 2 + 1, np.complex128)
    spectrum[matters] = 1
    for kind, spectrum_of_one in zip(tilted_draws, spectra, strict=True):
        spectrum[matters] *= _power(spectrum_of_one[matters], kind.draws.times)
    # Rotated, so that index 0 stands for the sum `low`.
    law: Floats = np.roll(fft.irfft(spectrum, size), (lowest - low) % size)
    return np.abs(law)[: high - low + 1]


def _power(base: Complex, exponent: int) -> Complex:
    """Return the power of each number, by repeated squaring.

    That is several times as fast as NumPy's power, which takes a logarithm of each number. A product
    of complex numbers is wrong by sqrt(5) / 2 ulp at most (Brent, Percival and Zimmermann, Error
    bounds on complex floating-point multiplication, 2007), and squaring doubles an error. So the
    relative error of the result is about sqrt(5) / 2 * `exponent` ulp at most.

    exponent: 0 or more.
    """
    power = np.ones_like(base)
    square = base  # the base to the power of 1, 2, 4, ...
    while exponent:
        if exponent % 2:
            power = power * square
        exponent //= 2
        if exponent:
            square = square * square
    return power


# Losses of reports


@dataclass(frozen=True)
class LossDistribution:
    """The law of the privacy loss ln P/Q of one report, if the report is drawn from P.

    The losses lie on a grid: `first + j` steps of size `step` have the probability masses[j]. With
    the probability `infinite` the loss is infinite: such a report gives its input away.
    """

    step: float
    first: int
    masses: tuple[float, ...]
    infinite: float = 0.0

    @classmethod
    def of_profile(cls, points: Sequence[tuple[int, Fraction]], step: float) -> Self:
        """Return the law of losses whose privacy profile joins these points by straight lines.

        The profile H(g) is the least delta at epsilon = ln g. Where two lines meet at g, the loss
        ln g has the probability g times the change of slope. What is left of H at the last point is
        the probability of an infinite loss.

        points: (i, bound) by ascending i, where `bound` is an upper bound of H(exp(i step)).
        """
        corners = [Corner(g=Fraction(0), bound=Fraction(1), i=0)]
        corners += [Corner(exp_of_steps(i, step), bound, i) for i, bound in points]
        hull = _hull(corners)
        slopes = [left.slope_to(right) for left, right in pairwise(hull)]
        slopes.append(Fraction(0))  # beyond the last point the line is level

        # A mass at each corner but the first, which is at g = 0. Steps without a corner have none.
        mass_of_step: dict[int, float] = {}
        for corner, (before, after) in zip(hull[1:], pairwise(slopes), strict=True):
            mass_of_step[corner.i] = float(corner.g * (after - before))
        first = min(mass_of_step)
        last = max(mass_of_step)
        masses = tuple(mass_of_step.get(i, 0.0) for i in range(first, last + 1))
        return cls(step, first, masses, infinite=float(hull[-1].bound))

    def draws(self, times: int) -> Draws:
        """Return the finite losses of `times` independent reports, in steps."""
        masses = np.array(self.masses)
        values = self.first + np.flatnonzero(masses > 0)
        return Draws(values, masses[masses > 0], times)


@lru_cache(maxsize=1 << 16)
def exp_of_steps(i: int, step: float) -> Fraction:
    """Return exp(i step), the ratio of probabilities at a loss of i steps, rounded down a little.

    Rounding down is safe: the true logarithm of the result is less than i steps, but it counts as i
    steps, which is more loss.
    """
    loss = i * step
    if abs(loss) < 0.5:  # exp is close to 1: only its difference from 1 is rounded
        difference = math.expm1(loss)
        return 1 + Fraction(difference - abs(difference) * FLOAT_ERROR)
    return Fraction(math.exp(loss) * (1 - FLOAT_ERROR))


def bisect_least(
    low: float, high: float, relative_error: float, holds: Callable[[float], bool]
) -> float:
    """Return nearly the least number between `low` and `high` at which a condition holds.

    The condition holds at the result, which is too large by the share `relative_error` at most. If
    it holds everywhere, the result is just above `low`.

    holds: the condition, which must be true at `high`, and above any number at which it is true.
    """
    while high - low > relative_error * high:
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


class Corner(NamedTuple):
    """A point of a privacy profile: g = exp(i step), and an upper bound of H(g)."""

    g: Fraction
    bound: Fraction
    i: int

    def slope_to(self, other: Self) -> Fraction:
        """Return the slope of the line from this point to another one."""
        return (other.bound - self.bound) / (other.g - self.g)


def _hull(points: Sequence[Corner]) -> list[Corner]:
    """Return the lower convex hull of points that are sorted by g (Andrew's algorithm).

    The points are upper bounds of a function that is convex, so their hull is an upper bound, too.
    """
    hull: list[Corner] = []
    for point in points:
        while len(hull) > 1 and _is_not_below_line(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _is_not_below_line(a: Corner, b: Corner, c: Corner) -> bool:
    """Whether b lies on the line from a to c, or above it. The slopes are compared exactly."""
    return (b.bound - a.bound) * (c.g - a.g) >= (c.bound - a.bound) * (b.g - a.g)


def both_sides(points: Sequence[tuple[int, Fraction]], step: float) -> list[tuple[int, Fraction]]:
    """Return points of a privacy profile at losses of either sign, from those at losses from 0 on.

    The privacy profile H(g) is the least delta at epsilon = ln g. If it holds for two laws P and Q
    in either order, H(1/g) = 1 - 1/g + H(g)/g. points: (i, bound) by ascending i, where `bound` is
    an upper bound of H(exp(i step)).
    """
    below = []
    for i, bound in points:
        if i != 0:
            below.append((-i, 1 - (1 - bound) * exp_of_steps(-i, step)))
    return [*reversed(below), *points]


def epsilon(reports: Mapping[LossDistribution, int], delta: float) -> float:
    """Return the least epsilon that is proved at `delta` for many reports together.

    By Doroshenko et al., the losses L of the reports add up, and they are (epsilon, delta)-private
    if E[max(0, 1 - exp(epsilon - L))] <= delta.

    reports: how many reports have each law of the loss, all on a grid of the same step. The result
    is infinite if nothing is proved.
    """
    reports = {losses: times for losses, times in reports.items() if times}
    if not reports:
        return 0.0
    steps = {losses.step for losses in reports}
    (step,) = steps  # raises ValueError if there are several
    # The probability that some loss is infinite is taken from delta.
    probability_of_infinite = sum(times * losses.infinite for losses, times in reports.items())
    delta_left = delta - probability_of_infinite
    if delta_left <= 0:
        return math.inf
    draws = [losses.draws(times) for losses, times in reports.items()]
    largest_sum = sum(int(kind.values[-1]) * kind.times for kind in draws)
    if largest_sum <= 0:
        return 0.0

    total = add_up(draws, _tilt(draws, delta_left))

    def is_proved(threshold: float) -> bool:
        """Whether delta suffices at an epsilon of this many steps."""

        def gain(sums: Floats) -> Floats:
            """Return 1 - exp(epsilon - L) for sums of losses in steps."""
            return -np.expm1((threshold - sums) * step)

        # Sums beyond the transform's ends count with a gain of 1, the largest there is.
        return total.above(threshold, gain) + total.lost(threshold) <= delta_left

    low = max(0.0, float(total.sums[0]))
    if is_proved(low):
        return step * low
    return step * bisect_least(low, float(largest_sum), _CLOSE, is_proved)


def _tilt(draws: Sequence[Draws], delta: float) -> float:
    """Return the tilt that moves the mean of the sum to where it is exceeded with probability delta.

    There the law must be exact to find the epsilon at delta. The probability is taken from
    Chernoff's bound: the sum reaches its tilted mean m with a probability of at most
    E[exp(tilt S)] exp(-tilt m). If the largest sum is likelier than delta, no tilt has that bound,
    and a smaller one is taken.
    """
    log_of_largest = sum(kind.times * math.log(kind.masses[-1]) for kind in draws)
    log_target = max(math.log(delta), log_of_largest / 2)

    def has_bound(tilt: float) -> bool:
        """Whether Chernoff's bound for the tilted mean is at most the target."""
        log_chernoff = 0.0
        for kind in draws:
            log_chernoff += kind.times * (kind.log_moment(tilt) - tilt * kind.mean(tilt))
        return log_chernoff - log_target <= 0

    if has_bound(0.0):  # a delta of nearly 1
        return 0.0
    steepest = _STEEPEST / max(kind.largest_size for kind in draws)
    if not has_bound(steepest):
        return steepest
    return bisect_least(0.0, steepest, 1e-3, has_bound)
