"""Which k of the d coordinates a client reports: a keyed hash of (client, round) that both sides know."""

import struct

from tern.compat import micropython, ptr8, ptr16
from tern.entropy import Keyed
from tern.wire import COORDINATES_LABEL


@micropython.viper
def list_marked(marks: ptr8, d: int, out: ptr16):
    """Write the indices of the marks[:d] that are not 0 into `out`, in ascending order."""
    i = 0
    j = 0
    while j < d:
        if marks[j]:
            out[i] = j
            i += 1
        j += 1


@micropython.viper
def gather(values: ptr16, indices: ptr16, k: int, out: ptr16):
    """out[i] = values[indices[i]], for i < k."""
    i = 0
    while i < k:
        out[i] = values[indices[i]]
        i += 1


def choose(key, round_number, d, k, out):
    """Write k of the coordinates 0..d-1, in ascending order, into the array('H') `out`.

    A partial Fisher-Yates shuffle (Knuth, TAOCP 2, Algorithm 3.4.2 P) drawn from the key's public stream: every
    set of k is equally likely, and none depends on data.
    """
    if k == d:
        for i in range(d):
            out[i] = i
        return
    stream = Keyed(key, COORDINATES_LABEL + struct.pack("<I", round_number))
    order = bytearray(range(d))
    chosen = bytearray(d)
    for i in range(k):
        j = i + stream.uniform(d - i)
        chosen[order[j]] = 1
        order[j] = order[i]
    list_marked(chosen, d, out)
