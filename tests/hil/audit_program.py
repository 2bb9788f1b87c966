"""Runs on a device (MicroPython): counts how often each symbol is drawn.

Started by test_board.py.
"""

from array import array

from tern.boards.this import this_board
from tern.card import decode
from tern.compat import micropython, ptr16, ptr32
from tern.sampler import sample

_AT_ONCE = 256


@micropython.viper
def _tally(symbols: ptr16, n: int, counts: ptr32):
    i = 0
    while i < n:
        counts[symbols[i]] = counts[symbols[i]] + 1
        i += 1


def count(card_bytes, x, n, shift_index=-1, shift_millionths=0):
    """Draw n symbols for the input x (Q1.14); return the count of each.

    shift_index: change this threshold by shift_millionths of itself, which breaks the sampler on
    purpose.
    """
    card = decode(card_bytes)
    if shift_index >= 0:
        threshold = card.thresholds[shift_index]
        card.thresholds[shift_index] = threshold + threshold // 1000 * shift_millionths // 1000
    entropy = this_board().generator()
    xs = array("h", [x] * _AT_ONCE)
    out = array("H", [0] * _AT_ONCE)
    counts = array("I", [0] * card.symbols)
    while n > 0:
        size = min(n, _AT_ONCE)
        sample(card, entropy, xs, out, size)
        _tally(out, size, counts)
        n -= size
    return list(counts)
