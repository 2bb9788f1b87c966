"""Which k of a client's values it reports.

They are drawn from the digest of the request, which both host and device know, so that a report
need not name them.
"""

import hashlib
from array import array

from tern.compat import micropython, ptr16
from tern.octets import draw_below
from tern.wire import COORDINATES_AT


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


def _more(question, counter):
    """Return 32 further random bytes of a request; counter: 0, 1, 2, ..."""
    return hashlib.sha256(question + counter.to_bytes(4, "little")).digest()


def choose(question, d, k, out):
    """Choose k of the coordinates 0 .. d - 1 for a request: all sets of k are equally likely.

    question: the digest of the request, 32 bytes, from which random bytes come: first its last
    ones, then those of SHA-256(question, counter). So no choice depends on data. d: at most 1025.
    out: an array('H'), which gets the coordinates in ascending order.
    """
    if k == 1 < d:
        out[0] = _draw_one(question, d - 1)
    elif k < d:
        _shuffle(question, d, k, out)
    else:
        for i in range(d):
            out[i] = i


def _draw_one(question, last):
    """Return a uniform draw from 0 .. last, as the first one of _shuffle()."""
    drawn = draw_below(question, COORDINATES_AT, last)
    counter = 0
    while drawn < 0:
        drawn = draw_below(_more(question, counter), 0, last)
        counter += 1
    return drawn >> 6


def _shuffle(question, d, k, out):
    """Choose k < d coordinates as choose().

    A partial Fisher-Yates shuffle (Knuth, TAOCP 2, 3.4.2 P): for i = 0 .. k - 1, a uniform draw
    from places i .. d - 1 is exchanged with place i.
    """
    # `order` is shuffled in the low 15 bits of its numbers. The highest bit of order[j] is another
    # matter: it marks coordinate j as chosen.
    order = array("H", range(d))
    block = question  # of random bytes; `at` is the next one
    at = COORDINATES_AT
    counter = 0
    for i in range(k):
        # Draws of two bytes all come before those of one, and a block has an even number of bytes:
        # none is cut by its end.
        drawn = draw_below(block, at, d - i - 1)
        while drawn < 0:
            block = _more(question, counter)
            counter += 1
            drawn = draw_below(block, 0, d - i - 1)
        at = drawn & 63
        # Exchange places i and `draw` of the order, but leave the marks where they are; place i is
        # not needed again, so only the other one is written. Then mark the coordinate.
        draw = i + (drawn >> 6)
        coordinate = order[draw] & 32767
        order[draw] = order[draw] & 32768 | order[i] & 32767
        order[coordinate] |= 32768
    list_marked(order, d, out)
