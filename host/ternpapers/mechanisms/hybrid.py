"""The hybrid mechanisms: a coin chooses a piecewise mechanism or a discrete one.

They are HM (Wang et al., ICDE 2019: PM or Duchi's mechanism) and HM-TP (Zhao et al., IEEE IoT J. 8,
2021, corrected in shared_specs/errata.md: PM-SUB or Three-Outputs). Rounding the probability of the
coin changes the variance, never the privacy.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
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

    Its form is that of shared_specs/errata.md: Zhao et al. have theirs, equation 150, in a supplement.
    a is the probability that Three-Outputs reports 0 at x = 0, and C the magnitude of its other
    outputs.
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


def hm_variance(epsilon: float, x: float) -> float:
    """Return the variance of HM at x."""
    share = hm_share(epsilon)
    by_pm = piecewise.variance(epsilon, pm.t_pm(epsilon), x)
    return share * by_pm + (1 - share) * duchi.variance(epsilon, x)


def hm_worst_variance(epsilon: float) -> float:
    """Return the worst-case variance of HM.

    It is at 0 or at 1, since the variances of PM and of Duchi's mechanism have no linear term.
    """
    return max(hm_variance(epsilon, 0.0), hm_variance(epsilon, 1.0))


def hm_tp_variance(epsilon: float, x: float) -> float:
    """Return the variance of HM-TP at x."""
    share = hm_tp_share(epsilon)
    by_pm_sub = piecewise.variance(epsilon, piecewise.t_sub(epsilon), x)
    return share * by_pm_sub + (1 - share) * three_outputs.variance(epsilon, x)


def hm_tp_worst_variance(epsilon: float) -> float:
    """Return the worst-case variance of HM-TP (Zhao et al., Lemma 11).

    The variance is a parabola in |x|. If PM-SUB has a small probability, the parabola has its apex
    at an input between 0 and 1. Otherwise the worst input is 0 or 1.
    """
    share = hm_tp_share(epsilon)
    e = math.exp(epsilon)
    t = piecewise.t_sub(epsilon)
    a = three_outputs.zero_probability(epsilon)
    # Two products that occur more than once in the lemma.
    square = 2 * (e - a) ** 2
    linear = a * e * (e + 1) ** 2
    largest_share = (square * (e - 1) - linear) / (square * (e + t) - linear)
    if 0 < share < largest_share:
        apex = (share - 1) * linear / (square * (share * (e + t) - e + 1))
        return hm_tp_variance(epsilon, apex)
    return max(hm_tp_variance(epsilon, 0.0), hm_tp_variance(epsilon, 1.0))


def _tries(most: int) -> Iterator[Mapping[str, Any]]:
    """Yield the options that are worth a try for a card of at most so many levels."""
    if most >= _FEW:
        yield {"levels": min(most, LEVELS), "window": "best"}


def _hybrid(
    name: str,
    share: Callable[[float], float],
    t: Callable[[float], float],
    other_card: Callable[[int], bytes],
    without: str,
) -> Mechanism:
    """Return a mechanism that is piecewise with some probability, and else a discrete mechanism.

    name: that of the hybrid. share: returns the probability of the piecewise mechanism at an
    epsilon. t: returns the parameter of the piecewise mechanism at an epsilon. other_card: returns
    the card of the discrete mechanism. without: the note on a design whose share is 0.
    """

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
        levels=LEVELS,
        tries=_tries,
    )


_NOTE = f"up to epsilon {HM_FROM} HM is Duchi's mechanism"
HM = replace(
    _hybrid("hm", hm_share, pm.t_pm, duchi.card, _NOTE),
    variance=hm_variance,
    worst_variance=hm_worst_variance,
    about="a coin chooses pm or duchi (Wang et al. 2019)",
)
_NOTE_TP = f"up to epsilon {_HM_TP_FROM} HM-TP is Three-Outputs"
HM_TP = replace(
    _hybrid("hm-tp", hm_tp_share, piecewise.t_sub, three_outputs.card, _NOTE_TP),
    variance=hm_tp_variance,
    worst_variance=hm_tp_worst_variance,
    about="a coin chooses pm-sub or three-outputs (Zhao et al. 2021)",
)
