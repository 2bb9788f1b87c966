"""The linear programme of an optimal table: the best probabilities for given levels."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tern.card import MAX_KNOT_BITS
from ternhost.errors import UsageError

Array = NDArray[np.float64]

OBJECTIVES = ("worst-variance", "worst-second-moment", "mean-second-moment")
WORST_VARIANCE, WORST_SECOND_MOMENT, MEAN_SECOND_MOMENT = OBJECTIVES
KNOTS = (1 << MAX_KNOT_BITS) + 1

# Densities on [-1, 1] (not normalised) by which a prior on x can be named.
PRIORS: dict[str, Callable[[Array], Array]] = {
    "uniform": np.ones_like,
    "gaussian": lambda x: np.exp(-8 * x * x),  # standard deviation 1/4
    "small": lambda x: np.exp(-16 * np.abs(x)),  # Laplace of scale 1/16: gradients
}
_FINE = 128  # points of [0, 1] at which a variance between knots is bounded
_BINS = 4096  # of a prior
_TOLERANCES = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}


# The objective


@dataclass(frozen=True)
class Problem:
    """Minimise the largest of `weights @ second moments at the knots - offsets`.

    Knots are those from 0 (or 1) to 1.
    """

    epsilon: float
    knots: Array
    weights: Array
    offsets: Array

    @property
    def least(self) -> float:
        """The least probability of any output: so far from 0 that its rounding hardly costs."""
        return min(2.0**-16, 0.1 / math.exp(self.epsilon))


def problem(
    epsilon: float,
    objective: str,
    knots: int,
    prior: str | Sequence[float] | None,
    share: float | Fraction,
) -> Problem:
    """Return the problem of minimising an objective at a real epsilon.

    knots: of the whole table. prior, share: as in `optimal.design`. Raises UsageError if the
    objective does not take them.
    """
    if not any(knots == (1 << p) + 1 for p in range(MAX_KNOT_BITS + 1)):
        raise UsageError(f"a table has 2, 3, 5, 9, 17 or {KNOTS} knots, not {knots}")
    if prior is not None and objective != MEAN_SECOND_MOMENT:
        hint = f"add --objective {MEAN_SECOND_MOMENT}"
        raise UsageError(f"a prior is for the objective {MEAN_SECOND_MOMENT}", hint)
    if share != 1 and objective != WORST_VARIANCE:
        raise UsageError(f"a share is for the objective {WORST_VARIANCE}")
    if not 1 <= share < math.inf:
        raise UsageError(f"the share d/k must be 1 or more, not {share}")

    all_knots = np.linspace(-1, 1, knots)
    upper_knots = all_knots[all_knots >= 0]
    if objective == WORST_VARIANCE:
        # Between knots the second moment is linear, so E[y**2] - x**2 is a parabola: bounded at
        # fine points.
        points = np.linspace(0, 1, _FINE + 1)
        weights = float(share) * _hats(upper_knots, points)
        return Problem(epsilon, upper_knots, weights, offsets=points**2)
    if objective == WORST_SECOND_MOMENT:
        weights = np.eye(len(upper_knots))
        return Problem(epsilon, upper_knots, weights, offsets=np.zeros(len(upper_knots)))
    if objective == MEAN_SECOND_MOMENT:
        points, mass = prior_points(prior)
        weights = mass[None, :] @ _hats(upper_knots, points)
        return Problem(epsilon, upper_knots, weights, offsets=np.zeros(1))
    raise UsageError(
        f"there is no objective {objective!r}", hint="one of: " + ", ".join(OBJECTIVES)
    )


def _hats(knots: Array, x: Array) -> Array:
    """Return the weights of the knots (columns) in a linear interpolation at |x| (rows)."""
    return np.array([np.interp(np.abs(x), knots, unit) for unit in np.eye(len(knots))]).T


def prior_points(prior: str | Sequence[float] | None) -> tuple[Array, Array]:
    """Return points of [-1, 1] and their masses, which add up to 1.

    prior: a name of PRIORS (None: "uniform"), or the weights of a histogram's bars of equal width,
    also as a text. Raises UsageError.
    """
    if prior is None:
        prior = "uniform"
    if isinstance(prior, str) and prior in PRIORS:
        points = _midpoints(_BINS)
        mass = PRIORS[prior](points)
    else:
        heights = _heights(prior)
        points_in_bar = math.ceil(_BINS / len(heights))
        points = _midpoints(points_in_bar * len(heights))
        mass = np.repeat(heights, points_in_bar)
    return points, mass / float(mass.sum())


def _heights(histogram: str | Sequence[float]) -> Array:
    """Return the weights of a histogram, which may be a text with commas.

    Raises UsageError for a text without numbers, a negative weight, or no positive one.
    """
    weights: Sequence[str | float] = histogram
    if isinstance(histogram, str):
        weights = histogram.split(",")
    try:
        heights = np.array([float(weight) for weight in weights])
    except ValueError:
        hint = f"one of: {', '.join(PRIORS)}; or the weights of a histogram over [-1, 1], such as 1,2,1"
        raise UsageError(f"there is no prior {histogram!r}", hint=hint) from None
    are_weights = bool(np.all(np.isfinite(heights)) and np.all(heights >= 0))
    if not are_weights or heights.sum() <= 0:
        raise UsageError("a prior's histogram needs weights from 0 up, not all of them 0")
    return heights


def _midpoints(bins: int) -> Array:
    """Return the midpoints of so many equal bins of [-1, 1]."""
    return np.asarray((np.arange(bins) + 0.5) * (2 / bins) - 1, dtype=np.float64)


# The programme
#
# Given are E = e**epsilon, knots x_i, magnitudes h_m and their values v_j = -h_m or h_m; m(j) is the magnitude of v_j.
# Since a table is symmetric, P(v_j | x) = P(-v_j | -x), it keeps epsilon if the probabilities of both values of a
# magnitude, at all knots from 0 up, lie between u_m / E and a u_m. So they are written as
#
#     p_ij = u_m(j) / E + s_ij.
#
# Variables: u_m, s_ij, the second moments q_i, the objective z; and where values move, steps d_t along the columns of a
# matrix D, by which h_m becomes h_m + r_m, r = D d.
#
#     minimise z, subject to
#       ratio    s_ij - (1 - 1/E) u_m(j)                    <= 0             for every knot and value
#       goal     sum_i weights_gi q_i - z                   <= offsets_g     for every linear function of the objective
#       total    sum_j p_ij                                  = 1             for every knot, and so the next two
#       mean     sum_j p_ij v_j + sum_j P_ij sign(v_j) r_m(j)         = x_i
#       second   sum_j p_ij v_j**2 + sum_j P_ij 2 |v_j| r_m(j) - q_i  = 0
#       trust    -r_m <= trust,  r_m <= trust                                for every magnitude, and so the next
#       order    r_(m-1) - r_m <= 0.9 (h_m - h_(m-1))                        (r and h are 0 before the first)
#       bounds   least E <= u_m <= 1,  0 <= s_ij <= 1
#
# The change of a product p v is linear here: the product of both changes is left out, and P are the probabilities from
# which the step is taken.


@dataclass(frozen=True)
class Move:
    """How values may move."""

    rows: Array  # the probabilities from which the step is taken
    directions: Array  # along columns of this
    trust: float  # by at most this, each


@dataclass(frozen=True)
class Solution:
    """The best probabilities."""

    objective: float
    rows: Array  # a row a knot from 0 (or 1) to 1, a column a level
    moves: Array  # how the magnitudes should move; 0 where they may not


def mirrored(halves: Array) -> tuple[Array, NDArray[np.intp]]:
    """Return the values -h and h of the magnitudes h, ascending, and the magnitude of each.

    halves: the magnitudes, ascending; 0 may be the first, and is one value. The second result has
    indices into `halves`.
    """
    order = np.arange(len(halves))
    below = order[::-1]
    if halves[0] == 0:
        below = order[:0:-1]
    return np.concatenate([-halves[below], halves]), np.concatenate([below, order])


def solve(problem: Problem, halves: Array, move: Move | None = None) -> Solution | None:
    """Solve the programme above: return the best probabilities for these magnitudes of values.

    halves: the magnitudes h_m, ascending. move: how they may move; None: they stay. Returns None if
    the magnitudes are too small to be unbiased at this epsilon.
    """
    from scipy.optimize import linprog  # takes longer to import than a shipped card to read

    e = math.exp(problem.epsilon)
    values, owner = mirrored(halves)
    owners = np.eye(len(halves))[owner]  # a row for each value: 1 at its magnitude
    knots, levels, goals = len(problem.knots), len(values), len(problem.offsets)
    steps = 0 if move is None else move.directions.shape[1]
    variables = {"u": len(halves), "s": knots * levels, "q": knots, "z": 1, "d": steps}

    def moment(powers: Array, slopes: Array) -> dict[str, Array]:
        """The expectation of `powers` at every knot. slopes: their changes with the magnitudes."""
        block: dict[str, Array] = {
            "u": np.tile(powers @ owners / e, (knots, 1)),
            "s": np.asarray(np.kron(np.eye(knots), powers), np.float64),
        }
        if move is not None:
            block["d"] = move.rows @ (slopes[:, None] * move.directions[owner])
        return block

    # The conditions of the table above, in its order.
    at_most = _Rows(variables)
    ratios = np.tile(-(1 - 1 / e) * owners, (knots, 1))
    at_most.add(0.0, u=ratios, s=np.eye(knots * levels))
    at_most.add(problem.offsets, q=problem.weights, z=np.full((goals, 1), -1.0))
    if move is not None:
        r = move.directions
        at_most.add(move.trust, d=np.vstack([-r, r]))
        gaps = np.diff(halves, prepend=0.0)
        at_most.add(0.9 * gaps, d=np.vstack([-r[:1], r[:-1] - r[1:]]))

    equal = _Rows(variables)
    equal.add(1.0, **moment(np.ones(levels), np.zeros(levels)))
    equal.add(problem.knots, **moment(values, np.sign(values)))
    equal.add(0.0, **moment(values**2, 2 * np.abs(values)), q=-np.eye(knots))

    objective = _Rows(variables)
    objective.add(0.0, z=np.ones((1, 1)))
    bounds = dict.fromkeys(variables, (-math.inf, math.inf))
    bounds["u"] = (problem.least * e, 1)
    bounds["s"] = (0, 1)
    result = linprog(
        objective.matrix[0],
        at_most.matrix,
        at_most.limits,
        equal.matrix,
        equal.limits,
        np.repeat(list(bounds.values()), list(variables.values()), axis=0),
        method="highs-ds",
        options=_TOLERANCES,
    )
    if result.x is None:
        return None

    # The probabilities are u / E + s; the solver may leave s slightly below 0.
    u, s, _, _, d = np.split(result.x, np.cumsum(list(variables.values()))[:-1])
    excess = np.clip(s, 0, None).reshape(knots, levels)
    moves = np.zeros(len(halves))
    if move is not None:
        moves = move.directions @ d
    return Solution(float(result.fun), u[owner] / e + excess, moves)


class _Rows:
    """Conditions of a linear programme, one below another.

    variables: their names, each with the number of its columns.
    """

    def __init__(self, variables: Mapping[str, int]) -> None:
        self._variables = variables
        self._blocks: list[Array] = []
        self._limits: list[Array] = []

    def add(self, limit: float | Array, **coefficients: Array) -> None:
        """Add the rows of a condition: a sum of variables that is at most, or equal to, a limit.

        limit: of each row, or of all. coefficients: of each variable (rows x its columns); those
        that are not named are 0.
        """
        height = len(next(iter(coefficients.values())))
        parts = []
        for variable, width in self._variables.items():
            parts.append(coefficients.get(variable, np.zeros((height, width))))
        self._blocks.append(np.hstack(parts))
        self._limits.append(np.broadcast_to(np.asarray(limit, np.float64), height))

    @property
    def matrix(self) -> Array:
        """The coefficients: a row for each condition, a column for each variable."""
        return np.vstack(self._blocks)

    @property
    def limits(self) -> Array:
        """What each row is at most, or equal to."""
        return np.concatenate(self._limits)
