"""Optimised tables: the best mechanism of M levels and K knots for an objective.

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
from itertools import pairwise, product
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
# What a card holds; 64 would cost up to 0.9 % of variance (4 levels, epsilon 6).
LARGEST_LEVEL = 127

_STARTS = 24
_REACHES, _POWERS = (1.05, 1.2, 1.4), (1.0, 0.5)  # of evenly spaced starts
_EVEN_STARTS = len(_REACHES) * len(_POWERS)
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59)  # of starts
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

    share: for "worst-variance", d/k where k of d coordinates are sampled: the worst of share
    E[y**2] - x**2. prior: for "mean-second-moment", a name of PRIORS (default: "uniform"), or a
    histogram's weights over [-1, 1] as a tuple or a text with commas; only the prior of |x| counts.
    Fewer levels are used where more do not help. Raises UsageError.
    """
    most = check_levels(levels, LEVELS, 2, MAX_LEVELS)  # the most levels that the card may have
    problem = programme.problem(epsilon / MICRO, objective, knots, prior, share)
    goal = _goal_in_words(objective, prior, share)
    best = None
    if most > 2:
        best = _search(problem, most)
    if best is None:
        note = f"{goal}: two levels, Duchi's mechanism"
        if most > 2:
            note += f"; {most} levels would gain less than {_WORTH:.2%}"
        return checked("optimal", epsilon, duchi.card(epsilon), note)

    halves, unit = _without_common_divisor(*best)
    columns = programme.mirrored(halves)[0].astype(int).tolist()  # the levels of the card
    # The means are B (2i - (knots - 1)) counts with a whole B (cards.md): a unit for which it is
    # all but whole leaves the rounding of the rows little to move.
    differences = [higher - lower for lower, higher in pairwise(columns)]
    divisor = math.gcd(*differences)
    whole = T / (knots - 1) / unit // divisor * divisor
    unit = T / (knots - 1) / (whole + _ABOVE)

    def rows_at(target: float) -> list[list[float]]:
        """The best probabilities for these levels at an epsilon of `target`."""
        solution = solve(replace(problem, epsilon=target), halves * unit)
        if solution is None:
            raise cards.CardError("these levels cannot keep the requested epsilon")
        return _all_rows(problem, solution.rows)

    try:
        data = integers.certified_table(columns, rows_at, epsilon)
    except cards.CardError:
        # Near epsilon 20, where the least probabilities are a count or two: fewer levels have
        # larger ones.
        fewer = len(columns) - 1
        return design(epsilon, fewer, objective=objective, knots=knots, prior=prior, share=share)
    notes = [f"{goal}; {knots} knots; {len(columns)} levels: {', '.join(map(str, columns))}"]
    if len(columns) < most:
        notes.append(f"{most} levels would gain less than {_WORTH:.2%} over {len(columns)}")
    return checked("optimal", epsilon, data, *notes)


def _without_common_divisor(halves: Array, unit: float) -> tuple[Array, float]:
    """Divide integers by their greatest common divisor, and multiply their unit by it."""
    divisor = math.gcd(*halves.astype(int).tolist())
    return halves / divisor, unit * divisor


def _goal_in_words(
    objective: str, prior: str | tuple[float, ...] | None, share: float | Fraction
) -> str:
    """Return the beginning of a note: the objective, with its prior or share if it has one."""
    goal = f"{objective} objective"
    if objective == MEAN_SECOND_MOMENT:
        if prior is None:
            prior = "uniform"
        name = prior if prior in programme.PRIORS else "a histogram"
        return f"{goal}, prior {name}"
    if share != 1:
        return f"{goal}, one coordinate of {float(share):g}"
    return goal


def _all_rows(problem: Problem, rows: Array) -> list[list[float]]:
    """Return the rows of all knots from x = -1 to 1, by symmetry about 0.

    rows: probabilities at the knots of the problem, from 0 (or 1) up, a column for each level.
    """
    upper = rows.copy()
    if problem.knots[0] == 0:
        # The row at 0 is made exactly its own mirror image, and is not repeated.
        upper[0] = (upper[0] + upper[0][::-1]) / 2
        below = upper[:0:-1]
    else:
        below = upper[::-1]
    all_rows: list[list[float]] = np.vstack([below[:, ::-1], upper]).tolist()
    return all_rows


def _improve(
    problem: Problem, halves: Array, directions: Array, until: float
) -> tuple[float, Array]:
    """Move the values of levels to a local optimum, by linear steps within a trust region.

    halves: the values from 0 up. directions: a column for each direction in which they may move.
    until: the size of the trust region at which to stop, relative to the largest value. Returns the
    objective (infinite if these values cannot be unbiased) and the values.
    """
    solution = solve(problem, halves)
    if solution is None:
        return math.inf, halves
    trust = 0.1 * halves[-1]
    for _ in range(_STEPS):
        # Solve for a step of the values, and then for the probabilities at the moved values.
        step = solve(problem, halves, programme.Move(solution.rows, directions, trust))
        moved = None
        if step is not None:
            moved = solve(problem, halves + step.moves)

        if step is None or moved is None or moved.objective >= solution.objective:
            trust /= 4
        else:
            # The region grows where the linear model predicts well.
            gain = solution.objective - moved.objective
            promised_gain = solution.objective - step.objective
            if gain > 0.5 * promised_gain:
                trust *= 2
            else:
                trust /= 2
            halves, solution = halves + step.moves, moved
            if gain < 1e-7 * solution.objective:
                break
        if trust < until * halves[-1]:
            break
    return solution.objective, halves


def _free(halves: Array) -> Array:
    """Return directions in which each value moves by itself, as columns; a level 0 stays 0."""
    directions = np.eye(len(halves))
    if halves[0] == 0:
        return directions[:, 1:]
    return directions


def _starts(epsilon: float, levels: int) -> Iterator[Array]:
    """Yield values of levels, from 0 up, to start the search from.

    Half of the starts have a level 0. Some are evenly spaced, or so after a power; the others are
    points of a Kronecker sequence, n sqrt(prime) modulo 1, which fills the space evenly.
    """
    top = duchi.constant(epsilon)
    for zero in ([0.0], []):
        size = (levels - len(zero)) // 2  # of the positive levels
        if size == 0:
            continue
        offset = 1.0 if zero else 0.5
        even = (np.arange(size) + offset) / (size - 1 + offset)
        for reach, power in product(_REACHES, _POWERS):
            yield np.concatenate([zero, top * reach * even**power])

        steps = np.sqrt(_PRIMES[:size])
        for n in range(1, _STARTS // 2 - _EVEN_STARTS + 1):
            scattered = np.sort(n * steps % 1.0) * 1.5 * top
            # Below Duchi's constant the mechanism could not be unbiased.
            scattered[-1] = max(scattered[-1], 1.05 * top)
            yield np.concatenate([zero, scattered])


def _search(problem: Problem, levels: int) -> tuple[Array, float] | None:
    """Search for the best values of levels, as integers from 0 up times a unit.

    levels: how many there may be, the negative ones included. Returns the integers and the unit, or
    None if Duchi's mechanism of two levels is about as good.
    """
    two_levels = np.full(len(problem.knots), duchi.constant(problem.epsilon) ** 2)
    duchi_objective = float(np.max(problem.weights @ two_levels - problem.offsets))

    # Improve all starts a little, and the best of them to the end.
    coarse = []
    for start in _starts(problem.epsilon, levels):
        coarse.append(_improve(problem, start, _free(start), _COARSE))
    coarse.sort(key=_objective)
    optima = []
    for _, halves in coarse[:_KEPT]:
        optima.append(_improve(problem, halves, _free(halves), _EXACT))
    if not optima:
        return None
    objective, halves = min(optima, key=_objective)
    if objective >= duchi_objective:
        return None

    # A card has integer levels.
    search = _IntegerSearch(problem, halves)
    integers = search.best()
    objective, unit = search.fit(integers)
    if objective > duchi_objective * (1 - _WORTH):
        return None
    return integers, unit


def _objective(optimum: tuple[float, Array]) -> float:
    """Return the objective of a result of `_improve`, to sort by."""
    return optimum[0]


class _IntegerSearch:
    """A search for small integers and a unit whose products are near the given values.

    Among those it looks for the best objective.
    """

    def __init__(self, problem: Problem, halves: Array) -> None:
        self._problem = problem
        self._halves = halves
        self._fits: dict[tuple[int, ...], tuple[float, float]] = {}

    def best(self) -> Array:
        """Return a local optimum: integers that no neighbour improves on."""
        best = min(self._roundings(), key=lambda integers: self.fit(integers)[0])
        improved = True
        while improved:
            improved = False
            for neighbour in _neighbours(best):
                if self._is_better(neighbour, best):
                    best = neighbour
                    improved = True
                    break
        return best

    def fit(self, integers: Array) -> tuple[float, float]:
        """Return the best objective that these integers reach, and the unit at which they do."""
        key = tuple(integers.astype(int).tolist())
        if key not in self._fits:
            direction = integers[:, None] / integers[-1]  # only their common unit may change
            objective, values = _improve(self._problem, self._scaled(integers), direction, _EXACT)
            self._fits[key] = objective, values[-1] / integers[-1]
        return self._fits[key]

    def _scaled(self, integers: Array) -> Array:
        """The integers times the unit at which the largest is the largest of the values."""
        unit = float(self._halves[-1] / integers[-1])
        return integers * unit

    def _roundings(self) -> list[Array]:
        """Return the few best roundings of the values to integers, of all largest integers."""
        shares = self._halves / self._halves[-1]
        rounded = set()
        for top in range(1, LARGEST_LEVEL + 1):
            integers = np.unique(np.rint(shares * top)).tolist()
            if integers[-1] > 0:
                rounded.add(tuple(integers))
        candidates = [np.array(integers) for integers in sorted(rounded)]
        return sorted(candidates, key=self._objective_at_once)[:_KEPT]

    def _objective_at_once(self, integers: Array) -> float:
        """The objective of these integers, before their unit is improved."""
        solution = solve(self._problem, self._scaled(integers))
        if solution is None:
            return math.inf
        return solution.objective

    def _is_better(self, other: Array, best: Array) -> bool:
        """Whether other integers are better than the best so far.

        Fewer levels may lose a little; as many must gain a little.
        """
        # Each integer stands for two levels, except 0.
        fewer_levels = 2 * (len(best) - len(other)) + (other[0] == 0) - (best[0] == 0)
        tolerance = _WORTH if fewer_levels > 0 else -1e-6
        return self.fit(other)[0] < self.fit(best)[0] * (1 + tolerance)


def _neighbours(integers: Array) -> Iterator[Array]:
    """Yield ascending integers that differ from these by one step.

    One of them is left out, or the lowest becomes 0, or one that is not 0 changes by 1.
    """
    has_zero = integers[0] == 0
    for j in range(len(integers) - 1):
        yield np.delete(integers, j)
    if not has_zero and len(integers) > 1:
        yield np.concatenate([[0.0], integers[1:]])
    for j in range(int(has_zero), len(integers)):
        for change in (1, -1):
            other = integers.copy()
            other[j] += change
            if 0 < other[j] <= LARGEST_LEVEL and len(np.unique(other)) == len(other):
                yield other


def _tries(most: int) -> Iterator[Mapping[str, Any]]:
    """Yield the options that `auto` tries: the most levels, which cover fewer ones."""
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
