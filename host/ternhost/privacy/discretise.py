"""The cost of Algorithm 5 of Zhao et al. (IEEE IoT J. 8, 2021, arXiv 2004.08856), for comparison only: it rounds a
continuous output at random to one of 2 m + 1 values. Rounding is unbiased and keeps epsilon, but adds variance. A
window card is discrete already, and the best one of as many levels has less variance."""

from __future__ import annotations

import math

from ternhost.privacy.mechanisms import piecewise


def piecewise_bound(epsilon: float, t: float) -> float:
    """A, the largest output of the continuous piecewise mechanism of parameter t."""
    e = math.exp(epsilon)
    return (e + t) * (t + 1) / (t * (e - 1))


def discretised_variance(epsilon: float, t: float, m: int, x: float) -> float:
    """Variance at x of the piecewise mechanism of parameter t after Algorithm 5 (exact but for rounding)."""
    e = math.exp(epsilon)
    bound = piecewise_bound(epsilon, t)
    step = bound / m
    half = bound / (t + 1)
    middle = x * bound * t / (t + 1)
    low, high = middle - half, middle + half
    near = e / (t + e) / (2 * half)
    far = t / (t + e) / (2 * bound - 2 * half)
    total = far * _rounding(-bound, bound, step) + (near - far) * _rounding(low, high, step)
    return piecewise.variance(epsilon, t, x) + total


def _rounding(a: float, b: float, step: float) -> float:
    """The integral over [a, b] of the variance that rounding adds, step**2 f (1 - f), f the fraction of a step."""

    def primitive(y: float) -> float:
        whole = math.floor(y / step)
        f = y / step - whole
        return step**3 * (whole / 6 + f * f / 2 - f**3 / 3)

    return primitive(b) - primitive(a)
