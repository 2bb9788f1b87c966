"""The expected positive part of a sum of very many draws, from a few frequencies of its law.

Nearly all of the Fourier transform of such a law is negligible. So this module computes only the
frequencies that matter, and proves how little the others can add. A fast Fourier transform
(`losses.add_up`) takes far longer, since it computes the probability of every sum.

Let X be a tilted draw (`losses.Draws.tilted`) with the variance v, S the sum of n of them, and
phi(w) = E[exp(i w X)]. The sums from `low` to `high` are N integers. The probability P(S = s) is at
most that of all sums that differ from s by a multiple of N, which is

    (1/N) sum over k of phi(w_k)**n exp(-i w_k s),  where w_k = 2 pi k / N and -N/2 < k <= N/2.

Weighted by s exp(-tilt s), to undo the tilt, and added up over s from 1 to H = `high`, that is

    (1/N) sum over k of phi(w_k)**n F(w_k),  where F(w) = sum of s z**s with z = exp(-tilt - i w).

F(w) has a closed form, and |F(w)| <= F(0). So the frequencies that are left out add at most F(0)
times the largest |phi(w_k)|**n among them. To bound that, a Fourier transform gives
g(w) = |phi(w)|**2 on a grid of the step h. Between two points of the grid, g is above the straight
line by at most max |g''| h**2 / 8. For two independent draws X and X', g(w) = E[cos(w (X - X'))], so
that |g''| <= E[(X - X')**2] = 2 v.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ternhost.privacy.losses import TAIL_EXPONENT, TiltedDraws

Floats = npt.NDArray[np.float64]
Complex = npt.NDArray[np.complex128]
Indices = npt.NDArray[np.int64]

_ULP = 2.0**-52  # the relative rounding error of one operation on floats
_LEAST_GRID = 1 << 12  # points of the grid of g, from 0 to 2 pi
_ROUNDING_OF_G = 1e-13  # far above the errors of floats in g
_FEW = 1 / 64  # the share of the frequencies that may matter
_LEAST_DECAY = 2.0  # of exp(-tilt s) up to H, as an exponent; with less, F(0) has another formula


def mean_positive(one: TiltedDraws, tilt: float, low: int, high: int) -> float | None:
    """Return an upper bound of E[max(0, S)] for the sum S of draws, without those above `high`.

    The bound is for the untilted draws, but divided by E[exp(tilt X)]**n. It is None if too many
    frequencies matter, or if all sums are positive. one: the draws that are added up. tilt: theirs.
    low, high: ends between which the tilted sum lies.
    """
    if low > 0 or not one.variance:
        return None
    size = high - low + 1
    k = _frequencies_that_matter(one, size, most=math.floor(_FEW * size))
    if k is None:
        return None
    power = _powers_of_phi(one, k, size)
    weighted = _weighted_sums(tilt, high, k, size)

    # Frequencies of both signs add the same real part. The first and the last stand for themselves.
    signs = np.where((k == 0) | (2 * k == size), 1.0, 2.0)
    products = power.values * weighted.values
    errors = (np.abs(weighted.values) + weighted.errors) * power.errors
    errors += np.abs(power.values) * weighted.errors
    largest_of_others = math.exp(-TAIL_EXPONENT) * size * float(weighted.values[0].real)
    return (float((signs * (products.real + errors)).sum()) + largest_of_others) / size


def _frequencies_that_matter(one: TiltedDraws, size: int, most: int) -> Indices | None:
    """Return the k from 0 to N/2, ascending, at which |phi(w_k)|**n may exceed exp(-TAIL_EXPONENT).

    Return None if there are more than `most`. one: the draws that are added up. size: N.
    """
    # So fine that the error of the straight lines is small beside TAIL_EXPONENT / n.
    bits = math.ceil(math.log2(2 * math.sqrt(one.variance)))
    grid_size = max(_LEAST_GRID, 1 << max(0, bits))
    law_of_one = np.zeros(grid_size)
    np.add.at(law_of_one, one.draws.values % grid_size, one.law)
    spectrum = np.fft.rfft(law_of_one)
    g = spectrum.real**2 + spectrum.imag**2  # at the multiples of 2 pi / grid_size, up to pi

    step = 2 * math.pi / grid_size
    variance_of_one = one.variance / one.draws.times
    above_line = variance_of_one * step**2 / 4 + _ROUNDING_OF_G
    largest = np.maximum(g[:-1], g[1:]) + above_line  # between neighbours of the grid
    intervals = np.flatnonzero(largest > math.exp(-2 * TAIL_EXPONENT / one.draws.times))

    # Interval j has the k from j N / grid_size to (j + 1) N / grid_size.
    firsts = intervals * size // grid_size
    lengths = (intervals + 1) * size // grid_size - firsts + 1
    starts = np.cumsum(lengths) - lengths
    total = int(lengths.sum())
    largest_overlap = len(intervals)  # of each interval only the last k may be in the next one, too
    if total - largest_overlap > most:
        return None
    of_intervals = np.arange(total) + np.repeat(firsts - starts, lengths)
    k = np.unique(np.concatenate([[0], of_intervals]))
    if len(k) > most:
        return None
    return k


class _WithErrors(NamedTuple):
    """Numbers at some frequencies, and bounds of the errors of floats in them."""

    values: Complex
    errors: Floats


def _powers_of_phi(one: TiltedDraws, k: Indices, size: int) -> _WithErrors:
    """Return phi(w_k)**n. one: the draws. k: numbers of frequencies. size: N."""
    # A row for each frequency, a column for each value. The phase is reduced in integers.
    phases = np.outer(k, one.draws.values) % size * (2 * math.pi / size)
    phi = np.exp(1j * phases) @ one.law
    log_phi = np.log(phi)
    times = one.draws.times
    power = np.exp(times * log_phi)

    # phi is wrong by an ulp for each value, and a few, and its logarithm by a few of its size.
    error_of_phi = _ULP * (len(one.law) + 32)
    largest_power = np.exp((times - 1) * np.log(np.abs(phi) + error_of_phi))
    errors = times * error_of_phi * largest_power
    errors += 4 * _ULP * (1 + times) * (4 + np.abs(log_phi)) * np.abs(power)
    return _WithErrors(power, errors)


def _weighted_sums(tilt: float, last: int, k: Indices, size: int) -> _WithErrors:
    """Return F(w_k), the sum of s z**s over s from 1 to `last`, where z = exp(-tilt - i w_k).

    With u = 1 - z it is z (1 - z**last (1 + last u)) / u**2. If both w and the tilt are so small that
    this would be inaccurate, F(0) is added up term by term. k: numbers of frequencies, ascending
    from 0. size: N.
    """
    frequencies = 2 * math.pi / size * k
    decay = math.exp(-tilt)
    z = decay * np.exp(-1j * frequencies)
    # 1 - z without cancellation: 1 - decay + decay (1 - exp(-i w)).
    real = -math.expm1(-tilt) + 2 * decay * np.sin(frequencies / 2) ** 2
    u = real + 1j * decay * np.sin(frequencies)
    phases = k * last % size * (2 * math.pi / size)
    power = math.exp(-tilt * last) * np.exp(-1j * phases)
    decays_slowly = tilt * last < _LEAST_DECAY
    if decays_slowly:
        u[0] = 1  # any number but 0: F(0) is replaced below
    sums = z * (1 - power * (1 + last * u)) / u**2

    # Each operation is wrong by a few ulp, and the power by those of its exponent.
    of_power = np.abs(power) * (1 + last * np.abs(u)) * (64 + 8 * tilt * last)
    errors = np.abs(z) / np.abs(u) ** 2 * _ULP * (64 + of_power)

    if decays_slowly:
        s = np.arange(1.0, last + 1)
        sums[0] = (s * np.exp(-tilt * s)).sum()
        errors[0] = 64 * _ULP * abs(sums[0])
    return _WithErrors(sums, errors)
