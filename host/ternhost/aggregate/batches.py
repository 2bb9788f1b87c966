"""What the device library does for one report, for a batch of them at once: check tags, choose coordinates, unpack.

Each function here equals its twin of the device library (frames.verify, coordinates.choose, host_frames.unpack), byte
for byte; they are here because a host takes hundreds of thousands of reports a second.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import frames, wire
from ternhost import vectorised

_DIGEST = 32
_AT_ONCE = 1 << 15  # rows, so that copies of them take little memory however many there are
_LIMB = 1 << 48  # several symbols are divided off at once, by a number below this

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]


def hashes(*columns: Bytes | bytes) -> Bytes:
    """SHA-256 of every row (n x 32) of arrays of n rows of bytes, side by side; bytes stand in every row."""
    n = next(len(column) for column in columns if isinstance(column, np.ndarray))
    sha256 = hashlib.sha256
    digests = []
    for start in range(0, n, _AT_ONCE):
        rows = min(_AT_ONCE, n - start)
        parts = [
            column[start : start + rows]
            if isinstance(column, np.ndarray)
            else np.broadcast_to(np.frombuffer(column, np.uint8), (rows, len(column)))
            for column in columns
        ]
        together = np.concatenate(parts, axis=1)
        data, width = together.tobytes(), together.shape[1]
        digests.append(
            b"".join([sha256(data[at : at + width]).digest() for at in range(0, len(data), width)])
        )
    return np.frombuffer(b"".join(digests), np.uint8).reshape(n, _DIGEST)


def verify(questions: Bytes, number: int, devices: Bytes, packed: Bytes, tags: Bytes) -> Flags:
    """Which reports carry the right tag; all arrays are n x bytes, `questions` the digests of what was asked."""
    answer_keys = questions[:, wire.TAG_BYTES : wire.COORDINATES_AT]
    right = hashes(answer_keys, bytes((wire.REPORT,)), devices, number.to_bytes(4, "little"), packed)
    right = right[:, : wire.TAG_BYTES]
    equal: Flags = np.bitwise_or.reduce(right ^ tags, axis=1) == 0  # looks at all of each
    return equal


class QuestionLanes:
    """The bytes that coordinates are drawn from (wire.md): a lane for each digest of a question (n x 32)."""

    joined = False

    def __init__(self, questions: Bytes) -> None:
        self.count = len(questions)
        self._questions = questions
        self._bytes = questions[:, wire.COORDINATES_AT :]
        self._given = np.zeros(self.count, np.intp)
        self._there = np.full(self.count, self._bytes.shape[1], np.intp)

    def each(self, needed: Flags | None = None) -> Bytes:
        result = np.zeros(self.count, np.uint8)
        lanes = np.arange(self.count) if needed is None else np.flatnonzero(needed)
        result[lanes] = self.some(lanes)
        return result

    def some(self, lanes: Positions) -> Bytes:
        given = self._given[lanes]
        if np.any(ended := given == self._there[lanes]):
            self._extend(lanes[ended])
        self._given[lanes] += 1
        taken: Bytes = self._bytes[lanes, given]
        return taken

    def _extend(self, lanes: Positions) -> None:
        # Lanes end where they have used up as many blocks as each other, or are behind ones that were extended.
        for there in np.unique(self._there[lanes]).tolist():
            of = lanes[self._there[lanes] == there]
            if there == self._bytes.shape[1]:
                room = np.zeros((self.count, _DIGEST), np.uint8)
                self._bytes = np.concatenate([self._bytes, room], axis=1)
            counter = there // _DIGEST
            more = hashes(self._questions[of], counter.to_bytes(4, "little"))
            self._bytes[of, there : there + _DIGEST] = more
            self._there[of] = there + _DIGEST

    def subset(self, lanes: Positions) -> vectorised.Lanes:
        raise TypeError("lanes of questions are drawn from all together")

    def of(self, count: int) -> vectorised.Lanes:
        raise TypeError("lanes of questions cannot be split")


def choose(questions: Bytes, d: int, k: int) -> npt.NDArray[np.unsignedinteger[Any]]:
    """The k of d coordinates that a device reports, ascending (n x k), for each digest of its question (n x 32)."""
    return vectorised.choose(QuestionLanes(questions), d, k)


@lru_cache(maxsize=64)
def packed_size(base: int, k: int) -> int:
    """frames.packed_size, remembered."""
    size: int = frames.packed_size(base, k)
    return size


def unpack(packed: Bytes, k: int, base: int) -> tuple[Integers, Flags]:
    """The k symbols below `base` of every row of `packed` (n x packed_size) as n x k; and which rows are in order."""
    at_once = 1
    while base ** (at_once + 1) <= _LIMB and at_once < k:
        at_once += 1
    number = packed.astype(np.uint64)
    symbols = np.empty((len(packed), k), np.int64)
    for start in range(0, k, at_once):
        part = min(at_once, k - start)
        rest = _divide(number, base**part)
        for i in range(start, start + part):
            rest, symbols[:, i] = np.divmod(rest, np.uint64(base))
    good: Flags = np.all(number == 0, axis=1)
    return symbols, good


def _divide(number: npt.NDArray[np.uint64], divisor: int) -> npt.NDArray[np.uint64]:
    # Long division of every row (bytes, least significant first), in place; returns the remainders.
    rest = np.zeros(len(number), np.uint64)
    by, byte = np.uint64(divisor), np.uint64(256)
    for j in range(number.shape[1] - 1, -1, -1):
        number[:, j], rest = np.divmod(rest * byte + number[:, j], by)
    return rest
