"""`auto`: the best card for an epsilon, a number of bits and an objective, and why.

An estimate of k of d coordinates has the variance (d/k) m(x) - x**2 a report, with the card's
second moment m(x), which decides where k << d.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tern.card import Card
from ternhost import words
from ternhost.errors import UsageError
from ternhost.options import Option, require
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.base import MICRO, Design
from ternhost.privacy.mechanism import Mechanism, untried
from ternhost.privacy.mechanisms import optimal, programme
from ternhost.privacy.mechanisms.programme import WORST_SECOND_MOMENT, WORST_VARIANCE

LEVELS = 256  # the most outputs of a card, by default
_RIVALS = 3  # how many of the next best cards a note names


def design(
    epsilon: int,
    levels: int | None = None,
    *,
    d: int = 1,
    k: int | None = None,
    objective: str = WORST_VARIANCE,
    prior: str | None = None,
) -> Design:
    """Return the card with the smallest objective among all mechanisms.

    epsilon: of one value (in millionths). levels: the most outputs; None: 256. d, k: a report is
    about k of d coordinates; None: about all. objective, prior: what to minimise, as in
    `optimal.design`. The notes of the result name the runners-up. Raises UsageError.
    """
    if k is None:
        k = d
    require(1 <= k <= d, "k", f"1 to d, which is {d}", k)
    most = LEVELS if levels is None else levels

    # The options of `optimal.design` that name the goal.
    share = Fraction(d, k)
    goal: dict[str, Any] = {"objective": objective, "prior": prior}
    goal_name = objective
    if objective == WORST_VARIANCE and share != 1:
        goal["share"] = share
        goal_name = f"worst variance with {k} of {d} coordinates"
    # Raises UsageError for a goal that makes no sense.
    programme.problem(epsilon / MICRO, knots=programme.KNOTS, **{"share": 1, **goal})

    candidates = []
    for candidate, card in _candidates(epsilon, most, goal):
        score = _score(certify.moments(card), objective, prior, share)
        candidates.append(_Candidate(score, card.symbols, candidate))
    if not candidates:
        raise UsageError(f"no mechanism has {most} levels or fewer")
    best, *rivals = sorted(candidates, key=lambda candidate: candidate.order)

    notes = [
        f"{best.design.mechanism} with {best.levels} levels has the least {goal_name}, "
        f"{best.score:.6g}, of {len(candidates)} cards"
    ]
    if rivals:
        named_rivals = ", ".join(rival.words for rival in rivals[:_RIVALS])
        notes.append(f"next best: {named_rivals}")
    return Design("auto", epsilon, best.design.card, (*notes, *best.design.notes))


@dataclass(frozen=True)
class _Candidate:
    """A card that is compared with others. score: its objective; the smaller, the better."""

    score: float
    levels: int
    design: Design

    @property
    def order(self) -> tuple[float, int, int]:
        """Sorts the best first; of equally good cards the one with fewer levels, then bytes."""
        return self.score, self.levels, len(self.design.card)

    @property
    def words(self) -> str:
        """The mechanism, its number of levels and its score, for a note."""
        return f"{self.design.mechanism} ({self.levels} levels) {self.score:.6g}"


def _score(moments: certify.Moments, objective: str, prior: str | None, share: Fraction) -> float:
    """Return the objective of a card, a variance or a second moment; the smaller, the better.

    moments: those of the card. prior: a distribution of inputs, only for the objective
    "mean-second-moment". share: d/k, only for the objective "worst-variance", where reports are
    about k of d coordinates.
    """
    if objective == WORST_VARIANCE:
        largest, _ = moments.worst_variance(share)
        return float(largest)
    if objective == WORST_SECOND_MOMENT:
        return float(moments.worst_second_moment())
    inputs, probabilities = programme.prior_points(prior)
    return moments.mean_second_moment(inputs, weights=probabilities)


def _candidates(epsilon: int, most: int, goal: dict[str, Any]) -> Iterator[tuple[Design, Card]]:
    """Yield the designs of all mechanisms with at most `most` levels, and their decoded cards.

    Equal cards of different mechanisms come once. epsilon: in millionths. goal: the objective as
    options, which are given to the mechanisms that have such options.
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


_D = Option("d", words.HELP["d"], int, "D", default=1)
_K = Option("k", words.HELP["k"], int, "K", shown="all")
_OPTIONS = (optimal.OBJECTIVE, optimal.PRIOR, _D, _K)
AUTO = Mechanism(
    "auto",
    design,
    _OPTIONS,
    tuned=optimal.TUNED,
    tries=untried,
    slow=True,
    about="the best of all mechanisms, for what you want to minimise",
)
