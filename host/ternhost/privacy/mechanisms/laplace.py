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

LEVELS = 255
_REACH = 8  # noise scales beyond [-1, 1] before a default card clamps: the tails there hold 0.03 %
_MAX_SCALE = 1 << 20
_MOST_LEVELS = 65535


def variance(epsilon: float, x: float = 0.0) -> float:
    """Variance of the continuous mechanism, at every x."""
    return 8 / epsilon**2


worst_variance = variance


def rational_scale(epsilon: int, grid_bits: int) -> tuple[int, int]:
    """Return (t, s), where t/s grid steps is the least noise scale that keeps epsilon (micro).

    The scale must be at least 2 / epsilon, in steps of 2**-grid_bits; t and s are bounded by the
    card's format. Raises UsageError if no such fraction exists.
    """
    # The exact scale is numerator / epsilon. For each denominator s, t is rounded up.
    numerator = 2 * MICRO << grid_bits
    largest_s = min(max(_MAX_SCALE * epsilon // numerator, 1), _MAX_SCALE)
    s = np.arange(1, largest_s + 1, dtype=np.int64)
    t = -(-numerator * s // epsilon)
    fits = t <= _MAX_SCALE
    if not fits.any():
        raise UsageError(f"epsilon {epsilon / MICRO} is too small for a grid of 2**-{grid_bits}")
    s, t = s[fits], t[fits]
    excess = t * epsilon - numerator * s  # over s: what rounding adds, times epsilon
    best = int(np.argmin(excess / s))
    return int(t[best]), int(s[best])


def design(epsilon: int, levels: int | None = None, grid: int | None = None) -> Design:
    """Design a laplace card at epsilon (micro).

    levels: the number of outputs, odd, to which noisy values are clamped symmetrically about 0.
    grid: the step is 2**-grid; by default the finest grid on which clamping begins about 8 noise
    scales outside [-1, 1], or else a step of 1. Raises UsageError.
    """
    if levels is None:
        levels = LEVELS
    if not 3 <= levels <= _MOST_LEVELS or levels % 2 == 0:
        allowed = f"an odd number of levels from 3 to {_MOST_LEVELS}"
        raise UsageError(f"this mechanism has {allowed}, not {levels}")
    half = levels // 2
    if grid is None:
        grid = _finest_grid(epsilon, half)
    if not 0 <= grid < ONE.bit_length() or half < 1 << grid:
        reason = f"is finer than 2**-14, or has more than {levels} steps in [-1, 1]"
        raise UsageError(f"a grid of 2**-{grid} {reason}")
    t, s = rational_scale(epsilon, grid)
    note = f"grid step 1/{1 << grid}, noise scale {t}/{s} steps, clamped at {half / (1 << grid):g}"
    return checked("laplace", epsilon, laplace(grid, t, s, -half, half), note)


def _finest_grid(epsilon: int, half: int) -> int:
    """Return the default grid of `design`. half: the number of levels above 0."""
    noise_scale = 2 * MICRO / epsilon
    clamped_at = 1 + _REACH * noise_scale
    if half <= clamped_at:
        return 0
    return min(math.floor(math.log2(half / clamped_at)), ONE.bit_length() - 1)


def _tries(most: int) -> Iterator[Mapping[str, Any]]:
    """Yield the options that `auto` tries: the largest odd number of levels up to `most`."""
    if most >= 3:
        largest_odd = most - 1 + most % 2
        yield {"levels": min(largest_odd, _MOST_LEVELS)}


_GRID = Option(
    "grid", "the grid's step is 2**-Q", int, "Q", shown="the finest that --levels allows"
)
LAPLACE = Mechanism(
    "laplace", design, (_GRID,), variance, worst_variance, LEVELS, (1023,), tries=_tries
)
