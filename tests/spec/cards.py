"""Cards in the bytes of cards.md.

Runs on MicroPython, too, and imports nothing of the library that it checks.
"""

import struct

T = 1 << 30
_KNOT_BITS = {2: 0, 3: 1, 5: 2, 9: 3, 17: 4, 33: 5}


def table(epsilon, levels, rows, knot_bits=None):
    """A table card. rows: thresholds, a row for each knot. epsilon: in millionths, here and below."""
    if knot_bits is None:
        knot_bits = _KNOT_BITS[len(rows)]
    data = struct.pack("<BIBB", 0x11, epsilon, knot_bits, len(levels))
    data += struct.pack(f"<{len(levels)}b", *levels)
    for row in rows:
        data += struct.pack(f"<{len(row)}I", *row)
    return data


def two_levels(epsilon, low, high):
    """A table with the levels -1 and 1 and two knots: -1 comes in `low` of T draws for the input
    -1, `high` for 1.
    """
    return table(epsilon, (-1, 1), ((low,), (high,)))


def window(epsilon, symbols, width, inside):
    """A window card. inside: the threshold of the window."""
    return struct.pack("<BIHHI", 0x12, epsilon, symbols, width, inside)


def laplace(epsilon, grid_bits, t, s, low, high):
    return struct.pack("<BIBIIii", 0x13, epsilon, grid_bits, t, s, low, high)


def mixture(epsilon, threshold, first, second):
    """A mixture card, which draws from the first card in `threshold` of T draws."""
    return struct.pack("<BIIH", 0x14, epsilon, threshold, len(first)) + first + second


def hierarchy(epsilon, bounds, level_cards, value_cards):
    """A hierarchy card: a window of width 1 and a table of -1 and 1 for each range, from the
    highest down.
    """
    data = struct.pack(f"<BIB{len(bounds)}h", 0x15, epsilon, len(level_cards), *bounds)
    return data + b"".join(level_cards) + b"".join(value_cards)


def sum_card(
    budget,
    norm=2,
    unit=0,
    steps=64,
    reach=1 << 14,
    clipped=0,
    kept=0,
    t=64,
    c=64,
    m=1,
    coarse=0,
    bits=10,
):
    """A sum card: Laplace noise of scale t, or Gaussian noise of variance c t / m. budget: epsilon
    or rho.
    """
    if norm == 1:
        c = m = 0
    return struct.pack(
        "<BIBHHIhhIIIBB",
        0x16,
        budget,
        norm,
        unit,
        steps,
        reach,
        clipped,
        kept,
        t,
        c,
        m,
        coarse,
        bits,
    )


def projection_card(epsilon, n=5, k=8, a=7000, b=1000, radius=1 << 11):
    """A projection card of 2**n directions and their negatives, of which k have the weight a, all
    others b.
    """
    return struct.pack("<BIBBIIH", 0x17, epsilon, n, k, a, b, radius)


THREE_ROWS = (844_000_000, 959_000_000), (114_800_000, 958_900_000), (114_700_000, 229_700_000)
THREE = table(2_000_000, (-1, 0, 1), THREE_ROWS)
