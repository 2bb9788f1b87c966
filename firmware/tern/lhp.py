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
    """Find the least and the largest weight w of one symbol over all inputs (cards.md).

    A weight is a probability times a factor that all inputs share. found[:3] and found[3:] get
    both, in 30-bit words, highest first. The weight is linear in x within a range, so the ends of
    all ranges are tried.

    ends: x + 1 at both ends of every range (Q1.14); inside: P of every range; job: number of ranges
    m, the range reported, the symbol's counts at both knots. Products beyond 32 bits consist of
    15-bit limbs, l0 the lowest but one.
    """
    m = job[0]
    reported = job[1]
    count_left = job[2]
    count_right = job[3]
    i = 0
    while i < m + m:
        weight_right = int(ends[i])
        weight_left = 32768 - weight_right

        # the count at this end, between both knots: three limbs l2, l1, l0
        value = (count_left & 32767) * weight_left + (count_right & 32767) * weight_right
        l0 = value & 32767
        value = (
            (count_left >> 15) * weight_left + (count_right >> 15) * weight_right + (value >> 15)
        )
        l1 = value & 32767
        l2 = value >> 15

        # m - 1 times the probability of the range reported: P (m - 1) if x is in it, else T - P
        probability = inside[i >> 1]
        factor = m - 1
        if i >> 1 != reported:
            probability = 1073741823 - probability + 1  # T is not a small int
            factor = 1

        # their product
        high = probability >> 15
        probability &= 32767
        value = probability * l0
        lowest_limb = value & 32767
        value = (value >> 15) + probability * l1 + high * l0
        l0 = value & 32767
        value = (value >> 15) + probability * l2 + high * l1
        l1 = value & 32767
        value = (value >> 15) + high * l2

        # times m - 1 or 1: `value` has 30 bits, l1, l0 and the lowest limb below it 15 each
        lowest_limb *= factor
        l0 = l0 * factor + (lowest_limb >> 15)
        l1 = l1 * factor + (l0 >> 15)
        l2 = (value & 32767) * factor + (l1 >> 15)
        high = (value >> 15) * factor + (l2 >> 15)
        middle = (l2 & 32767) << 15 | l1 & 32767
        low = (l0 & 32767) << 15 | lowest_limb & 32767

        # Compare with the least (j = 0) and the largest (j = 3) so far, word by word.
        j = 0
        while j < 6:
            k = j + 1
            value = high - found[j]
            if value == 0:
                value = middle - found[k]
                k += 1
                if value == 0:
                    value = low - found[k]
            if i == 0 or (j == 0 and value < 0) or (j == 3 and value > 0):
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
        ranges = data[_BODY - 1]
        levels_start = _BODY + 2 * (ranges - 1)
        if not 2 <= ranges <= _MAX_RANGES or len(data) != levels_start + ranges * (
            _LEVEL_BYTES + _VALUE_BYTES
        ):
            raise ValueError("ranges out of bounds, or wrong length")
        # Bounds, then level cards, then value cards.
        bounds = struct.unpack_from("<%dh" % (ranges - 1), data, _BODY)
        if bounds[0] > ONE or bounds[-1] <= -ONE:
            raise ValueError("bounds out of bounds")
        for i in range(1, ranges - 1):
            if bounds[i - 1] <= bounds[i]:
                raise ValueError("bounds do not decrease")

        values_start = levels_start + ranges * _LEVEL_BYTES
        levels = [
            decode(data[i : i + _LEVEL_BYTES])
            for i in range(levels_start, values_start, _LEVEL_BYTES)
        ]
        values = [
            decode(data[i : i + _VALUE_BYTES]) for i in range(values_start, len(data), _VALUE_BYTES)
        ]
        for level in levels:
            if level.shape != WINDOW or level.window != 1 or level.symbols != ranges:
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
        self.symbols = 2 * ranges
        self._x = array("h", (0,))
        self._out = array("H", (0,))

    def keeps(self, epsilon):
        """Return whether level and value together keep `epsilon` micro-epsilon, exactly.

        The value cards are those that __init__ accepts. Given the range of x, the probability of a
        report is linear in x, so the ends of the ranges are the extreme inputs.
        """
        bound = exp_lower(epsilon)
        ranges = len(self.level_cards)
        ends = array("H", bytes(4 * ranges))
        for i in range(ranges):
            # the lower and the upper end of range i
            ends[2 * i] = ONE + (self.bounds[i] if i < ranges - 1 else -ONE)
            ends[2 * i + 1] = ONE + (self.bounds[i - 1] - 1 if i else ONE)

        inside = array("I", [card.threshold for card in self.level_cards])
        found = array("I", bytes(24))
        for reported in range(ranges):
            count_left, count_right = self.value_cards[reported].thresholds  # what gives symbol 0
            # for symbol 0, then for symbol 1
            for _ in range(2):
                extremes(
                    ends, inside, array("I", (ranges, reported, count_left, count_right)), found
                )
                least, most = (found[i] << 60 | found[i + 1] << 30 | found[i + 2] for i in (0, 3))
                if most << EXP_BITS > bound * least:
                    return False
                count_left, count_right = T - count_left, T - count_right
        return True

    def level(self, x):
        """Return the number of the range that `x` (Q1.14) lies in, 0 for the highest."""
        level = 0
        for bound in self.bounds:
            if x < bound:
                level += 1
        return level

    def draw(self, stream, x):
        """Draw the report of `x`, 2 * level + symbol.

        The level is drawn first; the card of the level that was drawn gives the symbol. Raises
        EntropyError.
        """
        x = saturate(x)
        level = self.level(x)
        self._x[0] = level
        sample_categories(self.level_cards[level], stream, self._x, self._out, 1)
        level = self._out[0]
        self._x[0] = x
        sample(self.value_cards[level], stream, self._x, self._out, 1)
        return 2 * level + self._out[0]
