"""PDPM, a mechanism with three outputs (Shen et al., Entropy 2023, 25, 485, Algorithm 2).

Each client has its own epsilon, and its own safe range, to which values are clipped. The paper has
its length L, and tern tau, half of that. Scaled to [-1, 1], where L is 2, the outputs are
-2 (E + 1) / (E - 1), 0 and (E + 3) / (E - 1), where E = e**epsilon. The mechanism is correct:
probabilities add up to 1, reports are unbiased, and epsilon is kept. But two outputs have equal
probabilities at every input, and their ratio uses only half of what epsilon allows: up to epsilon
8, the worst-case variance is 1.56 to 2.64 times that of Duchi's mechanism. The card of any other
mechanism can be scaled to tau instead.
"""

import math

from tern import card as cards
from tern.card import T
from ternhost.errors import UsageError
from ternhost.privacy.base import MICRO, table
from ternhost.privacy.integers import SLACKS
from ternhost.privacy.mechanism import fixed, untried

_MOST = 127  # the largest level of a table card
_TRIED = 8  # so many pairs of levels are tried at each epsilon


def outputs(epsilon: float) -> tuple[float, float, float]:
    """Return the three outputs, lowest first, for a safe range of 1."""
    e = math.exp(epsilon)
    return -2 * (e + 1) / (e - 1), 0.0, (e + 3) / (e - 1)


def probabilities(epsilon: float, x: float) -> tuple[float, float, float]:
    """Return the probabilities of the three outputs, lowest first, at x in [-1, 1].

    That of the highest is (x (E - 1) + E + 1) / (2 (E + 2)); the others share the rest equally.
    """
    e = math.exp(epsilon)
    highest = (x * (e - 1) + e + 1) / (2 * (e + 2))
    each_other = (1 - highest) / 2
    return each_other, each_other, highest


def variance(epsilon: float, x: float) -> float:
    """Return the variance of a report of x in [-1, 1]; the middle output, 0, adds nothing."""
    lowest, _, highest = outputs(epsilon)
    lowest_probability, _, highest_probability = probabilities(epsilon, x)
    second_moment = lowest_probability * lowest * lowest + highest_probability * highest * highest
    return second_moment - x * x


def worst_variance(epsilon: float) -> float:
    """Return the largest variance over x in [-1, 1].

    It is at the apex of the parabola V(x) = V(0) + slope x - x**2, if that is within.
    """
    slope = (variance(epsilon, 1) - variance(epsilon, -1)) / 2
    apex = slope / 2
    return variance(epsilon, min(max(apex, -1.0), 1.0))


def card(epsilon: int) -> bytes:
    """Return a card that keeps epsilon, in millionths. Raises UsageError if there is none.

    Its outputs are three small integers, the levels -l, 0 and h, times a unit, where h / l is as
    close as possible to the ratio of the paper's outputs. Its probabilities are linear in x between
    the two knots, x = -1 and 1. Since they are rounded to integers, a slightly smaller epsilon is
    aimed at until the card keeps the wanted one.
    """
    for slack in SLACKS:
        target = epsilon / MICRO - slack
        if target <= 0:
            break
        for down, up in _closest_levels(target):
            try:
                data = _table(math.exp(target), down, up)
            except cards.CardError:
                continue
            if cards.certify(cards.decode(data), epsilon):
                return data
    hint = "scale another mechanism's card to tau"
    raise UsageError(f"PDPM has no card at epsilon {epsilon / MICRO}", hint)


def _closest_levels(epsilon: float) -> list[tuple[int, int]]:
    """Return a few pairs of integers (l, h) that approximate the outputs of the mechanism.

    The mechanism's lowest and highest outputs are real numbers; a card can only have outputs -l, 0
    and h, integers up to 127, times a scale. So h / l has to be close to the ratio of the outputs.
    The closest pair comes first.
    """
    lowest, _, highest = outputs(epsilon)
    ratio = highest / -lowest

    # For each l the h that fits best.
    levels = []
    for down in range(1, _MOST + 1):
        up = min(max(round(down * ratio), 1), _MOST)
        levels.append((down, up))

    def distance(pair: tuple[int, int]) -> tuple[float, int]:
        """Return how far the ratio of a pair is from the wanted one, and l, which breaks ties."""
        down, up = pair
        return abs(up / down - ratio), down

    levels.sort(key=distance)
    return levels[:_TRIED]


def _table(e: float, down: int, up: int) -> bytes:
    """Return a table card with the levels -down, 0 and up, whose means at x = -1 and 1 are +-B.

    A row of the table is about an x: how many of T draws give each level. e: e**epsilon. In both
    rows together, the lowest level has up * unit draws and the highest down * unit, so that the
    means of the two rows add up to 0.
    """
    unit = math.floor(T * (e + 1) / ((e + 2) * down))
    # The smaller count of each level; the larger one is e times as large, or (e + 1) / 2 times.
    fewest_up = math.ceil(down * unit / (1 + e))
    fewest_down = math.floor(up * unit * 2 / (e + 3))
    up_counts = (fewest_up, down * unit - fewest_up)  # at x = -1, at x = 1
    down_counts = (up * unit - fewest_down, fewest_down)
    rows = []
    for down_count, up_count in zip(down_counts, up_counts, strict=True):
        rows.append([down_count, T - down_count - up_count, up_count])
    return table((-down, 0, up), rows)


_NOTE = "Duchi's card scaled to tau has less variance: see shared_specs/errata.md"
_STATED = {"variance": variance, "worst_variance": worst_variance}
PDPM = fixed(
    "pdpm",
    3,
    card,
    lambda _: (_NOTE,),
    **_STATED,
    tries=untried,
    about="three outputs, as Shen et al. 2023 describe it",
)
