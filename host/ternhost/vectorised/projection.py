"""Draws the reports of projection cards for many clients at once, and decodes them.

Such a report is about a whole vector of d values (cards.md, projection). The vector, filled up with
zeros to N = 2**n values, is rotated at random; the report is one coordinate of the rotated vector
and a sign, more likely a coordinate that is large. Everything is exactly as in tern.projection.
"""

import math
from typing import cast

import numpy as np
import numpy.typing as npt

from tern.card import Card
from tern.projection import Projection, signs_of
from ternhost.vectorised.lanes import Array, Flags, Lanes, RandomLanes, uniform_some

Numbers = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

_ROTATIONS = 3  # each of random signs and a Walsh-Hadamard transform


def of(card: Card) -> Projection:
    """Return the fields of a projection card."""
    return cast(Projection, card.body)


def signs(card: Card, digests: Bytes) -> Numbers:
    """Return the signs that make up the rotations of clients (n x 3 x N, each 1 or -1).

    digests: those of the questions that the clients answer (n x 32 bytes), which determine them.
    """
    size = of(card).size
    packed = b"".join(signs_of(digest.tobytes(), size) for digest in digests)
    return _unpacked(np.frombuffer(packed, np.uint8).reshape(len(digests), -1), size)


def random_signs(card: Card, lanes: RandomLanes) -> Numbers:
    """Draw the signs (n x 3 x N) of the rotations of clients without keys, from their lanes."""
    size = of(card).size
    words = math.ceil(_ROTATIONS * size / 64)  # random words of 64 bits for each client
    drawn = lanes.bits.random_raw(words * lanes.count).view(np.uint8)
    return _unpacked(drawn.reshape(-1, 8 * words), size)


def _unpacked(packed: Bytes, size: int) -> Numbers:
    """Unpack signs (n x 3 x N) from bits (n x bytes), the lowest bit first; a 1 is a minus."""
    bits = np.unpackbits(packed, axis=1, bitorder="little")[:, : _ROTATIONS * size]
    return (1 - 2 * bits.astype(np.int32)).reshape(-1, _ROTATIONS, size)


def transform(vectors: Numbers) -> Numbers:
    """Return the Walsh-Hadamard transforms of the rows of `vectors` (n x N), not normalised.

    The transform of v is `w_j = sum_i (-1)**popcount(i & j) v_i`. The fast algorithm replaces pairs
    of coordinates by their sum and difference, first neighbours, then those at distance 2, 4, ...
    """
    n, size = vectors.shape
    # A row for each coordinate: few long rows are added faster than many short ones.
    by_coordinate = np.array(vectors.T, order="C")
    distance = 1
    while distance < size:
        # Blocks of 2 x `distance` coordinates: the second half is added to and subtracted from the
        # first one.
        pairs = by_coordinate.reshape(-1, 2, distance * n)
        differences = pairs[:, 0] - pairs[:, 1]
        pairs[:, 0] += pairs[:, 1]
        pairs[:, 1] = differences
        distance *= 2
    return np.ascontiguousarray(by_coordinate.T)


def decode(card: Card, rotations: Numbers, symbols: Array, d: int) -> Numbers:
    """Return the integer vectors (n x d) that symbols (n) stand for.

    A symbol says a coordinate of the rotated vector and a sign: symbols from N on are negative. It
    stands for the unit vector along this coordinate, which is rotated back here. rotations: the
    signs, n x 3 x N. d: how many values of the vector are not filling.
    """
    size = of(card).size
    is_negative = symbols >= size
    vectors = np.zeros((len(symbols), size), np.int32)
    vectors[np.arange(len(symbols)), symbols % size] = np.where(is_negative, -1, 1)
    # A transform is its own inverse, but for its length, and so is a multiplication by signs.
    for i in reversed(range(_ROTATIONS)):
        vectors = transform(vectors) * rotations[:, i]
    return vectors[:, :d]


def draw(
    card: Card, lanes: Lanes, values: npt.NDArray[np.int16], rotations: Numbers
) -> npt.NDArray[np.uint16]:
    """Draw the symbols of values (n x d, Q1.14), exactly as tern.projection does.

    rotations: the signs, n x 3 x N. Returns n symbols. Specification: cards.md, projection.
    """
    body = of(card)
    n, d = values.shape
    vectors = np.zeros((n, body.size), np.int32)
    vectors[:, :d] = values
    for i in range(_ROTATIONS):
        vectors = transform(vectors * rotations[:, i])

    has_vector_turned = _has_vector_turned(body, lanes, values)
    rank, is_opposite = _draw_rank(body, lanes)

    # The coordinates by size, the largest first; of equal ones the first comes first.
    order = np.argsort(-np.abs(vectors), axis=1, kind="stable")
    every_lane = np.arange(lanes.count)
    index = order[every_lane, rank]
    is_coordinate_negative = vectors[every_lane, index] < 0
    is_negative = is_coordinate_negative ^ has_vector_turned ^ is_opposite
    return np.asarray(index + body.size * is_negative, np.uint16)


def _has_vector_turned(body: Projection, lanes: Lanes, values: npt.NDArray[np.int16]) -> Flags:
    """Draw for each client whether its vector changes its sign: the more often, the shorter it is.

    A vector of length L, at most the radius R, keeps its sign with probability (R + L) / (2 R). So
    the mean of the sign is L / R, and the report is about the length, too.
    """
    rounded = (np.abs(values.astype(np.int32)) + 4) >> 3  # from 14 to 11 fractional bits
    square = (rounded.astype(np.float64) ** 2).sum(axis=1)
    # Below 2**30 a float root, rounded down, equals the integer root of the device.
    length = np.sqrt(square).astype(np.int64)
    kept_below = body.radius + np.minimum(length, body.radius)
    drawn = uniform_some(lanes, np.arange(lanes.count), 2 * body.radius)
    return np.asarray(drawn >= kept_below)


def _draw_rank(body: Projection, lanes: Lanes) -> tuple[Array, Flags]:
    """Draw which coordinate each client reports, and whether with the opposite sign.

    The rank of a coordinate is its place by size, from 0. An integer is drawn, uniformly below the
    sum of all weights. It decides in this order: the k largest coordinates with their own signs
    have the weight `a` each; then come, with the weight `b` each, the k largest with the opposite
    sign, and all other coordinates, each with its own sign and at once with the opposite one.
    """
    drawn = uniform_some(lanes, np.arange(lanes.count), body.total)
    k = body.k
    weight_of_likely = k * body.a
    is_likely = drawn < weight_of_likely
    likely_rank = drawn // body.a

    # The place among those of weight `b`: first k with the opposite sign, then pairs.
    place = (drawn - weight_of_likely) // body.b
    is_large_but_opposite = ~is_likely & (place < k)
    place_in_pairs = place - k
    rank_of_pair = k + (place_in_pairs >> 1)
    is_in_pair = ~is_likely & ~is_large_but_opposite
    is_second_of_pair = is_in_pair & (place_in_pairs % 2 == 1)

    unlikely_rank = np.where(is_large_but_opposite, place, rank_of_pair)
    rank = np.where(is_likely, likely_rank, unlikely_rank)
    return rank, is_large_but_opposite | is_second_of_pair
