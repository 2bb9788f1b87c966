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
        """Return n random bytes. The generator makes eight at a time, of which some may be left."""
        return self.bits.random_raw((n + 7) // 8).view(np.uint8)[:n]

    def each(self, needed: Array | None = None) -> Bytes:
        """Return a byte for every lane. `needed` makes no difference: bytes cost nothing here."""
        return self._bytes(self.count)

    def some(self, lanes: Indices) -> Bytes:
        """Return a byte for each of these lanes."""
        return self._bytes(len(lanes))

    def subset(self, lanes: Indices) -> Self:
        """Return an object that has these lanes alone."""
        return type(self)(self.bits, len(lanes))


class ReplayLanes:
    """Lanes whose random bytes are given, to repeat the draws of devices.

    Row i of `data` (lanes x bytes) is the stream of lane i. Reading beyond the end of a stream
    raises EntropyError.
    """

    def __init__(
        self, data: Bytes, position: Indices | None = None, rows: Indices | None = None
    ) -> None:
        """Take the streams from the rows of `data`, and read each from its start.

        `subset` passes the other two arguments. position: how many bytes of each row have been
        read; None for none. It is shared by all subsets. rows: the row of each lane; None for all.
        """
        if position is None:
            position = np.zeros(len(data), np.intp)
        if rows is None:
            rows = np.arange(len(data))
        self._data = data
        self._position = position
        self._rows = rows
        self.count = len(rows)

    def each(self, needed: npt.NDArray[np.bool_] | None = None) -> Bytes:
        """Read a byte of every lane, or only of those where `needed`; the others have a 0."""
        if needed is None:
            return self.some(np.arange(self.count))
        result = np.zeros(self.count, np.uint8)
        lanes = np.flatnonzero(needed)
        result[lanes] = self.some(lanes)
        return result

    def some(self, lanes: Indices) -> Bytes:
        """Read a byte of each of these lanes. Raises EntropyError at the end of a stream."""
        rows = self._rows[lanes]
        position = self._position[rows]
        if len(rows) and position.max() >= self._data.shape[1]:
            raise EntropyError("stream at its end")
        self._position[rows] += 1
        return self._data[rows, position]

    def subset(self, lanes: Indices) -> Self:
        """Return an object with these lanes alone.

        It shares the positions in the streams: what is read from one is read from both.
        """
        return type(self)(self._data, self._position, self._rows[lanes])


Lanes = RandomLanes | ReplayLanes

_MOST_COORDINATES = 1025  # 1024 values, and a tally


def random_bits(seed: int, *path: int) -> np.random.BitGenerator:
    """Make a bit generator that is determined by a seed and a path of numbers.

    The path names a part of a simulation, such as a round and a chunk of its clients. Generators
    of different paths are independent of each other.
    """
    return np.random.SFC64(np.random.SeedSequence(seed, spawn_key=path))


def mask_of(n: int) -> int:
    """Return the smallest 2**b - 1 that is at least n - 1: a mask of the bits of 0..n-1."""
    return (1 << (n - 1).bit_length()) - 1


def uniform_some(lanes: Lanes, which: Indices, n: int) -> npt.NDArray[np.int64]:
    """Draw an integer from 0 to n - 1, uniformly, for each of the lanes `which`.

    As uniform(n) of cards.md: a lane draws whole bytes, the lowest first, keeps as many bits as
    n - 1 has, and draws again while the number is n or more. For n = 1 it reads nothing.
    """
    mask = mask_of(n)
    result = np.zeros(len(which), np.int64)
    if not mask:
        return result
    pending = np.arange(len(which))  # indices into `which` of lanes without a valid number
    while pending.size:
        number = np.zeros(len(pending), np.int64)
        for shift in range(0, mask.bit_length(), 8):
            number |= lanes.some(which[pending]).astype(np.int64) << shift
        number &= mask
        result[pending] = number
        pending = pending[number >= n]
    return result


def below_some(lanes: Lanes, which: Indices, threshold: Array, bits: int) -> npt.NDArray[np.bool_]:
    """Decide for each of the lanes `which`, with probability threshold / 2**bits.

    threshold: the threshold of each of these lanes, below 2**bits. bits: at most 32. The result
    says whether a random fraction, written in binary, is below the threshold. A lane reads the
    fraction byte by byte, the highest first, only while its bytes equal those of the threshold.
    """
    result = np.zeros(len(which), bool)
    pending = np.flatnonzero(threshold)  # indices into `which` of undecided lanes
    # The bits of the threshold that are still to be compared, as a fraction of 2**32.
    unread = threshold[pending].astype(np.int64) << (32 - bits)
    while pending.size:
        drawn_byte = lanes.some(which[pending])
        threshold_byte = unread >> 24
        result[pending] = drawn_byte < threshold_byte
        unread = (unread << 8) & 0xFFFFFFFF  # without the byte just compared
        # If only zeros are left of the threshold, no fraction with equal bytes is below it.
        is_in_doubt = (drawn_byte == threshold_byte) & (unread != 0)
        pending, unread = pending[is_in_doubt], unread[is_in_doubt]
    return result


def uniform_each(lanes: Lanes, n: int) -> Array:
    """Draw an integer from 0 to n - 1, uniformly, for every lane; n is at most 2**16.

    It is the draw of `uniform_some`, but faster for the usual n of one byte. The result is uint8
    for n <= 256, else uint16.
    """
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
    """Choose k of d coordinates for every lane, as tern.coordinates.choose.

    Returns them ascending (lanes x k), as uint8 for d <= 256, else as uint16. Raises ValueError
    unless 1 <= k <= d <= _MOST_COORDINATES.
    """
    if not 1 <= k <= d <= _MOST_COORDINATES:
        raise ValueError(f"{k} of {d} coordinates cannot be chosen")
    dtype: npt.DTypeLike = np.uint8
    if d > 256:
        dtype = np.uint16
    if k == 1:
        return uniform_each(lanes, d)[:, None]
    order: Array = np.tile(np.arange(d, dtype=dtype), (lanes.count, 1))
    if k == d:
        return order
    every_lane = np.arange(lanes.count)
    chosen: Array = np.empty((lanes.count, k), dtype)
    # The first k places of a Fisher-Yates shuffle: each is swapped with itself or a later place.
    for i in range(k):
        swapped = uniform_each(lanes, d - i).astype(np.intp) + i
        chosen[:, i] = order[every_lane, swapped]
        order[every_lane, swapped] = order[:, i]
    chosen.sort(axis=1)
    return chosen
