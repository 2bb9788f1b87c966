"""Draws the reports of projection cards for many clients at once, and decodes them.

Such a report is about a whole vector of d values (cards.md, projection). The vector, filled up with
zeros to N = 2**n values, is rotated at random; the report is one coordinate of the rotated vector
and a sign, more likely a coordinate that is large. Everything is exactly as in tern.projection.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tern.card import Card
from tern.fixed import ONE
from tern.projection import Projection, signs_of
from ternhost.vectorised.lanes import Array, Flags, Lanes, RandomLanes, uniform_some
from ternhost.vectorised.models import Fixed

Numbers = npt.NDArray[np.int32]
Floats = npt.NDArray[Any]  # of float32 or float64
Bytes = npt.NDArray[np.uint8]

_ROTATIONS = 3  # each of random signs and a Walsh-Hadamard transform
_FLOAT32, _FLOAT64 = "float32", "float64"
_EXACT_IN_FLOAT32 = 1 << 24  # integers up to this size
_BLOCK = 1024  # clients whose vectors are computed together, so that they stay in the cache


def of(card: Card) -> Projection:
    """Return the fields of a projection card."""
    return cast(Projection, card.body)


def signs(card: Card, digests: Bytes) -> Bytes:
    """Return the signs of the rotations of clients: n x 3 N bits, packed into bytes.

    digests: those of the questions that the clients answer (n x 32 bytes), which determine them.
    """
    size = of(card).size
    packed = b"".join(signs_of(digest.tobytes(), size) for digest in digests)
    return np.frombuffer(packed, np.uint8).reshape(len(digests), -1)


def random_signs(card: Card, lanes: RandomLanes) -> Bytes:
    """Draw the signs of the rotations of clients without keys, from their lanes, as of `signs`."""
    size = of(card).size
    words = math.ceil(_ROTATIONS * size / 64)  # random words of 64 bits for each client
    drawn = lanes.bits.random_raw(words * lanes.count).view(np.uint8)
    return np.asarray(drawn.reshape(-1, 8 * words))


@lru_cache(maxsize=2)
def _signs_of_byte(dtype: str) -> Floats:
    """Return the signs for which each byte stands (256 x 8), the lowest bit first; 1 is a minus."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return (1 - 2 * bits.astype(np.int8)).astype(dtype)


@lru_cache(maxsize=16)
def _hadamard(size: int, dtype: str) -> Floats:
    """Return the matrix of the Walsh-Hadamard transform (N x N): (-1)**popcount(i & j)."""
    from scipy import linalg  # slow to load

    return np.asarray(linalg.hadamard(size).astype(dtype))


def _unpacked(rotations: Bytes, size: int, dtype: str) -> Floats:
    """Return the signs of rotations (3 x n x N, each 1 or -1) from their bits (n x bytes)."""
    used = rotations[:, : math.ceil(_ROTATIONS * size / 8)]
    unpacked = _signs_of_byte(dtype).take(used, axis=0).reshape(len(used), -1)
    by_rotation = unpacked[:, : _ROTATIONS * size].reshape(-1, _ROTATIONS, size)
    return by_rotation.swapaxes(0, 1)


def turn(values: Fixed, rotations: Bytes, size: int) -> Floats:
    """Rotate vectors of integers, filled up with zeros (n x N).

    A rotation multiplies a vector by signs and transforms it, three times. The results are exact
    integers: with values up to 2**14 no number on the way is larger than 2**14 N**2
    (`tern.projection.Projection.top`).

    values: n x d, Q1.14. rotations: as of `signs`. size: N.
    """
    dtype = _FLOAT64
    if ONE * size**2 <= _EXACT_IN_FLOAT32 and values.min() >= -ONE and values.max() <= ONE:
        dtype = _FLOAT32  # takes half the time
    vectors: Floats = np.zeros((len(values), size), dtype)
    vectors[:, : values.shape[1]] = values
    hadamard = _hadamard(size, dtype)
    for signs_of_rotation in _unpacked(rotations, size, dtype):
        vectors = (vectors * signs_of_rotation) @ hadamard
    return vectors


def turn_back(vectors: Floats, rotations: Bytes) -> Floats:
    """Rotate vectors (n x N) by the inverse of `turn`; they become N**3 times as long.

    A transform is its own inverse, but for its length, and so is a multiplication by signs.
    """
    size = vectors.shape[1]
    dtype = vectors.dtype.name
    for signs_of_rotation in _unpacked(rotations, size, dtype)[::-1]:
        vectors = (vectors @ _hadamard(size, dtype)) * signs_of_rotation
    return vectors


def _blocks(clients: int) -> Iterator[slice]:
    """Yield slices of so many clients that are computed together."""
    for start in range(0, clients, _BLOCK):
        yield slice(start, start + _BLOCK)


def decode(card: Card, rotations: Bytes, symbols: Array, d: int) -> Numbers:
    """Return the integer vectors (n x d) that symbols (n) stand for.

    A symbol says a coordinate of the rotated vector and a sign: symbols from N on are negative. It
    stands for the unit vector along this coordinate, which is rotated back here. rotations: as of
    `signs`. d: how many values of the vector are not filling.
    """
    size = of(card).size
    signed_units = np.concatenate([np.eye(size), -np.eye(size)]).astype(np.float32)
    decoded = np.empty((len(symbols), d), np.int32)
    for block in _blocks(len(symbols)):
        units = signed_units.take(symbols[block], axis=0)
        decoded[block] = turn_back(units, rotations[block])[:, :d]
    return decoded


def draw(card: Card, lanes: Lanes, values: Fixed, rotations: Bytes) -> npt.NDArray[np.uint16]:
    """Draw the symbols of values (n x d, Q1.14), exactly as tern.projection does.

    rotations: as of `signs`. Returns n symbols. Specification: cards.md, projection.
    """
    body = of(card)
    turning = uniform_some(lanes, np.arange(lanes.count), 2 * body.radius)
    rank, is_opposite = _draw_rank(body, lanes)
    symbols = np.empty(len(values), np.uint16)
    for block in _blocks(len(values)):
        has_vector_turned = turning[block] >= _kept_below(body, values[block])
        vectors = turn(values[block], rotations[block], body.size)
        index = _coordinate_of_rank(vectors, rank[block])
        is_coordinate_negative = vectors[np.arange(len(index)), index] < 0
        is_negative = is_coordinate_negative ^ has_vector_turned ^ is_opposite[block]
        symbols[block] = index + body.size * is_negative
    return symbols


def _kept_below(body: Projection, values: Fixed) -> npt.NDArray[np.int64]:
    """Return below which number, drawn out of 2 R, each client's vector keeps its sign.

    A vector of length L, at most the radius R, keeps its sign with probability (R + L) / (2 R). So
    the mean of the sign is L / R, and the report is about the length, too.
    """
    rounded = (np.abs(values.astype(np.int32)) + 4) >> 3  # from 14 to 11 fractional bits
    as_floats = rounded.astype(np.float64)
    square = np.einsum("ij,ij->i", as_floats, as_floats)
    # Below 2**30 a float root, rounded down, equals the integer root of the device.
    length = np.sqrt(square).astype(np.int64)
    return np.asarray(body.radius + np.minimum(length, body.radius))


def _coordinate_of_rank(vectors: Floats, rank: Array) -> Array:
    """Return the coordinate of each vector (n x N integers) that has a rank by size (n).

    The largest coordinate has the rank 0; of equal ones the first comes first.
    """
    size = vectors.shape[1]
    # A number orders coordinates like that, and holds them: size * N + (N - 1 - coordinate).
    dtype: npt.DTypeLike = np.int64
    if size <= 32:  # vectors of int16 have coordinates up to 2**15 N**2, and these numbers 2**30
        dtype = np.int32
    order = np.abs(vectors).astype(dtype)
    order *= size
    order += np.arange(size - 1, -1, -1, dtype=dtype)
    order.sort(axis=1)
    of_rank = order[np.arange(len(order)), size - 1 - rank]
    return np.asarray(size - 1 - of_rank % size)


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
