"""HM (Wang et al., ICDE 2019) and HM-TP (Zhao et al., IEEE IoT J. 8, 2021; shared_specs/errata.md):
a coin chooses a piecewise mechanism or a discrete one. Rounding its probability changes the
variance, never the privacy.
"""

import math
from collections.abc import Callable, Iterator, Mapping
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
LEVELS = 255  # in all
_FEW = 8  # levels: with fewer, a window is too coarse for a hybrid to be worth a try


def hm_share(epsilon: float) -> float:
    """The probability of PM in HM."""
    return 1 - math.exp(-epsilon / 2) if epsilon > HM_FROM else 0.0


def hm_tp_share(epsilon: float) -> float:
    """beta, the probability of PM-SUB in HM-TP."""
    if epsilon <= _HM_TP_FROM:
        return 0.0
    e = math.exp(epsilon)
    t = piecewise.t_sub(epsilon)
    if e <= 2:
        return (e - 1) / (e + t)
    a = three_outputs.zero_probability(epsilon)
    c2 = three_outputs.constant(epsilon, a) ** 2
    curve = (t + 1) / (e - 1)
    slope = c2 * a * (e - 1) / e
    difference = c2 * (1 - a) - piecewise.variance(epsilon, t, 0)
    root = math.sqrt(1 + 4 * (1 + curve) * difference / slope**2)
    return max(0.0, 1 - curve / (1 + curve) * (1 + 1 / root))


def _worst(variance: Callable[[float, float], float], epsilon: float) -> float:
    """The maximum of a variance that is a parabola in |x|: at an end, or where its slope is 0."""
    first, middle, last = (variance(epsilon, x) for x in (0.0, 0.5, 1.0))
    bend = 2 * (first - 2 * middle + last)
    if bend >= 0:
        return max(first, last)
    top = (first - last + bend) / (2 * bend)
    return max(first, last, variance(epsilon, min(max(top, 0.0), 1.0)))


def _tries(most: int) -> Iterator[Mapping[str, Any]]:
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
    """A piecewise mechanism of parameter t with probability `share`, else the other. without: the
    note at share 0.
    """

    def variance(epsilon: float, x: float) -> float:
        piecewise_share = share(epsilon)
        window = piecewise.variance(epsilon, t(epsilon), x)
        return piecewise_share * window + (1 - piecewise_share) * other_variance(epsilon, x)

    def design(epsilon: int, levels: int | None = None, window: str = "paper") -> Design:
        real = epsilon / MICRO
        piecewise_share, second = share(real), other_card(epsilon)
        if piecewise_share == 0:
            return checked(name, epsilon, second, without)
        others: int = cards.decode(second).symbols
        count = check_levels(levels, LEVELS, others + 2, MAX_SYMBOLS)
        first, note = piecewise.paper_card(epsilon, count - others, t(real), window)
        threshold = min(max(round(piecewise_share * T), 1), T - 1)
        note = f"piecewise with probability {piecewise_share:.6g}: {note}"
        return checked(name, epsilon, mixture(threshold, first, second), note)

    options, worst = (piecewise.WINDOW,), partial(_worst, variance)
    return Mechanism(name, design, options, variance, worst, LEVELS, tries=_tries)


_NOTE = f"up to epsilon {HM_FROM} HM is Duchi's mechanism"
HM = _hybrid("hm", hm_share, pm.t_pm, duchi.card, duchi.variance, _NOTE)
_NOTE_TP = f"up to epsilon {_HM_TP_FROM} HM-TP is Three-Outputs"
HM_TP = _hybrid(
    "hm-tp", hm_tp_share, piecewise.t_sub, three_outputs.card, three_outputs.variance, _NOTE_TP
)
