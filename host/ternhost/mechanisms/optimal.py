"""Optimised tables: the best mechanism of M levels and K knots for an objective, by linear programming.

For given values of the levels the best probabilities solve a linear programme: the objective is linear (or the
largest of linear functions) in them, and so are the sums, the means and the privacy ratio. The values themselves are
found by successive linear programmes: probabilities and values move together, the products of their changes left
out, within a region of trust. Starts are many, since there are several local optima. Then the values are brought to
a ratio of small integers, and the rows to counts (integers.py). Everything is symmetric about 0 and deterministic.

Objectives, over x in [-1, 1]: the worst variance (of one value reported by itself), the worst second moment, and the
mean second moment under a prior on x. With k of d coordinates sampled the variance of the estimate is
(d/k) (V(x) + x**2) - x**2, so there it is the second moment that counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tern import card as cards
from tern.card import MAX_KNOT_BITS, MAX_LEVELS, T
from ternhost.errors import UsageError
from ternhost.mechanisms import duchi, integers
from ternhost.mechanisms.base import MICRO, Design, check_levels, checked

Array = NDArray[np.float64]

OBJECTIVES = ("worst-variance", "worst-second-moment", "mean-second-moment")
LEVELS = 8
KNOTS = (1 << MAX_KNOT_BITS) + 1
LARGEST_LEVEL = 127  # what a card holds; 64 would cost up to 0.9 % of variance (4 levels, epsilon 6)

# Densities on [-1, 1] (not normalised) by which a prior on x can be named.
PRIORS: dict[str, Callable[[Array], Array]] = {
    "uniform": np.ones_like,
    "gaussian": lambda x: np.exp(-8 * x * x),  # standard deviation 1/4
    "small": lambda x: np.exp(-16 * np.abs(x)),  # Laplace of scale 1/16: gradients
}
_FINE = 128  # points of [0, 1] at which a variance between knots is bounded
_BINS = 4096  # of a prior

_STARTS = 24
_KEPT = 4  # starts that are refined
_COARSE, _EXACT = 1e-2, 1e-5  # where the region of trust ends, as a part of the largest value
_STEPS = 30
_ABOVE = 0.05  # counts, more than the programme's inexactness
_WORTH = 1e-4  # what another level must gain, as a part of the objective


@dataclass(frozen=True)
class _Problem:
    """Minimise the largest of `weights @ second moments at the knots - offsets`. Knots are those from 0 (or 1) to 1."""

    epsilon: float
    knots: Array
    weights: Array
    offsets: Array

    @property
    def least(self) -> float:
        """The least probability of any output: far from 0, so that rounding it costs no epsilon to speak of."""
        return min(2.0**-16, 0.1 / math.exp(self.epsilon))


@dataclass(frozen=True)
class _Solution:
    objective: float
    rows: Array  # a row a knot from 0 (or 1) to 1, a column a level
    moves: Array  # how the values should move, if that was asked


def design(
    epsilon: int,
    levels: int | None = None,
    *,
    objective: str = OBJECTIVES[0],
    knots: int = KNOTS,
    prior: str | Sequence[float] | None = None,
    share: float | Fraction = 1,
) -> Design:
    """Design the best table card of at most so many levels for `objective` at `epsilon` (micro-epsilon).

    `share` (for "worst-variance" only) is d/k where k of d coordinates are sampled: the worst of share E[y**2] - x**2.

    `prior` (for "mean-second-moment" only; "uniform" if None): a name of PRIORS, or the weights of a histogram of equal
    bins over [-1, 1], as a sequence or as a text with commas. A symmetric card has the same second moment at x and -x,
    so only the prior of |x| counts. Fewer levels are used where more do not help. Raises UsageError.
    """
    most = check_levels(levels, LEVELS, 2, MAX_LEVELS)
    problem = _problem(epsilon / MICRO, objective, knots, prior, share)
    goal = f"{objective} objective"
    if objective == OBJECTIVES[2]:
        goal += f", prior {_prior_name(prior)}"
    elif share != 1:
        goal += f", one coordinate of {float(share):g}"
    found = _search(problem, most) if most > 2 else None
    if found is None:
        why = f"; {most} levels would gain less than {_WORTH:.2%}" if most > 2 else ""
        return checked("optimal", epsilon, duchi.card(epsilon), f"{goal}: two levels, Duchi's mechanism{why}")
    halves, unit = found
    common = math.gcd(*halves.astype(int).tolist())
    halves, unit = halves / common, unit * common
    columns = _mirrored(halves)[0].astype(int).tolist()
    # The means are B (2i - (knots - 1)) counts with a whole B (cards.md): a unit for which it is all but whole leaves
    # the rounding of the rows little to move.
    divisor = math.gcd(*(b - a for a, b in pairwise(columns)))
    whole = T / (knots - 1) / unit // divisor * divisor
    unit = T / (knots - 1) / (whole + _ABOVE)

    def rows(target: float) -> list[list[float]]:
        solution = _solve(replace(problem, epsilon=target), halves * unit)
        if solution is None:
            raise cards.CardError("these levels cannot keep the epsilon asked")
        return _all_rows(problem, solution.rows)

    try:
        data = integers.certified_table(columns, rows, epsilon)
    except cards.CardError:
        # Near epsilon 20, where the least probabilities are a count or two: fewer levels have larger ones.
        fewer = len(columns) - 1
        return design(epsilon, fewer, objective=objective, knots=knots, prior=prior, share=share)
    notes = [f"{goal}; {knots} knots; {len(columns)} levels: {', '.join(map(str, columns))}"]
    if len(columns) < most:
        notes.append(f"{most} levels would gain less than {_WORTH:.2%} over {len(columns)}")
    return checked("optimal", epsilon, data, *notes)


# --- the objective ------------------------------------------------------------------------------------------


def _problem(
    epsilon: float, objective: str, knots: int, prior: str | Sequence[float] | None, share: float | Fraction
) -> _Problem:
    if not any(knots == (1 << p) + 1 for p in range(MAX_KNOT_BITS + 1)):
        raise UsageError(f"{knots} knots: a table has 2, 3, 5, 9, 17 or {KNOTS}")
    if prior is not None and objective != OBJECTIVES[2]:
        raise UsageError(
            "a prior is for the objective mean-second-moment", hint=f"add --objective {OBJECTIVES[2]}"
        )
    if share != 1 and objective != OBJECTIVES[0]:
        raise UsageError(f"a share is for the objective {OBJECTIVES[0]}")
    if not 1 <= share < math.inf:
        raise UsageError(f"share {share}: d/k is 1 or more")
    at = np.linspace(-1, 1, knots)
    at = at[at >= 0]
    if objective == OBJECTIVES[0]:
        # Between knots the second moment is linear, so E[y**2] - x**2 is a parabola: bounded at fine points.
        fine = np.linspace(0, 1, _FINE + 1)
        return _Problem(epsilon, at, float(share) * _hats(at, fine), fine**2)
    if objective == OBJECTIVES[1]:
        return _Problem(epsilon, at, np.eye(len(at)), np.zeros(len(at)))
    if objective == OBJECTIVES[2]:
        fine, mass = prior_points(prior)
        return _Problem(epsilon, at, mass[None, :] @ _hats(at, fine), np.zeros(1))
    raise UsageError(f"no objective called {objective!r}", hint="known: " + ", ".join(OBJECTIVES))


def _hats(knots: Array, x: Array) -> Array:
    """Weights of the knots (columns) in a linear interpolation at |x| (rows)."""
    return np.array([np.interp(np.abs(x), knots, unit) for unit in np.eye(len(knots))]).T


def prior_points(prior: str | Sequence[float] | None) -> tuple[Array, Array]:
    """Points of [-1, 1] and their masses, which add up to 1."""
    name = "uniform" if prior is None else prior
    if isinstance(name, str) and name in PRIORS:
        points = _midpoints(_BINS)
        mass = PRIORS[name](points)
    else:
        try:
            heights = np.array([float(w) for w in (name.split(",") if isinstance(name, str) else name)])
        except ValueError:
            hint = "known: " + ", ".join(PRIORS) + "; or the weights of a histogram over [-1, 1], with commas"
            raise UsageError(f"no prior called {name!r}", hint=hint) from None
        if not (len(heights) and np.all(np.isfinite(heights)) and np.all(heights >= 0) and heights.sum() > 0):
            raise UsageError("a prior's histogram needs weights from 0 up, not all of them 0")
        parts = math.ceil(_BINS / len(heights))
        points = _midpoints(parts * len(heights))
        mass = np.repeat(heights, parts)
    return points, mass / float(mass.sum())


def _midpoints(bins: int) -> Array:
    return np.asarray((np.arange(bins) + 0.5) * (2 / bins) - 1, dtype=np.float64)


def _prior_name(prior: str | Sequence[float] | None) -> str:
    if prior is None:
        return "uniform"
    return prior if isinstance(prior, str) and prior in PRIORS else "a histogram"


# --- the linear programme -----------------------------------------------------------------------------------


def _mirrored(halves: Array) -> tuple[Array, NDArray[np.intp]]:
    """All values, from those from 0 up, and the index of each in `halves`."""
    order = np.arange(len(halves))
    below = order[:0:-1] if halves[0] == 0 else order[::-1]
    return np.concatenate([-halves[below], halves]), np.concatenate([below, order])


def _solve(
    problem: _Problem,
    halves: Array,
    rows: Array | None = None,
    directions: Array | None = None,
    trust: float = 0.0,
) -> _Solution | None:
    """The best probabilities for these values; None if they are too small to be unbiased at this epsilon.

    With `rows`, the probabilities to start from, the values move too, to first order: along the columns of
    `directions`, each value by at most `trust`.

    Variables: u, the largest probability of each magnitude; s, by which each probability exceeds its least, u/E; the
    second moments at the knots; the objective; and the steps along the directions.
    """
    from scipy.optimize import linprog  # takes longer to import than a shipped card to read

    e = math.exp(problem.epsilon)
    values, owner = _mirrored(halves)
    size, levels, knots, goals = len(halves), len(values), len(problem.knots), len(problem.offsets)
    steps = 0 if directions is None else directions.shape[1]
    widths = (size, knots * levels, knots, 1, steps)
    ends = np.cumsum(widths).tolist()
    u, s, seconds, objective, d = (slice(end - n, end) for end, n in zip(ends, widths, strict=True))
    owners = np.eye(size)[owner]
    every = np.eye(knots)

    # Rows: the ratio of every probability; the objective; steps within the trust; values in order and above 0.
    upper = np.zeros((knots * levels + goals + (3 * size if steps else 0), sum(widths)))
    limits = np.zeros(len(upper))
    ratio, goal, rest = np.split(upper, [knots * levels, knots * levels + goals])
    ratio[:, u] = np.tile(-(1 - 1 / e) * owners, (knots, 1))
    np.fill_diagonal(ratio[:, s], 1)
    goal[:, seconds] = problem.weights
    goal[:, objective] = -1
    limits[knots * levels : knots * levels + goals] = problem.offsets

    # Rows: at every knot the probabilities add up to 1, the mean is the knot, and the second moment is its variable.
    equal = np.zeros((3 * knots, sum(widths)))
    for block, powers in zip(np.split(equal, 3), (np.ones(levels), values, values**2), strict=True):
        block[:, u] = powers @ owners / e
        block[:, s] = np.kron(every, powers)
    equal[2 * knots :, seconds] = -every
    if rows is not None and directions is not None:
        changes = np.sign(values)[:, None] * directions[owner]
        equal[knots : 2 * knots, d] = rows @ changes
        equal[2 * knots :, d] = rows @ (2 * values[:, None] * changes)
        ordered = np.vstack([-directions[:1], directions[:-1] - directions[1:]])
        rest[:, d] = np.vstack([-directions, directions, ordered])
        limits[-3 * size :] = np.concatenate([np.full(2 * size, trust), 0.9 * np.diff(halves, prepend=0.0)])

    bounds = np.full((sum(widths), 2), (-math.inf, math.inf))
    bounds[u] = problem.least * e, 1
    bounds[s] = 0, 1
    cost = np.zeros(sum(widths))
    cost[objective] = 1
    result = linprog(
        cost,
        A_ub=upper,
        b_ub=limits,
        A_eq=equal,
        b_eq=np.concatenate([np.ones(knots), problem.knots, np.zeros(knots)]),
        bounds=bounds,
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9},
    )
    if result.x is None:
        return None
    excess = np.clip(result.x[s], 0, None).reshape(knots, levels)
    moves = np.zeros(size) if directions is None else directions @ result.x[d]
    return _Solution(float(result.fun), result.x[u][owner] / e + excess, moves)


def _all_rows(problem: _Problem, rows: Array) -> list[list[float]]:
    """Rows from x = -1 to 1: those below 0 are mirrored, and the one at 0 is its own mirror."""
    upper = rows.copy()
    if problem.knots[0] == 0:
        upper[0] = (upper[0] + upper[0][::-1]) / 2
    below = upper[:0:-1] if problem.knots[0] == 0 else upper[::-1]
    both: list[list[float]] = np.vstack([below[:, ::-1], upper]).tolist()
    return both


# --- the values ---------------------------------------------------------------------------------------------


def _improve(problem: _Problem, halves: Array, directions: Array, until: float) -> tuple[float, Array]:
    """Move the values along `directions` to a local optimum; give the objective (inf: there is none) and the values."""
    solution = _solve(problem, halves)
    if solution is None:
        return math.inf, halves
    trust = 0.1 * halves[-1]
    for _ in range(_STEPS):
        step = _solve(problem, halves, solution.rows, directions, trust)
        moved = None if step is None else _solve(problem, halves + step.moves)
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
    """Values to start from: even spacings, and a sequence that fills the space evenly (a Kronecker sequence)."""
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


def _search(problem: _Problem, levels: int) -> tuple[Array, float] | None:
    """Integers from 0 up and a unit, whose products are the best values; None if Duchi's mechanism is no worse."""
    two = _largest(problem, np.full(len(problem.knots), duchi.constant(problem.epsilon) ** 2))
    found = [_improve(problem, start, _free(start), _COARSE) for start in _starts(problem.epsilon, levels)]
    found.sort(key=lambda candidate: candidate[0])
    found = [_improve(problem, halves, _free(halves), _EXACT) for _, halves in found[:_KEPT]]
    if not found:
        return None
    objective, halves = min(found, key=lambda candidate: candidate[0])
    if objective < two:
        objective, integers, unit = _to_integers(problem, halves)
    return None if objective > two * (1 - _WORTH) else (integers, unit)


def _largest(problem: _Problem, seconds: Array) -> float:
    return float(np.max(problem.weights @ seconds - problem.offsets))


def _to_integers(problem: _Problem, halves: Array) -> tuple[float, Array, float]:
    """Small integers and a unit whose products are near the values, and that lose the least; the objective first."""
    tried: dict[tuple[int, ...], tuple[float, float]] = {}

    def fit(integers: Array) -> float:
        key = tuple(integers.astype(int).tolist())
        if key not in tried:
            start = integers * (halves[-1] / integers[-1])
            objective, values = _improve(problem, start, integers[:, None] / integers[-1], _EXACT)
            tried[key] = objective, values[-1] / integers[-1]
        return tried[key][0]

    def first(integers: Array) -> float:
        solution = _solve(problem, integers * (halves[-1] / integers[-1]))
        return math.inf if solution is None else solution.objective

    rounded = {
        tuple(np.unique(np.rint(halves / halves[-1] * top)).tolist()) for top in range(1, LARGEST_LEVEL + 1)
    }
    candidates = sorted((np.array(c) for c in sorted(rounded) if c[-1] > 0), key=first)[:_KEPT]
    best = min(candidates, key=fit)
    improved = True
    while improved:
        improved = False
        for other in _neighbours(best):
            fewer = 2 * (len(best) - len(other)) + (other[0] == 0) - (best[0] == 0)
            if fit(other) < fit(best) * (1 + (_WORTH if fewer > 0 else -1e-6)):
                best, improved = other, True
                break
    objective, unit = tried[tuple(best.astype(int).tolist())]
    return objective, best, unit


def _neighbours(integers: Array) -> Iterator[Array]:
    """The same with one less, with the lowest pair made one level 0, or with one of them (not 0) up or down by one."""
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
