"""`auto`: the best card for an epsilon, a number of bits and an objective, and why.

An estimate of k of d coordinates has the variance (d/k) m(x) - x**2 a report, with the card's
second moment m(x), which decides where k << d.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from tern.card import Card
from ternhost.errors import UsageError
from ternhost.options import Option, require
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.base import MICRO, Design
from ternhost.privacy.mechanism import Mechanism, untried
from ternhost.privacy.mechanisms import optimal, programme
from ternhost.privacy.mechanisms.programme import WORST_SECOND_MOMENT, WORST_VARIANCE

BITS = 8.0
_RIVALS = 3  # how many a note names


def design(
    epsilon: int,
    levels: int | None = None,
    *,
    d: int = 1,
    k: int | None = None,
    objective: str = WORST_VARIANCE,
    bits: float = BITS,
    prior: str | None = None,
) -> Design:
    """The card of the least objective among all mechanisms, at most `bits` bits (and `levels`
    outputs) a value. `epsilon` (micro): of one value; k of d coordinates are reported (default:
    all). Raises UsageError.
    """
    k = d if k is None else k
    require(1 <= k <= d, "k", f"1 to d, which is {d}", k)
    require(1 <= bits <= 16, "bits", "1 to 16", bits)
    most = math.floor(2**bits + 1e-9) if levels is None else min(levels, math.floor(2**bits + 1e-9))
    share = Fraction(d, k)
    goal: dict[str, Any] = {"objective": objective, "prior": prior}
    if objective == WORST_VARIANCE and share != 1:
        goal["share"] = share
    # This refuses a goal that makes no sense.
    programme.problem(epsilon / MICRO, knots=programme.KNOTS, **{"share": 1, **goal})
    scored = []
    for candidate, card in _candidates(epsilon, most, goal):
        score = _score(certify.moments(card), objective, prior, share)
        scored.append((score, card.symbols, len(candidate.card), candidate))
    if not scored:
        raise UsageError(f"no mechanism has {most} levels or fewer")
    best, *rivals = sorted(scored, key=lambda entry: entry[:3])
    named = f"worst variance with {k} of {d} coordinates" if "share" in goal else objective
    reason = f"{best[3].mechanism} with {best[1]} levels has the least {named}, {best[0]:.6g}, of {len(scored)} cards"
    named_rivals = [
        f"{rival[3].mechanism} ({rival[1]} levels) {rival[0]:.6g}" for rival in rivals[:_RIVALS]
    ]
    notes = (reason, f"next best: {', '.join(named_rivals)}") if rivals else (reason,)
    return Design("auto", epsilon, best[3].card, notes + best[3].notes)


def _score(moments: certify.Moments, objective: str, prior: str | None, share: Fraction) -> float:
    if objective == WORST_VARIANCE:
        return float(moments.worst_variance(share)[0])
    if objective == WORST_SECOND_MOMENT:
        return float(moments.worst_second_moment())
    points, mass = programme.prior_points(prior)
    knots = np.array([float(x) for x in moments.knots])
    seconds = np.array([float(second) for second in moments.seconds])
    return float(mass @ np.interp(points, knots, seconds))


def _candidates(epsilon: int, most: int, goal: dict[str, Any]) -> Iterator[tuple[Design, Card]]:
    """Every mechanism's designs of at most `most` levels, for the `goal` where the mechanism has
    one.
    """
    seen = set()
    for name, mechanism in mechanisms.REGISTRY.items():
        if not mechanism.single_valued:
            continue
        known = {option.name for option in mechanism.options}
        aims = {option: value for option, value in goal.items() if option in known}
        for tried in mechanism.tries(most):
            try:
                designed = mechanisms.design(name, epsilon_micro=epsilon, **aims, **tried)
            except UsageError:
                continue  # it has no card at this epsilon
            card = designed.decode()
            if card.symbols <= most and designed.card not in seen:
                seen.add(designed.card)
                yield designed, card


_D = Option("d", "number of coordinates", int, "D", default=1)
_K = Option("k", "coordinates per report", int, "K", shown="all")
_BITS = Option("bits", "most bits per value", float, "B", default=BITS)
_OPTIONS = (optimal.OBJECTIVE, optimal.PRIOR, _D, _K, _BITS)
AUTO = Mechanism("auto", design, _OPTIONS, tuned=optimal.TUNED, tries=untried, slow=True)
