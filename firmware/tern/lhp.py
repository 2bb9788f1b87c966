"""LHP: report in which range a value lies, and the value, each range with its own privacy level.

The range is reported by generalised randomised response, the value by a card of the level
*reported* (Hao, Wu, Wan, Sensors 2023, 23, 1115). The paper proves the privacy of the range alone
and of the value alone. Both together cost more: they are certified exactly, as one card (shape 5 of
cards.md).
"""

import struct
from array import array

from tern.compat import const, micropython, ptr16, ptr32
from tern.fixed import EXP_BITS, ONE, exp_lower, saturate
from tern.sampler import sample, sample_categories
from tern.shapes import TABLE, WINDOW, T

_BODY = const(6)  # bytes of the header and the number of ranges m
_LEVEL_BYTES = const(13)  # a window card
_VALUE_BYTES = const(17)  # a table card of two knots and two levels
_MAX_RANGES = const(16)


@micropython.viper
def extremes(ends: ptr16, inside: ptr32, job: ptr32, found: ptr32):
    """Find the least and the largest weight w of a symbol over all inputs x (cards.md, hierarchy).

    A weight is the probability of the symbol times a factor that all inputs share:

        w = q ((1 - x) n_left + (1 + x) n_right)

    n_left and n_right are the symbol's counts at x = -1 and x = 1. q is P (m - 1) if x is in the
    range that the symbol reports, else T - P, where P is of the range of x and T = 2**30. Within a
    range w is linear in x, so that only the two ends of each range are tried.

    ends: x + 1 in Q1.14 at both ends of every range.
    inside: P of every range.
    job: the number of ranges m; the range reported; n_left; n_right.
    found: gets the least weight in found[:3], the largest in found[3:6], as three words of 30 bits,
    the highest first.

    A weight has up to 79 bits. So numbers are multiplied in limbs of 15 bits, as by hand: a product
    of two has 30 bits, to which the carry is added. l2, l1 and l0 are limbs, the highest first.
    """
    m = job[0]
    reported = job[1]
    count_left = job[2]
    count_right = job[3]
    i = 0
    while i < m + m:
        weight_right = int(ends[i])
        weight_left = 32768 - weight_right  # 1 - x = 2 - (x + 1)

        # The count at this end, between both knots, as three limbs: first the low 15 bits of the
        # counts, then the high ones with the carry.
        value = (count_left & 32767) * weight_left + (count_right & 32767) * weight_right
        l0 = value & 32767
        value = (
            (count_left >> 15) * weight_left + (count_right >> 15) * weight_right + (value >> 15)
        )
        l1 = value & 32767
        l2 = value >> 15

        # q without the factor m - 1, which is multiplied later. T itself is no small int of
        # MicroPython, so that T - P is written as (T - 1) - P + 1.
        probability = inside[i >> 1]
        factor = m - 1
        if i >> 1 != reported:
            probability = 1073741823 - probability + 1
            factor = 1

        # The product of both, probability = high * 2**15 + low: from the lowest limb up, each value
        # is the carry and the products of limbs that have this place.
        high = probability >> 15
        probability &= 32767
        value = probability * l0
        lowest_limb = value & 32767
        value = (value >> 15) + probability * l1 + high * l0
        l0 = value & 32767
        value = (value >> 15) + probability * l2 + high * l1
        l1 = value & 32767
        value = (value >> 15) + high * l2

        # Times m - 1 or 1. `value` has 30 bits; l1, l0 and the lowest limb, below it, have 15 each.
        lowest_limb *= factor
        l0 = l0 * factor + (lowest_limb >> 15)
        l1 = l1 * factor + (l0 >> 15)
        l2 = (value & 32767) * factor + (l1 >> 15)
        high = (value >> 15) * factor + (l2 >> 15)
        # Two limbs make a word of 30 bits.
        middle = (l2 & 32767) << 15 | l1 & 32767
        low = (l0 & 32767) << 15 | lowest_limb & 32767

        # Compare with the least (j = 0) and the largest (j = 3) so far, word by word, and replace
        # it. The first end replaces both. An index must be in a variable (see tern.compat).
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
    """The body of a hierarchy card (shape 5): m ranges of the input, from the top one down.

    Each range has a level card, which reports the range by randomised response among all m (a
    window card of m categories and a window of 1), and a value card, which reports the sign of the
    input.

    bounds: m - 1 decreasing numbers in Q1.14; range i begins at bounds[i], the last one at -1.
    level_cards, value_cards: of each range. symbols: 2 m, twice the range plus the sign.
    """

    def __init__(self, data, decode):
        """Decode the bounds and the cards of all ranges, and check them. Raises ValueError.

        data: the whole card, header included. decode: the function that decodes the cards in it.
        """
        ranges = data[_BODY - 1]
        levels_start = _BODY + 2 * (ranges - 1)  # bounds have two bytes
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
        # keeps() relies on exactly these forms.
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
        # One input and one output of draw(), kept so that it allocates nothing.
        self._x = array("h", (0,))
        self._out = array("H", (0,))

    def keeps(self, epsilon):
        """Return whether level and value together keep `epsilon` micro-epsilon, exactly.

        For each of the 2 m symbols, its largest probability over all inputs may be at most
        exp(epsilon) times its least one. extremes() finds both. It relies on the forms of cards
        that __init__ checks.
        """
        bound = exp_lower(epsilon)
        ranges = len(self.level_cards)
        # Given the range of x, a probability is linear in x, so that the ends of ranges are the
        # extremes.
        ends = array("H", bytes(4 * ranges))
        for i in range(ranges):
            # The lower end of range i is its bound, or -1; the upper one is one unit below the
            # bound of the range above, or 1. ONE is added, so that all are positive.
            ends[2 * i] = ONE + (self.bounds[i] if i < ranges - 1 else -ONE)
            ends[2 * i + 1] = ONE + (self.bounds[i - 1] - 1 if i else ONE)

        inside = array("I", [card.threshold for card in self.level_cards])
        found = array("I", bytes(24))  # two weights of three words
        for reported in range(ranges):
            # The single threshold at each of both knots: the count of symbol 0 there.
            count_left, count_right = self.value_cards[reported].thresholds
            # First for symbol 0, then for symbol 1, which has the other counts out of T.
            for _ in range(2):
                extremes(
                    ends, inside, array("I", (ranges, reported, count_left, count_right)), found
                )
                # Join the words of 30 bits, the least weight at 0 and the largest one at 3.
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
        """Return a random report of `x` (Q1.14): 2 * level + symbol.

        The level is the number of a range, drawn by randomised response. The value card of the
        level that was drawn, not of the true one, then draws the symbol: 0 for -1, 1 for 1. Raises
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
