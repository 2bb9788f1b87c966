"""Tags, coordinates and symbols of batches of reports, byte for byte as in the device library."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import coordinates, wire
from tern.entropy import EntropyError
from ternhost import vectorised

_DIGEST = 32
_AT_ONCE = 1 << 15  # rows, so that copies of them take little memory however many there are
_LIMB = 1 << 48  # upper bound on a divisor that splits off several symbols at once

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


def hashes(*columns: Bytes | bytes) -> Bytes:
    """SHA-256 (n x 32) of every row of these columns, joined.

    columns: arrays of n rows of bytes, or bytes that are the same in every row.
    """
    n = next(len(column) for column in columns if isinstance(column, np.ndarray))
    sha256 = hashlib.sha256
    digests = []
    for start in range(0, n, _AT_ONCE):
        rows = _joined(columns, start, min(start + _AT_ONCE, n))
        data, width = rows.tobytes(), rows.shape[1]
        each = [sha256(data[at : at + width]).digest() for at in range(0, len(data), width)]
        digests.append(b"".join(each))
    return np.frombuffer(b"".join(digests), np.uint8).reshape(n, _DIGEST)


def _joined(columns: Sequence[Bytes | bytes], start: int, stop: int) -> Bytes:
    """The rows from `start` to `stop` of these columns, side by side."""
    parts = []
    for column in columns:
        if isinstance(column, np.ndarray):
            parts.append(column[start:stop])
        else:
            repeated = np.frombuffer(column, np.uint8)
            parts.append(np.broadcast_to(repeated, (stop - start, len(column))))
    return np.concatenate(parts, axis=1)


def verify(questions: Bytes, number: int, devices: Bytes, packed: Bytes, tags: Bytes) -> Flags:
    """Which reports have a valid tag.

    All arrays are n x bytes; `questions` are the digests of the requests.
    """
    answer_keys = questions[:, wire.TAG_BYTES : wire.COORDINATES_AT]
    kind, round_number = bytes((wire.REPORT,)), number.to_bytes(4, "little")
    digests = hashes(answer_keys, kind, devices, round_number, packed)
    differences = digests[:, : wire.TAG_BYTES] ^ tags
    return np.asarray(np.bitwise_or.reduce(differences, axis=1) == 0)  # looks at all of each


def choose(questions: Bytes, d: int, k: int) -> vectorised.Array:
    """k of d coordinates (n x k, ascending) by the digests of questions (n x 32).

    uint8 for d <= 256, else uint16.
    """
    lanes = len(questions)
    dtype = np.dtype("u1" if d <= 256 else "<u2")
    if k == d:
        return np.tile(np.arange(d, dtype=dtype), (lanes, 1))
    begun = questions[:, wire.COORDINATES_AT :]
    if k == 1:
        return _choose_single(questions, begun, d, dtype)
    # Twice the bytes that k draws need without rejections; a lane that needs more is computed
    # alone.
    blocks = 2 * k * dtype.itemsize // _DIGEST + 1
    more = [hashes(questions, counter.to_bytes(4, "little")) for counter in range(blocks)]
    streams = np.concatenate([begun, *more], axis=1)
    try:
        return vectorised.choose(vectorised.ReplayLanes(streams), d, k)
    except EntropyError:  # one lane in billions
        return np.array([_choose_one(question.tobytes(), d, k) for question in questions], dtype)


def _choose_single(
    questions: Bytes, begun: Bytes, d: int, dtype: np.dtype[Any]
) -> vectorised.Array:
    """One of d coordinates (n x 1). Nearly always the rest of the digest (`begun`) is enough."""
    lanes = len(questions)
    values: vectorised.Array = np.ascontiguousarray(begun).view(dtype)
    values = values & dtype.type((1 << (d - 1).bit_length()) - 1)
    valid = values < d
    chosen: vectorised.Array = values[np.arange(lanes), valid.argmax(axis=1)]
    for lane in np.flatnonzero(~valid.any(axis=1)).tolist():
        chosen[lane] = _choose_one(questions[lane].tobytes(), d, 1)[0]
    return chosen[:, None]


def _choose_one(question: bytes, d: int, k: int) -> list[int]:
    chosen = [0] * k
    coordinates.choose(question, d, k, chosen)
    return chosen


def unpack(packed: Bytes, k: int, base: int) -> tuple[Integers, Flags]:
    """The k symbols below `base` of every row (n x k), and which rows are valid.

    packed: n x packed_size.
    """
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
    """Divide every row (bytes, least significant first) in place, and return the remainders."""
    rest = np.zeros(len(number), np.uint64)
    by, byte = np.uint64(divisor), np.uint64(256)
    for j in range(number.shape[1] - 1, -1, -1):
        number[:, j], rest = np.divmod(rest * byte + number[:, j], by)
    return rest
