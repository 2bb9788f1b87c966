"""Runs on an emulated Pico: counts the cycles of the leaves of a report about a whole vector, and
of its whole draw.
"""

import gc
import os
import struct
from array import array

from machine import disable_irq, enable_irq, mem32

from tern import projection
from tern.card import decode
from tern.fixed import ONE
from tern.rotation import find, rotate

_COUNTER = 0xE000E018  # SysTick's, of cycles, downwards
mem32[_COUNTER - 4] = 0xFFFFFF
mem32[_COUNTER - 8] = 5


class Fixed:
    """A stream of the same bytes for each draw, a ROUND, and what has computed values."""

    def __init__(self, values):
        self.result = values
        self.values = len(values)
        self.pool = bytearray(
            b"\xdc\5" + bytes(8)
        )  # 1500 of 2 R, which turns those shorter than 501
        self.cursor = array("i", (0, 6))


def counted(
    call, disable=disable_irq, enable=enable_irq, counter=mem32, at=_COUNTER
):  # looking names up takes time
    state = disable()
    try:
        start = counter[at]
        call()
        return start - counter[at] & 0xFFFFFF
    finally:
        enable(state)


def random_values(size):
    """Bytes of Q1.14 values."""
    low, high = [int.from_bytes(os.urandom(2 * size), "little") for _ in range(2)]
    ones = ((1 << 16 * size) - 1) // 0xFFFF
    return (low & 0x3FFF * ones | (high & ones) * 0xC000).to_bytes(2 * size, "little")


def special_values(kind, size):
    """Zeros, extremes, ties, and a single one."""
    if kind < 3:
        return array("h", [(0, ONE, -ONE)[kind]] * size)
    bits = os.urandom(size)
    if kind < 5:
        return array("h", [(ONE, -ONE, 0, 0)[bit & (1, 3)[kind - 3]] for bit in bits])
    return array("h", [ONE * (j == bits[0] % size) for j in range(size)])


def leaves(n, count):
    """(Least, most) cycles of each leaf, and of a draw, for `count` inputs."""
    size = 1 << n
    values = array("h", bytes(2 * size))
    vector = array("i", bytes(4 * size))
    signs = bytearray(64)
    fixed = Fixed(values)
    answerer = projection.Answerer(fixed)
    answerer.result = values
    projection.signs_of = lambda question, size: signs  # SHA-256 is the firmware's
    card = decode(struct.pack("<BIBBIIH", 0x17, 20000000, n, size >> 1, 3, 1, 1000))
    top = card.body.top
    out = array("H", (0,))
    norm, spread = projection.norm, projection.spread
    collect = gc.collect
    wanted = 0
    calls = (
        lambda: norm(values, size),
        lambda: spread(values, size, vector, size),
        lambda: rotate(vector, signs, size),
        lambda: find(vector, size, wanted, top),
        lambda: answerer.draw(card, fixed, None, out, 1),
    )
    least = array("i", [1 << 24] * len(calls))
    most = array("i", [0] * len(calls))
    for i in range(count):
        kind = i % 12
        memoryview(values)[:] = array(
            "h", random_values(size) if kind > 5 else special_values(kind, size)
        )
        signs[:] = os.urandom(64)
        wanted = signs[0] % size
        # Of 3 N draws those below 3 N / 2 are likely, the next N / 2 are their opposites, and then
        # the others.
        fixed.pool[2:4] = (size * (0, 3, 4, 5, 6)[i // 12 % 5] // 2 - (i // 12 % 5 == 4)).to_bytes(
            2, "little"
        )
        for k in range(len(calls)):
            fixed.cursor[0] = 0
            if k == 3 and kind == 11:  # ties of the largest
                for j in range(size):
                    vector[j] = (signs[j % 32] % 3 - 1) * top
            if k == 4:  # names that were looked up last are found sooner
                calls[k]()
                fixed.cursor[0] = 0
                collect()  # and it looks for room at the same places
            cycles = counted(calls[k])
            if not i:  # the first of all looks up what later ones remember
                continue
            least[k] = min(least[k], cycles)
            most[k] = max(most[k], cycles)
    return [(least[k], most[k]) for k in range(len(calls))]
