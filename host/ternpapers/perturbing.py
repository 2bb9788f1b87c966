"""The papers' mechanisms in floats, as they describe them.

For simulations only: floats keep no epsilon exactly.

Sources: Wang et al., ICDE 2019 (PM, HM; SCDF and Staircase as their equation 2 has them); Duchi,
Jordan, Wainwright, JASA 2018; Zhao et al., IEEE IoT J. 8, 2021 (Three-Outputs, PM-SUB, PM-OPT,
HM-TP, Algorithm 5); Shen et al., Entropy 2023, 25, 485 (PDPM): corrected where
shared_specs/errata.md says so.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from ternhost.datasets import Floats
from ternhost.privacy.mechanisms import duchi, piecewise, three_outputs
from ternpapers.mechanisms import hybrid, pdpm, pm

# (values in [-1, 1], generator) -> unbiased reports of the values
Perturb = Callable[[Floats, np.random.Generator], Floats]


def by_laplace(epsilon: float) -> Perturb:
    """Laplace noise of scale 2 / epsilon."""
    return lambda x, rng: x + rng.laplace(0, 2 / epsilon, x.shape)


def by_duchi(epsilon: float) -> Perturb:
    """Duchi's mechanism for one value, which is also Harmony's: reports C or -C."""
    c = duchi.constant(epsilon)
    return lambda x, rng: np.where(rng.random(x.shape) < 0.5 + x / (2 * c), c, -c)


def by_three_outputs(epsilon: float) -> Perturb:
    """Three-Outputs, as corrected in shared_specs/errata.md: reports C, 0 or -C.

    a is the probability of 0 at x = 0. The probabilities are linear in |x|.
    """
    e = math.exp(epsilon)
    a = three_outputs.zero_probability(epsilon)
    c = three_outputs.constant(epsilon, a)
    same_sign_at_0 = (1 - a) / 2
    same_sign_at_1 = (e - a) / (e + 1)

    def perturb(x: Floats, rng: np.random.Generator) -> Floats:
        """Return reports of x in [-1, 1], each of them C, 0 or -C."""
        size = np.abs(x)
        uniform = rng.random(x.shape)
        same_sign = same_sign_at_0 + (same_sign_at_1 - same_sign_at_0) * size
        zero = a - (a - a / e) * size
        zero_or_opposite = np.where(uniform < same_sign + zero, 0.0, -c)
        drawn = np.where(uniform < same_sign, c, zero_or_opposite)
        return np.copysign(1.0, x) * drawn

    return perturb


def by_piecewise(t: Callable[[float], float]) -> Callable[[float], Perturb]:
    """Return PM, PM-SUB or PM-OPT as a function of epsilon, by the function of their parameter t.

    A report is a point of a window around x with probability E / (t + E), where E = e**epsilon, and
    else one of [-A, A] outside of it. In both cases it is uniform.
    """

    def mechanism(epsilon: float) -> Perturb:
        """Return the piecewise mechanism at this epsilon."""
        e = math.exp(epsilon)
        parameter = t(epsilon)
        bound = piecewise_bound(epsilon, parameter)  # A
        half_width = bound / (parameter + 1)  # of the window
        width = 2 * half_width

        def perturb(x: Floats, rng: np.random.Generator) -> Floats:
            window_start = half_width * (x * parameter - 1)
            uniform = rng.random(x.shape)
            is_inside = rng.random(x.shape) < e / (parameter + e)
            # A point of an interval without the window, moved by its width if it lies behind it.
            outside = uniform * (2 * bound - width) - bound
            outside += np.where(outside > window_start, width, 0.0)
            return np.where(is_inside, window_start + uniform * width, outside)

        return perturb

    return mechanism


def piecewise_bound(epsilon: float, t: float) -> float:
    """Return A, the largest output of the piecewise mechanism of parameter t."""
    e = math.exp(epsilon)
    return (e + t) * (t + 1) / (t * (e - 1))


def _either(
    first: Callable[[float], Perturb],
    second: Callable[[float], Perturb],
    share: Callable[[float], float],
) -> Callable[[float], Perturb]:
    """Return a hybrid: the first mechanism with probability `share(epsilon)`, else the second."""

    def mechanism(epsilon: float) -> Perturb:
        """Return the hybrid at this epsilon."""
        perturb_by_first = first(epsilon)
        perturb_by_second = second(epsilon)
        probability_of_first = share(epsilon)

        def perturb(x: Floats, rng: np.random.Generator) -> Floats:
            by_first = rng.random(x.shape) < probability_of_first
            return np.where(by_first, perturb_by_first(x, rng), perturb_by_second(x, rng))

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
        # Of the density, 2 m a lies within m, and 4 a / (E - 1) outside.
        probability_of_centre = m / (m + 2 / (e - 1))

        def perturb(x: Floats, rng: np.random.Generator) -> Floats:
            step = rng.geometric(1 - 1 / e, x.shape) - 1
            far = m + 2 * (step + rng.random(x.shape))
            near = m * rng.random(x.shape)
            size = np.where(rng.random(x.shape) < probability_of_centre, near, far)
            return x + np.where(rng.random(x.shape) < 0.5, size, -size)

        return perturb

    return mechanism


def scdf_half_width(epsilon: float) -> float:
    """m of SCDF (Wang et al., equation 2)."""
    shrunk = math.exp(-epsilon)
    return 2 * (1 - shrunk - epsilon * shrunk) / (epsilon - epsilon * shrunk)


def staircase_half_width(epsilon: float) -> float:
    """m of the Staircase mechanism (Wang et al., equation 2)."""
    return 2 / (1 + math.exp(epsilon / 2))


def by_pdpm(epsilon: float) -> Perturb:
    """PDPM for a safe range of 1: reports one of its three outputs."""
    outputs = np.array(pdpm.outputs(epsilon))

    def perturb(x: Floats, rng: np.random.Generator) -> Floats:
        low, zero, _high = pdpm.probabilities(epsilon, x)  # type: ignore[arg-type]
        uniform = rng.random(x.shape)
        index = (uniform >= low).astype(int) + (uniform >= low + zero)
        return np.asarray(outputs[index])

    return perturb


MECHANISMS: dict[str, Callable[[float], Perturb]] = {
    "laplace": by_laplace,
    "scdf": _by_steps(scdf_half_width),
    "staircase": _by_steps(staircase_half_width),
    "duchi": by_duchi,
    "pm": by_piecewise(pm.t_pm),
    "hm": _either(by_piecewise(pm.t_pm), by_duchi, hybrid.hm_share),
    "three-outputs": by_three_outputs,
    "pm-sub": by_piecewise(piecewise.t_sub),
    "pm-opt": by_piecewise(pm.t_opt),
    "hm-tp": _either(by_piecewise(piecewise.t_sub), by_three_outputs, hybrid.hm_tp_share),
    "pdpm": by_pdpm,
}


def ranged(perturb: Perturb, centre: float, radius: float) -> Perturb:
    """Return a mechanism for values in [centre - radius, centre + radius]; others are clipped."""
    return lambda x, rng: centre + radius * perturb(np.clip((x - centre) / radius, -1, 1), rng)


def rounded(perturb: Perturb, bound: float, outputs: int) -> Perturb:
    """Return a mechanism whose reports in [-bound, bound] are rounded (Zhao et al., Algorithm 5).

    Each report is rounded at random, without bias, to one of the two nearest of `outputs` evenly
    spaced values, an odd number.
    """
    step = 2 * bound / (outputs - 1)

    def discrete(x: Floats, rng: np.random.Generator) -> Floats:
        steps = perturb(x, rng) / step
        return np.asarray(step * np.floor(steps + rng.random(x.shape)))

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
    bounds = [piecewise_bound(epsilon, WINDOWED[name](epsilon))]
    if name == "hm":
        bounds.append(duchi.constant(epsilon))
    elif name == "hm-tp":
        bounds.append(three_outputs.constant(epsilon, three_outputs.zero_probability(epsilon)))
    return max(bounds)


@lru_cache(maxsize=64)
def _agreeing(d: int) -> int:
    """Return how many of the 2**d tuples of signs agree with a given one in half of them or more.

    For an odd d that is half of all. For an even d, half of the ties come in addition.
    """
    half_of_all: int = 1 << (d - 1)
    if d % 2:
        return half_of_all
    ties = math.comb(d, d // 2)
    return half_of_all + ties // 2


def tuple_bound(epsilon: float, d: int) -> float:
    """Return B, the magnitude of each number in a report of Duchi's mechanism for tuples.

    Source: Wang et al., equations 9 and 10; shared_specs/errata.md corrects it for an even d.
    """
    e_minus_1 = math.expm1(epsilon)
    return (e_minus_1 * _agreeing(d) + (1 << d)) / (e_minus_1 * math.comb(d - 1, d // 2))


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
        agreement[open_rows] = 2 * rng.integers(2, size=(open_rows.size, d), dtype=np.int8) - 1
        agrees = agreement[open_rows].sum(axis=1, dtype=np.int64) >= 0
        open_rows = open_rows[agrees != shall_agree[open_rows]]
    return np.asarray(tuple_bound(epsilon, d) * (agreement * signs))
