"""LHP: report in which range a value lies, and the value, each range with a privacy level of its own.

The range is reported by generalised randomised response at the budget of its level, and the value then by a card at
the budget of the level *reported*. Source: Hao, Wu, Wan, Sensors 2023, 23, 1115. What both together cost is more than
the largest of the budgets, which the paper states: it is certified exactly, as that of one card (shape 5 of cards.md).
"""

import struct
from array import array

from tern.compat import const
from tern.fixed import EXP_BITS, ONE, exp_lower, saturate
from tern.sampler import sample, sample_categories
from tern.shapes import TABLE, WINDOW, T

_BODY = const(6)  # header and m
_LEVEL_BYTES = const(13)  # a window card
_VALUE_BYTES = const(17)  # a table card of two knots and two levels
_MAX_RANGES = const(16)


class Hierarchy:
    """m levels, from the top range down, with two cards each.

    bounds: m - 1 decreasing Q1.14 values; range i begins at bounds[i], and the last one at -1.

    level_cards: window cards of m categories (window 1); value_cards: cards of `symbols` outputs each.
    Raises ValueError for what does not fit together.
    """

    def __init__(self, bounds, level_cards, value_cards):
        m = len(level_cards)
        if m < 2 or len(bounds) != m - 1 or len(value_cards) != m:
            raise ValueError("bounds and cards do not fit")
        for i in range(1, m - 1):
            if bounds[i - 1] <= bounds[i]:
                raise ValueError("bounds do not decrease")
        self.symbols = value_cards[0].symbols
        for level, value in zip(level_cards, value_cards):
            if (
                level.shape != WINDOW
                or level.window != 1
                or level.symbols != m
                or value.symbols != self.symbols
            ):
                raise ValueError("cards do not fit")
        self.bounds = array("h", bounds)
        self.level_cards = level_cards
        self.value_cards = value_cards
        self._x = array("h", (0,))
        self._out = array("H", (0,))

    @classmethod
    def of(cls, data, decode):
        """The Hierarchy that `data`, a card of shape 5, holds; decode: of the cards in it. Raises ValueError."""
        m = data[_BODY - 1]
        start = _BODY + 2 * (m - 1)
        if not 2 <= m <= _MAX_RANGES or len(data) != start + m * (_LEVEL_BYTES + _VALUE_BYTES):
            raise ValueError("ranges out of bounds, or wrong length")
        bounds = struct.unpack_from("<%dh" % (m - 1), data, _BODY)
        if bounds[0] > ONE or bounds[-1] <= -ONE:
            raise ValueError("bounds out of bounds")
        middle = start + m * _LEVEL_BYTES
        levels = [decode(data[i : i + _LEVEL_BYTES]) for i in range(start, middle, _LEVEL_BYTES)]
        values = [decode(data[i : i + _VALUE_BYTES]) for i in range(middle, len(data), _VALUE_BYTES)]
        for value in values:
            if value.shape != TABLE or value.symbols != 2 or value.knot_bits or value.levels != (-1, 1):
                raise ValueError("value cards have two knots and the levels -1 and 1")
        return cls(bounds, levels, values)

    def keeps(self, epsilon):
        """Whether level and value together keep `epsilon` micro-epsilon, by integers, with value cards as of() checks.

        A report is drawn from x with the probability of its level, given the range of x, times that of its symbol,
        which is linear in x: so the ends of the ranges are the extreme inputs.
        """
        bound = exp_lower(epsilon)
        m = len(self.level_cards)
        for reported in range(m):
            for symbol in (0, 1):
                most = least = 0
                for true in range(m):
                    p = self.level_cards[true].threshold
                    p = p * (m - 1) if true == reported else T - p
                    low = self.bounds[true] if true < m - 1 else -ONE
                    high = self.bounds[true - 1] - 1 if true else ONE
                    at_minus_one, at_one = self.value_cards[reported].thresholds  # what gives symbol 0
                    if symbol:
                        at_minus_one = T - at_minus_one
                        at_one = T - at_one
                    for x in (low, high):
                        n = p * (at_minus_one * (ONE - x) + at_one * (ONE + x))
                        most = max(most, n)
                        least = min(least, n) if least else n
                if most << EXP_BITS > bound * least:
                    return False
        return True

    def level(self, x):
        """The level of the range that `x` (Q1.14) lies in."""
        level = 0
        for bound in self.bounds:
            if x < bound:
                level += 1
        return level

    def draw(self, stream, x):
        """Draw the report of `x`: level * symbols + symbol. Raises EntropyError."""
        x = saturate(x)
        level = self.level(x)
        self._x[0] = level
        sample_categories(self.level_cards[level], stream, self._x, self._out, 1)
        level = self._out[0]
        self._x[0] = x
        sample(self.value_cards[level], stream, self._x, self._out, 1)
        return level * self.symbols + self._out[0]
