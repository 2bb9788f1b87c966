"""Computes how many outputs are enough for PM-SUB.

It is either a card of N levels, the table from which devices draw, or made discrete by the paper's
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
    """Return the worst-case variance of PM-SUB with few outputs, divided by that of continuous PM-SUB.

    There is a row for each epsilon, number of outputs, and way to have so few outputs.
    """
    inputs = np.linspace(0, 1, 101).tolist()
    rows = []
    for epsilon in (1.0, 4.0):
        t = piecewise.t_sub(epsilon)
        continuous = piecewise.worst_variance(epsilon, t)
        for levels in _LEVELS:
            worst_variances = {}
            for curve, window in _KINDS.items():
                worst_variances[curve] = _worst_variance_of_card(epsilon, levels, window)
            steps_to_end = levels // 2  # on each side of 0
            by_input = [discretised_variance(epsilon, t, steps_to_end, x) for x in inputs]
            worst_variances["Algorithm 5"] = max(by_input)
            panel = {"panel": f"epsilon {epsilon:g}", "outputs": levels}
            for curve, worst_variance in worst_variances.items():
                rows.append({**panel, "curve": curve, "ratio": worst_variance / continuous})
    return rows


def _worst_variance_of_card(epsilon: float, levels: int, window: str) -> float:
    """Return the worst-case variance of PM-SUB's card, exactly from its integers.

    window: how its window is chosen, "paper" or "best".
    """
    card = decode(design("pm-sub", str(epsilon), levels, window=window).card)
    variance, _ = certify.moments(card).worst_variance()
    return float(variance)


def discretised_variance(epsilon: float, t: float, m: int, x: float) -> float:
    """Return the variance at x of a piecewise mechanism after Algorithm 5 of Zhao et al.

    t: the parameter of the mechanism. m: the number of steps from 0 to A. The outputs in [-A, A]
    are rounded at random to multiples of A / m. To the variance of the mechanism this adds the
    mean, over its outputs, of the variance of the rounding. The density of outputs is constant
    within a window around the input, and outside of it.
    """
    e = math.exp(epsilon)
    bound = piecewise_bound(epsilon, t)  # A
    step = bound / m
    half_width = bound / (t + 1)  # of the window
    centre = x * bound * t / (t + 1)
    low, high = centre - half_width, centre + half_width
    inside_density = e / (t + e) / (2 * half_width)
    outside_density = t / (t + e) / (2 * bound - 2 * half_width)

    everywhere = outside_density * _rounding_variance(-bound, bound, step)
    in_window = (inside_density - outside_density) * _rounding_variance(low, high, step)
    return piecewise.variance(epsilon, t, x) + (everywhere + in_window)


def _rounding_variance(start: float, end: float, step: float) -> float:
    """Return the integral over [start, end] of the variance that rounding to steps adds.

    At y = (n + f) step, with a whole number n and 0 <= f < 1, that is step**2 f (1 - f).
    """

    def antiderivative(y: float) -> float:
        """Return the integral from 0 to y: step**3 / 6 for each whole step, and the rest."""
        whole_steps = math.floor(y / step)
        fraction = y / step - whole_steps
        return step**3 * (whole_steps / 6 + fraction * fraction / 2 - fraction**3 / 3)

    return antiderivative(end) - antiderivative(start)
