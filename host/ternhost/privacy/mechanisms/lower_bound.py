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

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from ternhost.privacy.mechanisms import duchi

Array = NDArray[np.float64]

STEPS = 48  # of the inputs, [0, 1]
_OUTPUTS = 32  # outputs from 0 up to begin with
_REACH = 1.6  # of the outputs, in units of Duchi's constant
_ROUNDS = 20
_GAP = 2e-4  # between the bound and the programme's value, relative: where to stop
_SHARES = (1.0, 0.5, 0.25, 0.1)
_MARGIN = 1e-9


def worst_variance(epsilon: float, steps: int = STEPS) -> float:
    """Return a lower bound of the worst-case variance of all unbiased mechanisms at `epsilon`.

    epsilon: real, above 0 and up to 20. steps: of the inputs in [0, 1]. The default takes some
    seconds; half of the steps take a quarter of that, and the bound may be a little lower. Raises
    ValueError for another epsilon.
    """
    if not 0 < epsilon <= 20:
        raise ValueError("epsilon outside (0, 20]")
    inputs = np.linspace(0, 1, steps + 1)
    outputs = np.linspace(0, _REACH, _OUTPUTS + 1) * duchi.constant(epsilon)
    bound, best_dual = -math.inf, None
    # Outputs that the programme lacks are added until its value meets the bound.
    for _ in range(_ROUNDS):
        value, used_outputs, dual = _programme(epsilon, inputs, outputs)
        # The bound is concave in the dual numbers, and those of the programme jump about. So points
        # between the best and the new ones are tried, too.
        candidates = [dual]
        if best_dual is not None:
            candidates = [best_dual + share * (dual - best_dual) for share in _SHARES]
        lacking_outputs = []
        for candidate in candidates:
            candidate_bound, lacking = _bound(epsilon, inputs, candidate)
            lacking_outputs.append(lacking)
            if candidate_bound > bound:
                bound, best_dual = candidate_bound, candidate
        if value - bound < _GAP * value:
            break
        outputs = np.unique(np.concatenate([used_outputs, *lacking_outputs]))
    return bound * (1 - _MARGIN)


def _bound(epsilon: float, inputs: Array, dual: Array) -> tuple[float, Array]:
    """Return the certified bound of these dual numbers, and the outputs where D is below 0.

    The programme lacks those outputs. dual: rows w, a and b of this module's text, a column for
    each input.
    """
    weights, sums, means = dual
    at, lowest = _minima(math.exp(epsilon), weights, sums, means)
    bound = float(sums.sum() + means @ inputs - weights @ inputs**2 + min(0.0, lowest.min()))
    # Of neighbouring pieces of D only the lowest counts.
    before, after = np.roll(lowest, 1), np.roll(lowest, -1)
    before[0] = after[-1] = math.inf
    is_lacking = (lowest < 0) & (lowest <= before) & (lowest <= after)
    return bound, at[is_lacking]


def _programme(epsilon: float, inputs: Array, outputs: Array) -> tuple[float, Array, Array]:
    """Solve the linear programme for these inputs and outputs, and their mirror images.

    outputs: from 0 up. Returns the variance v, the outputs that the best mechanism uses, and the
    dual numbers (rows w, a and b). Raises ArithmeticError if the solver fails.
    """
    e = math.exp(epsilon)
    values = np.concatenate([-outputs, outputs])
    size, levels, count = len(outputs), len(values), len(inputs)
    owners = sparse.vstack([sparse.identity(size)] * 2)  # values by the output they belong to
    column = np.ones((count, 1))

    def expectation(powers: Array) -> list[sparse.spmatrix]:
        """The coefficients of u and of the excesses in E[powers], a row for each input."""
        base = (powers @ owners)[None, :] / e
        return [
            sparse.csr_matrix(column @ base),
            sparse.kron(sparse.identity(count), powers[None, :]),
        ]

    # Variables: the largest probability u of each output, the excess of each probability over u/E,
    # and v. The objective is v.
    ratios = count * levels
    cost = np.zeros(size + ratios + 1)
    cost[-1] = 1
    blank = sparse.csr_matrix((count, 1))

    # Inequalities: no excess is above (1 - 1/E) u; the second moment is at most v + x**2.
    ratio = [-(1 - 1 / e) * sparse.kron(column, owners), sparse.identity(ratios), None]
    below = sparse.bmat([ratio, [*expectation(values**2), -column]], format="csc")
    most = np.concatenate([np.zeros(ratios), inputs**2])

    # Equations: the total is 1, the mean is x.
    sums = [[*expectation(np.ones(levels)), blank], [*expectation(values), blank]]
    equal, totals = sparse.bmat(sums, format="csc"), np.concatenate([np.ones(count), inputs])
    bounds = [(0, None)] * (size + ratios) + [(None, None)]
    result = linprog(cost, below, most, equal, totals, bounds, method="highs-ds")
    if result.x is None:
        raise ArithmeticError(f"the linear programme of the bound failed: {result.message}")

    weights = np.clip(-result.ineqlin.marginals[ratios:], 0, None)
    sum_dual, mean_dual = np.split(result.eqlin.marginals, [count])
    dual = np.stack([weights, sum_dual, mean_dual]) / weights.sum()
    return float(result.fun), outputs[result.x[:size] > 1e-10], dual


def _minima(e: float, weights: Array, sums: Array, means: Array) -> tuple[Array, Array]:
    """Return where each quadratic piece of D has its minimum over y >= 0, and the minima.

    weights, sums, means: the dual numbers w, a and b of the inputs. D is even: an input and its
    mirror image have half of the weight each. Raises ArithmeticError.
    """
    # Each term of D is h(g) for g(y) = a y**2 + b y + c, so D bends where a g is 0.
    a, b, c = np.tile(weights, 2), np.concatenate([-means, means]), -np.tile(sums, 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(b * b - 4 * a * c)
        # The form without cancellation; it also covers a = 0.
        half = -(b + np.copysign(root, b)) / 2
        corners = np.abs(np.concatenate([half / a, c / half]))
    corners = np.unique(corners[np.isfinite(corners)])

    # A point inside of each piece shows which g are below 0 there, and count E times as much.
    ends = np.concatenate([[0.0], corners, [math.inf]])
    inside = np.concatenate([(ends[:-2] + ends[1:-1]) / 2, [2 * ends[-2] + 1]])[:, None]
    factors = np.where(inside * (a * inside + b) + c < 0, e, 1.0) / 2  # by piece and term
    square, linear, constant = factors @ a, factors @ b, factors @ c
    if square[-1] <= 0:
        raise ArithmeticError("the bound has no weights")

    # The vertex of each parabola, clipped to its piece.
    with np.errstate(divide="ignore", invalid="ignore"):
        vertices = np.where(square > 0, -linear / (2 * square), ends[:-1])
    at = np.clip(vertices, ends[:-1], ends[1:])
    return at, at * (square * at + linear) + constant
