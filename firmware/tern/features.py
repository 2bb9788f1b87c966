"""Features of windows of a sensor's samples, in integers.

A window is n int16 samples of one to three axes; the next one begins `hop` samples later. Each
axis, and optionally the length of the vector, has four features, all rounded down:

    mean       of the samples
    deviation  the standard deviation (of all n, not n - 1)
    jerk       the mean absolute difference of successive samples
    crossings  how often the samples pass from above the mean to the mean or below it, or back

The constant 1 comes before the features, where every record has it. Several sensors share a row and
its constant: `a.features(row)`, then `b.features(row, a.d)`. The length is that of half the vector,
each component rounded down, to fit int16. A feature is scaled from its public (low, high) to -1 and
1, clipped, and rounded down to 2**-14; docs/guides/data.md says why no bound may come from the
devices' data.

No number exceeds the 31 bits of MicroPython's small ints, which need no allocation. With n <= 256
samples v and w = v - mean, |w| < 2**16. The mean is taken as 0 first, then as the window's own:

  sum of v: |sum v| <= 2**8 * 2**15 = 2**23.
  jerk: the sum of |v - v'| < 2**16 is below 2**24.
  squares: w w < 2**32. Its low 8 bits add up to less than 2**16; the others are below 2**24,
    whatever sign an int32 shows.
  sum of squares: about 0, and about the mean rounded down, int16 values have sum w w <= n * 2**30,
    so that the high parts add up to 2**30 at most. About the mean they add up to less than
    n / 256 * (variance + 1), and a variance of int16 values is at most (2**16 - 1)**2 / 4
    < 2**30 - 2**14: a small int, and so is the quotient by n, taken in two digits of base 256.
  length: three squares of |v >> 1| <= 2**14 add up to at most 3 * 2**28, and its root is below
    2**15.
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
    """Add up what the features of a window need; return the sum of v - mean over its samples v.

    mean: plus 32768. out: gets four sums from index k on: those of the high bits (from 2**8 on) and
    of the low 8 bits of (v - mean)**2; the sum of |v - v'| over neighbouring samples; and how often
    the condition v > mean changes. ring: samples, each stored as v + 32768; its length is a power
    of 2, and `mask` is that less 1. i: the index of the window's first sample. n: samples.
    """
    # 32768 cancels in differences. `difference` is mean - v: negative for a v above the mean.
    last = mean - ring[i]
    total = 0
    high = 0
    low = 0
    jerk = 0
    crossings = 0
    while n:
        difference = mean - ring[i]
        total -= difference
        # A number below 2**17 in size, shifted by 17, is -1 if it is negative, else 0; and the XOR
        # of two is negative if their signs differ.
        crossings -= (difference ^ last) >> 17
        last -= difference
        sign = last >> 17
        jerk += (last ^ sign) - sign  # |last|: -x is (x ^ -1) + 1
        last = difference
        # Below 2**32, so the sign of an int32 may be wrong; the masks take it away.
        difference = difference * difference
        high += difference >> 8 & 0xFFFFFF
        low += difference & 255
        i = i + 1 & mask  # (i + 1) & mask: the next index, after the last one 0
        n -= 1
    out[k] = high
    out[k + 1] = low
    out[k + 2] = jerk
    out[k + 3] = crossings
    return total


def root(n: int) -> int:
    """Return the square root of n, 0 .. 2**30 - 1, rounded down.

    Newton's steps e = (e + n / e) / 2 begin above the root, at 2**15, and fall until they reach it.
    """
    estimate = _ZERO
    while estimate and n // estimate < estimate:
        estimate = estimate + n // estimate >> 1
    return estimate


class Window:
    """Makes features of a sensor's samples without allocation: push() each sample, then features().

    Samples wait in a ring buffer for each axis. d: the number of features, the constant included.
    raw: the features of the last window before scaling, array('i'). lost: samples that came when
    there was no room.
    """

    def __init__(
        self,
        n: int,
        hop: "int | None" = None,
        axes: int = 3,
        length: bool = False,
        scale: "Sequence[tuple[int, int]] | None" = None,
    ) -> None:
        """Allocate the ring buffers. Raises ValueError for arguments out of bounds.

        n: the samples of a window, 2 .. 256. hop: the samples from the begin of one window to that
        of the next, 1 .. n; None for n // 2. axes: 1 .. 3. length: whether the length of the vector
        has features, too. scale: the (low, high) of each feature that become -1 and 1, integers at
        most 65535 apart; the default is for a worn accelerometer of +-4 g at 50 Hz, where 1 g is
        8192.
        """
        if hop is None:
            hop = n // 2
        rings = axes + 1 if length else axes  # a ring for each axis, the last one for the length
        if scale is None:
            # Of each ring: mean, deviation, jerk, crossings.
            most = 0, n // 3 or 1
            scale = ((-_G, _G), (0, _G // 4), (0, _G // 8), most) * axes
            if length:  # it is that of half the vector, around 1/2 g
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
        # A ring is empty where _head, the index of the next sample, equals _tail, that of the
        # oldest; so one place stays free. Its length is a power of 2 above n + hop, so that a mask
        # keeps an index in it. push() moves only _head and features() only _tail: either may
        # interrupt the other.
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

        A soft interrupt may call it: it allocates nothing, and has no loops but that of the root.
        If the ring is full, the sample is dropped and counted in `lost`.
        """
        i = self._head
        head = i + 1 & self._mask  # (i + 1) & mask: the next index, after the last one 0
        if head == self._tail:
            self.lost += 1
            return True
        # A sample v is stored as v + 32768, in 16 bits without a sign.
        rings = self._rings
        rings[0][i] = x + _ZERO
        if len(rings) > 1:
            rings[1][i] = y + _ZERO
            if len(rings) > 2:
                rings[2][i] = z + _ZERO
        if self._length:
            # The last ring has the length of half the vector: halves, so that it fits an int16. It
            # replaces what was written there if there is one axis or two.
            rings[-1][i] = _ZERO + root((x >> 1) ** 2 + (y >> 1) ** 2 + (z >> 1) ** 2)
        self._head = head  # last: now the sample is complete
        return self.full()

    def full(self) -> bool:
        """Return whether there are enough samples for a window."""
        # (head - tail) & mask is the number of samples in the ring, also where head has wrapped.
        return (self._head - self._tail & self._mask) >= self.n

    def features(self, out: "array[int]", start: int = 1) -> None:
        """Write the features of the oldest window into out[start:], and move on by a hop.

        out: array('h'), Q1.14; out[0] becomes the constant 1. Raises ValueError if no window is
        full, IndexError if out is too short.
        """
        if not self.full():
            raise ValueError("no window is full")
        n = self.n
        raw = self.raw
        # Four unscaled features of each ring, from raw[k] on.
        k = 0
        for ring in self._rings:
            # First the mean, rounded down, then sums about it. sums() writes into raw[k : k + 4].
            mean = sums(_ZERO, raw, self._mask, ring, self._tail, n, k) // n
            rest = sums(mean + _ZERO, raw, self._mask, ring, self._tail, n, k)
            # The sum of squares is 256 raw[k] + raw[k + 1], which may exceed a small int. So it is
            # divided by n as by hand, in two digits of base 256: `high` is the first digit, and
            # `low` the remainder with the second one.
            high = raw[k] // n
            low = (raw[k] - high * n << 8) + raw[k + 1]
            raw[k] = mean
            # The mean is rest / n too low, and so the mean square about it (rest / n)**2 too large,
            # which is below 1. The last term rounds down: 1 less if low / n has a smaller fraction.
            raw[k + 1] = root((high << 8) + low // n - (low % n * n < rest * rest))
            raw[k + 2] //= n - 1
            k += 4
        # Scale low .. high to -1 .. 1: (2 v - low - high) / (high - low).
        k = start
        for low, high in self._scale:
            value = min(max(raw[k - start], low), high)
            out[k] = (2 * value - low - high) * _ONE // (high - low)
            k += 1
        out[0] = _ONE
        self._tail = self._tail + self.hop & self._mask
