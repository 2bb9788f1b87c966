"""The law of a piecewise mechanism: PM, PM-SUB or PM-OPT, each with a parameter t of its own.

Sources: Wang et al., ICDE 2019, Algorithm 2; Zhao et al., IEEE IoT J. 8, 2021, Algorithm 3.
"""

import math

from ternhost.datasets import Floats


class PiecewiseLaw:
    """How the outputs of an input x in [-1, 1] are distributed in [-bound, bound].

    The density is constant in a window around the input, and constant outside of it. In the window
    it is e**epsilon times as high.
    """

    def __init__(self, epsilon: float, t: float) -> None:
        """Compute the law at this epsilon. t: the parameter that sets the width of the window."""
        e = math.exp(epsilon)
        self._t = t
        self.bound = (e + t) * (t + 1) / (t * (e - 1))
        self.half_width = self.bound / (t + 1)  # of the window
        self.probability_inside = e / (t + e)  # of an output in the window
        self.density_inside = self.probability_inside / (2 * self.half_width)
        self.density_outside = self.density_inside / e

    def window_start(self, x: Floats) -> Floats:
        """Return where the window of each input begins."""
        return self.half_width * (x * self._t - 1)
