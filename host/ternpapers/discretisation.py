"""What Algorithm 5 of Zhao et al. (2021) adds to the variance of a mechanism.

The algorithm draws the continuous output in [-A, A] and rounds it at random to one of the two
multiples of A / m beside it. That is unbiased and adds variance, and in floating point it is not
exactly private.
"""

import numpy as np

from ternhost.datasets import Floats
from ternhost.privacy.mechanisms import duchi, three_outputs
from ternpapers.mechanisms import hybrid
from ternpapers.perturbing import WINDOWED, largest_output, probability_of_zero
from ternpapers.piecewise_law import PiecewiseLaw


def added_variance(name: str, epsilon: float, outputs: int, x: Floats) -> Floats:
    """Return what Algorithm 5 adds to the variance of a mechanism of WINDOWED at each x.

    outputs: how many values a report can have after it. Those of a hybrid are on one grid, whose
    end is the largest report of both mechanisms, so that nobody sees which of the two was drawn.
    """
    step = 2 * largest_output(name, epsilon) / (outputs - 1)
    of_window = _added_to_window(epsilon, WINDOWED[name](epsilon), step, x)
    if name == "hm":
        share = hybrid.hm_share(epsilon)
        constant = duchi.constant(epsilon)
        probability = np.ones(x.shape)  # of C or -C
    elif name == "hm-tp":
        share = hybrid.hm_tp_share(epsilon)
        a = three_outputs.zero_probability(epsilon)
        constant = three_outputs.constant(epsilon, a)
        probability = 1 - probability_of_zero(epsilon, a, x)
    else:
        return of_window
    # The reports C and -C need not be on the grid; a report of 0 is.
    fraction = constant / step % 1
    of_discrete = probability * step**2 * fraction * (1 - fraction)
    return share * of_window + (1 - share) * of_discrete


def _added_to_window(epsilon: float, t: float, step: float, x: Floats) -> Floats:
    """Return what rounding to multiples of a step adds to the variance of a piecewise mechanism.

    That is the mean, over the outputs at x, of the variance of the rounding. The density of outputs
    is constant within a window around the input, and outside of it. t: the parameter of the
    mechanism.
    """
    law = PiecewiseLaw(epsilon, t)
    start = law.window_start(x)
    window = _rounding_variance(start, start + 2 * law.half_width, step)
    everywhere = _rounding_variance(np.array(-law.bound), np.array(law.bound), step)
    return law.density_outside * everywhere + (law.density_inside - law.density_outside) * window


def _rounding_variance(start: Floats, end: Floats, step: float) -> Floats:
    """Return the integral over [start, end] of the variance that rounding to steps adds.

    At y = (n + f) step, with a whole number n and 0 <= f < 1, that is step**2 f (1 - f).
    """

    def antiderivative(y: Floats) -> Floats:
        """Return the integral from 0 to y: step**3 / 6 for each whole step, and the rest."""
        whole_steps = np.floor(y / step)
        fraction = y / step - whole_steps
        rest = fraction * fraction / 2 - fraction**3 / 3
        return np.asarray(step**3 * (whole_steps / 6 + rest))

    return antiderivative(end) - antiderivative(start)
