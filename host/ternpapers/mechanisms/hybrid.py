"""The hybrid mechanisms: a coin chooses a piecewise mechanism or a discrete one.

They are HM (Wang et al., ICDE 2019: PM or Duchi's mechanism) and HM-TP (Zhao et al., IEEE IoT J. 8,
2021, corrected in shared_specs/errata.md: PM-SUB or Three-Outputs). Rounding the probability of the
coin changes the variance, never the privacy.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tern import card as cards
from tern.card import MAX_SYMBOLS, T
from ternhost.privacy.base import MICRO, Design, check_levels, checked, mixture
from ternhost.privacy.mechanism import Mechanism
from ternhost.privacy.mechanisms import duchi, piecewise, three_outputs
from ternpapers.mechanisms import pm

HM_FROM = 0.609352  # epsilon up to which HM is Duchi's mechanism
_HM_TP_FROM = 0.6109863  # epsilon up to which HM-TP is Three-Outputs
LEVELS = 255  # the default number of levels of both mechanisms together
_FEW = 8  # with fewer levels, a window is too coarse for a hybrid to be worth a try


def hm_share(epsilon: float) -> float:
    """Return the probability of PM in HM, 1 - exp(-epsilon / 2) (Wang et al., ICDE 2019)."""
    if epsilon <= HM_FROM:
        return 0.0
    return 1 - math.exp(-epsilon / 2)


def hm_tp_share(epsilon: float) -> float:
    """Return beta, the probability of PM-SUB in HM-TP, which has the least worst-case variance.

    Source: Zhao et al., equation 150, in the form of shared_specs/errata.md. a is the probability
    that Three-Outputs reports 0 at x = 0, and C the magnitude of its other outputs.
    """
    if epsilon <= _HM_TP_FROM:
        return 0.0
    e = math.exp(epsilon)
    t = piecewise.t_sub(epsilon)
    if e <= 2:  # up to ln 2, where a is 0
        return (e - 1) / (e + t)
    a = three_outputs.zero_probability(epsilon)
    c_squared = three_outputs.constant(epsilon, a) ** 2
    # The variances of PM-SUB and Three-Outputs are parabolas in |x|. These are the factor of x**2 in
    # the first, the factor of |x| in the second, and the difference of both at x = 0.
    curvature = (t + 1) / (e - 1)
    slope = c_squared * a * (e - 1) / e
    difference = c_squared * (1 - a) - piecewise.variance(epsilon, t, 0)
    root = math.sqrt(1 + 4 * (1 + curvature) * difference / slope**2)
    return max(0.0, 1 - curvature / (1 + curvature) * (1 + 1 / root))


def _worst(variance: Callable[[float, float], float], epsilon: float) -> float:
    """Return the maximum over |x| of a variance that is a parabola in |x|.

    It is at 0, at 1, or where the slope is 0 if the parabola opens downward. variance: called with
    epsilon and x.
    """
    at_0, at_half, at_1 = variance(epsilon, 0.0), variance(epsilon, 0.5), variance(epsilon, 1.0)
    curvature = 2 * (at_0 - 2 * at_half + at_1)  # the factor of x**2
    if curvature >= 0:
        return max(at_0, at_1)
    # With the slope b at 0 the parabola is at_0 + b x + curvature x**2, so b = at_1 - at_0 - curvature,
    # and its apex is at -b / (2 curvature).
    apex = (at_0 - at_1 + curvature) / (2 * curvature)
    apex_in_range = min(max(apex, 0.0), 1.0)
    return max(at_0, at_1, variance(epsilon, apex_in_range))


def _tries(most: int) -> Iterator[Mapping[str, Any]]:
    """Yield the options that are worth a try for a card of at most so many levels."""
    if most >= _FEW:
        yield {"levels": min(most, LEVELS), "window": "best"}


def _hybrid(
    name: str,
    share: Callable[[float], float],
    t: Callable[[float], float],
    other_card: Callable[[int], bytes],
    other_variance: Callable[[float, float], float],
    without: str,
) -> Mechanism:
    """Return a mechanism that is piecewise with some probability, and else a discrete mechanism.

    name: that of the hybrid. share: returns the probability of the piecewise mechanism at an
    epsilon. t: returns the parameter of the piecewise mechanism at an epsilon. other_card,
    other_variance: return the card of the discrete mechanism and its variance. without: the note on
    a design whose share is 0.
    """

    def variance(epsilon: float, x: float) -> float:
        """Return the variance of the hybrid at x, before its card is made."""
        piecewise_share = share(epsilon)
        piecewise_variance = piecewise.variance(epsilon, t(epsilon), x)
        discrete_variance = other_variance(epsilon, x)
        return piecewise_share * piecewise_variance + (1 - piecewise_share) * discrete_variance

    def design(epsilon: int, levels: int | None = None, window: str = "paper") -> Design:
        """Design the hybrid's card at `epsilon` (micro). Raises UsageError.

        levels: of both mechanisms together; None for LEVELS. window: "paper" or "best".
        """
        real_epsilon = epsilon / MICRO
        piecewise_share = share(real_epsilon)
        discrete_card = other_card(epsilon)
        if piecewise_share == 0:
            return checked(name, epsilon, discrete_card, without)

        discrete_levels: int = cards.decode(discrete_card).symbols
        count = check_levels(levels, LEVELS, discrete_levels + 2, MAX_SYMBOLS)
        piecewise_levels = count - discrete_levels
        piecewise_card, note = piecewise.paper_card(
            epsilon, piecewise_levels, t(real_epsilon), window
        )
        # The coin is a random integer below T, and this the limit below which it means the piecewise
        # mechanism. Both mechanisms must be possible.
        threshold = min(max(round(piecewise_share * T), 1), T - 1)
        note = f"piecewise with probability {piecewise_share:.6g}: {note}"
        return checked(name, epsilon, mixture(threshold, piecewise_card, discrete_card), note)

    return Mechanism(
        name,
        design,
        options=(piecewise.WINDOW,),
        variance=variance,
        worst_variance=partial(_worst, variance),
        levels=LEVELS,
        tries=_tries,
    )


_NOTE = f"up to epsilon {HM_FROM} HM is Duchi's mechanism"
HM = replace(
    _hybrid("hm", hm_share, pm.t_pm, duchi.card, duchi.variance, _NOTE),
    about="a coin chooses pm or duchi (Wang et al. 2019)",
)
_NOTE_TP = f"up to epsilon {_HM_TP_FROM} HM-TP is Three-Outputs"
HM_TP = replace(
    _hybrid(
        "hm-tp", hm_tp_share, piecewise.t_sub, three_outputs.card, three_outputs.variance, _NOTE_TP
    ),
    about="a coin chooses pm-sub or three-outputs (Zhao et al. 2021)",
)
