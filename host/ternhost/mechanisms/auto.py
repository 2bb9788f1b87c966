"""`auto`: the best card for an epsilon, a number of bits and an objective, and why.

With k of d coordinates sampled, a coordinate's estimate has the variance (d/k) m(x) - x**2 a report, m(x) being the
card's second moment: for k = d it is the card's variance, and for k far below d the second moment decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from tern import card as cards
from tern.card import MAX_LEVELS, MAX_SYMBOLS
from ternhost.errors import UsageError
from ternhost.mechanisms import certify, duchi, hybrid, laplace, optimal, piecewise, shipped, three_outputs
from ternhost.mechanisms.base import Design

BITS = 8.0
_RIVALS = 3  # how many a note names
_WORST_VARIANCE, _WORST_SECOND_MOMENT, _MEAN_SECOND_MOMENT = optimal.OBJECTIVES


def design(
    epsilon: int,
    levels: int | None = None,
    *,
    d: int = 1,
    k: int | None = None,
    objective: str = _WORST_VARIANCE,
    bits: float = BITS,
    prior: str | None = None,
) -> Design:
    """The card of the least objective among all mechanisms, at most `bits` bits (and `levels` outputs) a value.

    `epsilon` (micro) is that of one value; k of d coordinates are reported (default: all). Raises UsageError.
    """
    if not 1 <= (k := d if k is None else k) <= d:
        raise UsageError(f"k = {k} of d = {d} coordinates cannot be")
    if objective not in optimal.OBJECTIVES:
        raise UsageError(f"no objective called {objective!r}", hint="known: " + ", ".join(optimal.OBJECTIVES))
    if not 1 <= bits <= 16:
        raise UsageError(f"{bits} bits a value: give 1 to 16")
    most = math.floor(2**bits + 1e-9) if levels is None else min(levels, math.floor(2**bits + 1e-9))
    share = Fraction(d, k)
    found = []
    for candidate in _candidates(epsilon, most, objective, prior, share):
        card = cards.decode(candidate.card)
        score = _score(certify.moments(card), objective, prior, share)
        found.append((score, card.symbols, len(candidate.card), candidate))
    if not found:
        raise UsageError(f"no mechanism has {most} levels or fewer")
    found.sort(key=lambda entry: entry[:3])
    best, *rivals = found
    goal = (
        objective
        if share == 1 or objective != _WORST_VARIANCE
        else f"worst variance with {k} of {d} coordinates"
    )
    reason = f"{best[3].mechanism} with {best[1]} levels has the least {goal}, {best[0]:.6g}, of {len(found)} cards"
    listed = ", ".join(
        f"{entry[3].mechanism} ({entry[1]} levels) {entry[0]:.6g}" for entry in rivals[:_RIVALS]
    )
    notes = (reason, f"next best: {listed}") if rivals else (reason,)
    return Design("auto", epsilon, best[3].card, notes + best[3].notes)


def _score(moments: certify.Moments, objective: str, prior: str | None, share: Fraction) -> float:
    if objective == _WORST_VARIANCE:
        return float(moments.worst_variance(share)[0])
    if objective == _WORST_SECOND_MOMENT:
        return float(moments.worst_second_moment())
    points, mass = optimal.prior_points(prior)
    knots = np.array([float(x) for x in moments.knots])
    seconds = np.array([float(second) for second in moments.seconds])
    return float(mass @ np.interp(points, knots, seconds))


def _candidates(
    epsilon: int, most: int, objective: str, prior: str | None, share: Fraction
) -> Iterator[Design]:
    """Designs of at most so many levels. An optimal table covers every other table of as many levels."""
    if most >= 2:
        yield duchi.design(epsilon)
    if most >= 3:
        yield three_outputs.design(epsilon)
        yield three_outputs.design_rr3(epsilon)
        yield three_outputs.design_better(epsilon)
        yield laplace.design(epsilon, most - 1 + most % 2)
    for levels in sorted(
        {count for count in (8, 15, 31, 63, 127, 255, most) if 2 <= count <= min(most, MAX_SYMBOLS)}
    ):
        yield piecewise.design_opt(epsilon, levels, window="best")
    if most >= 8:
        yield hybrid.design_hm(epsilon, min(most, hybrid.LEVELS), window="best")
        yield hybrid.design_hm_tp(epsilon, min(most, hybrid.LEVELS), window="best")
    if most >= 2:
        count = min(most, MAX_LEVELS)
        wide = share if objective == _WORST_VARIANCE and share != 1 else None
        yield optimal_or_shipped(epsilon, count, objective=objective, prior=prior, share=wide)


def optimal_or_shipped(epsilon: int, levels: int | None = None, **options: object) -> Design:
    """The shipped optimal card where there is one for exactly this, else a new design (up to a minute)."""
    asked = {name: value for name, value in options.items() if value is not None}
    if asked in ({}, {"objective": _WORST_VARIANCE}):
        count = optimal.LEVELS if levels is None else levels
        data = shipped.load("optimal", epsilon, count)
        if data is not None:
            return Design("optimal", epsilon, data, (f"{_WORST_VARIANCE} objective; a shipped card",))
    return optimal.design(epsilon, levels, **asked)  # type: ignore[arg-type]
