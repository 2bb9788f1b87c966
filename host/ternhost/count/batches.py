"""Tags, coordinates and symbols of whole batches of reports, byte for byte equal to those of the
device library.
"""

import hashlib

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
    """SHA-256 (n x 32) of every row of these columns, joined: arrays of n rows of bytes, or bytes
    for every row.
    """
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
        each = [sha256(data[at : at + width]).digest() for at in range(0, len(data), width)]
        digests.append(b"".join(each))
    return np.frombuffer(b"".join(digests), np.uint8).reshape(n, _DIGEST)


def verify(questions: Bytes, number: int, devices: Bytes, packed: Bytes, tags: Bytes) -> Flags:
    """Which reports have a valid tag; all arrays are n x bytes, `questions` are the digests of the
    requests.
    """
    answer_keys = questions[:, wire.TAG_BYTES : wire.COORDINATES_AT]
    right = hashes(
        answer_keys, bytes((wire.REPORT,)), devices, number.to_bytes(4, "little"), packed
    )
    right = right[:, : wire.TAG_BYTES]
    return np.asarray(np.bitwise_or.reduce(right ^ tags, axis=1) == 0)  # looks at all of each


def choose(questions: Bytes, d: int, k: int) -> vectorised.Array:
    """k of d coordinates (n x k, ascending) by the digests of questions (n x 32); uint8 for d <=
    256, else uint16.
    """
    lanes = len(questions)
    kind = np.dtype("u1" if d <= 256 else "<u2")
    if k == d:
        return np.tile(np.arange(d, dtype=kind), (lanes, 1))
    begun = questions[:, wire.COORDINATES_AT :]
    if k == 1:  # nearly always the digest itself is enough, without another hash
        values: vectorised.Array = np.ascontiguousarray(begun).view(kind)
        values = values & kind.type((1 << (d - 1).bit_length()) - 1)
        good = values < d
        chosen: vectorised.Array = values[np.arange(lanes), good.argmax(axis=1)]
        for lane in np.flatnonzero(~good.any(axis=1)).tolist():
            chosen[lane] = _choose_one(questions[lane].tobytes(), d, k)[0]
        return chosen[:, None]
    # Twice the bytes that k draws need without rejections; a lane that needs more is computed
    # alone.
    blocks = 2 * k * kind.itemsize // _DIGEST + 1
    more = [hashes(questions, counter.to_bytes(4, "little")) for counter in range(blocks)]
    streams = np.concatenate([begun, *more], axis=1)
    try:
        return vectorised.choose(vectorised.ReplayLanes(streams), d, k)
    except EntropyError:  # one lane in billions
        return np.array([_choose_one(question.tobytes(), d, k) for question in questions], kind)


def _choose_one(question: bytes, d: int, k: int) -> list[int]:
    chosen = [0] * k
    coordinates.choose(question, d, k, chosen)
    return chosen


def unpack(packed: Bytes, k: int, base: int) -> tuple[Integers, Flags]:
    """The k symbols below `base` of every row of `packed` (n x packed_size) as n x k; and which
    rows are valid.
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
    # Long division of every row (bytes, least significant first), in place; returns the remainders.
    rest = np.zeros(len(number), np.uint64)
    by, byte = np.uint64(divisor), np.uint64(256)
    for j in range(number.shape[1] - 1, -1, -1):
        number[:, j], rest = np.divmod(rest * byte + number[:, j], by)
    return rest
