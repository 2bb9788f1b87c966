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
    """Three-Outputs, as corrected in shared_specs/errata.md."""
    e = math.exp(epsilon)
    a = three_outputs.zero_probability(epsilon)
    c, middle, high = three_outputs.constant(epsilon, a), (1 - a) / 2, (e - a) / (e + 1)

    def perturb(x: Floats, rng: np.random.Generator) -> Floats:
        size, u = np.abs(x), rng.random(x.shape)
        likely = middle + (high - middle) * size
        zero = a - (a - a / e) * size
        drawn = np.where(u < likely, c, np.where(u < likely + zero, 0.0, -c))
        return np.copysign(1.0, x) * drawn

    return perturb


def by_piecewise(t: Callable[[float], float]) -> Callable[[float], Perturb]:
    """PM, PM-SUB or PM-OPT by their t: reports a point of a window around x with probability E / (t
    + E), else one outside.
    """

    def mechanism(epsilon: float) -> Perturb:
        e, parameter = math.exp(epsilon), t(epsilon)
        bound = piecewise_bound(epsilon, parameter)
        scale = bound / (parameter + 1)
        width = 2 * scale

        def perturb(x: Floats, rng: np.random.Generator) -> Floats:
            low = scale * (x * parameter - 1)
            u, inside = rng.random(x.shape), rng.random(x.shape) < e / (parameter + e)
            outside = u * (2 * bound - width) - bound
            outside += np.where(outside > low, width, 0.0)
            return np.where(inside, low + u * width, outside)

        return perturb

    return mechanism


def piecewise_bound(epsilon: float, t: float) -> float:
    """A, the largest output of the piecewise mechanism of parameter t."""
    e = math.exp(epsilon)
    return (e + t) * (t + 1) / (t * (e - 1))


def _either(
    first: Callable[[float], Perturb],
    second: Callable[[float], Perturb],
    share: Callable[[float], float],
) -> Callable[[float], Perturb]:
    """The first mechanism with probability `share` of epsilon, else the second."""

    def mechanism(epsilon: float) -> Perturb:
        one, other, probability = first(epsilon), second(epsilon), share(epsilon)
        return lambda x, rng: np.where(
            rng.random(x.shape) < probability, one(x, rng), other(x, rng)
        )

    return mechanism


def _by_steps(half_width: Callable[[float], float]) -> Callable[[float], Perturb]:
    """SCDF and Staircase: noise whose density is constant within m of 0 and falls by E at each step
    of 2 further.
    """

    def mechanism(epsilon: float) -> Perturb:
        m, e = half_width(epsilon), math.exp(epsilon)
        centre = m / (
            m + 2 / (e - 1)
        )  # the probability of noise within m: 2 m a of 2 m a + 4 a / (E - 1)

        def perturb(x: Floats, rng: np.random.Generator) -> Floats:
            step = rng.geometric(1 - 1 / e, x.shape) - 1
            far = m + 2 * (step + rng.random(x.shape))
            near = m * rng.random(x.shape)
            size = np.where(rng.random(x.shape) < centre, near, far)
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
    """PDPM for a safe range of 1: its three outputs."""
    outputs = np.array(pdpm.outputs(epsilon))

    def perturb(x: Floats, rng: np.random.Generator) -> Floats:
        low, zero, _ = pdpm.probabilities(epsilon, x)  # type: ignore[arg-type]
        u = rng.random(x.shape)
        return np.asarray(outputs[(u >= low).astype(int) + (u >= low + zero)])

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
    """The mechanism for values in [centre - radius, centre + radius]; values outside are clipped."""
    return lambda x, rng: centre + radius * perturb(np.clip((x - centre) / radius, -1, 1), rng)


def rounded(perturb: Perturb, bound: float, outputs: int) -> Perturb:
    """Algorithm 5 of Zhao et al.: each report in [-bound, bound] is rounded at random to one of the
    two nearest of `outputs` evenly spaced values, an odd number, without bias.
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
    """The largest report of a windowed mechanism, for Algorithm 5."""
    bounds = [piecewise_bound(epsilon, WINDOWED[name](epsilon))]
    if name == "hm":
        bounds.append(duchi.constant(epsilon))
    elif name == "hm-tp":
        bounds.append(three_outputs.constant(epsilon, three_outputs.zero_probability(epsilon)))
    return max(bounds)


@lru_cache(maxsize=64)
def _agreeing(d: int) -> int:
    """How many of the 2**d tuples of signs agree with a given one at half of the places or more."""
    return (1 << d - 1) + (0 if d % 2 else math.comb(d, d // 2) // 2)


def tuple_bound(epsilon: float, d: int) -> float:
    """B, the size of each number in a report of Duchi's mechanism for tuples (Wang et al.,
    equations 9 and 10).

    shared_specs/errata.md corrects it for an even d.
    """
    few = math.expm1(epsilon)
    return (few * _agreeing(d) + (1 << d)) / (few * math.comb(d - 1, d // 2))


def duchi_tuples(x: Floats, epsilon: float, rng: np.random.Generator) -> Floats:
    """Reports (n x d) of tuples (n x d) by Duchi's mechanism for several attributes (Wang et al.,
    Algorithm 3, with the probability of Nguyen et al., arXiv 1606.05053, for an even d).
    """
    n, d = x.shape
    signs = np.where(rng.random((n, d)) < 0.5 + x / 2, 1, -1).astype(np.int8)
    agree = math.exp(epsilon) * _agreeing(d)
    wanted = rng.random(n) < agree / (agree + 2**d - _agreeing(d))
    drawn, left = np.empty((n, d), np.int8), np.arange(n)
    while (
        left.size
    ):  # by rejection: signs that agree with 1, 1, ... at half of the places or more, or do not
        drawn[left] = 2 * rng.integers(2, size=(left.size, d), dtype=np.int8) - 1
        left = left[(drawn[left].sum(axis=1, dtype=np.int64) >= 0) != wanted[left]]
    return np.asarray(tuple_bound(epsilon, d) * (drawn * signs))
