"""Projections of many clients at once (cards.md): draws of tern.projection, and their decoding."""

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
    """The body of a card of shape 7."""
    return cast(Projection, card.body)


def signs(card: Card, digests: Bytes) -> Numbers:
    """The signs (n x 3 x N, 1 or -1) of the rotations for the digests of questions (n x 32)."""
    size = of(card).size
    packed = b"".join(signs_of(digest.tobytes(), size) for digest in digests)
    return _unpacked(np.frombuffer(packed, np.uint8).reshape(len(digests), -1), size)


def random_signs(card: Card, lanes: RandomLanes) -> Numbers:
    """Draw the signs (n x 3 x N) of the rotations of clients without keys, from their lanes."""
    size = of(card).size
    words = math.ceil(_ROTATIONS * size / 64)  # of a client, each of 64 bits
    drawn = lanes.bits.random_raw(words * lanes.count).view(np.uint8)
    return _unpacked(drawn.reshape(-1, 8 * words), size)


def _unpacked(packed: Bytes, size: int) -> Numbers:
    """Unpack signs (n x 3 x N) from bits (n x bytes), the lowest bit first; a 1 is a minus."""
    bits = np.unpackbits(packed, axis=1, bitorder="little")[:, : _ROTATIONS * size]
    return (1 - 2 * bits.astype(np.int32)).reshape(-1, _ROTATIONS, size)


def transform(vectors: Numbers) -> Numbers:
    """Return the Walsh-Hadamard transforms of the rows of `vectors` (n x N), not normalised."""
    n, size = vectors.shape
    # A row for each coordinate: few long rows are added faster than many short ones.
    by_coordinate = np.array(vectors.T, order="C")
    distance = 1  # of the coordinates that are added and subtracted
    while distance < size:
        pairs = by_coordinate.reshape(-1, 2, distance * n)
        differences = pairs[:, 0] - pairs[:, 1]
        pairs[:, 0] += pairs[:, 1]
        pairs[:, 1] = differences
        distance *= 2
    return np.ascontiguousarray(by_coordinate.T)


def decode(card: Card, rotations: Numbers, symbols: Array, d: int) -> Numbers:
    """Return the integer vectors (n x d) that symbols (n) stand for.

    A symbol is a coordinate of the rotated vector, and its sign; here the rotation is undone.
    rotations: the signs, n x 3 x N.
    """
    size = of(card).size
    is_negative = symbols >= size
    vectors = np.zeros((len(symbols), size), np.int32)
    vectors[np.arange(len(symbols)), symbols % size] = np.where(is_negative, -1, 1)
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

    is_turned = _is_turned(body, lanes, values)
    rank, is_second_sign = _draw_rank(body, lanes)
    is_turned ^= is_second_sign

    # The coordinates by size; of equal ones the first comes first.
    order = np.argsort(-np.abs(vectors), axis=1, kind="stable")
    every_lane = np.arange(lanes.count)
    index = order[every_lane, rank]
    is_negative = (vectors[every_lane, index] < 0) ^ is_turned
    return np.asarray(index + body.size * is_negative, np.uint16)


def _is_turned(body: Projection, lanes: Lanes, values: npt.NDArray[np.int16]) -> Flags:
    """Draw for each client whether its vector changes its sign: the more often, the shorter it is.

    A vector of length L, at most the radius R, keeps its sign with probability (R + L) / (2 R).
    """
    rounded = np.abs(values.astype(np.int32)) + 4 >> 3  # to 11 fractional bits
    # Below 2**30 a float root is as good as an integer one.
    length = np.sqrt((rounded.astype(np.float64) ** 2).sum(axis=1)).astype(np.int64)
    kept_below = body.radius + np.minimum(length, body.radius)
    drawn = uniform_some(lanes, np.arange(lanes.count), 2 * body.radius)
    return np.asarray(drawn >= kept_below)


def _draw_rank(body: Projection, lanes: Lanes) -> tuple[Array, Flags]:
    """Draw which coordinate each client reports, and whether with the opposite sign.

    The rank of a coordinate is its place by size, from 0. The k largest coordinates with their own
    signs have `a` of the draws each. Then come, with `b` draws each, the k largest with the opposite
    sign, and both signs of all others in turn.
    """
    drawn = uniform_some(lanes, np.arange(lanes.count), body.total)
    is_likely = drawn < body.k * body.a
    unlikely = (drawn - body.k * body.a) // body.b  # the number among those with `b` draws
    is_opposite = ~is_likely & (unlikely < body.k)
    other_rank = body.k + (unlikely - body.k >> 1)
    rank = np.where(is_likely, drawn // body.a, np.where(is_opposite, unlikely, other_rank))
    is_second_of_pair = ~is_likely & ~is_opposite & ((unlikely - body.k) % 2 == 1)
    return rank, is_opposite | is_second_of_pair
