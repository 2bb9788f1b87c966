"""Features of windows of a sensor's samples, in integers.

A window is n int16 samples of one to three axes; the next one begins `hop` samples later. Each
axis, and optionally the length of the vector, has four features, all rounded down:

    mean       of the samples
    deviation  the standard deviation (of all n, not n - 1)
    jerk       the mean absolute difference of successive samples
    crossings  how often the samples pass from above the mean to the mean or below it, or back

Several sensors share a row: `a.features(row)`, then `b.features(row, a.d - 1)`. The length is that
of half the vector, each component rounded down, to fit int16. A feature is scaled from its public
(low, high) to -1 and 1, clipped, and rounded down to 2**-14; docs/guides/application.md says why no
bound may come from the devices' data.

No overflow of 31 bits, with n <= 256 samples v, and w = v - mean, |w| < 2**16 (mean: 0, then that
of the window):

  |sum v| <= 2**8 * 2**15 = 2**23; jerk: the sum of |v - v'| < 2**16 is below 2**24;
  w w < 2**32: its low 8 bits add up to less than 2**16; the others are below 2**24, whatever sign
    an int32 shows;
  about 0, and about the mean rounded down, int16 values have sum w w <= n * 2**30, so that these
    add up to 2**30 at most; about the mean to less than n / 256 * (variance + 1), and a variance of
    int16 values is at most (2**16 - 1)**2 / 4 < 2**30 - 2**14: a small int, and so is the quotient
    by n, taken in two digits of base 256;
  length: three squares of |v >> 1| <= 2**14 add up to at most 3 * 2**28, and its root is below
    2**15;
  scaling: |2 v - low - high| <= high - low <= 2**16 - 1 for a v in between, and 2**14 times that is
    below 2**30.
"""

from array import array

from tern.compat import TYPE_CHECKING, const, micropython, ptr16, ptr32

if TYPE_CHECKING:
    from collections.abc import Sequence

_ONE = const(16384)
_ZERO = const(32768)  # a ring holds samples v as v + 32768: a viper ptr16 loads unsigned
_G = const(8192)  # 1 g, of the default scale


@micropython.viper
def sums(mean: int, out: ptr32, mask: int, ring: ptr16, i: int, n: int, k: int) -> int:
    """Sum over n samples v of a ring, from index i on; return the sum of v - mean.

    A sample is stored as v + 32768, and `mean` is given as the mean + 32768. mask: length of the
    ring - 1. out[k:k + 4] gets the sums of the high bits (from 2**8) and the low 8 bits of (v -
    mean)**2, the sum of |v - v'| over neighbours, and how often v > mean changes.
    """
    last = mean - ring[i]
    total = 0
    high = 0
    low = 0
    jerk = 0
    crossings = 0
    while n:
        difference = mean - ring[i]
        total -= difference
        crossings -= (difference ^ last) >> 17  # x >> 17 is -1 for x < 0, else 0
        last -= difference
        sign = last >> 17
        jerk += (last ^ sign) - sign  # |last|
        last = difference
        difference = difference * difference  # below 2**32: the sign of an int32 may be wrong
        high += difference >> 8 & 0xFFFFFF
        low += difference & 255
        i = i + 1 & mask
        n -= 1
    out[k] = high
    out[k + 1] = low
    out[k + 2] = jerk
    out[k + 3] = crossings
    return total


def root(n: int) -> int:
    """Return the square root of n, 0 .. 2**30 - 1, rounded down, by Newton's steps from above."""
    estimate = _ZERO
    while estimate and n // estimate < estimate:
        estimate = estimate + n // estimate >> 1
    return estimate


class Window:
    """Makes features of samples without allocation.

    d: number of features, the constant included. raw: the features of the last window before
    scaling, array('i'). lost: samples that came when there was no room.
    """

    def __init__(
        self,
        n: int,
        hop: "int | None" = None,
        axes: int = 3,
        length: bool = False,
        scale: "Sequence[tuple[int, int]] | None" = None,
    ) -> None:
        """n: samples of a window, 2 .. 256; hop: samples from one window to the next; axes: 1 .. 3.

        length: whether the length of the vector has features, too. hop is 1 .. n, by default n //
        2. scale: (low, high) of each feature, integers at most 65535 apart; the default is for a
        worn accelerometer of +-4 g at 50 Hz, where 1 g is 8192. Raises ValueError.
        """
        if hop is None:
            hop = n // 2
        rings = axes + 1 if length else axes
        if scale is None:
            most = 0, n // 3 or 1
            scale = ((-_G, _G), (0, _G // 4), (0, _G // 8), most) * axes
            if length:  # counts in two
                scale += (_G // 4, 3 * _G // 4), (0, _G // 8), (0, _G // 16), most
        fits = 1 < n <= 256 and 0 < hop <= n and 0 < axes < 4 and len(scale) == 4 * rings
        for low, high in scale:
            fits = fits and 0 < high - low < 65536
        if not fits:
            form = "n must be 2..256, hop 1..n, axes 1..3, scale %d (low, high), low < high < low + 65536"
            raise ValueError(form % (4 * rings))
        self._length = length
        self._scale = scale
        self.n = n
        self.hop = hop
        self.d = 4 * rings + 1
        self.raw = array("i", bytes(16 * rings))
        self.lost = 0
        # push() moves only _head and features() only _tail, so that either may interrupt the other.
        size = 2
        while size <= n + hop:
            size *= 2
        self._mask = size - 1
        self._rings = []
        for _ in range(rings):
            self._rings.append(array("H", bytes(2 * size)))
        self._head = self._tail = 0

    def push(self, x: int, y: int = 0, z: int = 0) -> bool:
        """Add a sample, an int16 for each axis; return whether a window is full.

        A soft interrupt may call it.
        """
        i = self._head
        head = i + 1 & self._mask
        if head == self._tail:
            self.lost += 1
            return True
        rings = self._rings
        rings[0][i] = x + _ZERO
        if len(rings) > 1:
            rings[1][i] = y + _ZERO
            if len(rings) > 2:
                rings[2][i] = z + _ZERO
        if self._length:
            rings[-1][i] = _ZERO + root((x >> 1) ** 2 + (y >> 1) ** 2 + (z >> 1) ** 2)
        self._head = head
        return self.full()

    def full(self) -> bool:
        """Return whether there are enough samples for a window."""
        return (self._head - self._tail & self._mask) >= self.n

    def features(self, out: "array[int]", start: int = 0) -> None:
        """Write the features of the oldest window into out[start:], and move on by a hop.

        out: array('h'), Q1.14; the constant comes last. Raises ValueError if no window is full,
        IndexError if out is too short.
        """
        if not self.full():
            raise ValueError("no window is full")
        n = self.n
        raw = self.raw
        k = 0
        for ring in self._rings:
            # First the mean, rounded down, then sums about it.
            mean = sums(_ZERO, raw, self._mask, ring, self._tail, n, k) // n
            rest = sums(mean + _ZERO, raw, self._mask, ring, self._tail, n, k)
            # Divide the sum of squares by n, in two digits of base 256: it may exceed a small int.
            high = raw[k] // n
            low = (raw[k] - high * n << 8) + raw[k + 1]
            raw[k] = mean
            # The mean is rest / n too low, and the mean square about it the square of that too
            # large.
            raw[k + 1] = root((high << 8) + low // n - (low % n * n < rest * rest))
            raw[k + 2] //= n - 1
            k += 4
        k = start
        for low, high in self._scale:
            value = min(max(raw[k - start], low), high)
            out[k] = (2 * value - low - high) * _ONE // (high - low)
            k += 1
        out[k] = _ONE
        self._tail = self._tail + self.hop & self._mask
