"""Tags, coordinates and symbols of batches of reports, byte for byte as in the device library."""

from collections.abc import Sequence
from hashlib import sha256
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
    """Hash every row of these columns, side by side, by SHA-256; returns the digests (n x 32).

    columns: arrays of n rows of bytes, or bytes that are the same in every row.
    """
    row_counts = [len(column) for column in columns if isinstance(column, np.ndarray)]
    n = row_counts[0]
    digests = []
    for start in range(0, n, _AT_ONCE):
        rows = _joined(columns, start, min(start + _AT_ONCE, n))
        width = rows.shape[1]
        data = rows.tobytes()
        for offset in range(0, len(data), width):
            row = data[offset : offset + width]
            digests.append(sha256(row).digest())
    return np.frombuffer(b"".join(digests), np.uint8).reshape(n, _DIGEST)


def _joined(columns: Sequence[Bytes | bytes], start: int, stop: int) -> Bytes:
    """Put the rows from `start` to `stop` of these columns side by side.

    columns: as of `hashes`.
    """
    parts = []
    for column in columns:
        if isinstance(column, np.ndarray):
            parts.append(column[start:stop])
        else:
            row = np.frombuffer(column, np.uint8)
            parts.append(np.broadcast_to(row, (stop - start, len(column))))
    return np.concatenate(parts, axis=1)


def verify(questions: Bytes, number: int, devices: Bytes, packed: Bytes, tags: Bytes) -> Flags:
    """Find out which reports have a valid tag (n).

    questions: the digests of the requests (n x 32). number: of the round. devices, packed, tags:
    the parts of the reports (n x bytes each). Specification: wire.md.
    """
    answer_keys = questions[:, wire.TAG_BYTES : wire.COORDINATES_AT]
    kind, round_number = bytes((wire.REPORT,)), number.to_bytes(4, "little")
    digests = hashes(answer_keys, kind, devices, round_number, packed)
    differences = digests[:, : wire.TAG_BYTES] ^ tags
    # All bytes of a tag are compared, however many are wrong.
    return np.asarray(np.bitwise_or.reduce(differences, axis=1) == 0)


def choose(questions: Bytes, d: int, k: int) -> vectorised.Array:
    """Choose k of d coordinates for each question, as tern.coordinates does.

    questions: the digests of requests (n x 32), whose bytes decide. Returns the coordinates of each
    (n x k, ascending) as uint8 for d <= 256, else as uint16.
    """
    dtype: np.dtype[Any] = np.dtype("u1")
    if d > 256:
        dtype = np.dtype("<u2")
    if k == d:
        return np.tile(np.arange(d, dtype=dtype), (len(questions), 1))
    rest_of_digests = questions[:, wire.COORDINATES_AT :]
    if k == 1:
        return _choose_single(questions, rest_of_digests, d, dtype)

    # Twice the bytes that k draws need without rejections; a question that needs more is computed
    # alone.
    block_count = 2 * k * dtype.itemsize // _DIGEST + 1
    blocks = []
    for counter in range(block_count):
        blocks.append(hashes(questions, counter.to_bytes(4, "little")))
    streams = np.concatenate([rest_of_digests, *blocks], axis=1)
    try:
        return vectorised.choose(vectorised.ReplayLanes(streams), d, k)
    except EntropyError:  # a stream was too short, which happens once in billions
        return np.array([_choose_one(question.tobytes(), d, k) for question in questions], dtype)


def _choose_single(
    questions: Bytes, rest_of_digests: Bytes, d: int, dtype: np.dtype[Any]
) -> vectorised.Array:
    """Choose one of d coordinates for each question (n x 1).

    It is the first number below d in the rest of the question's digest; only if there is none are
    more bytes needed. dtype: of the numbers.
    """
    numbers: vectorised.Array = np.ascontiguousarray(rest_of_digests).view(dtype)
    mask = (1 << (d - 1).bit_length()) - 1  # the bits that a number below d may have
    numbers = numbers & dtype.type(mask)
    is_valid = numbers < d
    first_valid = is_valid.argmax(axis=1)
    chosen: vectorised.Array = numbers[np.arange(len(questions)), first_valid]
    has_none = ~is_valid.any(axis=1)
    for index in np.flatnonzero(has_none).tolist():
        chosen[index] = _choose_one(questions[index].tobytes(), d, 1)[0]
    return chosen[:, None]


def _choose_one(question: bytes, d: int, k: int) -> list[int]:
    """Choose k of d coordinates for one question by the device library itself."""
    chosen = [0] * k
    coordinates.choose(question, d, k, chosen)
    return chosen


def unpack(packed: Bytes, k: int, base: int) -> tuple[Integers, Flags]:
    """Unpack the symbols of reports: the digits, in base `base`, of the number in each row.

    packed: n x packed_size. Returns the symbols (n x k), the least significant first, and which
    rows are valid: those whose number has no more than k digits.
    """
    # Several symbols are split off at once, as many as a limb holds.
    symbols_of_limb = 1
    while base ** (symbols_of_limb + 1) <= _LIMB and symbols_of_limb < k:
        symbols_of_limb += 1
    numbers = packed.astype(np.uint64)  # a byte in each entry
    symbols = np.empty((len(packed), k), np.int64)
    for start in range(0, k, symbols_of_limb):
        symbol_count = min(symbols_of_limb, k - start)
        limb = _divide(numbers, base**symbol_count)
        for i in range(start, start + symbol_count):
            limb, symbols[:, i] = np.divmod(limb, np.uint64(base))
    is_valid: Flags = np.all(numbers == 0, axis=1)
    return symbols, is_valid


def _divide(numbers: npt.NDArray[np.uint64], divisor: int) -> npt.NDArray[np.uint64]:
    """Divide the number in every row in place, by long division, and return the remainders (n).

    numbers: n x bytes, the least significant byte first.
    """
    remainders = np.zeros(len(numbers), np.uint64)
    byte_base = np.uint64(256)
    for position in range(numbers.shape[1] - 1, -1, -1):
        dividends = remainders * byte_base + numbers[:, position]
        numbers[:, position], remainders = np.divmod(dividends, np.uint64(divisor))
    return remainders
