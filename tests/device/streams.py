"""Known streams of bytes and numbers for tests and vectors: the same on every device."""

import hashlib

from tern.entropy import END, POSITION, SLACK, EntropyError, Stream


class Replay(Stream):
    """The given bytes, and no more."""

    def __init__(self, data):
        super().__init__(bytearray(bytes(data) + bytes(SLACK)))
        self.cursor[END] = len(data)


class Drip(Stream):
    """The bytes of `data`, a few at a time: leaves must undo a draw and repeat it."""

    def __init__(self, data, step):
        super().__init__(bytearray(data + bytes(16)))
        self.limit = len(data)
        self.step = step

    def refill(self):
        """Make `step` more bytes of the data readable. Raises EntropyError at its end."""
        if self.cursor[END] == self.limit:
            raise EntropyError("end")
        self.cursor[END] = min(self.limit, self.cursor[END] + self.step)


class Keyed(Stream):
    """The public stream SHA-256(key | label | 0) | SHA-256(key | label | 1) | ...

    The counters are u32, little-endian.
    """

    def __init__(self, key, label):
        super().__init__(bytes(SLACK))
        self._prefix = bytes(key) + bytes(label)
        self._counter = 0

    def refill(self):
        left = self.pool[self.cursor[POSITION] : self.cursor[END]]
        block = hashlib.sha256(self._prefix + self._counter.to_bytes(4, "little")).digest()
        self._counter += 1
        self.pool = left + block + bytes(SLACK)
        self.cursor[POSITION] = 0
        self.cursor[END] = len(left) + len(block)


def uniform(stream, n):
    """Return an integer in 0 .. n - 1, all equally likely, from the bytes of `stream`.

    This is uniform(n) of cards.md.
    """
    mask = 0
    while mask < n - 1:
        mask += mask + 1
    value = n
    while value >= n:
        value = sum([stream.byte() << shift for shift in range(0, 32, 8) if mask >> shift]) & mask
    return value


class Words:
    """A small repeatable source of numbers for tests; nothing private may use it."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 25173 + 13849) & 0xFFFFFF
        return (self.state >> 4) * n >> 20

    def between(self, low, high):
        return low + self.below(high - low + 1)

    def one_of(self, values):
        return values[self.below(len(values))]
