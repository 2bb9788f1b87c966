"""Projections of many clients at once (cards.md): the draws of tern.projection, and what their
symbols stand for.
"""

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
    size, data = of(card).size, digests.tobytes()
    each = [signs_of(data[at : at + 32], size) for at in range(0, len(data), 32)]
    return _unpacked(np.frombuffer(b"".join(each), np.uint8).reshape(len(digests), -1), size)


def random_signs(card: Card, lanes: RandomLanes) -> Numbers:
    """The same for clients without keys, from their lanes."""
    size = of(card).size
    words = -(-3 * size // 64)
    return _unpacked(
        lanes.bits.random_raw(words * lanes.count).view(np.uint8).reshape(-1, 8 * words), size
    )


def _unpacked(packed: Bytes, size: int) -> Numbers:
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
    """The integer vectors (n x d) that symbols (n) stand for under rotations of these signs (n x 3
    x N).
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
    (n, d), size, every = values.shape, body.size, np.arange(lanes.count)
    vectors = np.zeros((n, size), np.int32)
    vectors[:, :d] = values
    for i in range(3):
        vectors = transform(vectors * rotations[:, i])
    order = np.argsort(
        -np.abs(vectors), axis=1, kind="stable"
    )  # of equal ones the first comes first
    scaled = (np.abs(values.astype(np.int32)) + 4 >> 3).astype(np.float64)
    length = np.sqrt((scaled**2).sum(axis=1)).astype(
        np.int64
    )  # below 2**30 a float root is as good
    within = body.radius + np.minimum(length, body.radius)
    turned = uniform_some(lanes, every, 2 * body.radius) >= within
    u = uniform_some(lanes, every, body.total)
    likely = u < body.k * body.a
    q = (u - body.k * body.a) // body.b
    opposite = ~likely & (q < body.k)
    rank = np.where(likely, u // body.a, np.where(opposite, q, body.k + (q - body.k >> 1)))
    turned ^= opposite | (~likely & ~opposite & ((q - body.k) % 2 == 1))
    index = order[every, rank]
    return np.asarray(index + size * ((vectors[every, index] < 0) ^ turned), np.uint16)
