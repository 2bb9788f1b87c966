"""The inner loop of the sampler for table cards.

Boards with a Thumb processor get the one of firmware/thumb, in assembler, in its place.
"""

from tern.compat import micropython, ptr8, ptr16, ptr32


@micropython.viper
def table(xs: ptr16, out: ptr16, pool: ptr8, job: ptr32):
    """Draw the symbols of a table card for inputs, until the pool of random bytes ends.

    A table card has 2**p + 1 equally spaced inputs, its knots. Each knot has a row of increasing
    thresholds out of T = 2**30; between two knots they are interpolated. The symbol is the number
    of thresholds that one uniform random number out of T reaches.

    xs, out, pool, job[:4]: see tern.sampler. Then job has the parameters of the card:
        job[4]   p
        job[5]   the number of thresholds in a row, one less than the symbols
        job[6:]  the thresholds, row by row, from the knot at -1 to the one at 1

    An input lies the fraction f / 2**15 of the way from one knot to the next, whose thresholds are
    c and c'. With d = c - c' = 2**15 h + l, 0 <= l < 2**15, the interpolated threshold is

        c - d f / 2**15 = (c - h f) - l f / 2**15

    No part overflows: |d| < 2**30 and f <= 2**15, so that |h f| and l f are at most 2**30. Without
    the term of l the threshold is less than 2**15 too large. That is little beside the 2**22
    numbers that share a first byte, so the limit c - h f alone settles most comparisons.
    """
    coordinate = job[0]
    stop = job[1]
    position = job[2]
    end = job[3]
    knot_bits = job[4]
    columns = job[5]
    while coordinate < stop:
        # x + 1 in steps of 2**-14. A ptr16 loads an unsigned number; the mask makes no difference
        # to x >= -1, and gives more than 49151 for x < -1.
        scaled = (xs[coordinate] + 16384) & 65535
        # The fraction of an interval, in steps of 2**-15, and the index in job of a threshold: the
        # first one of the knot before the input.
        if scaled < 32768:
            scaled <<= knot_bits
            fraction = scaled & 32767
            index = (scaled >> 15) * columns + 6
        elif scaled < 49152:
            # x >= 1 counts as 1, the end of the last interval.
            fraction = 32768
            index = ((1 << knot_bits) - 1) * columns + 6
        else:
            # x < -1 counts as -1.
            fraction = 0
            index = 6

        # The first random byte in the place of the high 8 of 30 bits.
        first = pool[position] << 22
        at = position + 1
        thresholds_left = columns
        while thresholds_left:
            whole = job[index]
            # By how much the limit is above `first`. The random number is at least `first`, and so
            # reaches a threshold that is not above it. The number is less than 2**22 above `first`,
            # and so below a threshold that is 2**23 above it, even if the limit is a little high.
            above = whole - ((whole - job[index + columns]) >> 15) * fraction - first
            if above > 0:
                if above >> 23:
                    break
                # In doubt: compare all bytes of the exact threshold, 30 bits of the whole part and
                # 15 of the fraction, with the random bytes, until one differs or only zeros are
                # left. Each round takes the highest 8 bits, and moves the other 37 up.
                rest = 0 - ((whole - job[index + columns]) & 32767) * fraction
                whole = first + above + (rest >> 15)
                rest &= 32767
                next_byte = position
                comparison = 0
                while comparison == 0 and whole | rest:
                    comparison = pool[next_byte] - (whole >> 22)
                    next_byte += 1
                    whole = (whole & 0x3FFFFF) << 8 | rest >> 7
                    rest = (rest & 127) << 8
                # All thresholds are compared with the same number; remember how much of it was
                # read.
                if next_byte > at:
                    at = next_byte
                if comparison < 0:
                    break
            index += 1
            thresholds_left -= 1

        # The pool ended within this coordinate, which is drawn again after a refill.
        if at > end:
            break
        position = at
        out[coordinate] = columns - thresholds_left
        coordinate += 1
    # An index above 0 must be in a variable (see tern.compat).
    job[0] = coordinate
    coordinate = 2
    job[coordinate] = position
