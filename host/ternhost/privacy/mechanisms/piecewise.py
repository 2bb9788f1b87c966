"""Piecewise mechanisms, as windows over N levels, and PM-SUB (Zhao et al., IEEE IoT J. 8, 2021).

The mechanisms of the papers differ in a parameter t, which sets the width of the window. Levels are
discrete already, so that nothing has to be rounded.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tern.card import MAX_SYMBOLS, T
from ternhost.errors import UsageError
from ternhost.options import Option
from ternhost.privacy.base import MICRO, Design, check_levels, checked, exp_bound, window
from ternhost.privacy.mechanism import Mechanism, untried

LEVELS = 255  # the default number of levels
WINDOW = Option(
    "window", "the paper's window or the best one", choices=("paper", "best"), default="paper"
)


def t_sub(epsilon: float) -> float:
    """The parameter of PM-SUB: e**(epsilon / 3)."""
    return math.exp(epsilon / 3)


def variance(epsilon: float, t: float, x: float) -> float:
    """Return the variance of the continuous piecewise mechanism with parameter t at the input x.

    With e = e**epsilon it is

        (t + 1) / (e - 1) x**2 + (t + e) ((t + 1)**3 + e - 1) / (3 t**2 (e - 1)**2)

    (Zhao et al., IEEE IoT J. 8, 2021).
    """
    e = math.exp(epsilon)
    factor_of_square = (t + 1) / (e - 1)
    at_0 = (t + e) * ((t + 1) ** 3 + e - 1) / (3 * t * t * (e - 1) ** 2)
    return factor_of_square * x * x + at_0


def worst_variance(epsilon: float, t: float) -> float:
    """The variance at the worst x, 1."""
    return variance(epsilon, t, 1.0)


def _worst(levels: int, epsilon: float, width: int) -> float:
    """Return the worst-case variance of a window card in floats, by which widths are compared.

    levels: how many outputs it has. width: that of the window, in levels. The result is infinite if
    no scale makes the card unbiased.
    """
    outside_window = levels - width  # levels
    e = math.exp(epsilon)
    probability_inside = e * width / (e * width + outside_window)
    scale = 2 / (probability_inside * levels - width)  # from levels to values
    if scale <= 0:
        return math.inf

    # The second moment of a report for each place of the window, which depends on the input. A sum
    # over a window is a difference of two prefix sums of the squared levels.
    squared_levels = (np.arange(levels) - (levels - 1) / 2) ** 2
    prefix_sums = np.concatenate(([0.0], np.cumsum(squared_levels)))
    start = np.arange(outside_window + 1)
    inside = prefix_sums[start + width] - prefix_sums[start]
    outside = prefix_sums[-1] - inside
    mean_square = (
        inside * probability_inside / width + outside * (1 - probability_inside) / outside_window
    )
    second_moments = scale**2 * mean_square

    # Between knots the second moment is linear and the variance a parabola, largest at its top.
    knots = 2 * start / outside_window - 1
    slopes = np.diff(second_moments) * outside_window / 2
    tops = np.clip(slopes / 2, knots[:-1], knots[1:])
    variance_at_knots = second_moments - knots**2
    variance_at_tops = second_moments[:-1] + slopes * (tops - knots[:-1]) - tops**2
    return float(max(np.max(variance_at_knots), np.max(variance_at_tops)))


def card(epsilon: int, levels: int, width: int) -> bytes:
    """Return the window card that keeps epsilon (in millionths) with the likeliest window.

    levels: how many outputs it has. width: that of the window, in levels. An output inside of the
    window is e**epsilon times as likely as one outside.
    """
    e = exp_bound(epsilon)
    probability_inside = e * width / (e * width + levels - width)
    threshold = math.floor(T * probability_inside)
    return window(levels, width, threshold)


def paper_card(epsilon: int, levels: int, t: float, choice: str = "paper") -> tuple[bytes, str]:
    """Return a window card and a note on the width of its window.

    epsilon: in millionths. levels: how many outputs the card has. t: the paper's parameter. choice:
    "paper" for the window that follows from t, "best" for the one with the least worst-case
    variance.
    Raises UsageError.
    """
    if choice not in ("paper", "best"):
        raise UsageError(f"--window must be paper or best, not {choice!r}")

    def worst(width: int) -> float:
        """Return the worst-case variance of the card with a window of this width."""
        return _worst(levels, epsilon / MICRO, width)

    # The paper's window is 1 / (t + 1) of the levels: the better of the two whole ones on either
    # side of it.
    below = math.floor(levels / (t + 1))
    nearest = {min(max(width, 1), levels - 1) for width in (below, below + 1)}
    paper_width = min(nearest, key=worst)
    width = paper_width
    if choice == "best":
        width = min(range(1, levels), key=worst)
    note = f"window {width} of {levels} levels (the paper's t gives {paper_width})"
    return card(epsilon, levels, width), note


def piecewise_mechanism(
    name: str,
    t: Callable[[float], float],
    about: str,
    tries: Callable[[int], Iterable[Mapping[str, Any]]] = untried,
) -> Mechanism:
    """Return the piecewise mechanism whose parameter is t(epsilon).

    name: in the registry. t: a function of a real epsilon. about, tries: as in `Mechanism`.
    """

    def design(epsilon: int, levels: int | None = None, window: str = "paper") -> Design:
        """Return the card at epsilon (in millionths).

        levels, window: the options of the mechanism.
        """
        count = check_levels(levels, default=LEVELS, least=2, most=MAX_SYMBOLS)
        data, note = paper_card(epsilon, count, t(epsilon / MICRO), window)
        return checked(name, epsilon, data, note)

    return Mechanism(
        name,
        design,
        (WINDOW,),
        variance=lambda epsilon, x: variance(epsilon, t(epsilon), x),
        worst_variance=lambda epsilon: worst_variance(epsilon, t(epsilon)),
        levels=LEVELS,
        tries=tries,
        about=about,
    )


def _tries(most: int) -> Iterator[Mapping[str, Any]]:
    """Yield the options that `auto` tries: several numbers of levels, each with its best window.

    With the best window t makes no difference, so PM-SUB stands for all piecewise mechanisms.
    """
    largest = min(most, MAX_SYMBOLS)
    for levels in sorted({8, 15, 31, 63, 127, 255, largest}):
        if 2 <= levels <= largest:
            yield {"levels": levels, "window": "best"}


PM_SUB = piecewise_mechanism(
    "pm-sub", t_sub, "piecewise: most reports are near the value; for large epsilons", _tries
)
