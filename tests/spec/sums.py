"""Sums of units from arithmetic.md and cards.md alone, in integers of any size.

Runs on MicroPython, too, and imports nothing of the library that it checks.
"""


def bits(n):
    length = 0
    while n >> length:
        length += 1
    return length


def isqrt(n):
    root = 0
    for bit in range(bits(n) // 2, -1, -1):
        if (root | 1 << bit) ** 2 <= n:
            root |= 1 << bit
    return root


def shifted(a, n):
    """a * 2**n, rounded down."""
    return a << n if n >= 0 else a >> -n


def norm_of(totals, norm):
    """s, the a_j, and N; for totals that are not all 0."""
    s = bits(max(map(abs, totals))) - 14
    a = [shifted(total, -s) for total in totals]
    if norm == 1:
        return s, a, shifted(sum(map(abs, a)), s)
    g = sum([value * value for value in a]) // 2**14 + 1
    h = 0
    while g < 2**26:
        g *= 4
        h += 1
    return s, a, -shifted(-(isqrt(g) + 1), 7 + s - h)


def unit_vector(totals, norm, steps, reach):
    """The vector of a unit, and whether it is clipped. steps: R; reach: r."""
    if not any(totals):
        return [0 for _ in totals], False
    s, a, size = norm_of(totals, norm)
    n = max(size, reach)
    length = bits(n)
    rounded = shifted(n, 15 - length) + (length > 15)
    y = 29 - bits(steps)
    p = (steps << y) // rounded
    down = y + length - 15 - s
    if down > 30:
        return [0 for _ in totals], size > reach
    vector = [(value * p + 2 ** (down - 1)) >> down for value in a]
    if length_of(vector, norm) > steps**norm:
        vector = [(-1 if value < 0 else 1) * (abs(value) * p >> down) for value in a]
    return vector, size > reach


def length_of(vector, norm):
    """The norm of a vector; with norm 2 its square."""
    return sum([abs(value) ** norm for value in vector])


def sums_of(units, v, norm, steps, reach, clipped, kept):
    """The sums and the tally over the totals of all units."""
    sums = [0] * v
    for totals in units:
        vector, is_clipped = unit_vector(totals, norm, steps, reach)
        for j, value in enumerate(vector):
            sums[j] += value
        sums[v - 1] += clipped if is_clipped else kept
    return sums


def uniform(byte, n):
    """byte: a function that returns the next byte."""
    count = (bits(n - 1) + 7) // 8
    while True:
        value = 0
        for i in range(count):
            value |= byte() << 8 * i
        value &= (1 << bits(n - 1)) - 1
        if value < n:
            return value


def decays(byte, *fractions):
    """Bernoulli(exp(-a / n)), or Bernoulli(exp(-a a' / (n n'))), for fractions (a, n)."""
    k = 1
    if all(a for a, _ in fractions):
        while all(uniform(byte, n) < a for a, n in fractions) and (k == 1 or uniform(byte, k) == 0):
            k += 1
    return k % 2


def inverse_e(byte):
    k = 2
    while uniform(byte, k) == 0:
        k += 1
    return k % 2


def laplace(byte, t):
    while True:
        offset = uniform(byte, t)
        if decays(byte, (offset, t)):
            whole = 0
            while inverse_e(byte):
                whole += 1
            magnitude = offset + t * whole
            if byte() & 1 == 0:
                return magnitude
            if magnitude:
                return -magnitude


def noise(byte, t, c, m):
    """Z. c: 0 for Laplace noise."""
    while True:
        y = laplace(byte, t)
        if not c:
            return y
        distance = abs(m * abs(y) - c)
        x, e = distance // (2 * c), distance % (2 * c)
        v, g = distance // (t * m), distance % (t * m)
        if (
            all(inverse_e(byte) for _ in range(x * v))
            and all(decays(byte, (g, t * m)) for _ in range(x))
            and all(decays(byte, (e, 2 * c)) for _ in range(v))
            and decays(byte, (e, 2 * c), (g, t * m))
        ):
            return y


def symbol(y, coarse, b):
    w = (y + 2 ** (coarse - 1)) >> coarse if coarse else y
    return 2 ** (b - 1) + max(-(2 ** (b - 1)), min(w, 2 ** (b - 1) - 1))
