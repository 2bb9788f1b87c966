"""The modes in which clients take their epsilon and their safe range, as the figures name them."""

from ternpapers.papers.shen.averaging import WEIGHTS, Averaging
from ternpapers.safe_ranges import TAKEN, in_turn

# The names of curves and panels, by mode.
EPSILON_CURVES = {mode: f"epsilon in mode {mode}" for mode in TAKEN}
TAU_CURVES = {mode: f"safe ranges in mode {mode}" for mode in TAKEN}


def pdpm_in_modes(epsilon: str, tau: str, gamma: float = 0.7, reported: str = WEIGHTS) -> Averaging:
    """Return a run with PDPM in these modes of epsilon and of the safe ranges.

    gamma, reported: as of `Averaging`.
    """
    return Averaging("pdpm", in_turn(epsilon, tau), gamma, reported)
