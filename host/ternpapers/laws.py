"""The exact variances of reports, for each mechanism of perturbing.py.

Reports are unbiased, so that the expected squared error of a report is its variance.
"""

import math
from collections.abc import Callable
from typing import cast

import numpy as np

from ternhost.datasets import Floats
from ternhost.privacy.mechanisms import REGISTRY
from ternpapers import discretisation
from ternpapers.perturbing import (
    WINDOWED,
    probability_of_centre,
    scdf_half_width,
    staircase_half_width,
)

# By epsilon, the half width of the central step of the mechanisms whose noise falls in steps.
_HALF_WIDTHS = {"scdf": scdf_half_width, "staircase": staircase_half_width}


def variances(name: str, epsilon: float, x: Floats, outputs: int | None = None) -> Floats:
    """Return the variance of a mechanism's report of each of the numbers x in [-1, 1].

    outputs: how many outputs it has after Algorithm 5 of Zhao et al., which only rounds the
    reports of the mechanisms of WINDOWED; None for no rounding.
    """
    if name in _HALF_WIDTHS:
        return np.full(x.shape, _variance_of_steps(epsilon, _HALF_WIDTHS[name](epsilon)))

    law = REGISTRY.named(name).variance
    assert law is not None
    # The law is written for one number. All of its operations work on arrays, too.
    law_of_arrays = cast(Callable[[float, Floats], Floats], law)
    of_mechanism = np.broadcast_to(law_of_arrays(epsilon, x), x.shape)
    if outputs and name in WINDOWED:
        return of_mechanism + discretisation.added_variance(name, epsilon, outputs, x)
    return of_mechanism


def _variance_of_steps(epsilon: float, m: float) -> float:
    """Return the variance of noise whose density falls by E = e**epsilon at each step.

    m: the half width of the central step. The noise lies on this step with the probability that
    `probability_of_centre` returns. Otherwise its size is m + 2 w. Here w is the sum of a geometric
    number from 0, which grows with probability 1 / E, and a uniform number of [0, 1].
    """
    e = math.exp(epsilon)
    near_share = probability_of_centre(epsilon, m)
    mean_of_steps = 1 / (e - 1)
    mean_square_of_steps = (e + 1) / (e - 1) ** 2
    mean_w = mean_of_steps + 1 / 2
    mean_square_w = mean_square_of_steps + mean_of_steps + 1 / 3
    near = m**2 / 3
    far = m**2 + 4 * m * mean_w + 4 * mean_square_w
    return near_share * near + (1 - near_share) * far
