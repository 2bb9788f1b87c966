"""Projections of many clients at once (cards.md): draws of tern.projection, and their decoding."""

import math
from typing import cast

import numpy as np
import numpy.typing as npt

from tern.card import Card
from tern.projection import Projection, signs_of
from ternhost.vectorised.lanes import Array, Lanes, RandomLanes, uniform_some

Numbers = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]


def of(card: Card) -> Projection:
    """The body of a card of shape 7."""
    return cast(Projection, card.body)


def signs(card: Card, digests: Bytes) -> Numbers:
    """The signs (n x 3 x N, 1 or -1) of the rotations for the digests of questions (n x 32)."""
    size = of(card).size
    packed = b"".join(signs_of(digest.tobytes(), size) for digest in digests)
    return _unpacked(np.frombuffer(packed, np.uint8).reshape(len(digests), -1), size)


def random_signs(card: Card, lanes: RandomLanes) -> Numbers:
    """The same for clients without keys, from their lanes."""
    size = of(card).size
    words = math.ceil(3 * size / 64)  # of a client
    drawn = lanes.bits.random_raw(words * lanes.count).view(np.uint8)
    return _unpacked(drawn.reshape(-1, 8 * words), size)


def _unpacked(packed: Bytes, size: int) -> Numbers:
    """The signs (n x 3 x N) of packed bits (n x bytes), the lowest bit first; a 1 is a minus."""
    bits = np.unpackbits(packed, axis=1, bitorder="little")[:, : 3 * size]
    return (1 - 2 * bits.astype(np.int32)).reshape(-1, 3, size)


def transform(vectors: Numbers) -> Numbers:
    """The Walsh-Hadamard transforms of the rows of `vectors` (n x N), not normalised."""
    n, size = vectors.shape
    turned = np.array(vectors.T, order="C")  # long rows, one of each coordinate, are added sooner
    h = 1
    while h < size:
        pairs = turned.reshape(-1, 2, h * n)
        less = pairs[:, 0] - pairs[:, 1]
        pairs[:, 0] += pairs[:, 1]
        pairs[:, 1] = less
        h *= 2
    return np.ascontiguousarray(turned.T)


def decode(card: Card, rotations: Numbers, symbols: Array, d: int) -> Numbers:
    """The integer vectors (n x d) that symbols (n) stand for.

    rotations: their signs, n x 3 x N.
    """
    size = of(card).size
    vectors = np.zeros((len(symbols), size), np.int32)
    vectors[np.arange(len(symbols)), symbols % size] = np.where(symbols >= size, -1, 1)
    for i in (2, 1, 0):
        vectors = transform(vectors) * rotations[:, i]
    return vectors[:, :d]


def draw(
    card: Card, lanes: Lanes, values: npt.NDArray[np.int16], rotations: Numbers
) -> npt.NDArray[np.uint16]:
    """Draw the symbols (n) for values (n x d, Q1.14) under rotations of these signs (n x 3 x N)."""
    body = of(card)
    n, d = values.shape
    vectors = np.zeros((n, body.size), np.int32)
    vectors[:, :d] = values
    for i in range(3):
        vectors = transform(vectors * rotations[:, i])
    # Of equal coordinates the first comes first.
    order = np.argsort(-np.abs(vectors), axis=1, kind="stable")

    scaled = (np.abs(values.astype(np.int32)) + 4 >> 3).astype(np.float64)
    # Below 2**30 a float root is as good.
    length = np.sqrt((scaled**2).sum(axis=1)).astype(np.int64)
    within = body.radius + np.minimum(length, body.radius)
    every_lane = np.arange(lanes.count)
    is_turned = uniform_some(lanes, every_lane, 2 * body.radius) >= within

    # The k largest coordinates with their signs come first, `a` draws each. Then come, `b` draws
    # each, the k largest with the opposite sign, and both signs of the others in turn.
    drawn = uniform_some(lanes, every_lane, body.total)
    is_likely = drawn < body.k * body.a
    unlikely = (drawn - body.k * body.a) // body.b
    is_opposite = ~is_likely & (unlikely < body.k)
    of_others = body.k + (unlikely - body.k >> 1)
    rank = np.where(is_likely, drawn // body.a, np.where(is_opposite, unlikely, of_others))
    is_second_sign = ~is_likely & ~is_opposite & ((unlikely - body.k) % 2 == 1)
    is_turned ^= is_opposite | is_second_sign

    index = order[every_lane, rank]
    is_negative = (vectors[every_lane, index] < 0) ^ is_turned
    return np.asarray(index + body.size * is_negative, np.uint16)
