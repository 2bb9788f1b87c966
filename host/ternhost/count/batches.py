"""Tags, coordinates and symbols of batches of reports, byte for byte as in the device library."""

from collections.abc import Sequence
from hashlib import sha256
from struct import iter_unpack
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import coordinates, wire
from tern.entropy import EntropyError
from ternhost import vectorised

_DIGEST = 32  # bytes of a SHA-256 digest
_AT_ONCE = 1 << 15  # rows that are copied at a time, so that the copies take little memory
# Long division multiplies a remainder by 256, which must not overflow 64 bits.
_MOST_DIVISOR = 1 << 48

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


def hashes(*columns: Bytes | bytes) -> Bytes:
    """Hash each row of some columns, which are put side by side, by SHA-256.

    columns: arrays of n rows of bytes, or bytes that are the same in every row; at least one must
    be an array. Return the digests (n x 32).
    """
    row_counts = [len(column) for column in columns if isinstance(column, np.ndarray)]
    n = row_counts[0]
    digests = []
    for start in range(0, n, _AT_ONCE):
        rows = _joined(columns, start, min(start + _AT_ONCE, n))
        # Taking bytes apart is faster than taking an array apart.
        rows_of_bytes = iter_unpack(f"{rows.shape[1]}s", rows.tobytes())
        digests += [sha256(row).digest() for (row,) in rows_of_bytes]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(n, _DIGEST)


def _joined(columns: Sequence[Bytes | bytes], start: int, stop: int) -> Bytes:
    """Return the rows from `start` to `stop` (excluded) of some columns, put side by side.

    columns: arrays of bytes, or bytes that are the same in every row.
    """
    parts = []
    for column in columns:
        if isinstance(column, np.ndarray):
            parts.append(column[start:stop])
        else:
            row = np.frombuffer(column, np.uint8)
            parts.append(np.broadcast_to(row, (stop - start, len(column))))
    return np.concatenate(parts, axis=1)


def verify(requests: Bytes, number: int, devices: Bytes, packed: Bytes, tags: Bytes) -> Flags:
    """Return for each report whether its tag is valid, so that its device has sent it (n).

    requests: the digests of the requests to the devices (n x 32). number: of the round. devices,
    packed, tags: the ids, packed symbols and tags in the reports (n x bytes each). Specification:
    wire.md.
    """
    # A part of the digest is the key under which a device authenticates its answer.
    answer_keys = requests[:, wire.TAG_BYTES : wire.COORDINATES_AT]
    kind = bytes((wire.REPORT,))
    round_number = number.to_bytes(4, "little")
    digests = hashes(answer_keys, kind, devices, round_number, packed)
    differences = digests[:, : wire.TAG_BYTES] ^ tags
    # All bytes of a tag are compared, however many are wrong, so that timing tells nothing.
    return np.asarray(np.bitwise_or.reduce(differences, axis=1) == 0)


def choose(requests: Bytes, d: int, k: int) -> vectorised.Array:
    """Choose k of d coordinates for each request, as tern.coordinates does on the device.

    requests: the digests of the requests (n x 32), which serve as random bytes: the same digest
    chooses the same coordinates. Return those of each request (n x k, ascending), as uint8 for
    d <= 256, else as uint16.
    """
    dtype: np.dtype[Any] = np.dtype("u1")
    if d > 256:
        dtype = np.dtype("<u2")
    if k == d:
        return np.tile(np.arange(d, dtype=dtype), (len(requests), 1))
    rest_of_digests = requests[:, wire.COORDINATES_AT :]
    if k == 1:
        return _choose_single(requests, rest_of_digests, d, dtype)

    # Each draw takes a number from a stream of bytes, and another one if that is out of range. So a
    # stream has twice the bytes that k draws need if no number is out of range.
    block_count = 2 * k * dtype.itemsize // _DIGEST + 1
    blocks = []
    for counter in range(block_count):
        blocks.append(hashes(requests, counter.to_bytes(4, "little")))
    streams = np.concatenate([rest_of_digests, *blocks], axis=1)
    try:
        return vectorised.choose(vectorised.ReplayLanes(streams), d, k)
    except EntropyError:  # a stream was too short, which happens once in billions
        return np.array([_choose_one(request.tobytes(), d, k) for request in requests], dtype)


def _choose_single(
    requests: Bytes, rest_of_digests: Bytes, d: int, dtype: np.dtype[Any]
) -> vectorised.Array:
    """Choose one of d coordinates for each request (n x 1).

    It is the first number below d in the rest of the request's digest. If there is none, the device
    library chooses, which makes more bytes from the digest.

    requests: the digests (n x 32). rest_of_digests: their bytes from wire.COORDINATES_AT on. dtype:
    of the numbers, uint8 or uint16.
    """
    numbers: vectorised.Array = np.ascontiguousarray(rest_of_digests).view(dtype)
    mask = (1 << (d - 1).bit_length()) - 1  # keeps the bits that a number below d may have
    numbers = numbers & dtype.type(mask)
    is_valid = numbers < d
    first_valid = is_valid.argmax(axis=1)
    chosen: vectorised.Array = numbers[np.arange(len(requests)), first_valid]
    has_none = ~is_valid.any(axis=1)
    for index in np.flatnonzero(has_none).tolist():
        chosen[index] = _choose_one(requests[index].tobytes(), d, 1)[0]
    return chosen[:, None]


def _choose_one(request: bytes, d: int, k: int) -> list[int]:
    """Choose k of d coordinates for one request (its digest) by the device library itself."""
    chosen = [0] * k  # which is filled in
    coordinates.choose(request, d, k, chosen)
    return chosen


def unpack(packed: Bytes, k: int, base: int) -> tuple[Integers, Flags]:
    """Unpack the k symbols of each report: they are the digits of one large number, in base `base`.

    packed: the numbers, n x bytes, the least significant byte first. Return the symbols (n x k),
    the least significant digit first, and which reports are valid: those whose number has no more
    than k digits.
    """
    # A division by base**s splits off s symbols at once. The larger s, the fewer divisions of the
    # long number, but base**s must stay within _MOST_DIVISOR.
    symbols_at_once = 1
    while symbols_at_once < k and base ** (symbols_at_once + 1) <= _MOST_DIVISOR:
        symbols_at_once += 1

    numbers = packed.astype(np.uint64)  # a byte in each entry
    symbols = np.empty((len(packed), k), np.int64)
    for start in range(0, k, symbols_at_once):
        symbol_count = min(symbols_at_once, k - start)
        remainders = _divide(numbers, base**symbol_count)
        for i in range(start, start + symbol_count):
            remainders, symbols[:, i] = np.divmod(remainders, np.uint64(base))
    is_valid: Flags = np.all(numbers == 0, axis=1)  # no digit is left
    return symbols, is_valid


def _divide(numbers: npt.NDArray[np.uint64], divisor: int) -> npt.NDArray[np.uint64]:
    """Divide the number in every row by long division, in place, and return the remainders (n).

    numbers: n x bytes, the least significant byte first; they become the quotients. divisor: at
    most _MOST_DIVISOR.
    """
    remainders = np.zeros(len(numbers), np.uint64)
    byte_base = np.uint64(256)
    for position in range(numbers.shape[1] - 1, -1, -1):  # from the most significant byte on
        # As on paper: bring down the next digit, which is a byte here, and divide.
        dividends = remainders * byte_base + numbers[:, position]
        numbers[:, position], remainders = np.divmod(dividends, np.uint64(divisor))
    return remainders
