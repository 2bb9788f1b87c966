"""Projections (cards.md): the design of their weights, and the error of a mean of them.

PrivUnit (Bhowmick et al. 2018) with the rotated codewords of RRSC (Isik et al., NeurIPS 2023). The
privacy of a card is exact; that its estimates have no bias holds for a uniform rotation, from which
a Hadamard one differs a little.
"""

import math
import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern.fixed import EXP_BITS, exp_lower
from tern.gradient import MAX_FINE
from tern.projection import BODY, Projection
from ternhost.errors import UsageError
from ternhost.privacy.base import MICRO, finish
from ternhost.vectorised.projection import of as of

Floats = npt.NDArray[np.float64]

MOST_VALUES = 128
# Squared, over the mean's square: on the bundled sets, and the worst known.
BIAS = 0.001
WORST_BIAS = 0.002
_MOST_TOTAL, _MOST_RADIUS = 1 << 20, 1 << 15  # bounds of cards.md
_STEP = 1 << 11  # of a radius
_MOST_B = 1 << 13  # among which b is chosen
# Draws of a Z below this share of a power of two are repeated: so much of a / b is no gain.
_FULL, _UNFULL = 0.95, 1e-3
# coordinates: in fewer dimensions a rotation by signs and Hadamard matrices is far from uniform
_LEAST = 32
_FARTHEST, _POINTS = 9.0, 4001  # of a numerical integral over normal sizes


@dataclass(frozen=True)
class ProjectionDesign:
    """A card of shape 7 with the `range` that its question needs.

    radius: to which vectors are clipped, in real units. variance: of a coordinate of the estimate
    from one report, noise and sampling together, averaged over coordinates.
    """

    card: bytes
    range: int
    radius: float
    variance: float


@cache
def cosines(size: int) -> Floats:
    """Return the mean absolute coordinates of a uniformly random direction, largest first.

    size: the number of dimensions N. Entry i is the mean of the (i + 1)-th largest coordinate.
    """
    from scipy import stats  # slow to load

    # A direction is a vector of N independent normal numbers, divided by its length, of which it is
    # independent. The mean of the i-th largest of N absolute values is the integral over t of the
    # probability that at least i of them are above t.
    t = np.linspace(0, _FARTHEST, _POINTS)
    ranks = np.arange(size)[:, None]
    probability_above = 2 * stats.norm.sf(t)  # of one absolute value
    at_least_so_many = stats.binom.sf(ranks, size, probability_above)  # by rank and t
    mean_sizes = np.trapezoid(at_least_so_many, t, axis=1)
    mean_length = math.sqrt(2) * math.exp(math.lgamma((size + 1) / 2) - math.lgamma(size / 2))
    mean_coordinates: Floats = mean_sizes / mean_length
    mean_coordinates.setflags(write=False)
    return mean_coordinates


def gain(body: Projection) -> float:
    """m of cards.md: the mean of a codeword along a vector of the length R."""
    return float((body.a - body.b) * cosines(body.size)[: body.k].sum() / body.total)


def real_radius(body: Projection, range_: int) -> float:
    """The radius in real units, in a question of this range."""
    return float(body.radius / (_STEP << range_))


def unit(body: Projection, range_: int) -> float:
    """The factor that turns the mean of the reports' decoded vectors into an estimated mean."""
    return float(real_radius(body, range_) / (gain(body) * body.size**1.5))


def variance(body: Projection, range_: int) -> float:
    """`ProjectionDesign.variance` of a card in a question of this range."""
    return float((real_radius(body, range_) / gain(body)) ** 2 / body.size)


def size_of(values: int) -> int:
    """N for this number of values. Raises UsageError."""
    if not isinstance(values, int) or not 1 <= values <= MOST_VALUES:
        text = f"a projection is about 1 to {MOST_VALUES} values, not {values}"
        raise UsageError(text, "use another mechanism, or fewer features")
    return max(_LEAST, 1 << (values - 1).bit_length())


@cache
def weights(epsilon: int, size: int) -> tuple[int, int, int]:
    """Return the weights (k, a, b) of a projection with the least variance.

    Of 2 * size directions, the k next to the vector have the weight a each, all others b (cards.md).
    epsilon: micro; it keeps a / b at most e**epsilon. Raises UsageError if it is too small.
    """
    exp_epsilon = exp_lower(epsilon)  # in units of 2**-EXP_BITS
    directions = 2 * size
    k = _likely_directions(exp_epsilon / (1 << EXP_BITS), size)
    candidates = []
    largest_b = min(_MOST_TOTAL // directions, _MOST_B)
    for b in range(1, largest_b + 1):
        a_by_epsilon = b * exp_epsilon >> EXP_BITS
        a_by_total = (_MOST_TOTAL - (directions - k) * b) // k
        a = min(a_by_epsilon, a_by_total)
        if a <= b:
            continue

        # The larger a / b, the less variance. A total far below a power of two costs a little,
        # since a device repeats more of its draws.
        total = k * a + (directions - k) * b
        ratio = a / b
        if total < _FULL * (1 << (total - 1).bit_length()):
            ratio = a / b * (1 - _UNFULL)
        candidates.append((ratio, a, b))
    if not candidates:
        hint = "spend more on a report, or report about coordinates (--algorithm fedsgd)"
        raise UsageError(f"an epsilon of {epsilon / MICRO:g} is too little for a projection", hint)
    _, a, b = max(candidates)
    return k, a, b


def _likely_directions(ratio: float, size: int) -> int:
    """Return how many of the directions next to the vector should be likely: k of `weights`.

    ratio: of the weights a and b. It maximises the mean of a codeword along the vector.
    """
    counts = 1 + np.arange(size)  # the candidates for k
    gains = (ratio - 1) * np.cumsum(cosines(size)) / (counts * ratio + 2 * size - counts)
    return 1 + int(gains.argmax())


def design(epsilon: int, values: int, radius: float) -> ProjectionDesign:
    """Design the projection of the least variance that keeps `epsilon` (micro).

    values: of a vector. radius: to which vectors are clipped (l2 norm, real units); it is rounded
    to a whole number of steps, as fine as the question's `range` allows. Raises UsageError.
    """
    size = size_of(values)
    range_ = 0
    steps = 0  # refused below, for a radius that is not a positive number
    if math.isfinite(radius) and radius > 0:
        range_ = min(MAX_FINE, max(0, math.floor(-math.log2(radius))))
        steps = round(radius * (_STEP << range_))
    if not 1 <= steps <= _MOST_RADIUS:
        hint = f"from {0.5 / (_STEP << MAX_FINE):.2g} to 16"
        raise UsageError(f"a radius cannot be {radius:g}", hint)
    body = struct.pack(BODY, size.bit_length() - 1, *weights(epsilon, size), steps)
    card = finish(cards.PROJECTION, body)
    decoded = of(cards.decode(card))
    return ProjectionDesign(card, range_, real_radius(decoded, range_), variance(decoded, range_))


def with_radius(card: cards.Card, steps: int) -> bytes:
    """The same card with another radius, which changes no probability."""
    body = of(card)
    fields = body.size.bit_length() - 1, body.k, body.a, body.b, steps
    return bytes(card.data[: -struct.calcsize(BODY)]) + struct.pack(BODY, *fields)


def law(body: Projection, length: float) -> tuple[Floats, Floats]:
    """Return the cosines of all codewords with a vector's direction, and their probabilities.

    length: of the vector in radii, -1 to 1; negative for the opposite vector. Both results have 2 N
    entries, by ascending cosine; the cosines are means over rotations.
    """
    positive_cosines = cosines(body.size)
    all_cosines = np.concatenate([-positive_cosines, positive_cosines[::-1]])
    # For a vector of the whole radius, the k nearest codewords are likely. A shorter one is rounded
    # at random to it or to its opposite, so that its mean is right.
    whole = np.full(2 * body.size, body.b / body.total)
    whole[-body.k :] = body.a / body.total
    opposite = whole[::-1]
    return all_cosines, (1 + length) / 2 * whole + (1 - length) / 2 * opposite


def fields(body: Projection) -> dict[str, Any]:
    """Return the fields of `tern card show` that only a projection has.

    `radius` is in units of 2**-range. `second_moment` is that of all N coordinates of an estimate
    together, in squared radii.
    """
    inside = body.a / body.total  # the probability of each of the k likely directions
    outside = body.b / body.total  # and of each other one
    return {
        "values": body.size,
        "likely": body.k,
        "weights": [body.a, body.b],
        "radius": body.radius / _STEP,
        "probabilities": [inside, outside],
        "gain": gain(body),
        "second_moment": gain(body) ** -2,
        "bias_bound": BIAS if body.size >= _LEAST else None,
    }
