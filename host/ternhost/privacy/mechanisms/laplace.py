"""The Laplace mechanism (Dwork et al., TCC 2006), drawn exactly on a grid.

The draw is that of Canonne, Kamath and Steinke 2020. Epsilon is for a change of 2 in L1 norm: one
coordinate from -1 to 1, or a whole probability vector.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tern.fixed import ONE
from ternhost.errors import UsageError
from ternhost.options import Option
from ternhost.privacy.base import MICRO, Design, checked, laplace
from ternhost.privacy.mechanism import Mechanism

LEVELS = 255  # the default number of outputs
_REACH = 8  # noise scales beyond [-1, 1] before a default card clamps: the tails there hold 0.03 %
_MAX_SCALE = 1 << 20  # of t and of s, by the format of cards
_MOST_LEVELS = 65535


def variance(epsilon: float, x: float = 0.0) -> float:
    """Variance of the continuous mechanism, at every x."""
    return 8 / epsilon**2


worst_variance = variance


def rational_scale(epsilon: int, grid_bits: int) -> tuple[int, int]:
    """Return the integers (t, s) of the least noise scale t/s that keeps epsilon (in millionths).

    The scale, in grid steps of 2**-grid_bits, must be at least 2 / epsilon. Among all fractions
    whose terms fit a card, the nearest from above is returned. Raises UsageError if there is none.
    """
    # The exact scale is numerator / epsilon. For each denominator s, t is rounded up.
    numerator = 2 * MICRO << grid_bits
    largest_s = min(max(_MAX_SCALE * epsilon // numerator, 1), _MAX_SCALE)
    s = np.arange(1, largest_s + 1, dtype=np.int64)
    t = -(-numerator * s // epsilon)
    fits = t <= _MAX_SCALE
    if not fits.any():
        raise UsageError(f"epsilon {epsilon / MICRO} is too small for a grid of 2**-{grid_bits}")
    s = s[fits]
    t = t[fits]

    # How far t/s is above the exact scale, times epsilon.
    excess = (t * epsilon - numerator * s) / s
    best = int(np.argmin(excess))
    return int(t[best]), int(s[best])


def design(epsilon: int, levels: int | None = None, grid: int | None = None) -> Design:
    """Return a laplace card at epsilon (in millionths).

    levels: the number of outputs, which must be odd; noisy values are clamped to them symmetrically
    about 0. grid: the grid's step is 2**-grid; None: the finest grid on which clamping begins about
    8 noise scales outside [-1, 1], or else a step of 1. Raises UsageError.
    """
    if levels is None:
        levels = LEVELS
    if not 3 <= levels <= _MOST_LEVELS or levels % 2 == 0:
        allowed = f"an odd number of levels from 3 to {_MOST_LEVELS}"
        raise UsageError(f"this mechanism has {allowed}, not {levels}")
    half = levels // 2  # the number of levels above 0
    if grid is None:
        grid = _finest_grid(epsilon, half)
    # Inputs have steps of 2**-14, and the input 1 must be one of the outputs.
    fits = 0 <= grid < ONE.bit_length() and half >= 1 << grid
    if not fits:
        reason = f"is finer than 2**-14, or has more than {levels} steps in [-1, 1]"
        raise UsageError(f"a grid of 2**-{grid} {reason}")
    t, s = rational_scale(epsilon, grid)
    note = f"grid step 1/{1 << grid}, noise scale {t}/{s} steps, clamped at {half / (1 << grid):g}"
    data = laplace(grid, t, s, lowest=-half, highest=half)
    return checked("laplace", epsilon, data, note)


def _finest_grid(epsilon: int, half: int) -> int:
    """Return the default grid of `design`.

    epsilon: in millionths. half: the number of levels above 0.
    """
    noise_scale = 2 * MICRO / epsilon
    clamped_at = 1 + _REACH * noise_scale
    if half <= clamped_at:
        return 0
    finest_of_inputs = ONE.bit_length() - 1
    return min(math.floor(math.log2(half / clamped_at)), finest_of_inputs)


def _tries(most: int) -> Iterator[Mapping[str, Any]]:
    """Yield the options that `auto` tries: the largest odd number of levels up to `most`."""
    if most >= 3:
        largest_odd = most - 1 + most % 2
        yield {"levels": min(largest_odd, _MOST_LEVELS)}


_GRID = Option(
    "grid", "the grid's step is 2**-Q", int, "Q", shown="the finest that --levels allows"
)
LAPLACE = Mechanism(
    "laplace",
    design,
    (_GRID,),
    variance,
    worst_variance,
    LEVELS,
    (1023,),
    tries=_tries,
    about="the value plus Laplace noise, drawn exactly on a grid",
)
