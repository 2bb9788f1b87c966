"""PDPM (Shen et al., Entropy 2023, 25, 485, Algorithm 2): a client's own safe range tau and
epsilon, three outputs.

Scaled to [-1, 1], the outputs are -2 (E + 1) / (E - 1), 0 and (E + 3) / (E - 1). It is right (sums,
mean, ratio), but two outputs have equal probabilities at every input and use only half of the ratio
that epsilon allows: its worst-case variance is 1.6 to 2.6 times that of Duchi's mechanism. Any card
can be scaled to tau instead.
"""

import math

from tern import card as cards
from tern.card import T
from ternhost.errors import UsageError
from ternhost.privacy.base import MICRO, table
from ternhost.privacy.integers import SLACKS
from ternhost.privacy.mechanism import fixed, untried

_MOST = 127  # of a level in a table card


def outputs(epsilon: float) -> tuple[float, float, float]:
    e = math.exp(epsilon)
    return -2 * (e + 1) / (e - 1), 0.0, (e + 3) / (e - 1)


def probabilities(epsilon: float, x: float) -> tuple[float, float, float]:
    """The probabilities of the three outputs, lowest first, at x in [-1, 1]."""
    e = math.exp(epsilon)
    top = (x * (e - 1) + e + 1) / (2 * (e + 2))
    return (1 - top) / 2, (1 - top) / 2, top


def variance(epsilon: float, x: float) -> float:
    low, _, high = outputs(epsilon)
    p, _, q = probabilities(epsilon, x)
    return p * low * low + q * high * high - x * x


def worst_variance(epsilon: float) -> float:
    slope = (variance(epsilon, 1) - variance(epsilon, -1)) / 2
    return variance(epsilon, min(max(slope / 2, -1.0), 1.0))


def card(epsilon: int) -> bytes:
    """Two knots, levels (-l, 0, h) with h/l the closest to the paper's ratio of outputs that keeps
    epsilon (micro).
    """
    for slack in SLACKS:
        target = epsilon / MICRO - slack
        if target <= 0:
            break
        low, _, high = outputs(target)
        ratio = high / -low
        pairs = [(down, min(max(round(down * ratio), 1), _MOST)) for down in range(1, _MOST + 1)]
        pairs.sort(key=lambda pair: (abs(pair[1] / pair[0] - ratio), pair[0]))
        for down, up in pairs[:8]:
            try:
                data = _table(math.exp(target), down, up)
            except cards.CardError:
                continue
            if cards.certify(cards.decode(data), epsilon):
                return data
    hint = "scale another mechanism's card to tau"
    raise UsageError(f"PDPM has no card at epsilon {epsilon / MICRO}", hint)


def _table(e: float, down: int, up: int) -> bytes:
    """Rows whose means are +-B: summed over both rows, the lower level's counts are to the upper's
    as up is to down.
    """
    unit = math.floor(T * (e + 1) / ((e + 2) * down))
    top_least = math.ceil(down * unit / (1 + e))
    low_least = math.floor(up * unit * 2 / (e + 3))
    top = (top_least, down * unit - top_least)  # at x = -1, at x = 1
    low = (up * unit - low_least, low_least)
    return table((-down, 0, up), [[low[i], T - low[i] - top[i], top[i]] for i in (0, 1)])


_NOTE = "Duchi's card scaled to tau has less variance: see shared_specs/errata.md"
_STATED = {"variance": variance, "worst_variance": worst_variance}
PDPM = fixed("pdpm", 3, card, lambda _: (_NOTE,), **_STATED, tries=untried)
