"""The hybrids HM and HM-TP: a piecewise mechanism or a discrete one, by the throw of a coin.

Sources: HM: Wang et al., ICDE 2019. HM-TP: Zhao et al., IEEE IoT J. 8, 2021, as corrected in shared_specs/errata.md.
Rounding the coin's probability changes the variance, never the privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tern import card as cards
from tern.card import MAX_SYMBOLS, T
from ternhost.privacy.base import MICRO, Design, check_levels, checked, mixture
from ternhost.privacy.mechanism import Mechanism
from ternhost.privacy.mechanisms import duchi, piecewise, three_outputs

_HM_FROM = 0.609352  # epsilon up to which HM is Duchi's mechanism
_HM_TP_FROM = 0.6109863  # epsilon up to which HM-TP is Three-Outputs
LEVELS = 255  # in all
_FEW = 8  # levels: with fewer, a window is too coarse for a hybrid to be worth a try


def hm_share(epsilon: float) -> float:
    """The probability of PM in HM."""
    return 1 - math.exp(-epsilon / 2) if epsilon > _HM_FROM else 0.0


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


def hm_variance(epsilon: float, x: float) -> float:
    share = hm_share(epsilon)
    pm = piecewise.variance(epsilon, piecewise.t_pm(epsilon), x)
    return share * pm + (1 - share) * duchi.variance(epsilon, x)


def hm_worst_variance(epsilon: float) -> float:
    return max(hm_variance(epsilon, 0), hm_variance(epsilon, 1))  # a parabola about 0


def hm_tp_variance(epsilon: float, x: float) -> float:
    share = hm_tp_share(epsilon)
    sub = piecewise.variance(epsilon, piecewise.t_sub(epsilon), x)
    return share * sub + (1 - share) * three_outputs.variance(epsilon, x)


def hm_tp_worst_variance(epsilon: float) -> float:
    """In |x| a parabola: its top lies at an end or where its slope is 0."""
    first, middle, last = (hm_tp_variance(epsilon, x) for x in (0.0, 0.5, 1.0))
    bend = 2 * (first - 2 * middle + last)
    tops = [first, last]
    if bend < 0:
        top = (first - last + bend) / (2 * bend)
        tops.append(hm_tp_variance(epsilon, min(max(top, 0.0), 1.0)))
    return max(tops)


def _mixed(
    name: str, epsilon: int, levels: int | None, share: float, t: float, second: bytes, window: str
) -> Design:
    others: int = cards.decode(second).symbols
    count = check_levels(levels, LEVELS, others + 2, MAX_SYMBOLS)
    first, note = piecewise.paper_card(epsilon, count - others, t, window)
    threshold = min(max(round(share * T), 1), T - 1)
    return checked(
        name, epsilon, mixture(threshold, first, second), f"piecewise with probability {share:.6g}: {note}"
    )


def design_hm(epsilon: int, levels: int | None = None, window: str = "paper") -> Design:
    real = epsilon / MICRO
    share = hm_share(real)
    second = duchi.card(epsilon)
    if share == 0:
        return checked("hm", epsilon, second, f"up to epsilon {_HM_FROM} HM is Duchi's mechanism")
    return _mixed("hm", epsilon, levels, share, piecewise.t_pm(real), second, window)


def design_hm_tp(epsilon: int, levels: int | None = None, window: str = "paper") -> Design:
    real = epsilon / MICRO
    share = hm_tp_share(real)
    second = three_outputs.card(epsilon)
    if share == 0:
        return checked("hm-tp", epsilon, second, f"up to epsilon {_HM_TP_FROM} HM-TP is Three-Outputs")
    return _mixed("hm-tp", epsilon, levels, share, piecewise.t_sub(real), second, window)


def _tries(most: int) -> Iterator[Mapping[str, Any]]:
    if most >= _FEW:
        yield {"levels": min(most, LEVELS), "window": "best"}


HM = Mechanism(
    "hm",
    design_hm,
    (piecewise.WINDOW,),
    variance=hm_variance,
    worst_variance=hm_worst_variance,
    levels=LEVELS,
    tries=_tries,
)
HM_TP = Mechanism(
    "hm-tp",
    design_hm_tp,
    (piecewise.WINDOW,),
    variance=hm_tp_variance,
    worst_variance=hm_tp_worst_variance,
    levels=LEVELS,
    tries=_tries,
)
