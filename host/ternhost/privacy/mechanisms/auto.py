"""`auto`: the best card for an epsilon, a number of bits and an objective, and why.

An estimate of k of d coordinates has the variance (d/k) m(x) - x**2 a report, with the card's
second moment m(x), which decides where k << d.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
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
    """Design the card with the least objective among all mechanisms.

    epsilon: of one value (micro). levels: the most outputs. bits: the most bits of a value. d, k: k
    of d coordinates are reported (default: all). objective, prior: what to minimise, as of
    `optimal.design`. Notes name the runners-up. Raises UsageError.
    """
    if k is None:
        k = d
    require(1 <= k <= d, "k", f"1 to d, which is {d}", k)
    require(1 <= bits <= 16, "bits", "1 to 16", bits)
    most = math.floor(2**bits + 1e-9)
    if levels is not None:
        most = min(levels, most)
    share = Fraction(d, k)
    goal: dict[str, Any] = {"objective": objective, "prior": prior}
    if objective == WORST_VARIANCE and share != 1:
        goal["share"] = share
    # This raises UsageError for a goal that makes no sense.
    programme.problem(epsilon / MICRO, knots=programme.KNOTS, **{"share": 1, **goal})

    candidates = []
    for candidate, card in _candidates(epsilon, most, goal):
        score = _score(certify.moments(card), objective, prior, share)
        candidates.append(_Candidate(score, card.symbols, candidate))
    if not candidates:
        raise UsageError(f"no mechanism has {most} levels or fewer")
    best, *rivals = sorted(candidates, key=lambda candidate: candidate.order)

    goal_name = objective
    if "share" in goal:
        goal_name = f"worst variance with {k} of {d} coordinates"
    notes = [
        f"{best.design.mechanism} with {best.levels} levels has the least {goal_name}, "
        f"{best.score:.6g}, of {len(candidates)} cards"
    ]
    if rivals:
        names = [
            f"{rival.design.mechanism} ({rival.levels} levels) {rival.score:.6g}"
            for rival in rivals[:_RIVALS]
        ]
        notes.append(f"next best: {', '.join(names)}")
    return Design("auto", epsilon, best.design.card, (*notes, *best.design.notes))


@dataclass(frozen=True)
class _Candidate:
    """A card that is compared. score: its objective, the less the better."""

    score: float
    levels: int
    design: Design

    @property
    def order(self) -> tuple[float, int, int]:
        """Sorts the best first; of equally good cards the one with fewer levels and bytes."""
        return self.score, self.levels, len(self.design.card)


def _score(moments: certify.Moments, objective: str, prior: str | None, share: Fraction) -> float:
    """Return the objective of a card: a variance or second moment; the less the better.

    moments: of the card. prior: of "mean-second-moment". share: d/k, of "worst-variance".
    """
    if objective == WORST_VARIANCE:
        return float(moments.worst_variance(share)[0])
    if objective == WORST_SECOND_MOMENT:
        return float(moments.worst_second_moment())
    # The mean over the prior: the second moment is linear between knots.
    points, mass = programme.prior_points(prior)
    knots = np.array([float(x) for x in moments.knots])
    seconds = np.array([float(second) for second in moments.second_moments])
    return float(mass @ np.interp(points, knots, seconds))


def _candidates(epsilon: int, most: int, goal: dict[str, Any]) -> Iterator[tuple[Design, Card]]:
    """Yield the designs of all mechanisms with at most `most` levels, each card once.

    epsilon: micro. goal: the objective as options, for the mechanisms that have such options.
    """
    seen = set()
    for name, mechanism in mechanisms.REGISTRY.items():
        if not mechanism.single_valued:
            continue
        declared = {option.name for option in mechanism.options}
        goal_options = {option: value for option, value in goal.items() if option in declared}
        for tried_options in mechanism.tries(most):
            options = {**goal_options, **tried_options}
            try:
                candidate = mechanisms.design(name, epsilon_micro=epsilon, **options)
            except UsageError:
                continue  # it has no card at this epsilon
            card = candidate.decode()
            if card.symbols <= most and candidate.card not in seen:
                seen.add(candidate.card)
                yield candidate, card


_D = Option("d", "number of coordinates", int, "D", default=1)
_K = Option("k", "coordinates per report", int, "K", shown="all")
_BITS = Option("bits", "most bits per value", float, "B", default=BITS)
_OPTIONS = (optimal.OBJECTIVE, optimal.PRIOR, _D, _K, _BITS)
AUTO = Mechanism("auto", design, _OPTIONS, tuned=optimal.TUNED, tries=untried, slow=True)
