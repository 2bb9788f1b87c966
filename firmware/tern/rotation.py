"""The two slow steps of a projection (tern.projection): rotate a vector, and find a rank in it.

firmware/thumb has both in assembler for boards with a Thumb processor.

The vector is private. So that the time tells nothing about it, no function has a branch that
depends on a value; none allocates.
"""

from tern.compat import micropython, ptr8, ptr32


@micropython.viper
def rotate(vector: ptr32, signs: ptr8, n: int):
    """Rotate vector[:n] at random, in place; n is a power of 2, at most 128.

    Three times, some values change their sign, and the vector then becomes its Walsh-Hadamard
    transform, which is not normalised: lengths grow by sqrt(n) each time.

    signs: 3 n bits, the lowest bit of each byte first; 1 where a value changes its sign.
    """
    # The index of the first sign of this time: 0, n and 2 n.
    first_sign = 0
    j = 0
    while first_sign < n + n + n:
        j = 0
        while j < n:
            at = first_sign + j
            # sign is -1 where the bit is set, else 0. In two's complement v ^ -1 is -v - 1, so that
            # (v ^ sign) - sign is -v or v without a branch.
            sign = 0 - (signs[at >> 3] >> (at & 7) & 1)
            vector[j] = (vector[j] ^ sign) - sign
            j += 1
        # The fast transform: for h = 1, 2, 4, ... below n, replace each pair of values that are h
        # apart by its sum and its difference. i is where a block of h pairs begins.
        h = 1
        while h < n:
            i = 0
            while i < n:
                j = i
                while j < i + h:
                    k = j + h
                    a = vector[j]
                    b = vector[k]
                    vector[j] = a + b
                    vector[k] = a - b
                    j += 1
                i += h + h
            h += h
        first_sign += n


@micropython.viper
def find(vector: ptr32, n: int, wanted: int, top: int) -> int:
    """Return the index of the value of rank `wanted` in vector[:n], plus n if it is negative.

    Rank 0 is the largest absolute value; of equal ones the one with the smaller index comes first.

    top: a power of 2 that no absolute value exceeds. The vector is overwritten: a value v becomes
    2 |v|, plus 1 if v was negative.

    No branch depends on a value. Instead, v >> 31 is -1 for a negative v and 0 for others; it
    serves to count (add it up) and to select (as a mask of all bits or none).
    """
    # v becomes 2 |v| plus 1 if it is negative: `sign` is then -1.
    j = 0
    while j < n:
        sign = vector[j] >> 31
        vector[j] = ((vector[j] ^ sign) - sign << 1) - sign
        j += 1

    # Find the size of the wanted value bit by bit, in doubled units: the largest `size` that more
    # than `wanted` values reach. Bit 0 is the sign's.
    size = 0
    bit = top << 1
    while bit > 1:
        level = size + bit
        # n - wanted - 1, less one for each value below the level: negative if fewer than
        # wanted + 1 values reach it.
        more = n - wanted - 1
        j = 0
        while j < n:
            more += (vector[j] - level) >> 31
            j += 1
        size += bit * (1 + (more >> 31))  # keep the bit if `more` is not negative
        bit >>= 1

    # Among the values of this size, how many come before the wanted one: `wanted`, less the number
    # of larger values, which is n less the number of values below the next size.
    level = size + 2
    places_left = wanted - n
    j = 0
    while j < n:
        places_left -= (vector[j] - level) >> 31
        j += 1

    found = 0
    j = 0
    while j < n:
        # same: -1 for a value of this size, whatever its sign bit, else 0.
        same = ((vector[j] ^ size) >> 1) - 1 >> 31
        # The second factor is -1 only where places_left is 0: p - 1 ^ p has its highest bit set
        # only if one of p - 1 and p is negative. The third is the result for this index.
        found |= same & (places_left - 1 ^ places_left) >> 31 & (j + n * (vector[j] & 1))
        places_left += same
        j += 1
    return found
