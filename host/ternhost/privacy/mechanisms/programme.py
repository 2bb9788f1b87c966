"""The linear programme of an optimal table: the best probabilities for given levels."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tern.card import MAX_KNOT_BITS
from ternhost.errors import UsageError

Array = NDArray[np.float64]

OBJECTIVES = ("worst-variance", "worst-second-moment", "mean-second-moment")
WORST_VARIANCE, WORST_SECOND_MOMENT, MEAN_SECOND_MOMENT = OBJECTIVES
KNOTS = (1 << MAX_KNOT_BITS) + 1  # the most that a card may have, and the default

# Densities on [-1, 1] (not normalised) by which a prior on x can be named.
PRIORS: dict[str, Callable[[Array], Array]] = {
    "uniform": np.ones_like,
    "gaussian": lambda x: np.exp(-8 * x * x),  # standard deviation 1/4
    "small": lambda x: np.exp(-16 * np.abs(x)),  # Laplace of scale 1/16: gradients
}
_FINE = 128  # points of [0, 1] at which the variance between knots is bounded
_BINS = 4096  # equal pieces of [-1, 1] by which a prior is approximated
_TOLERANCES = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}


# The objective


@dataclass(frozen=True)
class Problem:
    """What a table of probabilities is optimised for.

    To minimise is the largest entry of `weights @ q - offsets`, where q has the second moments of
    the table's value at the knots. It has a row for each function that is to be small.

    epsilon: what the table must keep. knots: those inputs of the table that are 0 or above; the
    others are their mirror images. weights: a row for each function, a column for each knot.
    offsets: one for each function.
    """

    epsilon: float
    knots: Array
    weights: Array
    offsets: Array

    @property
    def least(self) -> float:
        """The least probability that an output may have.

        It is so far from 0 that rounding it to a count hardly costs any variance.
        """
        return min(2.0**-16, 0.1 / math.exp(self.epsilon))


def problem(
    epsilon: float,
    objective: str,
    knots: int,
    prior: str | Sequence[float] | None,
    share: float | Fraction,
) -> Problem:
    """Return what a table of probabilities is to minimise at a real epsilon, as linear functions.

    The table has the probability of each output at each knot, which is one of some evenly spaced
    inputs x from -1 to 1. Linear functions of the second moments at the knots are minimised.

    objective: one of OBJECTIVES. knots: how many the whole table has.
    prior: the distribution of inputs, if the mean second moment is to be small: a name of PRIORS,
    or a histogram. share: d/k, if the worst variance is to be small, and reports are about k of d
    coordinates.

    Raises UsageError if the objective does not take a prior or a share.
    """
    numbers_of_knots = [(1 << p) + 1 for p in range(MAX_KNOT_BITS + 1)]
    if knots not in numbers_of_knots:
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
        # share E[y**2] - x**2 at many inputs x: between knots the second moment is linear, so the
        # variance is a parabola whose top can be anywhere.
        points = np.linspace(0, 1, _FINE + 1)
        weights = float(share) * _interpolation_weights(upper_knots, points)
        return Problem(epsilon, upper_knots, weights, offsets=points**2)
    if objective == WORST_SECOND_MOMENT:
        # E[y**2] at each knot.
        weights = np.eye(len(upper_knots))
        return Problem(epsilon, upper_knots, weights, offsets=np.zeros(len(upper_knots)))
    if objective == MEAN_SECOND_MOMENT:
        # A single function, the mean of E[y**2] over the prior.
        points, probabilities = prior_points(prior)
        weights = probabilities[None, :] @ _interpolation_weights(upper_knots, points)
        return Problem(epsilon, upper_knots, weights, offsets=np.zeros(1))
    raise UsageError(
        f"there is no objective {objective!r}", hint="one of: " + ", ".join(OBJECTIVES)
    )


def _interpolation_weights(knots: Array, x: Array) -> Array:
    """Return the weights of knots in a linear interpolation between them.

    The result has a row for each input x and a column for each knot. x: inputs; what is wanted is
    the interpolation at |x|.
    """
    columns = []
    for one_at_knot in np.eye(len(knots)):
        # What is interpolated is 1 at one knot and 0 at the others.
        columns.append(np.interp(np.abs(x), knots, one_at_knot))
    return np.array(columns).T


def prior_points(prior: str | Sequence[float] | None) -> tuple[Array, Array]:
    """Return points of [-1, 1] and their probabilities, which approximate a prior on inputs.

    prior: a name of PRIORS (None: "uniform"), or the weights of a histogram's bars of equal width,
    also as a text with commas. Raises UsageError.
    """
    if prior is None:
        prior = "uniform"
    if isinstance(prior, str) and prior in PRIORS:
        density = PRIORS[prior]
        points = _midpoints(_BINS)
        mass = density(points)
    else:
        heights = _heights(prior)
        points_in_bar = math.ceil(_BINS / len(heights))
        points = _midpoints(points_in_bar * len(heights))
        mass = np.repeat(heights, points_in_bar)
    return points, mass / float(mass.sum())


def _heights(histogram: str | Sequence[float]) -> Array:
    """Return the weights of a histogram's bars. histogram: the weights, or a text with commas.

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
    """Return the midpoints of this many equal pieces of [-1, 1]."""
    return np.asarray((np.arange(bins) + 0.5) * (2 / bins) - 1, dtype=np.float64)


# The programme
#
# Given are E = e**epsilon, the knots x_i and the magnitudes h_m. Each value v_j is -h_m or h_m, where m = m(j) is the
# index of its magnitude. To find are the probabilities p_ij of value v_j at knot x_i.
#
# The table is symmetric: P(v_j | x) = P(-v_j | -x). So it keeps epsilon if the probabilities of both values of a
# magnitude, at all knots from 0 up, lie between u_m / E and u_m for some u_m. Therefore they are written as
#
#     p_ij = u_m(j) / E + s_ij.
#
# The variables are
#
#     u_m   the largest probability of a value of this magnitude
#     s_ij  what a probability exceeds u / E by
#     q_i   the second moment at each knot
#     z     the objective
#     d_t   where values move: how far they move along column t of a matrix D. By that h_m becomes h_m + r_m, r = D d.
#
# The programme is to minimise z, subject to
#
#     ratio    s_ij - (1 - 1/E) u_m(j)                    <= 0             for every knot and value
#     goal     sum_i weights_gi q_i - z                   <= offsets_g     for every function g of the objective
#     total    sum_j p_ij                                  = 1             for every knot, and so the next two
#     mean     sum_j p_ij v_j + sum_j P_ij sign(v_j) r_m(j)         = x_i
#     second   sum_j p_ij v_j**2 + sum_j P_ij 2 |v_j| r_m(j) - q_i  = 0
#     trust    -r_m <= trust,  r_m <= trust                                for every magnitude, and so the next
#     order    r_(m-1) - r_m <= 0.9 (h_m - h_(m-1))                        (r and h are 0 before the first)
#     bounds   least E <= u_m <= 1,  0 <= s_ij <= 1
#
# A product of a probability and a value is not linear in both. So its change is approximated: the product of the two
# changes is left out, and P_ij are the probabilities from which the step is taken.


@dataclass(frozen=True)
class Move:
    """How the magnitudes of values may move in one step of the search.

    rows: the probabilities from which the step is taken, a row for each knot of the problem.
    directions: the step is a combination of these columns, each with a number for every magnitude.
    trust: the most by which each magnitude may change.
    """

    rows: Array
    directions: Array
    trust: float


@dataclass(frozen=True)
class Solution:
    """The best probabilities for given values.

    objective: what they reach. rows: the probability of each value (columns) at each knot of the
    problem (rows). moves: by how much each magnitude of values should change; 0 where it may not.
    """

    objective: float
    rows: Array
    moves: Array


def mirrored(magnitudes: Array) -> tuple[Array, NDArray[np.intp]]:
    """Return the values -h and h of all magnitudes h, ascending, and the magnitude of each value.

    The second result has indices into `magnitudes`, which are in ascending order. The
    first of them may be 0, which is one value and not two.
    """
    order = np.arange(len(magnitudes))
    if magnitudes[0] == 0:
        below = order[:0:-1]  # all but the first, descending
    else:
        below = order[::-1]
    values = np.concatenate([-magnitudes[below], magnitudes])
    magnitude_index = np.concatenate([below, order])
    return values, magnitude_index


def solve(problem: Problem, magnitudes: Array, move: Move | None = None) -> Solution | None:
    """Return the best probabilities for values with these magnitudes, by the programme above.

    A value is one of the magnitudes or its opposite. To find is the probability of each value at
    each knot (an input): u / E + s, where E is e**epsilon, and u is the largest probability that a
    value of this magnitude has at any knot. The other variables are the second moment at each knot
    (q), the objective (z), and how far the magnitudes move (d).

    problem: what is minimised, and at which epsilon. magnitudes: ascending. move: how they may
    move; None: they stay. Returns None if they are too small to be unbiased at this epsilon.
    """
    from scipy.optimize import linprog  # takes longer to import than a shipped card to read

    shape = _Shape.of(problem, magnitudes, move)
    # To minimise is z alone: a row of coefficients with a 1 at z.
    objective = _Conditions(shape.variables)
    objective.add(0.0, z=np.ones((1, 1)))
    at_most = _inequalities(problem, magnitudes, move, shape)
    equal = _equations(problem, move, shape)
    bounds = dict.fromkeys(shape.variables, (-math.inf, math.inf))
    bounds["u"] = (problem.least * shape.e, 1)
    bounds["s"] = (0, 1)
    columns_of_variable = list(shape.variables.values())
    result = linprog(
        c=objective.matrix[0],
        A_ub=at_most.matrix,
        b_ub=at_most.limits,
        A_eq=equal.matrix,
        b_eq=equal.limits,
        bounds=np.repeat(list(bounds.values()), columns_of_variable, axis=0),
        method="highs-ds",
        options=_TOLERANCES,
    )
    if result.x is None:
        return None

    # The solver may leave s slightly below 0.
    ends_of_variables = np.cumsum(columns_of_variable)
    u, s, _, _, d = np.split(result.x, ends_of_variables[:-1])
    excess = np.clip(s, 0, None).reshape(len(problem.knots), len(shape.values))
    moves = np.zeros(len(magnitudes))
    if move is not None:
        moves = move.directions @ d
    rows = u[shape.magnitude_index] / shape.e + excess
    return Solution(objective=float(result.fun), rows=rows, moves=moves)


@dataclass(frozen=True)
class _Shape:
    """What all conditions of a programme are written with.

    e: E = e**epsilon. values: v_j. magnitude_index: m(j), of each value.
    variables: the name of each variable with the number of its columns.
    """

    e: float
    values: Array
    magnitude_index: NDArray[np.intp]
    variables: Mapping[str, int]

    @classmethod
    def of(cls, problem: Problem, magnitudes: Array, move: Move | None) -> Self:
        """Return the shape of the programme. Arguments are as in `solve`."""
        values, magnitude_index = mirrored(magnitudes)
        knots = len(problem.knots)
        steps = 0 if move is None else move.directions.shape[1]
        variables = {"u": len(magnitudes), "s": knots * len(values), "q": knots, "z": 1, "d": steps}
        return cls(math.exp(problem.epsilon), values, magnitude_index, variables)

    @property
    def magnitude_of_value(self) -> Array:
        """A matrix with a row for each value, which has a 1 in the column of its magnitude."""
        return np.eye(self.variables["u"])[self.magnitude_index]


class _Conditions:
    """Conditions of a linear programme: a matrix of coefficients, and a limit for each row.

    variables: the name of each variable with the number of its columns in the matrix.
    """

    def __init__(self, variables: Mapping[str, int]) -> None:
        self._variables = variables
        self._blocks: list[Array] = []
        self._limits: list[Array] = []

    def add(self, limit: float | Array, **coefficients: Array) -> None:
        """Add conditions, each a weighted sum of variables that is at most, or equal to, a limit.

        limit: of each condition, or of all. coefficients: for each variable a matrix with a row for
        each condition; those of variables that are not named are 0.
        """
        some_matrix = next(iter(coefficients.values()))
        height = len(some_matrix)
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


def _inequalities(
    problem: Problem, magnitudes: Array, move: Move | None, shape: _Shape
) -> _Conditions:
    """Return those conditions of the linear programme above in which a sum is at most a limit.

    The variables are u, s, q, z and d. A probability is u / E + s, where E is e**epsilon and u the
    largest probability of a value of this magnitude. q has the second moments at the knots (the
    inputs of the table), z is the objective, and d says how far the magnitudes of values move.

    problem: what is minimised. magnitudes: h_m, ascending. move: how they may move; None: they
    stay. shape: the variables of the programme.
    """
    knots = len(problem.knots)
    functions = len(problem.offsets)
    at_most = _Conditions(shape.variables)

    # "ratio", for every knot and value: s - (1 - 1/E) u <= 0. Then all probabilities of a value lie
    # between u / E and u, which keeps epsilon.
    factors_of_u = np.tile(-(1 - 1 / shape.e) * shape.magnitude_of_value, (knots, 1))
    at_most.add(0.0, u=factors_of_u, s=np.eye(knots * len(shape.values)))

    # "goal": each function of the objective, weights @ q - offset, is at most z.
    at_most.add(problem.offsets, q=problem.weights, z=np.full((functions, 1), -1.0))

    if move is not None:
        r = move.directions  # how each magnitude (row) changes with each step (column)
        # "trust": -r <= trust and r <= trust.
        at_most.add(move.trust, d=np.vstack([-r, r]))
        # "order": the gaps between magnitudes, and that between 0 and the first, shrink by at most
        # 9/10 of their size.
        gaps = np.diff(magnitudes, prepend=0.0)
        shrinking = np.vstack([-r[:1], r[:-1] - r[1:]])
        at_most.add(0.9 * gaps, d=shrinking)
    return at_most


def _equations(problem: Problem, move: Move | None, shape: _Shape) -> _Conditions:
    """Return those conditions of the linear programme above in which a sum is equal to a limit.

    They are "total" (probabilities add up to 1), "mean" (it is the input) and "second" (the second
    moment is q), for every knot, which is an input of the table. The probability of a value is
    u / E + s, where E is e**epsilon.

    problem: what is minimised. move: how the magnitudes of values may move; None: they stay. A
    probability times a moving value is not linear, so it is approximated by the probability before
    the move times the change of the value. shape: the variables of the programme.
    """
    knots = len(problem.knots)

    def expectation(powers: Array, slopes: Array) -> dict[str, Array]:
        """Return the coefficients of each variable in the mean of a power of the value, by knot.

        The power is 0, 1 or 2. A probability is u / E + s, and d says how far values move.

        powers: a power of each value. slopes: by how much it changes with the value's magnitude.
        """
        coefficients: dict[str, Array] = {
            "u": np.tile(powers @ shape.magnitude_of_value / shape.e, (knots, 1)),
            "s": np.asarray(np.kron(np.eye(knots), powers), np.float64),
        }
        if move is not None:
            change_of_power = slopes[:, None] * move.directions[shape.magnitude_index]
            coefficients["d"] = move.rows @ change_of_power
        return coefficients

    values = shape.values
    total = expectation(np.ones(len(values)), slopes=np.zeros(len(values)))
    mean = expectation(values, slopes=np.sign(values))
    second_moment = expectation(values**2, slopes=2 * np.abs(values))
    equal = _Conditions(shape.variables)
    equal.add(1.0, **total)
    equal.add(problem.knots, **mean)
    equal.add(0.0, **second_moment, q=-np.eye(knots))
    return equal
