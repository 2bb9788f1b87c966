"""Lanes of random bytes, and the draws made of them alone: uniform integers and coordinates."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tern.entropy import EntropyError

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]


class RandomLanes:
    """`count` lanes of fresh bytes from a NumPy bit generator: for simulation, not for privacy.

    No draw depends on its lane, so that draws of one client may go to lanes of their own.
    """

    def __init__(self, bits: np.random.BitGenerator, count: int) -> None:
        self.count = count
        self.bits = bits

    def _bytes(self, n: int) -> Bytes:
        return self.bits.random_raw((n + 7) // 8).view(np.uint8)[:n]

    def each(self, needed: Array | None = None) -> Bytes:
        """A byte of every lane."""
        return self._bytes(self.count)

    def some(self, lanes: Indices) -> Bytes:
        """A byte of each of these lanes."""
        return self._bytes(len(lanes))

    def subset(self, lanes: Indices) -> Self:
        """These lanes alone."""
        return type(self)(self.bits, len(lanes))


class ReplayLanes:
    """The given bytes: row i of `data` (lanes x bytes) is lane i's stream.

    Raises EntropyError at the end of one.
    """

    def __init__(
        self, data: Bytes, position: Indices | None = None, rows: Indices | None = None
    ) -> None:
        """position: how far each row was read (default: not at all). rows: of the lanes, or all."""
        if position is None:
            position = np.zeros(len(data), np.intp)
        if rows is None:
            rows = np.arange(len(data))
        self._data = data
        self._position = position
        self._rows = rows
        self.count = len(rows)

    def each(self, needed: npt.NDArray[np.bool_] | None = None) -> Bytes:
        """A byte of every lane, or of those where `needed`: the others read none, and have a 0."""
        if needed is None:
            return self.some(np.arange(self.count))
        result = np.zeros(self.count, np.uint8)
        lanes = np.flatnonzero(needed)
        result[lanes] = self.some(lanes)
        return result

    def some(self, lanes: Indices) -> Bytes:
        """A byte of each of these lanes. Raises EntropyError at the end of a stream."""
        rows = self._rows[lanes]
        position = self._position[rows]
        if len(rows) and position.max() >= self._data.shape[1]:
            raise EntropyError("stream at its end")
        self._position[rows] += 1
        return self._data[rows, position]

    def subset(self, lanes: Indices) -> Self:
        """These lanes alone, which are read on together with this object's."""
        return type(self)(self._data, self._position, self._rows[lanes])


Lanes = RandomLanes | ReplayLanes


def random_bits(seed: int, *path: int) -> np.random.BitGenerator:
    """The bit generator of a seed and of numbered parts below it (a round, a chunk).

    Those of different parts are independent of each other.
    """
    return np.random.SFC64(np.random.SeedSequence(seed, spawn_key=path))


def mask_of(n: int) -> int:
    """The ones that cover 0..n-1."""
    return (1 << (n - 1).bit_length()) - 1


def uniform_some(lanes: Lanes, which: Indices, n: int) -> npt.NDArray[np.int64]:
    """uniform(n) of cards.md for each of the lanes `which`."""
    mask = mask_of(n)
    result = np.zeros(len(which), np.int64)
    if not mask:
        return result
    pending = np.arange(len(which))
    while pending.size:
        value = np.zeros(len(pending), np.int64)
        for shift in range(0, mask.bit_length(), 8):
            value |= lanes.some(which[pending]).astype(np.int64) << shift
        value &= mask
        result[pending] = value
        pending = pending[value >= n]
    return result


def below_some(lanes: Lanes, which: Indices, threshold: Array, bits: int) -> npt.NDArray[np.bool_]:
    """Bernoulli(threshold / 2**bits) of each of the lanes `which`, for at most 32 bits.

    A lane reads bytes while it is in doubt.
    """
    result = np.zeros(len(which), bool)
    pending = np.flatnonzero(threshold)
    rest = threshold[pending].astype(np.int64) << (32 - bits)
    while pending.size:
        drawn = lanes.some(which[pending])
        top = rest >> 24
        result[pending] = drawn < top
        rest = rest << 8 & 0xFFFFFFFF
        is_in_doubt = (drawn == top) & (rest != 0)
        pending, rest = pending[is_in_doubt], rest[is_in_doubt]
    return result


def uniform_each(lanes: Lanes, n: int) -> Array:
    """uniform(n) of every lane: uint8 for n <= 256, else uint16, for n <= 2**16."""
    mask = mask_of(n)
    if not mask:
        return np.zeros(lanes.count, np.uint8)
    if mask > 255:
        return uniform_some(lanes, np.arange(lanes.count), n).astype(np.uint16)
    drawn = lanes.each() & np.uint8(mask)
    pending = np.flatnonzero(drawn > n - 1)
    while pending.size:
        drawn[pending] = lanes.some(pending) & np.uint8(mask)
        pending = pending[drawn[pending] > n - 1]
    return drawn


def choose(lanes: Lanes, d: int, k: int) -> Array:
    """k of d coordinates for every lane, ascending (lanes x k), as tern.coordinates.choose.

    uint8 for d <= 256, else uint16. Raises ValueError for k or d that cannot be: d is at most 1024,
    and a tally.
    """
    if not 1 <= k <= d <= 1025:
        raise ValueError(f"{k} of {d} coordinates cannot be chosen")
    kind = np.uint8 if d <= 256 else np.uint16
    if k == 1:
        return uniform_each(lanes, d)[:, None]
    order = np.tile(np.arange(d, dtype=kind), (lanes.count, 1))
    if k == d:
        return order
    every_lane = np.arange(lanes.count)
    chosen = np.empty((lanes.count, k), kind)
    for i in range(k):  # the first k places of a Fisher-Yates shuffle
        j = uniform_each(lanes, d - i).astype(np.intp) + i
        chosen[:, i] = order[every_lane, j]
        order[every_lane, j] = order[:, i]
    chosen.sort(axis=1)
    return chosen
