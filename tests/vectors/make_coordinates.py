"""Write the vectors of wire.md, Which k of the d coordinates.

    python tests/vectors/make_coordinates.py

Written from the text with Python's own hashlib and struct, without the device library, so that the two can disagree.
"""

import hashlib
import json
import struct
from itertools import count
from pathlib import Path

VECTORS = Path(__file__).parents[2] / "shared_specs" / "vectors"
KEY = bytes(range(32))
KEY_B = hashlib.sha256(b"another key").digest()
SIZES = (
    *((1, 1), (2, 1), (28, 1), (28, 2), (28, 27), (28, 28), (100, 10), (128, 1), (128, 127), (128, 128)),
    *((255, 1), (255, 254), (256, 1), (256, 2), (256, 255), (257, 1), (257, 2), (257, 256)),
    *((512, 3), (513, 1), (1024, 1), (1024, 28), (1024, 1023), (1024, 1024)),
)


class Stream:
    """The key's stream of a round; `rejected` counts the draws that were not below their bound."""

    def __init__(self, key, number):
        self._bytes = (
            value
            for counter in count()
            for value in hashlib.sha256(key + b"coordinates" + struct.pack("<II", number, counter)).digest()
        )
        self.rejected = 0

    def uniform(self, n):
        bits = (n - 1).bit_length()
        while n > 1:
            drawn = [next(self._bytes) for _ in range(-(-bits // 8))]
            value = int.from_bytes(bytes(drawn), "little") & ((1 << bits) - 1)
            if value < n:
                return value
            self.rejected += 1
        return 0


def coordinates(key, number, d, k):
    """The k of d, and how many draws were rejected."""
    if k == d:
        return list(range(d)), 0
    stream = Stream(key, number)
    order = list(range(d))
    for i in range(k):
        j = i + stream.uniform(d - i)
        order[i], order[j] = order[j], order[i]
    return sorted(order[:k]), stream.rejected


def case(comment, key, number, d, k):
    found, _ = coordinates(key, number, d, k)
    fields = {"key": key.hex(), "round": number, "d": d, "k": k, "coordinates": found}
    return {"comment": comment, "flags": [], **fields, "result": "valid"}


def rejecting(d, k, times):
    """The first round in which so many draws are rejected."""
    return next(number for number in count(1) if coordinates(KEY, number, d, k)[1] == times)


def main():
    tests = [
        case(f"{k} of {d}", key, number, d, k)
        for d, k in SIZES
        for key, number in ((KEY, 1), (KEY, 2), (KEY_B, 0x3FFFFFFF))
        if k < 255 or number == 1
    ]
    tests += [
        case(f"{k} of {d}, draws rejected: {times}", KEY, rejecting(d, k, times), d, k)
        for d, k, times in ((129, 1, 1), (129, 1, 8), (257, 1, 1), (257, 1, 17), (257, 2, 4), (513, 1, 18))
    ]
    lines = ",\n".join("  " + json.dumps(one) for one in tests)
    notes = "wire.md, Which k of the d coordinates"
    (VECTORS / "coordinates.json").write_text(f'{{"notes": {json.dumps(notes)},\n "tests": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
