"""Which k of a client's values it reports.

They are drawn from the digest of the question, which both sides know.
"""

import hashlib
from array import array

from tern.compat import const, micropython, ptr16
from tern.wire import COORDINATES_AT

_DIGEST_BYTES = const(32)  # of a question, and of each further hash


@micropython.viper
def list_marked(marks: ptr16, d: int, out: ptr16):
    """Write the indices of all marks[:d] above 32767 into `out`, in ascending order."""
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
    """Choose k of the coordinates 0 .. d - 1 for a question: all sets of k are equally likely.

    question: its digest, 32 bytes; d: at most 1025; out: an array('H'), which gets them in
    ascending order.

    A partial Fisher-Yates shuffle (Knuth, TAOCP 2, 3.4.2 P) from the digest's last bytes, then from
    hashes of it. No coordinate depends on data.
    """
    if k == d:
        for i in range(d):
            out[i] = i
        return

    # its highest bits: which coordinates are chosen
    order = array("H", range(d)) if k > 1 else None
    block = question
    at = COORDINATES_AT
    counter = 0

    # The smallest 2**b - 1 that covers d - 1.
    mask = 1
    while mask < d - 1:
        mask += mask + 1
    for i in range(k):
        last = d - i - 1
        # A uniform draw from 0 .. last, by rejection; `mask` covers the range, which shrinks.
        while mask >> 1 >= last:
            mask >>= 1
        draw = d
        while draw > last:
            if at == _DIGEST_BYTES:
                block = hashlib.sha256(question + counter.to_bytes(4, "little")).digest()
                counter += 1
                at = 0
            draw = block[at]
            if mask > 255:  # such draws come first: none is cut by the end of a block
                at += 1
                draw |= block[at] << 8
            at += 1
            draw &= mask
        if k == 1:  # nothing to shuffle
            out[0] = draw
            return

        # Exchange places i and `draw` of the order, and mark the coordinate that comes to i.
        draw += i
        coordinate = order[draw] & 32767
        order[draw] = order[draw] & 32768 | order[i] & 32767
        order[coordinate] |= 32768
    list_marked(order, d, out)
