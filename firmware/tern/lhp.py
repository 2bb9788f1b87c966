"""LHP: report in which range a value lies, and the value, each range with its own privacy level.

The range is reported by generalised randomised response, the value by a card of the level
*reported* (Hao, Wu, Wan, Sensors 2023, 23, 1115). The paper states the largest budget as the cost,
but both together cost more: they are certified exactly, as one card (shape 5 of cards.md).
"""

import struct
from array import array

from tern.compat import const, micropython, ptr16, ptr32
from tern.fixed import EXP_BITS, ONE, exp_lower, saturate
from tern.sampler import sample, sample_categories
from tern.shapes import TABLE, WINDOW, T

_BODY = const(6)  # header and m
_LEVEL_BYTES = const(13)  # a window card
_VALUE_BYTES = const(17)  # a table card of two knots and two levels
_MAX_RANGES = const(16)


@micropython.viper
def extremes(ends: ptr16, inside: ptr32, job: ptr32, found: ptr32):
    """found[:3], found[3:] = the least and largest w of one symbol (cards.md), in 30-bit words,
    highest first.

    ends: x + 1 at both ends of every range (Q1.14); inside: P of every range; job: m, the range
    reported, the symbol's counts at both knots. Products beyond 32 bits consist of 15-bit limbs, l0
    the lowest.
    """
    m = job[0]
    reported = job[1]
    left = job[2]
    right = job[3]
    i = 0
    while i < m + m:
        up = int(ends[i])
        down = 32768 - up
        v = (left & 32767) * down + (right & 32767) * up
        l0 = v & 32767
        v = (left >> 15) * down + (right >> 15) * up + (v >> 15)
        l1 = v & 32767
        l2 = v >> 15
        p = inside[i >> 1]
        times = m - 1
        if i >> 1 != reported:
            p = 1073741823 - p + 1  # T is not a small int
            times = 1
        high = p >> 15
        p &= 32767
        v = p * l0
        w = v & 32767
        v = (v >> 15) + p * l1 + high * l0
        l0 = v & 32767
        v = (v >> 15) + p * l2 + high * l1
        l1 = v & 32767
        v = (v >> 15) + high * l2
        # times m - 1 or 1: v has 30 bits, l1, l0 and w below it 15 each
        w *= times
        l0 = l0 * times + (w >> 15)
        l1 = l1 * times + (l0 >> 15)
        l2 = (v & 32767) * times + (l1 >> 15)
        high = (v >> 15) * times + (l2 >> 15)
        middle = (l2 & 32767) << 15 | l1 & 32767
        low = (l0 & 32767) << 15 | w & 32767
        j = 0
        while j < 6:
            k = j + 1
            v = high - found[j]
            if v == 0:
                v = middle - found[k]
                k += 1
                if v == 0:
                    v = low - found[k]
            if i == 0 or (j == 0 and v < 0) or (j == 3 and v > 0):
                k = j
                found[k] = high
                k += 1
                found[k] = middle
                k += 1
                found[k] = low
            j += 3
        i += 1


class Hierarchy:
    """m levels, from the top range down, each with a level card of m categories (window 1) and a
    value card.

    bounds: m - 1 decreasing Q1.14 values; range i begins at bounds[i], the last one at -1.
    """

    def __init__(self, data, decode):
        """data: a card of shape 5; decode: reads the cards in it. Raises ValueError."""
        m = data[_BODY - 1]
        start = _BODY + 2 * (m - 1)
        if not 2 <= m <= _MAX_RANGES or len(data) != start + m * (_LEVEL_BYTES + _VALUE_BYTES):
            raise ValueError("ranges out of bounds, or wrong length")
        bounds = struct.unpack_from("<%dh" % (m - 1), data, _BODY)
        if bounds[0] > ONE or bounds[-1] <= -ONE:
            raise ValueError("bounds out of bounds")
        for i in range(1, m - 1):
            if bounds[i - 1] <= bounds[i]:
                raise ValueError("bounds do not decrease")
        middle = start + m * _LEVEL_BYTES
        levels = [decode(data[i : i + _LEVEL_BYTES]) for i in range(start, middle, _LEVEL_BYTES)]
        values = [
            decode(data[i : i + _VALUE_BYTES]) for i in range(middle, len(data), _VALUE_BYTES)
        ]
        for level in levels:
            if level.shape != WINDOW or level.window != 1 or level.symbols != m:
                raise ValueError("level cards have a window of 1 over the ranges")
        for value in values:
            if (
                value.shape != TABLE
                or value.symbols != 2
                or value.knot_bits
                or value.levels != (-1, 1)
            ):
                raise ValueError("value cards have two knots and the levels -1 and 1")
        self.bounds = array("h", bounds)
        self.level_cards = levels
        self.value_cards = values
        self.symbols = 2 * m
        self._x = array("h", (0,))
        self._out = array("H", (0,))

    def keeps(self, epsilon):
        """Whether level and value together keep `epsilon` micro-epsilon, with value cards as of()
        checks them.

        Given the range of x, the probability of a report is linear in x: the ends of the ranges are
        the extreme inputs.
        """
        bound = exp_lower(epsilon)
        m = len(self.level_cards)
        ends = array("H", bytes(4 * m))
        for i in range(m):
            ends[2 * i] = ONE + (self.bounds[i] if i < m - 1 else -ONE)
            ends[2 * i + 1] = ONE + (self.bounds[i - 1] - 1 if i else ONE)
        inside = array("I", [card.threshold for card in self.level_cards])
        found = array("I", bytes(24))
        for reported in range(m):
            left, right = self.value_cards[reported].thresholds  # what gives symbol 0
            for _ in range(2):
                extremes(ends, inside, array("I", (m, reported, left, right)), found)
                least, most = (found[i] << 60 | found[i + 1] << 30 | found[i + 2] for i in (0, 3))
                if most << EXP_BITS > bound * least:
                    return False
                left, right = T - left, T - right
        return True

    def level(self, x):
        """The level of the range that `x` (Q1.14) lies in."""
        level = 0
        for bound in self.bounds:
            if x < bound:
                level += 1
        return level

    def draw(self, stream, x):
        """Draw the report of `x`: 2 * level + symbol. Raises EntropyError."""
        x = saturate(x)
        level = self.level(x)
        self._x[0] = level
        sample_categories(self.level_cards[level], stream, self._x, self._out, 1)
        level = self._out[0]
        self._x[0] = x
        sample(self.value_cards[level], stream, self._x, self._out, 1)
        return 2 * level + self._out[0]
