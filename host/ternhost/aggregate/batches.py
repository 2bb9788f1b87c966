"""What the device library does for one report, for a batch of them at once: check tags, choose coordinates, unpack.

Each function here equals its twin of the device library (frames.tag, coordinates.choose, host_frames.unpack), byte for
byte; they are here because a host takes hundreds of thousands of reports a second.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import coordinates, frames, wire
from tern.entropy import EntropyError
from ternhost import vectorised

_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))
_MAX_BEGUN = 200_000
_DIGEST = 32
_LIMB = 1 << 48  # several symbols are divided off at once, by a number below this

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


class Tags:
    """Makes tags. HMAC begins by hashing the key (RFC 2104, 2): that is done once a key and kept."""

    def __init__(self) -> None:
        self._begun: dict[bytes, tuple[Any, Any]] = {}

    def verify(self, keys: Sequence[bytes], data: Bytes, tags: Bytes) -> Flags:
        """Whether row i of `tags` (n x 8) is the tag of row i of `data` (n x bytes) under the i-th key."""
        every, width = data.tobytes(), data.shape[1]
        begun, digests = self._begun, []
        at = 0
        for key in keys:
            inner, outer = begun.get(key) or self._begin(key)
            inner = inner.copy()
            inner.update(every[at : at + width])
            at += width
            outer = outer.copy()
            outer.update(inner.digest())
            digests.append(outer.digest())
        right = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, _DIGEST)[:, : wire.TAG_BYTES]
        equal: Flags = np.bitwise_or.reduce(right ^ tags, axis=1) == 0  # looks at all of each
        return equal

    def _begin(self, key: bytes) -> tuple[Any, Any]:
        if len(self._begun) >= _MAX_BEGUN:
            self._begun.clear()
        padded = key.ljust(64, b"\0")
        begun = hashlib.sha256(padded.translate(_INNER)), hashlib.sha256(padded.translate(_OUTER))
        self._begun[key] = begun
        return begun


def choose(keys: Sequence[bytes], number: int, d: int, k: int) -> npt.NDArray[np.uint8]:
    """The k of d coordinates that the device with each key reports in a round, ascending (keys x k)."""
    lanes = len(keys)
    if k == d:
        return np.tile(np.arange(d, dtype=np.uint8), (lanes, 1))
    suffix = wire.COORDINATES_LABEL + number.to_bytes(4, "little")
    # Twice the bytes that k draws need at most without rejections, and a lane that needs more has its stream extended.
    blocks = (2 * k + 8) // _DIGEST + 1
    counters = [suffix + counter.to_bytes(4, "little") for counter in range(blocks)]
    sha256 = hashlib.sha256
    data = b"".join([sha256(key + counter).digest() for key in keys for counter in counters])
    streams = np.frombuffer(data, np.uint8).reshape(lanes, blocks * _DIGEST)
    try:
        return vectorised.choose(vectorised.ReplayLanes(streams), d, k)
    except EntropyError:  # one lane in billions
        return np.array([_choose_one(key, number, d, k) for key in keys], np.uint8)


def _choose_one(key: bytes, number: int, d: int, k: int) -> list[int]:
    chosen = [0] * k
    coordinates.choose(key, number, d, k, chosen)
    return chosen


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
