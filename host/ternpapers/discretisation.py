"""How many outputs are enough: PM-SUB as a card of N levels, and made discrete by the paper's
Algorithm 5.

Algorithm 5 of Zhao et al. (2021) draws the continuous output in [-A, A] and rounds it at random to
one of the two multiples of A / m beside it. That is unbiased and adds variance, and in floating
point it is not exactly private. A card needs no rounding, since its window consists of levels.
"""

import math

import numpy as np

from tern.card import decode
from ternhost.planning.cells import Row
from ternhost.privacy import certify
from ternhost.privacy.mechanisms import design, piecewise
from ternpapers.perturbing import piecewise_bound

_KINDS = {"card, paper's window": "paper", "card, best window": "best"}
_LEVELS = (3, 5, 7, 11, 15, 31, 63, 127, 255)


def variances() -> list[Row]:
    """The worst-case variance of PM-SUB with few outputs, divided by the variance of the continuous
    mechanism.
    """
    rows = []
    for epsilon in (1.0, 4.0):
        t = piecewise.t_sub(epsilon)
        for levels in _LEVELS:
            worst = {
                kind: float(
                    certify.moments(
                        decode(design("pm-sub", str(epsilon), levels, window=window).card)
                    ).worst_variance()[0]
                )
                for kind, window in _KINDS.items()
            }
            points = np.linspace(0, 1, 101).tolist()
            worst["Algorithm 5"] = max(
                discretised_variance(epsilon, t, levels // 2, x) for x in points
            )
            panel = {"panel": f"epsilon {epsilon:g}", "outputs": levels}
            whole = piecewise.worst_variance(epsilon, t)
            rows += [
                {**panel, "curve": kind, "ratio": variance / whole}
                for kind, variance in worst.items()
            ]
    return rows


def discretised_variance(epsilon: float, t: float, m: int, x: float) -> float:
    """Variance at x of the piecewise mechanism of parameter t, rounded to steps of A / m by
    Algorithm 5.
    """
    e = math.exp(epsilon)
    bound = piecewise_bound(epsilon, t)
    step = bound / m
    half = bound / (t + 1)
    middle = x * bound * t / (t + 1)
    low, high = middle - half, middle + half
    near = e / (t + e) / (2 * half)
    far = t / (t + e) / (2 * bound - 2 * half)
    added = far * _rounding(-bound, bound, step) + (near - far) * _rounding(low, high, step)
    return piecewise.variance(epsilon, t, x) + added


def _rounding(a: float, b: float, step: float) -> float:
    """The integral over [a, b] of the variance that rounding adds: step**2 f (1 - f), f the
    fraction of a step.
    """

    def antiderivative(y: float) -> float:
        whole = math.floor(y / step)
        f = y / step - whole
        return step**3 * (whole / 6 + f * f / 2 - f**3 / 3)

    return antiderivative(b) - antiderivative(a)
