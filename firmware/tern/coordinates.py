"""Which k of a client's values it reports: drawn from the digest of its question, which both sides know."""

from array import array

from tern.compat import micropython, ptr8, ptr16
from tern.entropy import Keyed
from tern.wire import COORDINATES_AT


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


def choose(question, d, k, out):
    """Write k of the coordinates 0..d-1, in ascending order, into the array('H') `out`. question: its digest (bytes).

    A partial Fisher-Yates shuffle (Knuth, TAOCP 2, Algorithm 3.4.2 P) drawn from the last bytes of the digest, and then
    from hashes of it: every set of k is equally likely, and none depends on data.
    """
    if k == d:
        for i in range(d):
            out[i] = i
        return
    stream = Keyed(question, b"")
    stream.give(question[COORDINATES_AT:])
    order = array("H", range(d))
    chosen = bytearray(d)
    for i in range(k):
        j = i + stream.uniform(d - i)
        chosen[order[j]] = 1
        order[j] = order[i]
    list_marked(chosen, d, out)
