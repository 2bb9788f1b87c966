"""Leaves of a projection (tern.projection) that no board should wait for. firmware/thumb has them
in assembler, too.

No leaf has a branch on a value, or allocates.
"""

from tern.compat import micropython, ptr8, ptr32


@micropython.viper
def rotate(vector: ptr32, signs: ptr8, n: int):
    """Rotate vector[:n] at random: three times flip signs, then Walsh-Hadamard, not normalised.

    signs: 3 n bits, 1 for a flip; n: a power of 2. The fast transform replaces pairs of values h

    apart by sum and difference, for h = 1, 2, 4, ... below n.
    """
    first_sign = 0
    j = 0
    while first_sign < n + n + n:
        j = 0
        while j < n:
            at = first_sign + j
            # -1 where the bit is set, else 0; (v ^ -1) + 1 is -v: no branch
            sign = 0 - (signs[at >> 3] >> (at & 7) & 1)
            vector[j] = (vector[j] ^ sign) - sign
            j += 1
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
    """Return the index of the value of rank `wanted` in vector[:n], plus n where it is negative.

    Rank 0 is the largest absolute value; of equal ones the first comes first. top: the highest bit
    of all absolute values. Overwrites each value by its absolute value times 2, plus 1 where it was
    negative.

    No branch depends on a value: v >> 31 is -1 for a negative v and else 0, and so counts or masks.
    """
    j = 0
    while j < n:
        sign = vector[j] >> 31
        vector[j] = ((vector[j] ^ sign) - sign << 1) - sign
        j += 1

    size = 0  # found bit by bit: the largest size that more than `wanted` values reach
    bit = top << 1
    while bit > 1:
        level = size + bit
        # In the end below 0 if fewer than `wanted` + 1 values reach the level, else 0 or more.
        more = n - wanted - 1
        j = 0
        while j < n:
            more += (vector[j] - level) >> 31
            j += 1
        size += bit * (1 + (more >> 31))
        bit >>= 1

    level = size + 2
    places_left = wanted - n  # in the end, how many of this size come before it
    j = 0
    while j < n:
        places_left -= (vector[j] - level) >> 31
        j += 1

    found = 0
    j = 0
    while j < n:
        # -1 for a value of this size, else 0; the one to find is where places_left is 0
        same = ((vector[j] ^ size) >> 1) - 1 >> 31
        found |= same & (places_left - 1 ^ places_left) >> 31 & (j + n * (vector[j] & 1))
        places_left += same
        j += 1
    return found
