"""The record of a thermostat, made from a reading, in integers. MicroPython and CPython.

Seven features: the constant, inside, outside, the time of day in two, the heating of the last ten
minutes, and how the temperature has changed in them. The label is how it will change in the next
ten minutes. Each has a public (low, high), fixed by what rooms are like, not by what devices have
measured: the values that become -1 and 1.
"""

from array import array

ONE = 16384
AHEAD = 10  # minutes
D = 7
CHANGE = 50  # 1/100 degree in AHEAD minutes that becomes 1
_DAY = 1440


def scaled(value, low, high):
    """Return v as Q1.14, where low becomes -1 and high 1; clipped."""
    value = min(max(value, low), high)
    return (2 * value - low - high) * ONE // (high - low)


class Readings:
    """The last AHEAD readings.

    push() writes `row` and returns the label of the reading before them.
    """

    def __init__(self):
        self.row = array("h", bytes(2 * D))  # of the last reading
        self.then = array("h", bytes(2 * D))  # of the reading that the label belongs to
        self._rows = array("h", bytes(2 * D * AHEAD))
        self._inside = array("h", bytes(2 * AHEAD))
        self._duty = array("h", bytes(2 * AHEAD))
        self._count = 0

    def push(self, minute, inside, outside, duty):
        """Take a reading; return the label of the one AHEAD minutes ago, or None in the beginning.

        minute: of the day; temperatures in 1/100 degree; duty: heating 0 .. 100. The features of
        the labelled reading are then in `then`.
        """
        at = self._count % AHEAD
        is_full = self._count >= AHEAD
        label = None
        change = 0
        if is_full:
            change = inside - self._inside[at]
            for j in range(D):
                self.then[j] = self._rows[at * D + j]
            if self._count >= 2 * AHEAD:  # before, its row did not know ten minutes
                label = scaled(change, -CHANGE, CHANGE)
        self._inside[at] = inside
        self._duty[at] = duty
        self._count += 1
        row = self.row
        row[0] = ONE
        row[1] = scaled(inside, 1500, 2500)
        row[2] = scaled(outside, -1000, 3000)
        row[3] = scaled(abs(minute - _DAY // 2), 0, _DAY // 2)  # midnight 1, noon -1
        # 6 o'clock -1, 18 o'clock 1
        row[4] = scaled(abs((minute + _DAY // 4) % _DAY - _DAY // 2), 0, _DAY // 2)
        row[5] = scaled(sum(self._duty), 0, 100 * AHEAD)
        row[6] = scaled(change, -CHANGE, CHANGE)
        for j in range(D):
            self._rows[at * D + j] = row[j]
        return label
