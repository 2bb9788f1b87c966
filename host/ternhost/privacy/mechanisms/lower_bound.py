"""A lower bound of the worst-case variance of every unbiased mechanism that keeps epsilon.

Seen at finitely many inputs x_i, such a mechanism is a feasible point of a linear programme over
measures: densities p_i(y) with p_i(y) <= E p_j(y), total 1, mean x_i and second moment at most v +
x_i**2. Its dual bounds v: for numbers a_i, b_i and w_i >= 0 with sum(w) = 1,

    v >= sum(a_i + b_i x_i - w_i x_i**2) + min(0, min over all real y of D(y)),
    D(y) = sum of h(w_i y**2 - b_i y - a_i),  h(g) = g where g >= 0, E g where g < 0.

(Lowering every a_i by t/n raises D by at least t everywhere, and costs t.) D is piecewise
quadratic, so its minimum is found over the whole line and not on a grid. The bound is *certified*:
the inequality holds for any numbers, however inexact the solver, and is evaluated in double
precision with `_MARGIN` taken off for rounding.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from ternhost.privacy.mechanisms import duchi

Array = NDArray[np.float64]

STEPS = 48  # by which the inputs from 0 to 1 are spaced
_OUTPUTS = 32  # steps of the outputs, from 0 up, to begin with
_REACH = 1.6  # the largest output, in units of Duchi's constant
_ROUNDS = 20  # of adding outputs, at most
_GAP = 2e-4  # the relative gap between the bound and the programme's value at which to stop
_SHARES = (1.0, 0.5, 0.25, 0.1)  # of the way from the best dual numbers to new ones
_MARGIN = 1e-9  # taken off the bound for rounding, relative


def worst_variance(epsilon: float, steps: int = STEPS) -> float:
    """Return a lower bound of the worst-case variance of all unbiased mechanisms at `epsilon`.

    epsilon: real, above 0 and up to 20. steps: by which the inputs in [0, 1] are spaced. The
    default takes some seconds; half of the steps take a quarter of that, and the bound may be a
    little lower. Raises ValueError for another epsilon.
    """
    if not 0 < epsilon <= 20:
        raise ValueError("epsilon outside (0, 20]")
    inputs = np.linspace(0, 1, steps + 1)
    outputs = np.linspace(0, _REACH, _OUTPUTS + 1) * duchi.constant(epsilon)
    bound = -math.inf
    best_dual = None
    # A linear programme finds the best mechanism for some inputs and outputs. Its value is too large
    # for a bound, since mechanisms may use other outputs. Those that it lacks are added until its
    # value meets the bound.
    for _ in range(_ROUNDS):
        solution = _solve_programme(epsilon, inputs, outputs)
        # The bound is concave in the dual numbers, and those of the programme jump about. So points
        # between the best and the new ones are tried, too.
        candidates = [solution.dual]
        if best_dual is not None:
            candidates = [best_dual + share * (solution.dual - best_dual) for share in _SHARES]
        lacking_outputs = []
        for candidate in candidates:
            candidate_bound, lacking = _bound(epsilon, inputs, candidate)
            lacking_outputs.append(lacking)
            if candidate_bound > bound:
                bound = candidate_bound
                best_dual = candidate
        if solution.variance - bound < _GAP * solution.variance:
            break
        outputs = np.unique(np.concatenate([solution.used_outputs, *lacking_outputs]))
    return bound * (1 - _MARGIN)


def _bound(epsilon: float, inputs: Array, dual: Array) -> tuple[float, Array]:
    """Return the certified bound that follows from dual numbers, and outputs to add.

    The bound is one of the worst-case variance of all mechanisms, by the duality of linear
    programmes. With the dual numbers w, a and b of each input x, it is the sum of a + b x - w x**2,
    plus the least D(y) over all outputs y if that is below 0. D(y) is the sum over inputs of
    h(w y**2 - b y - a), where h(g) is g for g >= 0, and e**epsilon g for g < 0. Where D has a
    minimum below 0, the linear programme lacks an output, which belongs to the second result.

    dual: the rows w, a and b, with a column for each input.
    """
    w, a, b = dual
    places, minima = _minima(math.exp(epsilon), w, a, b)
    bound = float(a.sum() + b @ inputs - w @ inputs**2 + min(0.0, minima.min()))
    # D consists of quadratic pieces. Of the minima of neighbouring pieces only the lowest counts.
    before = np.roll(minima, 1)
    after = np.roll(minima, -1)
    before[0] = math.inf
    after[-1] = math.inf
    is_lacking = (minima < 0) & (minima <= before) & (minima <= after)
    return bound, places[is_lacking]


class _Solution(NamedTuple):
    """The solution of the linear programme.

    variance: v. used_outputs: those that the best mechanism uses. dual: the rows w, a and b of this
    module's text, with a column for each input.
    """

    variance: float
    used_outputs: Array
    dual: Array


def _solve_programme(epsilon: float, inputs: Array, outputs: Array) -> _Solution:
    """Solve the linear programme for these inputs and outputs, and for their mirror images.

    With E = e**epsilon, the probability of a value y (an output or its opposite) at an input x is
    u / E + s, where u is the largest probability of this output at any input, and 0 <= s <=
    (1 - 1/E) u. The programme minimises v subject to

        the sum of all probabilities = 1,  E[y] = x,  E[y**2] <= v + x**2  for every input x.

    outputs: from 0 up. Raises ArithmeticError if the solver fails.
    """
    e = math.exp(epsilon)
    values = np.concatenate([-outputs, outputs])
    number_of_inputs = len(inputs)
    number_of_ratios = number_of_inputs * len(values)  # one for each probability
    # A row for each value, which has a 1 in the column of its output.
    output_of_value = sparse.vstack([sparse.identity(len(outputs))] * 2)
    ones = np.ones((number_of_inputs, 1))

    def expectation(powers: Array) -> list[sparse.spmatrix]:
        """Return the coefficients of u and of s in E[powers], with a row for each input."""
        of_u = (powers @ output_of_value)[None, :] / e
        return [
            sparse.csr_matrix(ones @ of_u),
            sparse.kron(sparse.identity(number_of_inputs), powers[None, :]),
        ]

    # The columns are u of each output, s of each probability, and v. The objective is v.
    cost = np.zeros(len(outputs) + number_of_ratios + 1)
    cost[-1] = 1

    # Inequalities: s - (1 - 1/E) u <= 0 for each probability, E[y**2] - v <= x**2 for each input.
    ratio_of_u = -(1 - 1 / e) * sparse.kron(ones, output_of_value)
    ratio = [ratio_of_u, sparse.identity(number_of_ratios), None]
    second_moment = [*expectation(values**2), -ones]
    at_most = sparse.bmat([ratio, second_moment], format="csc")
    limits = np.concatenate([np.zeros(number_of_ratios), inputs**2])

    # Equations for each input: the sum is 1, and the mean is x. Neither contains v.
    without_v = sparse.csr_matrix((number_of_inputs, 1))
    total = [*expectation(np.ones(len(values))), without_v]
    mean = [*expectation(values), without_v]
    equal = sparse.bmat([total, mean], format="csc")
    right_sides = np.concatenate([np.ones(number_of_inputs), inputs])

    at_least_0 = [(0, None)] * (len(outputs) + number_of_ratios)
    unbounded = [(None, None)]
    result = linprog(
        c=cost,
        A_ub=at_most,
        b_ub=limits,
        A_eq=equal,
        b_eq=right_sides,
        bounds=at_least_0 + unbounded,
        method="highs-ds",
    )
    if result.x is None:
        raise ArithmeticError(f"the linear programme of the bound failed: {result.message}")

    # Scaled so that the weights w add up to 1.
    w = np.clip(-result.ineqlin.marginals[number_of_ratios:], 0, None)
    a, b = np.split(result.eqlin.marginals, [number_of_inputs])
    dual = np.stack([w, a, b]) / w.sum()
    is_used = result.x[: len(outputs)] > 1e-10
    return _Solution(float(result.fun), outputs[is_used], dual)


def _minima(e: float, w: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """Return where each quadratic piece of D has its minimum over y >= 0, and the minima.

    D is a function of the output y, from whose least value a bound follows. D(y) is the sum over
    inputs of h(w y**2 - b y - a), where h(g) is g where g >= 0, and E g where g < 0. So it is
    quadratic between the zeros of these g. It is even, since an input and its mirror image have
    half of the weight each.

    e: E. w, a, b: the dual numbers of the inputs. Raises ArithmeticError if all w are 0.
    """
    # Each g(y) = square y**2 + linear y + constant; the mirror image has the opposite linear term.
    square = np.tile(w, 2)
    linear = np.concatenate([-b, b])
    constant = -np.tile(a, 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        # The roots of all g, in the form without cancellation, which also covers square = 0.
        root = np.sqrt(linear * linear - 4 * square * constant)
        half = -(linear + np.copysign(root, linear)) / 2
        corners = np.abs(np.concatenate([half / square, constant / half]))
    corners = np.unique(corners[np.isfinite(corners)])

    # A point inside of each piece shows which g are below 0 there, and count E times as much.
    ends = np.concatenate([[0.0], corners, [math.inf]])
    middles = (ends[:-2] + ends[1:-1]) / 2
    beyond_last_corner = 2 * ends[-2] + 1
    inside = np.concatenate([middles, [beyond_last_corner]])[:, None]
    is_negative = inside * (square * inside + linear) + constant < 0  # by piece and term
    factors = np.where(is_negative, e, 1.0) / 2
    piece_square = factors @ square
    piece_linear = factors @ linear
    piece_constant = factors @ constant
    if piece_square[-1] <= 0:
        raise ArithmeticError("the bound has no weights")

    # The vertex of each parabola, clipped to its piece.
    with np.errstate(divide="ignore", invalid="ignore"):
        vertices = np.where(piece_square > 0, -piece_linear / (2 * piece_square), ends[:-1])
    places = np.clip(vertices, ends[:-1], ends[1:])
    return places, places * (piece_square * places + piece_linear) + piece_constant
