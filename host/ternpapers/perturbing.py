"""The papers' mechanisms in floats, as they describe them.

For simulations only: floats keep no epsilon exactly.

Sources: Wang et al., ICDE 2019 (PM, HM; SCDF and Staircase as their equation 2 has them); Duchi,
Jordan, Wainwright, JASA 2018; Zhao et al., IEEE IoT J. 8, 2021 (Three-Outputs, PM-SUB, PM-OPT,
HM-TP, Algorithm 5); Shen et al., Entropy 2023, 25, 485 (PDPM): corrected where
shared_specs/errata.md says so.

Most mechanisms draw one uniform number for each value, and report the quantile of their law there.
So two mechanisms that get the same random numbers err in the same direction, and a small difference
between them shows in few runs.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from ternhost.datasets import Floats
from ternhost.privacy.mechanisms import duchi, piecewise, three_outputs
from ternpapers.mechanisms import hybrid, pdpm, pm
from ternpapers.piecewise_law import PiecewiseLaw

# Takes values in [-1, 1] and a generator, and returns unbiased reports of the values.
Perturb = Callable[[Floats, np.random.Generator], Floats]
# Takes values in [-1, 1] and as many numbers from 0 to 1, and returns for each value the report that
# is the quantile at its number: so large a part of all reports of the value are smaller.
Quantiles = Callable[[Floats, Floats], Floats]


def _drawn(quantiles: Callable[[float], Quantiles]) -> Callable[[float], Perturb]:
    """Return a mechanism as a function of epsilon, by that of its quantiles."""

    def mechanism(epsilon: float) -> Perturb:
        """Return the mechanism at this epsilon."""
        of_values = quantiles(epsilon)

        def perturb(x: Floats, rng: np.random.Generator) -> Floats:
            """Return reports of x in [-1, 1]."""
            return of_values(x, rng.random(x.shape))

        return perturb

    return mechanism


def by_laplace(epsilon: float) -> Perturb:
    """Return the Laplace mechanism: it adds Laplace noise of scale 2 / epsilon to a value."""

    def perturb(x: Floats, rng: np.random.Generator) -> Floats:
        return x + rng.laplace(0, 2 / epsilon, x.shape)

    return perturb


def _duchi_quantiles(epsilon: float) -> Quantiles:
    """Return Duchi's mechanism for one value, which is also Harmony's: it reports C or -C.

    C has the probability (1 + x / C) / 2, so that the mean of a report is x.
    """
    c = duchi.constant(epsilon)

    def quantiles(x: Floats, uniform: Floats) -> Floats:
        """Return the reports of x, which are -C for the smaller numbers."""
        return np.where(uniform < 0.5 - x / (2 * c), -c, c)

    return quantiles


def _three_outputs_quantiles(epsilon: float) -> Quantiles:
    """Return Three-Outputs, as corrected in shared_specs/errata.md: it reports C, 0 or -C.

    Its parameter a is the probability of 0 at x = 0. The probabilities are linear in |x|, from
    x = 0 to |x| = 1.
    """
    e = math.exp(epsilon)
    a = three_outputs.zero_probability(epsilon)
    c = three_outputs.constant(epsilon, a)
    same_sign_at_0 = (1 - a) / 2
    same_sign_at_1 = (e - a) / (e + 1)

    def quantiles(x: Floats, uniform: Floats) -> Floats:
        """Return the reports of x, each of them C, 0 or -C."""
        size = np.abs(x)
        # The probabilities of an output with the sign of x, of 0, and of -C.
        same_sign = same_sign_at_0 + (same_sign_at_1 - same_sign_at_0) * size
        zero = probability_of_zero(epsilon, a, x)
        low = np.where(x > 0, 1 - same_sign - zero, same_sign)
        zero_or_high = np.where(uniform < low + zero, 0.0, c)
        return np.where(uniform < low, -c, zero_or_high)

    return quantiles


def probability_of_zero(epsilon: float, a: float, x: Floats) -> Floats:
    """Return with which probability Three-Outputs reports 0, for each input x in [-1, 1].

    It falls from a at x = 0 to a / e**epsilon at |x| = 1.
    """
    return np.asarray(a - (a - a / math.exp(epsilon)) * np.abs(x))


def _piecewise_quantiles(t: Callable[[float], float]) -> Callable[[float], Quantiles]:
    """Return PM, PM-SUB or PM-OPT as a function of epsilon, by the function of their parameter t."""

    def mechanism(epsilon: float) -> Quantiles:
        """Return the piecewise mechanism at this epsilon."""
        law = PiecewiseLaw(epsilon, t(epsilon))

        def quantiles(x: Floats, uniform: Floats) -> Floats:
            """Return the reports of x in [-1, 1]."""
            start = law.window_start(x)
            before = law.density_outside * (start + law.bound)  # the probability before the window
            within = (uniform - before) / law.probability_inside  # from 0 to 1 in the window
            left = uniform / law.density_outside - law.bound
            inside = start + within * 2 * law.half_width
            right = law.bound - (1 - uniform) / law.density_outside
            right_or_inside = np.where(within > 1, right, inside)
            return np.where(within < 0, left, right_or_inside)

        return quantiles

    return mechanism


def by_piecewise(t: Callable[[float], float]) -> Callable[[float], Perturb]:
    """Return PM, PM-SUB or PM-OPT as a function of epsilon, by the function of their parameter t."""
    return _drawn(_piecewise_quantiles(t))


def _either(
    first: Callable[[float], Quantiles],
    second: Callable[[float], Quantiles],
    share: Callable[[float], float],
) -> Callable[[float], Perturb]:
    """Return a hybrid of two mechanisms, which draws for each value by which of them to report.

    first, second: the quantiles of a mechanism by epsilon. share: the probability of the first
    mechanism, by epsilon.
    """

    def mechanism(epsilon: float) -> Perturb:
        """Return the hybrid at this epsilon."""
        quantiles_of_first = first(epsilon)
        quantiles_of_second = second(epsilon)
        probability_of_first = share(epsilon)

        def perturb(x: Floats, rng: np.random.Generator) -> Floats:
            """Return reports of x, each by one of the two mechanisms."""
            uniform = rng.random(x.shape)
            is_by_first = rng.random(x.shape) < probability_of_first
            by_first = quantiles_of_first(x, uniform)
            return np.where(is_by_first, by_first, quantiles_of_second(x, uniform))

        return perturb

    return mechanism


def _by_steps(half_width: Callable[[float], float]) -> Callable[[float], Perturb]:
    """Return SCDF or Staircase as a function of epsilon, by the half width m of its central step.

    The density of the noise is a constant a within m of 0, and falls by a factor E = e**epsilon at
    each step of width 2 further (Wang et al., equation 2).
    """

    def mechanism(epsilon: float) -> Perturb:
        """Return the mechanism at this epsilon, which adds the noise to each value."""
        m = half_width(epsilon)
        e = math.exp(epsilon)
        near_share = probability_of_centre(epsilon, m)

        def perturb(x: Floats, rng: np.random.Generator) -> Floats:
            """Return values x with noise."""
            step = rng.geometric(1 - 1 / e, x.shape) - 1  # the number of the step, from 0
            far = m + 2 * (step + rng.random(x.shape))
            near = m * rng.random(x.shape)
            size = np.where(rng.random(x.shape) < near_share, near, far)
            return x + np.where(rng.random(x.shape) < 0.5, size, -size)

        return perturb

    return mechanism


def probability_of_centre(epsilon: float, m: float) -> float:
    """Return the probability that the noise of SCDF or Staircase is within m of 0.

    With the density a there, its mass is 2 m a within m of 0, and 2 sum_j (2 a E**-j) = 4 a / (E - 1)
    outside, j = 1, 2, and so on. m: the half width of the central step.
    """
    return m / (m + 2 / (math.exp(epsilon) - 1))


def scdf_half_width(epsilon: float) -> float:
    """Return the half width m of the central step of SCDF (Wang et al., equation 2).

    With q = e**-epsilon it is m = 2 (1 - q - epsilon q) / (epsilon (1 - q)).
    """
    q = math.exp(-epsilon)
    return 2 * (1 - q - epsilon * q) / (epsilon - epsilon * q)


def staircase_half_width(epsilon: float) -> float:
    """Return the half width m of the central step of Staircase (Wang et al., equation 2)."""
    return 2 / (1 + math.exp(epsilon / 2))


def by_pdpm(epsilon: float) -> Perturb:
    """Return PDPM for a safe range of 1: it reports one of three outputs."""
    outputs = np.array(pdpm.outputs(epsilon))

    def perturb(x: Floats, rng: np.random.Generator) -> Floats:
        """Return reports of x in [-1, 1]."""
        low, zero, _high = pdpm.probabilities(epsilon, x)  # type: ignore[arg-type]
        uniform = rng.random(x.shape)
        # The number of the output: how many of the cumulative probabilities are reached.
        index = (uniform >= low).astype(int) + (uniform >= low + zero)
        return np.asarray(outputs[index])

    return perturb


_PM = _piecewise_quantiles(pm.t_pm)
_PM_SUB = _piecewise_quantiles(piecewise.t_sub)
MECHANISMS: dict[str, Callable[[float], Perturb]] = {
    "laplace": by_laplace,
    "scdf": _by_steps(scdf_half_width),
    "staircase": _by_steps(staircase_half_width),
    "duchi": _drawn(_duchi_quantiles),
    "pm": by_piecewise(pm.t_pm),
    "hm": _either(_PM, _duchi_quantiles, hybrid.hm_share),
    "three-outputs": _drawn(_three_outputs_quantiles),
    "pm-sub": by_piecewise(piecewise.t_sub),
    "pm-opt": by_piecewise(pm.t_opt),
    "hm-tp": _either(_PM_SUB, _three_outputs_quantiles, hybrid.hm_tp_share),
    "pdpm": by_pdpm,
}


def ranged(perturb: Perturb, centre: float, radius: float) -> Perturb:
    """Return a mechanism for values in [centre - radius, centre + radius]; others are clipped.

    perturb: the mechanism for values in [-1, 1], to which they are scaled.
    """

    def perturb_in_range(x: Floats, rng: np.random.Generator) -> Floats:
        scaled = np.clip((x - centre) / radius, -1, 1)
        return centre + radius * perturb(scaled, rng)

    return perturb_in_range


def rounded(perturb: Perturb, bound: float, outputs: int) -> Perturb:
    """Return a mechanism whose reports in [-bound, bound] are rounded (Zhao et al., Algorithm 5).

    Each report is rounded at random, without bias, to one of the two nearest of `outputs` evenly
    spaced values, an odd number.
    """
    step = 2 * bound / (outputs - 1)

    def discrete(x: Floats, rng: np.random.Generator) -> Floats:
        """Return reports of x in [-1, 1], each a multiple of the step."""
        steps = perturb(x, rng) / step
        # Down after adding a uniform number: up with the probability of the fraction.
        rounded_steps = np.floor(steps + rng.random(x.shape))
        return np.asarray(step * rounded_steps)

    return discrete


# The mechanisms that Algorithm 5 makes discrete, by the t of their windows.
WINDOWED = {
    "pm": pm.t_pm,
    "hm": pm.t_pm,
    "pm-sub": piecewise.t_sub,
    "hm-tp": piecewise.t_sub,
}


def largest_output(name: str, epsilon: float) -> float:
    """Return the largest report of a windowed mechanism, for Algorithm 5."""
    bounds = [PiecewiseLaw(epsilon, WINDOWED[name](epsilon)).bound]
    if name == "hm":
        bounds.append(duchi.constant(epsilon))
    elif name == "hm-tp":
        bounds.append(three_outputs.constant(epsilon, three_outputs.zero_probability(epsilon)))
    return max(bounds)


@lru_cache(maxsize=64)
def _agreeing(d: int) -> int:
    """Return how many of the 2**d tuples of d signs agree with a given one in d / 2 signs or more.

    For an odd d that is half of all tuples. For an even d, some agree in exactly d / 2 signs: by
    symmetry half of these come in addition.
    """
    half_of_all: int = 1 << (d - 1)
    if d % 2:
        return half_of_all
    ties = math.comb(d, d // 2)
    return half_of_all + ties // 2


def tuple_bound(epsilon: float, d: int) -> float:
    """Return B, the magnitude of each number in a report of Duchi's mechanism for tuples.

    With E = e**epsilon and A tuples that agree in half of the signs or more, it is
    B = ((E - 1) A + 2**d) / ((E - 1) binomial(d - 1, d // 2)). Source: Wang et al., equations 9 and
    10; shared_specs/errata.md corrects it for an even d.
    """
    e_minus_1 = math.expm1(epsilon)
    tuples = 1 << d
    return (e_minus_1 * _agreeing(d) + tuples) / (e_minus_1 * math.comb(d - 1, d // 2))


def duchi_tuples(x: Floats, epsilon: float, rng: np.random.Generator) -> Floats:
    """Perturb tuples (n x d) by Duchi's mechanism for several attributes; return reports (n x d).

    A tuple is first rounded to random signs. Its report has signs that agree with these in half of
    the places or more, with a probability that follows from epsilon, or else in fewer. Source: Wang
    et al., Algorithm 3, with the probability of Nguyen et al., arXiv 1606.05053, for an even d.
    """
    n, d = x.shape
    signs = np.where(rng.random((n, d)) < 0.5 + x / 2, 1, -1).astype(np.int8)
    weight_of_agreeing = math.exp(epsilon) * _agreeing(d)
    weight_of_others = 2**d - _agreeing(d)
    shall_agree = rng.random(n) < weight_of_agreeing / (weight_of_agreeing + weight_of_others)

    # By rejection: 1 where a report agrees with the signs and -1 elsewhere, drawn again for the
    # rows that do not agree as they shall.
    agreement = np.empty((n, d), np.int8)
    open_rows = np.arange(n)
    while open_rows.size:
        bits = rng.integers(2, size=(open_rows.size, d), dtype=np.int8)
        agreement[open_rows] = 2 * bits - 1
        # The sum is 0 or more if half of the places or more agree.
        agrees = agreement[open_rows].sum(axis=1, dtype=np.int64) >= 0
        open_rows = open_rows[agrees != shall_agree[open_rows]]
    return np.asarray(tuple_bound(epsilon, d) * (agreement * signs))
