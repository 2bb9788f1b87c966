"""The sampler's leaf for table cards.

Boards with a Thumb processor get the one of firmware/thumb in its place.
"""

from tern.compat import micropython, ptr8, ptr16, ptr32


@micropython.viper
def table(xs: ptr16, out: ptr16, pool: ptr8, job: ptr32):
    """Draw by a table card. job: [next, end, position, end of the pool, p, thresholds a row, the
    thresholds].

    A fraction f / 2**15 after a knot, a threshold is c + d f / 2**15 out of T, with d = c' - c =
    2**15 h + l: the whole part c + h f + floor(l f / 2**15), and l f mod 2**15. With |d| < 2**30
    and f <= 2**15, |h f| and l f are at most 2**30. Without l f the whole part is less than 2**15
    too small, which settles most comparisons with a first byte.
    """
    i = job[0]
    n = job[1]
    position = job[2]
    columns = job[5]
    while i < n:
        a = (xs[i] + 16384) & 65535
        if a > 49151:  # below -1
            a = 0
        elif a > 32768:
            a = 32768
        f = a << job[4]
        c = (f - (a >> 15)) >> 15  # 1 is the end of the last interval
        f -= c << 15
        c = c * columns + 6
        first = pool[position] << 22
        at = position + 1
        left = columns
        while left:
            whole = job[c]
            d = job[c + columns] - whole
            whole += (d >> 15) * f
            u = whole - first >> 15
            if u > 127:
                break
            if u >= -1:
                rest = (d & 32767) * f
                whole += rest >> 15
                rest &= 32767
                k = position
                u = 0
                while u == 0 and whole | rest:
                    u = pool[k] - (whole >> 22)
                    k += 1
                    whole = (whole & 0x3FFFFF) << 8 | rest >> 7
                    rest = (rest & 127) << 8
                if k > at:
                    at = k
                if u < 0:
                    break
            c += 1
            left -= 1
        if at > job[3]:
            break
        position = at
        out[i] = columns - left
        i += 1
    job[0] = i
    i = 2
    job[i] = position
