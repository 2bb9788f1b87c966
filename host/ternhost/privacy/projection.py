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
    """The mean of the i-th largest absolute coordinate of a uniformly distributed direction.

    size: its dimensions, and the length of the result.
    """
    from scipy import stats  # slow to load

    # Of N independent normal sizes: the integral over t of the probability that i or more of them
    # are above t.
    t = np.linspace(0, _FARTHEST, _POINTS)
    above = stats.binom.sf(np.arange(size)[:, None], size, 2 * stats.norm.sf(t))
    sizes = np.trapezoid(above, t, axis=1)
    length = math.sqrt(2) * math.exp(math.lgamma((size + 1) / 2) - math.lgamma(size / 2))
    found: Floats = sizes / length
    found.setflags(write=False)
    return found


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
    """k, a and b of the least variance at epsilon (micro), in `size` dimensions.

    Raises UsageError where there are none.
    """
    lower = exp_lower(epsilon)
    k = _likely_directions(lower / (1 << EXP_BITS), size)
    candidates = []
    for b in range(1, min(_MOST_TOTAL // (2 * size), _MOST_B) + 1):
        a = min(b * lower >> EXP_BITS, (_MOST_TOTAL - (2 * size - k) * b) // k)
        if a <= b:
            continue
        total = k * a + (2 * size - k) * b
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
    """How many of the directions next to the vector are to be likely, by this ratio."""
    counts = 1 + np.arange(size)
    gains = (ratio - 1) * np.cumsum(cosines(size)) / (counts * ratio + 2 * size - counts)
    return 1 + int(gains.argmax())


def design(epsilon: int, values: int, radius: float) -> ProjectionDesign:
    """The card of the least variance that keeps `epsilon` (micro) for vectors of so many values.

    radius: to which vectors are clipped (l2 norm, real units). Raises UsageError.
    """
    size = size_of(values)
    range_, steps = 0, 0
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
    """The cosines of all codewords with a vector's direction, ascending, and how likely each is.

    length: of the vector in radii, -1 to 1; below 0 the opposite one. Both results have 2 N
    entries; the cosines are means over rotations.
    """
    near = cosines(body.size)
    values = np.concatenate([-near, near[::-1]])
    likely = np.full(2 * body.size, body.b / body.total)
    likely[-body.k :] = body.a / body.total
    return values, (1 + length) / 2 * likely + (1 - length) / 2 * likely[::-1]


def fields(body: Projection) -> dict[str, Any]:
    """What `tern card show` tells of a card beside what it tells of each."""
    inside, outside = body.a / body.total, body.b / body.total
    # "radius" is in units of 2**-range; "second_moment" of all N coordinates of an estimate, in
    # radii
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
