"""The sampler's leaf for table cards.

Boards with a Thumb processor get the one of firmware/thumb in its place.
"""

from tern.compat import micropython, ptr8, ptr16, ptr32


@micropython.viper
def table(xs: ptr16, out: ptr16, pool: ptr8, job: ptr32):
    """Draw the symbols of a table card for inputs, until the pool ends.

    The symbol is the number of thresholds that a uniform number out of T reaches. Each knot, an
    input, has a row of thresholds; between two knots they are interpolated.

    job: [next coordinate, end, position, end of the pool, p, thresholds in a row, the thresholds].

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
        # x + 1 in steps of 2**-14, clipped to 0 .. 2; below -1 the sum wraps around to 16 bits
        scaled = (xs[i] + 16384) & 65535
        if scaled > 49151:  # below -1
            scaled = 0
        elif scaled > 32768:
            scaled = 32768
        fraction = scaled << job[4]
        knot = (fraction - (scaled >> 15)) >> 15  # 1 is the end of the last interval
        fraction -= knot << 15
        knot = knot * columns + 6

        first = pool[position] << 22
        at = position + 1
        thresholds_left = columns
        while thresholds_left:
            whole = job[knot]
            difference = job[knot + columns] - whole
            whole += (difference >> 15) * fraction
            # Above 127 the first byte decides that it is below, under -1 that it is not.
            comparison = whole - first >> 15
            if comparison > 127:
                break
            if comparison >= -1:
                rest = (difference & 32767) * fraction
                whole += rest >> 15
                rest &= 32767
                # In doubt: compare all bytes of the threshold, with its fraction l f mod 2**15.
                next_byte = position
                comparison = 0
                while comparison == 0 and whole | rest:
                    comparison = pool[next_byte] - (whole >> 22)
                    next_byte += 1
                    whole = (whole & 0x3FFFFF) << 8 | rest >> 7
                    rest = (rest & 127) << 8
                if next_byte > at:
                    at = next_byte
                if comparison < 0:
                    break
            knot += 1
            thresholds_left -= 1

        if at > job[3]:
            break
        position = at
        out[i] = columns - thresholds_left
        i += 1
    job[0] = i
    i = 2
    job[i] = position
