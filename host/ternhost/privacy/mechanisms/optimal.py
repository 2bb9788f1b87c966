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

LEVELS = 8  # the default number of levels
# The largest integer that a card holds; 64 would cost up to 0.9 % of variance (4 levels, epsilon 6).
LARGEST_LEVEL = 127

# The search for values begins at this many starts. Evenly spaced ones go up to these multiples of
# Duchi's constant, and are raised to these powers. The others are scattered by square roots of
# primes, one for each positive level.
_STARTS = 24
_REACHES, _POWERS = (1.05, 1.2, 1.4), (1.0, 0.5)
_EVEN_STARTS = len(_REACHES) * len(_POWERS)
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59)
_KEPT = 4  # the best starts, which are improved to the end
# The trust region at which an improvement ends, as a share of the largest value: of all starts, and
# of the best.
_COARSE, _EXACT = 1e-2, 1e-5
_STEPS = 30  # of an improvement, at most
_ABOVE = 0.05  # of a count: more than the programme's inexactness
_WORTH = 1e-4  # what another level must gain, as a share of the objective


@lru_cache(maxsize=64)
def design(
    epsilon: int,
    levels: int | None = None,
    *,
    objective: str = WORST_VARIANCE,
    knots: int = programme.KNOTS,
    prior: str | tuple[float, ...] | None = None,
    coordinates: float | Fraction = 1,
) -> Design:
    """Return the table card with the least `objective` of all that keep `epsilon` (in millionths).

    levels: the most levels that it may have; fewer are used where more do not help. objective: one
    of programme.OBJECTIVES. knots: how many the table has.
    prior: for the objective "mean-second-moment", the distribution of inputs: a name of PRIORS
    (None: "uniform"), or a histogram's weights over [-1, 1] as a tuple or a text with commas. Only
    the distribution of |x| counts.
    coordinates: for the objective "worst-variance", d/k where reports are about k of d coordinates;
    the objective is the worst of d/k E[y**2] - x**2.

    Raises UsageError.
    """
    most = check_levels(levels, LEVELS, 2, MAX_LEVELS)
    problem = programme.problem(epsilon / MICRO, objective, knots, prior, coordinates)
    goal = _goal_in_words(objective, prior, coordinates)
    best = None
    if most > 2:
        best = _search(problem, most)
    if best is None:
        note = f"{goal}: two levels, Duchi's mechanism"
        if most > 2:
            note += f"; {most} levels would gain less than {_WORTH:.2%}"
        return checked("optimal", epsilon, duchi.card(epsilon), note)

    magnitudes, unit = _without_common_divisor(*best)
    values, _ = programme.mirrored(magnitudes)
    card_levels = values.astype(int).tolist()
    unit = _unit_for_whole_means(card_levels, unit, knots)

    def rows_at(target: float) -> list[list[float]]:
        """Return the best probabilities for these levels at an epsilon of `target`."""
        solution = solve(replace(problem, epsilon=target), magnitudes * unit)
        if solution is None:
            raise cards.CardError("these levels cannot keep the requested epsilon")
        return _all_rows(problem, solution.rows)

    try:
        data = integers.certified_table(card_levels, rows_at, epsilon)
    except cards.CardError:
        # Near epsilon 20, where the least probabilities are a count or two: fewer levels have
        # larger ones.
        fewer = len(card_levels) - 1
        return design(
            epsilon,
            fewer,
            objective=objective,
            knots=knots,
            prior=prior,
            coordinates=coordinates,
        )
    listed = ", ".join(str(level) for level in card_levels)
    notes = [f"{goal}; {knots} knots; {len(card_levels)} levels: {listed}"]
    if len(card_levels) < most:
        notes.append(f"{most} levels would gain less than {_WORTH:.2%} over {len(card_levels)}")
    return checked("optimal", epsilon, data, *notes)


def _unit_for_whole_means(card_levels: list[int], unit: float, knots: int) -> float:
    """Return a unit near the given one for which the rows' means are all but whole counts.

    The unit is the value of the level 1. A card's mean at knot i is B (2 i - (knots - 1)), in
    counts times levels, with a whole B (cards.md). If B is all but whole already, rounding the rows
    has little to move.
    """
    differences = [higher - lower for lower, higher in pairwise(card_levels)]
    divisor = math.gcd(*differences)  # of B
    exact = T / (knots - 1) / unit
    whole = exact // divisor * divisor
    # A little above the whole number, so that it is not rounded down to the next one.
    return T / (knots - 1) / (whole + _ABOVE)


def _without_common_divisor(magnitudes: Array, unit: float) -> tuple[Array, float]:
    """Divide integers by their greatest common divisor, and multiply their unit by it."""
    divisor = math.gcd(*magnitudes.astype(int).tolist())
    return magnitudes / divisor, unit * divisor


def _goal_in_words(
    objective: str, prior: str | tuple[float, ...] | None, coordinates: float | Fraction
) -> str:
    """Return the objective for a note, with its prior or d/k if it has one."""
    goal = f"{objective} objective"
    if objective == MEAN_SECOND_MOMENT:
        if prior is None:
            prior = "uniform"
        name = prior if prior in programme.PRIORS else "a histogram"
        return f"{goal}, prior {name}"
    if coordinates != 1:
        return f"{goal}, one coordinate of {float(coordinates):g}"
    return goal


def _all_rows(problem: Problem, rows: Array) -> list[list[float]]:
    """Return the probabilities at all knots from x = -1 to 1, by symmetry about 0.

    rows: the probabilities at the knots of the problem, which are those from 0 up; a column for
    each level.
    """
    upper = rows.copy()
    has_middle = problem.knots[0] == 0
    if has_middle:
        # The row at 0 is made exactly its own mirror image, and is not repeated.
        upper[0] = (upper[0] + upper[0][::-1]) / 2
        below = upper[:0:-1]  # all but the first, from the last down
    else:
        below = upper[::-1]
    mirrored_below = below[:, ::-1]
    all_rows: list[list[float]] = np.vstack([mirrored_below, upper]).tolist()
    return all_rows


def _improve(
    problem: Problem, magnitudes: Array, directions: Array, until: float
) -> tuple[float, Array]:
    """Move the magnitudes of levels to a local optimum, and return the objective and magnitudes.

    Each step is the best one of a linear approximation, within a region in which the approximation
    is trusted. The region grows after good predictions, and shrinks after bad ones.

    magnitudes: the positive values of levels (and 0), ascending. directions: a column for each
    direction in which they may move. until: the size of the trust region at which to stop, as a
    share of the largest magnitude. The objective is infinite if the magnitudes cannot be unbiased.
    """
    solution = solve(problem, magnitudes)
    if solution is None:
        return math.inf, magnitudes
    trust = 0.1 * magnitudes[-1]
    for _ in range(_STEPS):
        # Solve for a step of the magnitudes, and then for the probabilities at the moved ones.
        step = solve(problem, magnitudes, programme.Move(solution.rows, directions, trust))
        moved = None
        if step is not None:
            moved = solve(problem, magnitudes + step.moves)

        if step is None or moved is None or moved.objective >= solution.objective:
            trust /= 4
        else:
            gain = solution.objective - moved.objective
            predicted_gain = solution.objective - step.objective
            if gain > 0.5 * predicted_gain:
                trust *= 2
            else:
                trust /= 2
            magnitudes = magnitudes + step.moves
            solution = moved
            if gain < 1e-7 * solution.objective:
                break
        if trust < until * magnitudes[-1]:
            break
    return solution.objective, magnitudes


def _free(magnitudes: Array) -> Array:
    """Return directions, as columns, in which each magnitude moves by itself; one of 0 stays 0."""
    directions = np.eye(len(magnitudes))
    if magnitudes[0] == 0:
        return directions[:, 1:]
    return directions


def _starts(epsilon: float, levels: int) -> Iterator[Array]:
    """Yield magnitudes of levels, in ascending order, to start the search from.

    Half of the starts have a level 0. Some are evenly spaced, or so after a power; the others are
    points of a Kronecker sequence, n sqrt(prime) modulo 1, which fills the space evenly.

    levels: how many there may be, the negative ones included.
    """
    top = duchi.constant(epsilon)  # with a smaller top, the mechanism could not be unbiased
    for zero in ([0.0], []):
        size = (levels - len(zero)) // 2  # of the positive levels
        if size == 0:
            continue
        # From 1/size to 1 beside a level 0; without one from half a step, so that the levels -h and
        # h have the same distance as any other two.
        offset = 1.0 if zero else 0.5
        evenly_spaced = (np.arange(size) + offset) / (size - 1 + offset)
        for reach, power in product(_REACHES, _POWERS):
            yield np.concatenate([zero, top * reach * evenly_spaced**power])

        roots = np.sqrt(_PRIMES[:size])
        for n in range(1, _STARTS // 2 - _EVEN_STARTS + 1):
            fractions = n * roots % 1.0
            scattered = np.sort(fractions) * 1.5 * top
            scattered[-1] = max(scattered[-1], 1.05 * top)
            yield np.concatenate([zero, scattered])


def _search(problem: Problem, levels: int) -> tuple[Array, float] | None:
    """Return the best levels: integers from 0 up, and the unit that turns them into values.

    levels: how many there may be, the negative ones included. Returns None if Duchi's mechanism of
    two levels is about as good.
    """
    # Duchi's mechanism has the second moment C**2 at every input.
    two_levels = np.full(len(problem.knots), duchi.constant(problem.epsilon) ** 2)
    duchi_objective = float(np.max(problem.weights @ two_levels - problem.offsets))

    # Improve all starts a little, and the best of them to the end.
    coarse = []
    for start in _starts(problem.epsilon, levels):
        coarse.append(_improve(problem, start, _free(start), _COARSE))
    coarse.sort(key=_objective)
    optima = []
    for _, magnitudes in coarse[:_KEPT]:
        optima.append(_improve(problem, magnitudes, _free(magnitudes), _EXACT))
    if not optima:
        return None
    objective, magnitudes = min(optima, key=_objective)
    if objective >= duchi_objective:
        return None

    # A card has integer levels.
    search = _IntegerSearch(problem, magnitudes)
    integers = search.best()
    objective, unit = search.fit(integers)
    if objective > duchi_objective * (1 - _WORTH):
        return None
    return integers, unit


def _objective(optimum: tuple[float, Array]) -> float:
    """Return the objective of a result of `_improve`, to sort by."""
    return optimum[0]


class _IntegerSearch:
    """A search for small integers that are nearly proportional to given magnitudes of levels.

    Among those it looks for the best objective. problem: what is optimised. magnitudes:
    the positive values of levels (and 0), ascending.
    """

    def __init__(self, problem: Problem, magnitudes: Array) -> None:
        self._problem = problem
        self._magnitudes = magnitudes
        self._fits: dict[tuple[int, ...], tuple[float, float]] = {}  # the results of `fit`

    def best(self) -> Array:
        """Return a local optimum: integers that no neighbour improves on.

        The integers are the positive levels (and 0) of a card. Neighbours differ in one step.
        """
        best = min(self._roundings(), key=self._fitted_objective)
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

    def _fitted_objective(self, integers: Array) -> float:
        """Return the best objective that these integers reach."""
        objective, _ = self.fit(integers)
        return objective

    def _scaled(self, integers: Array) -> Array:
        """Return the integers times the unit that makes the largest equal to the largest magnitude."""
        unit = float(self._magnitudes[-1] / integers[-1])
        return integers * unit

    def _roundings(self) -> list[Array]:
        """Return the few best roundings of the magnitudes to integers, to start a search from.

        The magnitudes are scaled so that the largest becomes 1, 2, 3 and so on, and then rounded.
        """
        shares = self._magnitudes / self._magnitudes[-1]
        rounded = set()
        for largest in range(1, LARGEST_LEVEL + 1):
            integers = np.unique(np.rint(shares * largest)).tolist()
            if integers[-1] > 0:
                rounded.add(tuple(integers))
        candidates = [np.array(integers) for integers in sorted(rounded)]
        return sorted(candidates, key=self._objective_at_once)[:_KEPT]

    def _objective_at_once(self, integers: Array) -> float:
        """Return the objective of these integers, before their unit is improved."""
        solution = solve(self._problem, self._scaled(integers))
        if solution is None:
            return math.inf
        return solution.objective

    def _is_better(self, other: Array, best: Array) -> bool:
        """Whether other integers are better than the best so far.

        Those of fewer levels may lose a little; those of as many levels must gain a little.
        """
        # Each integer stands for two levels, except 0.
        levels_of_other = 2 * len(other) - int(other[0] == 0)
        levels_of_best = 2 * len(best) - int(best[0] == 0)
        tolerance = -1e-6
        if levels_of_other < levels_of_best:
            tolerance = _WORTH
        return self._fitted_objective(other) < self._fitted_objective(best) * (1 + tolerance)


def _neighbours(integers: Array) -> Iterator[Array]:
    """Yield integers in ascending order that differ from these by one step.

    In a step one of them (but not the largest) is left out, or the lowest becomes 0, or one that is
    not 0 changes by 1. No two may be equal.
    """
    has_zero = integers[0] == 0
    for j in range(len(integers) - 1):
        yield np.delete(integers, j)
    if not has_zero and len(integers) > 1:
        yield np.concatenate([[0.0], integers[1:]])
    first_positive = int(has_zero)
    for j in range(first_positive, len(integers)):
        for change in (1, -1):
            other = integers.copy()
            other[j] += change
            all_differ = len(np.unique(other)) == len(other)
            if 0 < other[j] <= LARGEST_LEVEL and all_differ:
                yield other


def _tries(most: int) -> Iterator[Mapping[str, Any]]:
    """Yield the options that `auto` tries: the most levels, since the design may use fewer."""
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
_OPTIONS = (OBJECTIVE, PRIOR)
OPTIMAL = Mechanism(
    "optimal",
    design,
    _OPTIONS,
    levels=LEVELS,
    drawn=(4, 8, 16),
    tuned=TUNED,
    tries=_tries,
    slow=True,
    about="the best table of a few outputs for what you want to minimise",
)
