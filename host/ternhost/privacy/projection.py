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

MOST_VALUES = 128  # of a vector
# The squared bias of an estimate, as a share of the mean's square: on the bundled data sets, and on
# the worst vectors that are known.
BIAS = 0.001
WORST_BIAS = 0.002
# The bounds of a card's numbers (cards.md).
_MOST_TOTAL = 1 << 20  # of the sum of all weights
_MOST_RADIUS = 1 << 15
_STEP = 1 << 11  # a radius of 1 in a question of range 0
_MOST_B = 1 << 13  # weights b up to this are tried; more would hardly improve the ratio a / b
# A device draws numbers below a power of two, and repeats those beyond the sum of all weights. If
# that sum is below this share of the power, a / b must be larger by the second number to be worth it.
_FULL, _UNFULL = 0.95, 1e-3
# Fewer coordinates are filled up with zeros: in fewer dimensions a rotation by random signs and
# Hadamard matrices is far from a uniform one.
_LEAST = 32
_FARTHEST, _POINTS = 9.0, 4001  # the range and the points of an integral over normal variables


@dataclass(frozen=True)
class ProjectionDesign:
    """The card of a projection, and what a question with this card needs to know.

    card: the bytes of the card, which has the shape PROJECTION. range: the question's range, which
    sets the unit of the radius. radius: the length to which vectors are clipped, in real units.
    variance: that of a coordinate of the estimate from one report, noise and sampling together,
    averaged over coordinates.
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
    # independent. So the mean of a coordinate is that of a normal number over the mean length.
    # The mean of the i-th largest of N absolute values is the integral over t of the probability
    # that at least i of them are above t.
    t = np.linspace(0, _FARTHEST, _POINTS)
    ranks = np.arange(size)[:, None]
    probability_above = 2 * stats.norm.sf(t)  # of one absolute value
    # The probability that more than `rank` values are above t, a row for each rank.
    more_above = stats.binom.sf(ranks, size, probability_above)
    mean_sizes = np.trapezoid(more_above, t, axis=1)
    # The mean length of a normal vector is sqrt(2) Gamma((N + 1) / 2) / Gamma(N / 2).
    mean_length = math.sqrt(2) * math.exp(math.lgamma((size + 1) / 2) - math.lgamma(size / 2))
    mean_coordinates: Floats = mean_sizes / mean_length
    mean_coordinates.setflags(write=False)  # the result is cached
    return mean_coordinates


def gain(body: Projection) -> float:
    """Return the mean of a reported direction's cosine with a vector as long as the radius.

    The k nearest directions have the weight a each, their opposites b; those of all others cancel.
    (This is m of cards.md.)
    """
    sum_of_nearest = cosines(body.size)[: body.k].sum()
    return float((body.a - body.b) * sum_of_nearest / body.total)


def real_radius(body: Projection, range_: int) -> float:
    """Return the radius in real units, in a question of this range."""
    return float(body.radius / (_STEP << range_))


def unit(body: Projection, range_: int) -> float:
    """Return the factor that turns the mean of decoded reports into an estimated mean vector.

    A decoded report is a direction whose rotation, three Walsh-Hadamard transforms without
    normalisation, has been undone. So it has the length N**1.5 for N dimensions.
    """
    return float(real_radius(body, range_) / (gain(body) * body.size**1.5))


def variance(body: Projection, range_: int) -> float:
    """Return `ProjectionDesign.variance` of a card in a question of this range."""
    return float((real_radius(body, range_) / gain(body)) ** 2 / body.size)


def size_of(values: int) -> int:
    """Return the number of dimensions N in which vectors of so many values are rotated.

    It is a power of two, at least 32. Raises UsageError for too many values.
    """
    if not isinstance(values, int) or not 1 <= values <= MOST_VALUES:
        text = f"a projection is about 1 to {MOST_VALUES} values, not {values}"
        raise UsageError(text, "use another mechanism, or fewer features")
    next_power_of_two = 1 << (values - 1).bit_length()
    return max(_LEAST, next_power_of_two)


@cache
def weights(epsilon: int, size: int) -> tuple[int, int, int]:
    """Return the integers (k, a, b) of a projection with the least variance.

    A report is one of 2 * size directions. The k that are nearest to the vector are drawn with the
    weight a each, all others with the weight b (cards.md). It keeps epsilon if a / b is at most
    e**epsilon.

    epsilon: in millionths. size: the number of dimensions. Raises UsageError if epsilon is too
    small.
    """
    exp_epsilon = exp_lower(epsilon)  # in units of 2**-EXP_BITS
    directions = 2 * size
    k = _likely_directions(exp_epsilon / (1 << EXP_BITS), size)
    candidates = []
    largest_b = min(_MOST_TOTAL // directions, _MOST_B)
    for b in range(1, largest_b + 1):
        # The largest a that keeps epsilon, and that keeps the sum of all weights within bounds.
        a_by_epsilon = b * exp_epsilon >> EXP_BITS
        a_by_total = (_MOST_TOTAL - (directions - k) * b) // k
        a = min(a_by_epsilon, a_by_total)
        if a <= b:
            continue

        # The larger a / b, the less variance. A sum of weights far below a power of two costs a
        # little, since a device repeats more of its draws.
        total = k * a + (directions - k) * b
        power_of_two = 1 << (total - 1).bit_length()
        worth = a / b
        if total < _FULL * power_of_two:
            worth = a / b * (1 - _UNFULL)
        candidates.append((worth, a, b))
    if not candidates:
        hint = "spend more on a report, or report about coordinates (fedsgd)"
        raise UsageError(f"an epsilon of {epsilon / MICRO:g} is too little for a projection", hint)
    _, a, b = max(candidates)
    return k, a, b


def _likely_directions(ratio: float, size: int) -> int:
    """Return how many of the directions nearest to the vector should be likely: k of `weights`.

    It maximises the mean cosine of a reported direction with the vector, which is
    (ratio - 1) (c_1 + ... + c_k) / (k ratio + 2 N - k), where c_i is the i-th largest cosine.
    ratio: that of the weights, a / b. size: the number of dimensions N.
    """
    k = 1 + np.arange(size)  # all candidates
    sums_of_nearest = np.cumsum(cosines(size))
    gains = (ratio - 1) * sums_of_nearest / (k * ratio + 2 * size - k)
    return 1 + int(gains.argmax())


def design(epsilon: int, values: int, radius: float) -> ProjectionDesign:
    """Return the card of the projection of the least variance that keeps `epsilon` (in millionths).

    values: how many a vector has. radius: the length (l2 norm, in real units) to which vectors are
    clipped; it is rounded to a whole number of steps, as fine as the question's `range` allows.
    Raises UsageError.
    """
    size = size_of(values)
    range_ = 0
    steps = 0  # refused below, for a radius that is not a positive number
    if math.isfinite(radius) and radius > 0:
        # Each number of the range halves the step; a small radius needs fine steps.
        range_ = min(MAX_FINE, max(0, math.floor(-math.log2(radius))))
        steps = round(radius * (_STEP << range_))
    if not 1 <= steps <= _MOST_RADIUS:
        hint = f"from {0.5 / (_STEP << MAX_FINE):.2g} to 16"
        raise UsageError(f"a radius cannot be {radius:g}", hint)

    size_bits = size.bit_length() - 1  # the binary logarithm of the size
    body = struct.pack(BODY, size_bits, *weights(epsilon, size), steps)
    card = finish(cards.PROJECTION, body)
    decoded = of(cards.decode(card))
    return ProjectionDesign(
        card=card,
        range=range_,
        radius=real_radius(decoded, range_),
        variance=variance(decoded, range_),
    )


def with_radius(card: cards.Card, steps: int) -> bytes:
    """Return the bytes of the same card with another radius, which changes no probability."""
    body = of(card)
    size_bits = body.size.bit_length() - 1
    before_body = bytes(card.data[: -struct.calcsize(BODY)])
    return before_body + struct.pack(BODY, size_bits, body.k, body.a, body.b, steps)


def law(body: Projection, length: float) -> tuple[Floats, Floats]:
    """Return the cosines of all directions with a vector, and the probabilities of the directions.

    A report is one of 2 N directions, for N dimensions, which are rotated at random. Both results
    have 2 N entries, by ascending cosine; the cosines are means over rotations.
    length: the vector's length in radii, from -1 to 1; negative for the opposite vector.
    """
    positive_cosines = cosines(body.size)
    all_cosines = np.concatenate([-positive_cosines, positive_cosines[::-1]])
    # For a vector of the whole radius, the k nearest directions are likely. A shorter one is
    # rounded at random to that vector or to its opposite, so that its mean is right.
    of_vector = np.full(2 * body.size, body.b / body.total)
    of_vector[-body.k :] = body.a / body.total
    of_opposite = of_vector[::-1]
    probabilities = (1 + length) / 2 * of_vector + (1 - length) / 2 * of_opposite
    return all_cosines, probabilities


def fields(body: Projection) -> dict[str, Any]:
    """Return the fields of `tern card show` that only a projection has.

    A report is one of 2 N directions, for N dimensions. Those that are nearest to a device's vector
    are likelier than the others; their number is `likely`, and `weights` has the relative
    probabilities of a likely direction and of any other. `gain` is the mean cosine of a reported
    direction with the vector. `radius` is in units of 2**-range, where the request for reports says
    which range. `second_moment` is that of all N coordinates of an estimate together, in squared
    radii.
    """
    probability_of_near = body.a / body.total  # of each of the k likely directions
    probability_of_other = body.b / body.total
    bias_bound = BIAS if body.size >= _LEAST else None  # not known in fewer dimensions
    return {
        "values": body.size,
        "likely": body.k,
        "weights": [body.a, body.b],
        "radius": body.radius / _STEP,
        "probabilities": [probability_of_near, probability_of_other],
        "gain": gain(body),
        "second_moment": gain(body) ** -2,
        "bias_bound": bias_bound,
    }
