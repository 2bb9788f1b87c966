"""Which k of a client's values it reports.

They are drawn from the digest of the request, which both host and device know, so that a report
need not name them.
"""

import hashlib
from array import array

from tern.compat import const, micropython, ptr16
from tern.wire import COORDINATES_AT

_DIGEST_BYTES = const(32)  # of a question, and of each further hash


@micropython.viper
def list_marked(marks: ptr16, d: int, out: ptr16):
    """Write the indices of all marks[:d] with their highest bit set into `out`, ascending."""
    i = 0
    j = 0
    while j < d:
        if marks[j] > 32767:
            out[i] = j
            i += 1
        j += 1


@micropython.viper
def gather(values: ptr16, indices: ptr16, k: int, out: ptr16):
    """Copy the chosen values: out[i] = values[indices[i]], for i < k."""
    i = 0
    while i < k:
        out[i] = values[indices[i]]
        i += 1


def choose(question, d, k, out):
    """Choose k of the coordinates 0 .. d - 1 for a request: all sets of k are equally likely.

    question: the digest of the request, 32 bytes, from which random bytes come: first its last
    ones, then those of SHA-256(question, counter). So no choice depends on data. d: at most 1025.
    out: an array('H'), which gets the coordinates in ascending order.

    A partial Fisher-Yates shuffle (Knuth, TAOCP 2, 3.4.2 P): for i = 0 .. k - 1, a uniform draw
    from places i .. d - 1 is exchanged with place i.
    """
    if k == d:
        for i in range(d):
            out[i] = i
        return

    # `order` is shuffled in the low 15 bits of its numbers. The highest bit of order[j] is another
    # matter: it marks coordinate j as chosen. With k = 1 neither is needed.
    order = array("H", range(d)) if k > 1 else None
    block = question  # of random bytes; `at` is the next one
    at = COORDINATES_AT
    counter = 0

    # The smallest 2**b - 1 that covers d - 1.
    mask = 1
    while mask < d - 1:
        mask += mask + 1
    for i in range(k):
        # A uniform draw from 0 .. last, by rejection. The range shrinks, and its mask with it.
        last = d - i - 1
        while mask >> 1 >= last:
            mask >>= 1
        draw = d
        while draw > last:
            if at == _DIGEST_BYTES:
                block = hashlib.sha256(question + counter.to_bytes(4, "little")).digest()
                counter += 1
                at = 0
            draw = block[at]
            # Draws of two bytes all come before those of one, and a block has an even number of
            # bytes: none is cut by its end.
            if mask > 255:
                at += 1
                draw |= block[at] << 8
            at += 1
            draw &= mask
        if k == 1:  # nothing to shuffle
            out[0] = draw
            return

        # Exchange places i and `draw` of the order, but leave the marks where they are; place i is
        # not needed again, so only the other one is written. Then mark the coordinate.
        draw += i
        coordinate = order[draw] & 32767
        order[draw] = order[draw] & 32768 | order[i] & 32767
        order[coordinate] |= 32768
    list_marked(order, d, out)
