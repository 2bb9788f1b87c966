"""Write the vectors of wire.md, Which k of the values.

    python tests/vectors/make_coordinates.py

Written from the text with Python's own hashlib and struct, without the device library, so that the
two can disagree.
"""

import hashlib
import struct
from itertools import chain, count

from parts import VECTORS, case, write

SIZES = (
    *(
        (1, 1),
        (2, 1),
        (28, 1),
        (28, 2),
        (28, 27),
        (28, 28),
        (100, 10),
        (128, 1),
        (128, 127),
        (128, 128),
    ),
    *((255, 1), (255, 254), (256, 1), (256, 2), (256, 255), (257, 1), (257, 2), (257, 256)),
    *((512, 3), (513, 1), (1024, 1), (1024, 28), (1024, 1023), (1024, 1024)),
)


class Stream:
    """The stream of a question's digest; `rejected` counts the draws at or above their bound."""

    def __init__(self, question):
        blocks = (
            hashlib.sha256(question + struct.pack("<I", counter)).digest() for counter in count()
        )
        self._bytes = chain(question[24:], chain.from_iterable(blocks))
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


def question(number):
    return hashlib.sha256(b"question %d" % number).digest()


def coordinates(number, d, k):
    """(the k of d for a question, the number of rejected draws)."""
    if k == d:
        return list(range(d)), 0
    stream = Stream(question(number))
    order = list(range(d))
    for i in range(k):
        j = i + stream.uniform(d - i)
        order[i], order[j] = order[j], order[i]
    return sorted(order[:k]), stream.rejected


def choice(comment, number, d, k):
    chosen, _ = coordinates(number, d, k)
    return case(comment, "valid", question=question(number), d=d, k=k, coordinates=chosen)


def rejecting(d, k, times):
    """The number of the first question for which this number of draws is rejected."""
    return next(number for number in count(1) if coordinates(number, d, k)[1] == times)


def main():
    tests = [
        choice(f"{k} of {d}", n, d, k) for d, k in SIZES for n in (1, 2, 3) if k < 127 or n == 1
    ]
    # 8 rejected bytes, or 4 pairs, are the end of the digest.
    rejected = ((129, 1, 1), (129, 1, 8), (257, 1, 3), (257, 1, 4), (257, 2, 5), (129, 3, 11))
    tests += [
        choice(f"{k} of {d}, draws rejected: {n}", rejecting(d, k, n), d, k) for d, k, n in rejected
    ]
    write(VECTORS / "coordinates.json", "wire.md, Which k of the values", tests=tests)


if __name__ == "__main__":
    main()
