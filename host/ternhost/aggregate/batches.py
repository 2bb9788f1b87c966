"""What the device library does for one report, for a batch of them at once: check tags, choose coordinates, unpack.

Each function here equals its twin of the device library (frames.tag, coordinates.choose, host_frames.unpack), byte for
byte; they are here because a host takes tens of thousands of reports a second.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from hmac import compare_digest
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

Integers = npt.NDArray[np.int64]


class Tags:
    """Checks tags. HMAC begins by hashing the key (RFC 2104, 2): that is done once a key and kept."""

    def __init__(self) -> None:
        self._begun: dict[bytes, tuple[Any, Any]] = {}

    def verify(self, key: bytes, frame: bytes) -> bool:
        """Whether `frame` (bytes, at least a tag long) ends with the tag of `key`."""
        begun = self._begun.get(key)
        if begun is None:
            begun = self._begin(key)
        inner = begun[0].copy()
        inner.update(frame[: -wire.TAG_BYTES])
        outer = begun[1].copy()
        outer.update(inner.digest())
        return compare_digest(outer.digest()[: wire.TAG_BYTES], frame[-wire.TAG_BYTES :])

    def _begin(self, key: bytes) -> tuple[Any, Any]:
        if len(self._begun) >= _MAX_BEGUN:
            self._begun.clear()
        padded = key.ljust(64, b"\0")
        begun = hashlib.sha256(padded.translate(_INNER)), hashlib.sha256(padded.translate(_OUTER))
        self._begun[key] = begun
        return begun


def choose(questions: Sequence[bytes], d: int, k: int) -> vectorised.Array:
    """The k of d coordinates that each device reports, by the digest of its question, ascending (questions x k).

    uint8 for d <= 256, else uint16.
    """
    lanes = len(questions)
    kind = np.dtype("u1" if d <= 256 else "<u2")
    if k == d:
        return np.tile(np.arange(d, dtype=kind), (lanes, 1))
    begun = np.frombuffer(b"".join(questions), np.uint8).reshape(lanes, _DIGEST)[:, wire.COORDINATES_AT :]
    if k == 1:  # nearly always the digest itself has it, and nothing is hashed
        values: vectorised.Array = np.ascontiguousarray(begun).view(kind)
        values = values & kind.type((1 << (d - 1).bit_length()) - 1)
        good = values < d
        chosen: vectorised.Array = values[np.arange(lanes), good.argmax(axis=1)]
        for lane in np.flatnonzero(~good.any(axis=1)).tolist():
            chosen[lane] = _choose_one(questions[lane], d, k)[0]
        return chosen[:, None]
    # Twice the bytes that k draws need at most without rejections, and a lane that needs more is done by itself.
    blocks = 2 * k * kind.itemsize // _DIGEST + 1
    counters = [counter.to_bytes(4, "little") for counter in range(blocks)]
    sha256 = hashlib.sha256
    data = b"".join([sha256(question + counter).digest() for question in questions for counter in counters])
    streams = np.concatenate([begun, np.frombuffer(data, np.uint8).reshape(lanes, -1)], axis=1)
    try:
        return vectorised.choose(vectorised.ReplayLanes(streams), d, k)
    except EntropyError:  # one lane in billions
        return np.array([_choose_one(question, d, k) for question in questions], kind)


def _choose_one(question: bytes, d: int, k: int) -> list[int]:
    chosen = [0] * k
    coordinates.choose(question, d, k, chosen)
    return chosen


@lru_cache(maxsize=64)
def packed_size(base: int, k: int) -> int:
    """frames.packed_size, remembered."""
    size: int = frames.packed_size(base, k)
    return size


def unpack(payloads: Sequence[bytes], k: int, base: int) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """The k symbols below `base` of every payload (payloads x k), each of packed_size bytes; and which are in order."""
    size = packed_size(base, k)
    at_once = 1
    while base ** (at_once + 1) <= _LIMB and at_once < k:
        at_once += 1
    number = np.frombuffer(b"".join(payloads), np.uint8).reshape(len(payloads), size).astype(np.uint64)
    symbols = np.empty((len(payloads), k), np.int64)
    for start in range(0, k, at_once):
        part = min(at_once, k - start)
        rest = _divide(number, base**part)
        for i in range(start, start + part):
            rest, symbols[:, i] = np.divmod(rest, np.uint64(base))
    good: npt.NDArray[np.bool_] = np.all(number == 0, axis=1)
    return symbols, good


def _divide(number: npt.NDArray[np.uint64], divisor: int) -> npt.NDArray[np.uint64]:
    # Long division of every row (bytes, least significant first), in place; returns the remainders.
    rest = np.zeros(len(number), np.uint64)
    by, byte = np.uint64(divisor), np.uint64(256)
    for j in range(number.shape[1] - 1, -1, -1):
        number[:, j], rest = np.divmod(rest * byte + number[:, j], by)
    return rest
