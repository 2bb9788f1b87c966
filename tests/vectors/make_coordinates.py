"""Compute the expected choices of shared_specs/vectors/coordinates.json: wire.md, Which k of the values.

    python tests/vectors/make_coordinates.py

Written from the text with Python's own hashlib and struct, without the device library, so that the
two can disagree. In six cases a number of draws is rejected; 8 bytes, or 4 pairs, are the end of a
question's digest.
"""

import hashlib
import struct
from itertools import chain, count

from parts import VECTORS, computed, write


def bytes_of(question):
    """The stream of a question's digest."""
    blocks = (hashlib.sha256(question + struct.pack("<I", counter)).digest() for counter in count())
    return chain(question[24:], chain.from_iterable(blocks))


def uniform(stream, n):
    bits = (n - 1).bit_length()
    while n > 1:
        drawn = [next(stream) for _ in range(-(-bits // 8))]
        value = int.from_bytes(bytes(drawn), "little") & ((1 << bits) - 1)
        if value < n:
            return value
    return 0


def chosen(case):
    d, k = case["d"], case["k"]
    order = list(range(d))
    if k < d:
        stream = bytes_of(bytes.fromhex(case["question"]))
        for i in range(k):
            j = i + uniform(stream, d - i)
            order[i], order[j] = order[j], order[i]
    return {"coordinates": sorted(order[:k])}


def main():
    write(VECTORS / "coordinates.json", **computed("coordinates.json", tests=chosen))


if __name__ == "__main__":
    main()
