"""Optimised tables: the best mechanism of M levels and K knots for an objective, by linear
programming.

For given values of the levels the best probabilities solve a linear programme (programme.py).
Successive linear programmes find the values: they and the probabilities move together within a
trust region, without the products of their changes, from many starts, since there are several local
optima. Then the values become a ratio of small integers, and the rows counts (integers.py).
Everything is symmetric about 0 and deterministic. The objective is the worst variance, the worst
second moment, which counts where coordinates are sampled, or its mean under a prior on x.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from tern import card as cards
from tern.card import MAX_LEVELS, T
from ternhost.options import Option
from ternhost.privacy import integers
from ternhost.privacy.base import MICRO, Design, check_levels, checked
from ternhost.privacy.mechanism import GRADIENTS, VALUES, Mechanism
from ternhost.privacy.mechanisms import duchi, programme
from ternhost.privacy.mechanisms.programme import (
    MEAN_SECOND_MOMENT,
    WORST_VARIANCE,
    Array,
    Problem,
    solve,
)

LEVELS = 8
LARGEST_LEVEL = (
    127  # what a card holds; 64 would cost up to 0.9 % of variance (4 levels, epsilon 6)
)

_STARTS = 24
_KEPT = 4  # starts that are refined
_COARSE, _EXACT = 1e-2, 1e-5  # where the region of trust ends, as a part of the largest value
_STEPS = 30
_ABOVE = 0.05  # counts, more than the programme's inexactness
_WORTH = 1e-4  # what another level must gain, as a part of the objective


@lru_cache(maxsize=64)
def design(
    epsilon: int,
    levels: int | None = None,
    *,
    objective: str = WORST_VARIANCE,
    knots: int = programme.KNOTS,
    prior: str | tuple[float, ...] | None = None,
    share: float | Fraction = 1,
) -> Design:
    """Design the best table card of at most `levels` levels for `objective` at `epsilon` (micro).

    Raises UsageError.

    share: for "worst-variance", d/k where k of d coordinates are sampled: the worst of share
    E[y**2] - x**2. prior: for "mean-second-moment", a name of PRIORS (default: "uniform"), or a
    histogram's weights over [-1, 1] as a tuple or a text with commas; only the prior of |x| counts.
    Fewer levels are used where more do not help.
    """
    most = check_levels(levels, LEVELS, 2, MAX_LEVELS)
    problem = programme.problem(epsilon / MICRO, objective, knots, prior, share)
    goal = f"{objective} objective"
    if objective == MEAN_SECOND_MOMENT:
        name = "uniform" if prior is None else prior
        goal += f", prior {name if name in programme.PRIORS else 'a histogram'}"
    elif share != 1:
        goal += f", one coordinate of {float(share):g}"
    best = _search(problem, most) if most > 2 else None
    if best is None:
        why = f"; {most} levels would gain less than {_WORTH:.2%}" if most > 2 else ""
        return checked(
            "optimal", epsilon, duchi.card(epsilon), f"{goal}: two levels, Duchi's mechanism{why}"
        )
    halves, unit = best
    common = math.gcd(*halves.astype(int).tolist())
    halves, unit = halves / common, unit * common
    columns = programme.mirrored(halves)[0].astype(int).tolist()
    # The means are B (2i - (knots - 1)) counts with a whole B (cards.md): a unit for which it is
    # all but whole leaves the rounding of the rows little to move.
    divisor = math.gcd(*(b - a for a, b in pairwise(columns)))
    whole = T / (knots - 1) / unit // divisor * divisor
    unit = T / (knots - 1) / (whole + _ABOVE)

    def rows(target: float) -> list[list[float]]:
        solution = solve(replace(problem, epsilon=target), halves * unit)
        if solution is None:
            raise cards.CardError("these levels cannot keep the requested epsilon")
        return _all_rows(problem, solution.rows)

    try:
        data = integers.certified_table(columns, rows, epsilon)
    except cards.CardError:
        # Near epsilon 20, where the least probabilities are a count or two: fewer levels have
        # larger ones.
        fewer = len(columns) - 1
        return design(epsilon, fewer, objective=objective, knots=knots, prior=prior, share=share)
    notes = [f"{goal}; {knots} knots; {len(columns)} levels: {', '.join(map(str, columns))}"]
    if len(columns) < most:
        notes.append(f"{most} levels would gain less than {_WORTH:.2%} over {len(columns)}")
    return checked("optimal", epsilon, data, *notes)


def _all_rows(problem: Problem, rows: Array) -> list[list[float]]:
    """Rows from x = -1 to 1: those below 0 are mirrored, and the one at 0 is its own mirror."""
    upper = rows.copy()
    if problem.knots[0] == 0:
        upper[0] = (upper[0] + upper[0][::-1]) / 2
    below = upper[:0:-1] if problem.knots[0] == 0 else upper[::-1]
    both: list[list[float]] = np.vstack([below[:, ::-1], upper]).tolist()
    return both


def _improve(
    problem: Problem, halves: Array, directions: Array, until: float
) -> tuple[float, Array]:
    """Move the values along `directions` to a local optimum; give the objective (inf: there is
    none) and the values.
    """
    solution = solve(problem, halves)
    if solution is None:
        return math.inf, halves
    trust = 0.1 * halves[-1]
    for _ in range(_STEPS):
        step = solve(problem, halves, programme.Move(solution.rows, directions, trust))
        moved = None if step is None else solve(problem, halves + step.moves)
        if step is None or moved is None or moved.objective >= solution.objective:
            trust /= 4
        else:
            gain = solution.objective - moved.objective
            trust *= 2 if gain > 0.5 * (solution.objective - step.objective) else 0.5
            halves, solution = halves + step.moves, moved
            if gain < 1e-7 * solution.objective:
                break
        if trust < until * halves[-1]:
            break
    return solution.objective, halves


def _free(halves: Array) -> Array:
    """Directions in which each value moves by itself; 0 stays."""
    return np.eye(len(halves))[:, 1 if halves[0] == 0 else 0 :]


def _starts(epsilon: float, levels: int) -> Iterator[Array]:
    """Values to start from: even spacings, and a sequence that fills the space evenly (a Kronecker
    sequence).
    """
    top = duchi.constant(epsilon)
    for zero in (True, False):
        size = (levels - zero) // 2
        if size == 0:
            continue
        head = [0.0] if zero else []
        for reach in (1.05, 1.2, 1.4):
            for power in (1.0, 0.5):
                even = (np.arange(size) + (1 if zero else 0.5)) / (size if zero else size - 0.5)
                yield np.concatenate([head, top * reach * even**power])
        steps = np.sqrt([p for p in range(2, 60) if all(p % q for q in range(2, p))][:size])
        for n in range(1, _STARTS // 2 - 5):
            scattered = np.sort(n * steps % 1.0) * 1.5 * top
            scattered[-1] = max(scattered[-1], 1.05 * top)
            yield np.concatenate([head, scattered])


def _search(problem: Problem, levels: int) -> tuple[Array, float] | None:
    """Integers from 0 up and a unit, whose products are the best values; None if Duchi's mechanism
    is no worse.
    """
    duchis = np.full(len(problem.knots), duchi.constant(problem.epsilon) ** 2)
    two = float(np.max(problem.weights @ duchis - problem.offsets))
    coarse = [
        _improve(problem, start, _free(start), _COARSE)
        for start in _starts(problem.epsilon, levels)
    ]
    coarse.sort(key=lambda candidate: candidate[0])
    optima = [_improve(problem, halves, _free(halves), _EXACT) for _, halves in coarse[:_KEPT]]
    if not optima:
        return None
    objective, halves = min(optima, key=lambda candidate: candidate[0])
    if objective < two:
        objective, integers, unit = _to_integers(problem, halves)
    return None if objective > two * (1 - _WORTH) else (integers, unit)


def _to_integers(problem: Problem, halves: Array) -> tuple[float, Array, float]:
    """Small integers and a unit whose products are near the values, and that lose the least; the
    objective first.
    """
    tried: dict[tuple[int, ...], tuple[float, float]] = {}

    def fit(integers: Array) -> float:
        key = tuple(integers.astype(int).tolist())
        if key not in tried:
            start = integers * (halves[-1] / integers[-1])
            objective, values = _improve(problem, start, integers[:, None] / integers[-1], _EXACT)
            tried[key] = objective, values[-1] / integers[-1]
        return tried[key][0]

    def first(integers: Array) -> float:
        solution = solve(problem, integers * (halves[-1] / integers[-1]))
        return math.inf if solution is None else solution.objective

    shares = halves / halves[-1]
    rounded = {
        tuple(np.unique(np.rint(shares * top)).tolist()) for top in range(1, LARGEST_LEVEL + 1)
    }
    candidates = sorted((np.array(c) for c in sorted(rounded) if c[-1] > 0), key=first)[:_KEPT]
    best = min(candidates, key=fit)

    def is_better(other: Array) -> bool:
        fewer = 2 * (len(best) - len(other)) + (other[0] == 0) - (best[0] == 0)
        return fit(other) < fit(best) * (1 + (_WORTH if fewer > 0 else -1e-6))

    while (better := next(filter(is_better, _neighbours(best)), None)) is not None:
        best = better
    objective, unit = tried[tuple(best.astype(int).tolist())]
    return objective, best, unit


def _neighbours(integers: Array) -> Iterator[Array]:
    """The same with one less, with the lowest pair made one level 0, or with one of them (not 0) up
    or down by one.
    """
    for j in range(len(integers) - 1):
        yield np.delete(integers, j)
    if integers[0] != 0 and len(integers) > 1:
        yield np.concatenate([[0.0], integers[1:]])
    for j in range(1 if integers[0] == 0 else 0, len(integers)):
        for change in (1, -1):
            other = integers.copy()
            other[j] += change
            if 0 < other[j] <= LARGEST_LEVEL and len(np.unique(other)) == len(other):
                yield other


def _tries(most: int) -> Iterator[Mapping[str, Any]]:
    """A table of as many levels as there may be covers those of fewer."""
    if most >= 2:
        yield {"levels": min(most, MAX_LEVELS)}


_GOAL = f"quantity to minimise (default: {WORST_VARIANCE}; in a run, {MEAN_SECOND_MOMENT})"
OBJECTIVE = Option(
    "objective", _GOAL, choices=programme.OBJECTIVES, default=WORST_VARIANCE, shown=""
)
_PRIOR = f"prior over [-1, 1]: {', '.join(programme.PRIORS)}, or a histogram such as 1,2,1"
PRIOR = Option("prior", _PRIOR, metavar="P", shown="uniform; in training, small")
TUNED = {
    GRADIENTS: {"objective": MEAN_SECOND_MOMENT, "prior": "small"},
    VALUES: {"objective": MEAN_SECOND_MOMENT, "prior": "uniform"},
}
_KNOTS = Option(
    "knots", "number of knots of the table: 3, 5, 9, 17 or 33", int, "K", default=programme.KNOTS
)
_SHARE = Option("share", "d / k, if a device reports k of d coordinates", float, "S", default=1.0)
_OPTIONS = (OBJECTIVE, PRIOR, _KNOTS, _SHARE)
OPTIMAL = Mechanism(
    "optimal",
    design,
    _OPTIONS,
    levels=LEVELS,
    drawn=(4, 8, 16),
    tuned=TUNED,
    tries=_tries,
    slow=True,
)
