"""Write shared_specs/vectors/cards.json and sampler.json.

    PYTHONPATH=tests:tests/device python tests/vectors/make_core.py

The cards are small ones chosen by hand; the tests check their meaning by exact enumeration. The
byte streams are SHA-256 in counter mode of each case's comment, so that the file can be made again
byte for byte.
"""

import struct
from array import array
from itertools import accumulate

from parts import VECTORS, case, stream, write
from spec import cards, projection, sums
from spec.cards import laplace, mixture, projection_card, sum_card, two_levels, window
from streams import Replay

from tern import sampler
from tern.card import TABLE, CardError, T, card_hash, certify, decode
from tern.entropy import POSITION
from tern.fixed import EXP_BITS, MAX_EPSILON, exp_lower


def table(epsilon, levels, rows, knot_bits=None):
    """A table card. rows: in how many of T draws each level comes, a row for each knot."""
    return cards.table(epsilon, levels, [list(accumulate(row[:-1])) for row in rows], knot_bits)


def hierarchy(epsilon, bounds, inside, low):
    """A hierarchy: level cards keep the range in `inside` of T draws, value cards err in `low` of T
    at +-1.
    """
    ranges = [window(1, len(inside), 1, p) for p in inside]
    return cards.hierarchy(epsilon, bounds, ranges, [two_levels(1, T - n, n) for n in low])


def half(first, second):
    """A mixture in which each of the two cards comes in half of the draws."""
    return mixture(2_000_000, T // 2, first, second)


# at e**1: 3/(1+3) > 2.71.., so shares of 2.7 : 1
DUCHI_1 = two_levels(1_000_000, 783548893, T - 783548893)
THREE = table(
    2_000_000,
    (-1, 0, 1),
    [
        (844000000, 115000000, 114741824),
        (114800000, 844141824, 114800000),
        (114741824, 115000000, 844000000),
    ],
)
_UNEVEN = [
    [100_000_000 + 30_000_000 * ((i * j + i) % 5) + i + j for j in range(4)] for i in range(9)
]
UNEVEN = table(3_000_000, (-5, -1, 0, 2, 7), [(*row, T - sum(row)) for row in _UNEVEN])
WINDOW = window(2_000_000, 15, 5, 800_000_000)
WINDOW_255 = window(2_000_000, 255, 85, 800_000_000)
GRR_5 = window(1_000_000, 5, 1, 430_000_000)
LAPLACE = laplace(2_000_000, 4, 16, 1, -320, 320)
LAPLACE_FINE = laplace(2_000_000, 14, 16384, 1, -32768, 32767)
_INSIDE, _LOW = (500_000_000, 450_000_000, 400_000_000), (200_000_000, 250_000_000, 300_000_000)
RANGES = hierarchy(7_000_000, (5461, -5461), _INSIDE, _LOW)
TWO_RANGES = hierarchy(2_950_000, (0,), (900_000_000, 600_000_000), (100_000_000, 400_000_000))
MIX = mixture(2_000_000, 400_000_000, WINDOW, THREE)

GOOD = [
    ("two levels, two knots", DUCHI_1),
    ("three levels, three knots", THREE),
    ("five uneven levels, nine knots", UNEVEN),
    ("window of 5 among 15 levels", WINDOW),
    ("window of 85 among 255 levels", WINDOW_255),
    ("randomised response over 5 categories", GRR_5),
    ("laplace on a grid of 1/16", LAPLACE),
    ("laplace on the grid of Q1.14", LAPLACE_FINE),
    ("mixture of a window and a table", MIX),
    ("hierarchy of three ranges", RANGES),
    ("hierarchy of two ranges", TWO_RANGES),
]


def changed(data, offset, layout, *values):
    return data[:offset] + struct.pack(layout, *values) + data[offset + struct.calcsize(layout) :]


HOSTILE = [
    ("empty", b""),
    ("header alone", THREE[:5]),
    ("another version", changed(THREE, 0, "B", 0x21)),
    ("shape 0", changed(THREE, 0, "B", 0x10)),
    ("a table as a sum", changed(THREE, 0, "B", 0x16)),
    ("a table as a projection", changed(THREE, 0, "B", 0x17)),
    ("shape 8", changed(THREE, 0, "B", 0x18)),
    ("a table as a hierarchy", changed(THREE, 0, "B", 0x15)),
    ("epsilon 0", changed(THREE, 1, "<I", 0)),
    ("epsilon above 20", changed(THREE, 1, "<I", 20_000_001)),
    ("epsilon claimed too small", changed(THREE, 1, "<I", 1_900_000)),
    ("more knots than rows", changed(THREE, 5, "B", 2)),
    ("knot bits out of bounds", changed(THREE, 5, "B", 6)),
    ("one level", changed(THREE, 6, "B", 1)),
    ("17 levels", changed(THREE, 6, "B", 17)),
    ("equal levels", changed(THREE, 7, "b", 0)),
    ("levels decreasing", changed(THREE, 7, "b", 1)),
    ("a threshold of 0", changed(THREE, 10, "<I", 0)),
    ("equal thresholds: a level that never comes", changed(THREE, 14, "<I", 844000000)),
    ("a threshold of T", changed(THREE, 14, "<I", T)),
    ("one threshold moved by 2 %", changed(THREE, 10, "<I", 860900000)),
    ("one byte too many", THREE + b"\0"),
    ("window as wide as the levels", changed(WINDOW, 7, "<H", 15)),
    ("window of 0", changed(WINDOW, 7, "<H", 0)),
    ("one level in a window card", changed(WINDOW, 5, "<H", 1)),
    ("257 levels in a window card", changed(WINDOW_255, 5, "<H", 257)),
    ("window probability 0", changed(WINDOW, 9, "<I", 0)),
    ("window probability T", changed(WINDOW, 9, "<I", T)),
    ("window too likely", changed(WINDOW, 9, "<I", 900_000_000)),
    ("window too unlikely: the others tell", changed(WINDOW, 9, "<I", 10_000_000)),
    ("laplace scale too small by one in 16384", changed(LAPLACE_FINE, 6, "<I", 16383)),
    ("laplace scale 0", changed(LAPLACE, 6, "<I", 0)),
    ("laplace divisor 0", changed(LAPLACE, 10, "<I", 0)),
    ("laplace grid too fine", changed(LAPLACE, 5, "B", 15)),
    ("laplace bounds inside the inputs", changed(LAPLACE, 14, "<i", -15)),
    ("laplace bounds exchanged", changed(LAPLACE, 14, "<ii", 320, -320)),
    ("laplace with 65,537 outputs", changed(LAPLACE_FINE, 14, "<ii", -32768, 32768)),
    ("mixture with probability 0", changed(MIX, 5, "<I", 0)),
    ("mixture with a wrong length", changed(MIX, 9, "<H", 12)),
    ("mixture of a mixture", half(MIX, THREE)),
    ("mixture of a laplace card", half(LAPLACE, THREE)),
    ("mixture of more than 256 symbols", half(WINDOW_255, THREE)),
    ("hierarchy of one range", changed(RANGES, 5, "B", 1)),
    ("hierarchy of four ranges in the bytes of three", changed(RANGES, 5, "B", 4)),
    ("hierarchy of 17 ranges", changed(RANGES, 5, "B", 17)),
    ("hierarchy with equal bounds", changed(RANGES, 6, "<hh", 5461, 5461)),
    ("hierarchy with increasing bounds", changed(RANGES, 6, "<hh", -5461, 5461)),
    ("hierarchy with a bound above 1", changed(RANGES, 6, "<h", 16385)),
    ("hierarchy with a bound at -1", changed(RANGES, 8, "<h", -16384)),
    ("hierarchy whose level card has another number of levels", changed(RANGES, 15, "<H", 4)),
    ("hierarchy whose level card has a window of 2", changed(RANGES, 17, "<H", 2)),
    ("hierarchy whose value card has three knots", changed(RANGES, 54, "B", 1)),
    ("hierarchy whose value card has the levels -1 and 2", changed(RANGES, 57, "b", 2)),
    ("hierarchy that claims what the paper states", changed(RANGES, 1, "<I", 1_600_000)),
    ("hierarchy that tells the range too well", changed(RANGES, 19, "<I", 1_073_000_000)),
    ("hierarchy that tells the sign too well", changed(RANGES, 58, "<I", T - 100)),
    ("a byte behind a hierarchy", RANGES + b"\0"),
    ("mixture of a hierarchy", half(RANGES, THREE)),
    ("mixture whose second card leaks", half(WINDOW, changed(THREE, 10, "<I", 860900000))),
    ("mixture whose first card leaks", half(changed(WINDOW, 9, "<I", 900_000_000), THREE)),
    (
        "mixture whose first card lies inside, but keeps the outer epsilon",
        half(changed(WINDOW, 1, "<I", 1), THREE),
    ),
]


def too_small(card):
    """The largest epsilon (micro) that the card does not keep."""
    low, high = 0, card.epsilon
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if certify(card, middle) else (middle, high)
    return low


def around(epsilon):
    """Counts (most, least), with most + least < T, of the ratios next below and next above
    exp_lower.
    """
    top, bottom = exp_lower(epsilon), 1 << EXP_BITS
    low, high = (0, 1), (1, 0)  # down the tree of Stern and Brocot, many steps at once
    while True:
        before = low, high
        steps = (top * low[1] - bottom * low[0]) // max(1, bottom * high[0] - top * high[1])
        steps = min(steps, (T - 1 - sum(low)) // sum(high))
        low = low[0] + steps * high[0], low[1] + steps * high[1]
        steps = (bottom * high[0] - top * high[1] - 1) // max(1, top * low[1] - bottom * low[0])
        steps = min(steps, (T - 1 - sum(high)) // sum(low))
        high = high[0] + steps * low[0], high[1] + steps * low[1]
        if before == (low, high):
            return low, high


def with_ratio(epsilon, most, least):
    rest = T - most - least
    return table(epsilon, (-1, 0, 1), [(most, rest, least), (least, rest, most)])


def claims(data):
    """A card with the smallest claim that it keeps, and with one micro-epsilon less."""
    least = too_small(decode(changed(data, 1, "<I", MAX_EPSILON))) + 1
    return changed(data, 1, "<I", least), changed(data, 1, "<I", least - 1)


def full(p, m):
    """A table with 2**p + 1 knots and m levels."""
    columns = [
        1_000_000 * (20 + (i * (j + 3)) % 7) + i for i in range(2**p + 1) for j in range(m - 1)
    ]
    rows = [columns[i : i + m - 1] for i in range(0, len(columns), m - 1)]
    return table(5_000_000, range(-(m // 2), m - m // 2), [(*row, T - sum(row)) for row in rows], p)


def wrapping():
    """A hierarchy of 16 ranges that keeps epsilon 20, but seems not to if products are cut to 128
    bits.
    """
    bounds = [16384 - i for i in range(15)]
    p = T // 8 + 5
    for n in range(T // 4, T // 2):
        ends = [
            (T - n) * (32768 - up) + n * up for up in (0, 32768)
        ]  # the extremes of a range, x = -1 and 1
        most, least = 15 * p * max(ends), (T - p) * min(ends)
        if most << EXP_BITS > exp_lower(MAX_EPSILON) * least % (1 << 128):
            return hierarchy(MAX_EPSILON, bounds, [p] * 16, [n] * 16)


FULL = full(5, 16)
LAST_SYMBOL = table(
    1, (-1, 0, 1), [(T // 2, T - T // 2 - 1000, 1000), (T // 2 - 9, T - T // 2, 9)], 0
)
_ROWS = (T // 2, 1000, T - T // 2 - 1000), (T // 2 - 8000, 9000, T - T // 2 - 1000)
MIDDLE_SYMBOL = table(1, (-1, 0, 1), _ROWS, 0)
INNER_KNOT = cards.table(1, (-1, 1), ((T // 2,), (T // 10,), (T // 2 + 5,)))
# The worst ratio compares the upper end of the lower range (one below its bound) with its lower
# end.
EVEN, STEEP = two_levels(1, T // 2 + 1, T // 2), two_levels(1, T - 5_000_000, 700_000_000)
UPPER_END = cards.hierarchy(MAX_EPSILON, (0,), [window(1, 2, 1, 900_000_000)] * 2, [EVEN, STEEP])
# And here it compares the lower end of the upper range with its upper end.
MIRRORED = two_levels(1, 700_000_000, T - 5_000_000)
LOWER_END = cards.hierarchy(MAX_EPSILON, (0,), [window(1, 2, 1, 900_000_000)] * 2, [MIRRORED, EVEN])
_INSIDE_16 = [T // 2 - 7**i % 50_000_000 for i in range(16)]
_LOW_16 = [T // 5 + 1_000_000 * i for i in range(16)]
MANY_RANGES = hierarchy(MAX_EPSILON, range(15000, -15000, -2000), _INSIDE_16, _LOW_16)
RANGES_17 = hierarchy(7_000_000, range(8000, -8000, -1000), [T // 17] * 17, [T // 3] * 17)
MANY_EQUAL = hierarchy(
    MAX_EPSILON, [16384 - i for i in range(15)], [T // 8 + 5] * 16, [T // 2 - 9] * 16
)
# 2,000,000 s is far above 20,000,000, and below it modulo 2**32.
WRAPPING = next(s for s in range(3000, 1 << 20) if 2_000_000 * s % (1 << 32) < MAX_EPSILON)
THREE_254 = mixture(5_000_000, T // 2, window(5_000_000, 253, 85, 800_000_000), THREE)

EDGES = [
    ("two equal rows", with_ratio(1, T // 3, T // 3)),
    *(
        (f"a ratio of counts just {name} exp({epsilon} / 10**6)", with_ratio(epsilon, *counts))
        for epsilon in (1, 1_000_000, 5_000_000, 11_000_000, MAX_EPSILON)
        for name, counts in zip(("below", "above"), around(epsilon), strict=True)
    ),
    *(
        (f"{name}, claiming {what}", data)
        for name, card in (
            ("a table whose knot in the middle tells most", INNER_KNOT),
            ("a table whose last symbol tells most", LAST_SYMBOL),
            ("a table whose symbol in the middle tells most", MIDDLE_SYMBOL),
            ("a window of 85 among 255 levels", WINDOW_255),
            ("a hierarchy whose lower range tells most at its upper end", UPPER_END),
            ("a hierarchy whose upper range tells most at its lower end", LOWER_END),
            ("a hierarchy of three ranges", RANGES),
            ("a hierarchy of 16 ranges", MANY_RANGES),
            ("a hierarchy of 16 ranges next to each other", MANY_EQUAL),
        )
        for what, data in zip(
            ("the least it keeps", "one less than it keeps"), claims(card), strict=True
        )
    ),
    ("a hierarchy of 16 ranges at the largest epsilon", MANY_EQUAL),
    ("a hierarchy of 16 ranges whose certificate needs more than 128 bits", wrapping()),
    ("a hierarchy of 17 ranges that is right otherwise", RANGES_17),
    ("a mixture whose first card claims 0", half(changed(WINDOW, 1, "<I", 0), THREE)),
    ("a mixture whose second card claims 0", half(WINDOW, changed(THREE, 1, "<I", 0))),
    ("a hierarchy whose level card claims 0", changed(RANGES, 11, "<I", 0)),
    ("a hierarchy whose value card claims 0", changed(RANGES, 50, "<I", 0)),
    ("65 knots, which are too many", full(6, 2)),
    ("a table of 17 levels that is right otherwise", full(0, 17)),
    ("a table of one level that is right otherwise", table(1, (0,), [(T,), (T,)])),
    (
        "a mixture of a table and a laplace card of 33 symbols",
        half(THREE, laplace(2_000_000, 4, 16, 1, -16, 16)),
    ),
    ("a card of 2,048 bytes", mixture(5_000_000, T // 2, FULL, full(1, 3))),
    ("a card of 2,049 bytes", mixture(5_000_000, T // 2, FULL, full(0, 4))),
    ("a mixture of 256 symbols", THREE_254),
    ("a mixture of 257 symbols", mixture(5_000_000, T // 2, WINDOW_255, DUCHI_1)),
    ("laplace of the largest t and s", laplace(2_000_000, 0, 1 << 20, 1 << 20, -1, 1)),
    ("laplace, 2**55 against 2**41", laplace(2_000_000, 14, 1 << 20, 1 << 20, -32768, 32767)),
    ("laplace, small modulo 2**32", laplace(MAX_EPSILON, 0, 1, WRAPPING, -320, 320)),
    ("laplace t above 2**20", laplace(2_000_000, 4, (1 << 20) + 1, 1, -320, 320)),
    ("laplace s above 2**20", laplace(MAX_EPSILON, 0, 1 << 20, (1 << 20) + 1, -320, 320)),
    ("laplace lo so low that hi - lo is above 2**31", laplace(2_000_000, 4, 16, 1, -(2**31), 320)),
    (
        "laplace hi so high that hi - lo is above 2**31",
        laplace(2_000_000, 4, 16, 1, -320, 2**31 - 1),
    ),
    ("laplace lo above -(2**q)", laplace(2_000_000, 4, 16, 1, -15, 320)),
    ("laplace hi below 2**q", laplace(2_000_000, 4, 16, 1, -320, 15)),
]


def card_case(comment, data, flags):
    test = {"comment": comment, "flags": flags, "card": data.hex()}
    test.update(decodes=False, certified=False, result="invalid")
    try:
        card = decode(data)
    except CardError:
        return test
    certified = certify(card)
    test.update(decodes=True, certified=certified, symbols=card.symbols, hash=card_hash(data).hex())
    test["result"] = "valid" if certified else "invalid"
    if certified:
        test["too_small"] = too_small(card)
    return test


XS = [-16384, 16384, 0, 1, -1, 8192, -8191, 12345, -4096, 16383, -16383, 5, 2048, -2047, 9999, 6553]


def drawn(card, xs, data):
    """(symbols for these inputs, number of bytes drawn)."""
    replay = Replay(data)
    out = array("H", [0] * len(xs))
    sampler.sample(card, replay, array("h", xs), out, len(xs))
    return list(out), replay.cursor[POSITION]


def sample_case(comment, data, xs=XS, begin=b""):
    """A case whose stream begins with the bytes `begin`."""
    drawn_from = begin + stream(comment, 1200)
    symbols, used = drawn(decode(data), xs, drawn_from)
    flags = ["thresholds"] if data[0] == 0x11 and data[6] < 4 else []
    given = {"card": data, "xs": xs, "stream": drawn_from[: used + 2]}
    return case(comment, "valid", flags, **given, symbols=symbols, bytes_used=used)


def near(data, xs):
    """A stream in which the bytes for each input begin as one of its thresholds, up to a byte that
    is one off.
    """
    card = decode(data)
    data_near = b""
    for i, x in enumerate(xs):
        if card.shape == TABLE:
            b = (x + 16384) << card.knot_bits
            knot, f = (b >> 15, b & 32767) if x < 16384 else ((1 << card.knot_bits) - 1, 1 << 15)
            j = knot * (card.symbols - 1) + i % (card.symbols - 1)
            c, after = card.thresholds[j], card.thresholds[j + card.symbols - 1]
            digits = ((c << 15) + (after - c) * f << 3).to_bytes(6, "big")
        else:
            b = (x + 16384) * (card.symbols - card.window)
            digits = (b << 1 & 65535).to_bytes(2, "big") if i % 3 == 2 and b & 32767 else b""
            if not digits and b & 32767:
                digits = b"\0\0"  # below the fraction
            digits += (card.threshold << 2).to_bytes(4, "big")
        same = i * 5 % (len(digits) + 1)
        following = [(digits[same] + (1, 255)[i // 2 % 2]) & 255] if same < len(digits) else []
        attempt = data_near + digits[:same] + bytes(following) + stream(f"near {i}", 60)
        data_near = attempt[: drawn(card, xs[: i + 1], attempt)[1]]
    return data_near


HALF = T // 2
# Halves and quarters: the last bytes of a threshold are 0, and a draw is decided before them.
_ROUND = (HALF, T // 8, 3 * T // 8), (T // 4, T // 2, T // 4), (T // 8, T // 8, 3 * T // 4)
ROUND = table(4_000_000, (-1, 0, 1), _ROUND)
_CLOSE = [(*[n] * 15, T - 15 * n) for n in (1 << 22, 3 + (1 << 26))]
CLOSE = table(20_000_000, range(-8, 8), _CLOSE)
XS_TWICE = XS + [x + (x < 16384) for x in XS]
ON_GRID = [-16384, 16384, 0, 0, 16384, -16384, 0, 16384] * 3
LAPLACE_0 = laplace(2_000_000, 0, 1, 1, -9, 9)
LAPLACE_FINEST = laplace(1_000_000, 14, 1 << 20, 32, -32768, 32767)

SAMPLES = [
    *(
        ("thresholds met: " + comment, data, XS_TWICE, near(data, XS_TWICE))
        for comment, data in (
            ("two levels", DUCHI_1),
            ("three levels", THREE),
            ("thresholds that end in zeros", ROUND),
            ("five uneven levels", UNEVEN),
            ("sixteen levels", CLOSE),
            ("randomised response over 5 categories", GRR_5),
            ("a window of probability 1/2", window(2_000_000, 4, 2, HALF)),
            ("two levels, probability 3/4", window(2_000_000, 2, 1, 3 * T // 4)),
        )
    ),
    (
        "laplace on the grid of whole numbers: nothing is rounded, and there is no negative 0",
        LAPLACE_0,
        ON_GRID,
    ),
    ("laplace, and uniform(256) takes one byte", laplace(1_000_000, 7, 256, 1, -1280, 1280), XS),
    (
        "laplace, and uniform(257) takes two bytes",
        laplace(1_000_000, 7, 257, 1, -1280, 1280),
        XS[:8],
    ),
    (
        "laplace, and uniform(65536) takes two bytes",
        laplace(500_000, 14, 65536, 1, -32768, 32767),
        XS[:8],
    ),
    ("laplace, and uniform(2**20) takes three bytes", LAPLACE_FINEST, XS[:8]),
]


GAUSSIAN = sum_card(50_784, 2, 1, 16, 1 << 14, 12, -16, 71, 71, 1, 2, 8)
LAPLACIAN = sum_card(2_000_000, 1, 60, 12, 1000, -4, 3, 8, bits=6)
MOST = sum_card(20_000_000, 2, 65535, 4096, (1 << 30) - 1, 4096, -4096, 1 << 20, 1 << 19, 1, 20, 16)
SUMS = [
    ("a sum with Gaussian noise", GAUSSIAN),
    ("a sum with Laplace noise", LAPLACIAN),
    (
        "a sum with the least noise that can be claimed",
        sum_card(20_000_000, 2, 1, 1, 1, 0, 0, 1, 1, 40, 0, 2),
    ),
    ("a sum with c of 4 t m", sum_card(20_000_000, t=3, c=24, m=2, steps=3)),
    ("a sum of large products", sum_card(20_000_000, 2, 1, 4096, t=1021, c=1022)),
    ("a sum of the largest fields", MOST),
    (
        "a sum with t m of 2**20, which is 64 c",
        sum_card(20_000_000, t=1, c=1 << 14, m=1 << 20, steps=1),
    ),
    ("a sum with the largest Laplace noise", sum_card(2, 1, t=1 << 20, steps=1)),
    (
        "a sum over a whole device with Gaussian noise",
        sum_card(200_000, 2, 0, 16, 1 << 14, 12, -16, 72, 72),
    ),
    (
        "a sum over a whole device with Laplace noise",
        sum_card(4_000_000, 1, 0, 12, 1000, -4, 3, 8, bits=6),
    ),
    (
        "a sum over a whole device of large products",
        sum_card(20_000_000, 2, 0, 4096, t=1300, c=1300),
    ),
]
BAD_SUMS = [
    (f"a sum: {comment}", changed(card, *change))
    for comment, card, *change in (
        ("norm 0", GAUSSIAN, 5, "B", 0),
        ("norm 3", GAUSSIAN, 5, "B", 3),
        ("R 0", GAUSSIAN, 8, "<H", 0),
        ("norm 1 with c and m", GAUSSIAN, 5, "B", 1),
        ("norm 1 with m", LAPLACIAN, 26, "<I", 1),
        ("norm 2 without c and m", LAPLACIAN, 5, "B", 2),
        ("R 4097", MOST, 8, "<H", 4097),
        ("r 0", MOST, 10, "<I", 0),
        ("r 2**30", GAUSSIAN, 10, "<I", 1 << 30),
        ("a tally of 4097", MOST, 14, "<h", 4097),
        ("a tally of -4097", MOST, 16, "<h", -4097),
        ("a tally of -32768", MOST, 14, "<h", -32768),
        ("t 0", LAPLACIAN, 18, "<I", 0),
        ("t 2**20 + 1", LAPLACIAN, 18, "<I", (1 << 20) + 1),
        ("c 0", GAUSSIAN, 22, "<I", 0),
        ("m 0", GAUSSIAN, 26, "<I", 0),
        ("c 2**19 + 1", MOST, 22, "<I", (1 << 19) + 1),
        ("t m above 2**20", MOST, 26, "<I", 2),
        ("t m of 2**32", MOST, 26, "<I", 1 << 12),
        ("c above 4 t m", SUMS[3][1], 22, "<I", 25),
        ("t m above 64 c", SUMS[6][1], 22, "<I", (1 << 14) - 1),
        ("q 21", GAUSSIAN, 30, "B", 21),
        ("b 1", GAUSSIAN, 31, "B", 1),
        ("b 17", GAUSSIAN, 31, "B", 17),
        ("claims 0", GAUSSIAN, 1, "<I", 0),
        ("claims above 20", GAUSSIAN, 1, "<I", 20_000_001),
        ("a byte too many", GAUSSIAN, 32, "B", 0),
        ("only the radius keeps it", LAPLACIAN, 1, "<I", 1_500_000),
    )
]
BAD_SUMS.append(("a mixture of a sum", half(GAUSSIAN, THREE)))
_CLAIMS = "the least it keeps", "one less than it keeps"
SUM_EDGES = [
    (f"{name}, claiming {what}", data)
    for name, card in [*SUMS[:5], *SUMS[8:]]
    for what, data in zip(_CLAIMS, claims(card), strict=True)
]


PROJECTION = projection_card(2_000_000)
OF_128 = projection_card(4_000_000, 7, 40, 5459, 100, 1 << 14)
LIKELIEST = projection_card(20_000_000, 1, 1, (1 << 20) - 3, 1, 1)
ONE_OF_256 = projection_card(8_000_000, 7, 1, (1 << 20) - 255 * 352, 352, 1 << 15)
PROJECTIONS = [
    ("a projection on 64 directions", PROJECTION),
    ("a projection on 256 directions", OF_128),
    ("a projection of the largest a and the least R, on 4 directions", LIKELIEST),
    ("a projection with Z of 2**20, one direction of 256, and the largest R", ONE_OF_256),
    ("a projection with k of N", projection_card(20_000_000, 3, 8, 131_071, 1, 9)),
    (
        "a projection whose directions are all as likely",
        projection_card(1, 7, 128, 1 << 12, 1 << 12),
    ),
]
# exp_lower times b is far above a * 2**40, and below it modulo 2**64.
_B = next(
    b
    for b in range(1, 99)
    if exp_lower(MAX_EPSILON) * b % (1 << 64) < (1 << 20) - 3 * b << EXP_BITS
)
PROJECTIONS.append(
    ("a projection, small modulo 2**64", projection_card(MAX_EPSILON, 1, 1, (1 << 20) - 3 * _B, _B))
)
BAD_PROJECTIONS = [
    (f"a projection: {comment}", changed(card, *change))
    for comment, card, *change in (
        ("n 0", projection_card(9_000_000, 1, 1), 5, "B", 0),
        ("n 8", OF_128, 5, "B", 8),
        ("k 0", PROJECTION, 6, "B", 0),
        ("k above N", projection_card(2_000_000, 5, 32), 6, "B", 33),
        ("k of 2 N", PROJECTION, 6, "B", 64),
        ("a below b", PROJECTION, 7, "<I", 999),
        ("a 0", PROJECTION, 7, "<I", 0),
        ("b 0", PROJECTION, 11, "<I", 0),
        ("Z above 2**20", LIKELIEST, 7, "<I", (1 << 20) - 2),
        ("a above 2**20", LIKELIEST, 7, "<I", (1 << 20) + 1),
        ("Z above 2**20 by b", ONE_OF_256, 11, "<I", 353),
        ("a of 2**31", OF_128, 7, "<I", 1 << 31),
        ("Z of 2**32", projection_card(20_000_000, 1, 1), 7, "<II", 1 << 30, 1 << 30),
        ("R 0", PROJECTION, 15, "<H", 0),
        ("R above 2**15", ONE_OF_256, 15, "<H", (1 << 15) + 1),
        ("claims 0", PROJECTION, 1, "<I", 0),
        ("claims above 20", PROJECTION, 1, "<I", 20_000_001),
        ("a byte too many", PROJECTION, 17, "B", 0),
        ("leaks", PROJECTION, 7, "<I", 7390),
    )
]
BAD_PROJECTIONS.append(("a mixture of a projection", half(PROJECTION, THREE)))
PROJECTION_EDGES = [
    (f"{name}, claiming {what}", data)
    for name, card in PROJECTIONS[:5]
    for what, data in zip(_CLAIMS, claims(card), strict=True)
]


def some_values(comment, d):
    """Q1.14 values that the comment determines."""
    data = stream(comment, 2 * d)
    return [int.from_bytes(data[2 * j : 2 * j + 2], "little") % 32769 - 16384 for j in range(d)]


VECTORS_OF_VALUES = [
    ("any values, fewer than N", PROJECTION, some_values("28 values", 28)),
    ("any values, N of 128", OF_128, some_values("128 values", 128)),
    ("zeros, whose coordinates are all equal", PROJECTION, [0] * 32),
    ("a single value: coordinates of one size and any sign", PROJECTION, [0, 0, -16384, 0]),
    (
        "all values 1, of the largest length",
        projection_card(4_000_000, 7, 40, 5459, 100, 23170),
        [16384] * 128,
    ),
    ("all values -1, longer than R", OF_128, [-16384] * 128),
    (
        "values of 1 and -1, many of them equal",
        OF_128,
        [16384 - 32768 * (i * i % 7 % 2) for i in range(100)],
    ),
    ("few small values, rounded to eighths", PROJECTION, [4, -4, 3, -3, 11, 12, -12, 5]),
    ("two values on 4 directions", projection_card(3_000_000, 1, 1, 20, 1, 2048), [9000, -700]),
    ("a value on 4 directions, of the largest a", LIKELIEST, [-7]),
    ("one likelier direction", ONE_OF_256, some_values("100 values", 100)),
    ("N likelier directions", PROJECTIONS[4][1], some_values("8 values", 8)),
]


def projection_case(comment, card, values):
    """Draws at both ends of each step of the two numbers, and any."""
    fields = struct.unpack_from("<BBIIH", card, 5)
    n, k, a, b, radius = fields
    total = k * a + (2 * 2**n - k) * b
    right = radius + min(projection.length(values), radius)
    firsts = sorted({0, right - 1, min(right, 2 * radius - 1), 2 * radius - 1})
    steps = [0, a, (k - 1) * a, k * a, k * a + b, k * a + k * b, k * a + (k + 1) * b, total]
    seconds = sorted({u for step in steps for u in (step - 1, step) if 0 <= u < total})
    pairs = [(firsts[0], second) for second in seconds] + [(first, a) for first in firsts[1:]]
    data = b"".join(
        number.to_bytes((sums.bits(bound - 1) + 7) // 8, "little")
        for pair in pairs
        for number, bound in zip(pair, (2 * radius, total), strict=True)
    )
    data += stream(comment, 400)
    question, replay = stream(f"question of {comment}", 32), Replay(data)
    symbols = [
        projection.symbol(replay.byte, values, question, *fields) for _ in range(len(pairs) + 6)
    ]
    used = replay.cursor[POSITION]
    return case(
        comment,
        "valid",
        card=card,
        question=question,
        values=values,
        stream=data[: used + 2],
        symbols=symbols,
        bytes_used=used,
    )


def sum_case(comment, card, values):
    t, c, m, coarse, b = struct.unpack_from("<IIIBB", card, 18)
    data = stream(comment, 1200)
    replay = Replay(data)
    symbols = [sums.symbol(value + sums.noise(replay.byte, t, c, m), coarse, b) for value in values]
    used = replay.cursor[POSITION]
    fields = {
        "card": card,
        "sums": values,
        "stream": data[: used + 2],
        "symbols": symbols,
        "bytes_used": used,
    }
    return case(comment, "valid", **fields)


EPSILONS = [
    1,
    2,
    999_999,
    693_147,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    16_635_532,
    16_635_533,
    19_999_999,
    MAX_EPSILON,
]


def exp_case(epsilon):
    return case("exp_lower", "valid", epsilon=epsilon, exp_lower=f"{exp_lower(epsilon):032x}")


def main():
    tests = [card_case(c, d, []) for c, d in GOOD] + [
        card_case(c, d, ["hostile"]) for c, d in HOSTILE
    ]
    edges = [
        card_case(c, d, [])
        for c, d in (
            *EDGES,
            *SUMS,
            *BAD_SUMS,
            *SUM_EDGES,
            *PROJECTIONS,
            *BAD_PROJECTIONS,
            *PROJECTION_EDGES,
        )
    ]
    for test in edges:
        test["flags"] = [] if test["certified"] else ["hostile"]
    write(
        VECTORS / "cards.json",
        "cards.md: decodes and certified as stated; too_small: the largest micro-epsilon that is not kept",
        tests=tests + edges,
        exp_lower=[exp_case(epsilon) for epsilon in EPSILONS],
    )
    write(
        VECTORS / "sampler.json",
        "cards.md: symbols that these bytes draw for these inputs; for these sums, to each of which noise is added; "
        "of projections for these values and this question, one after the other",
        tests=[sample_case(c, d) for c, d in GOOD] + [sample_case(*sample) for sample in SAMPLES],
        sums=[sum_case(c, d, [0, 1, -1, 100, -3000, 1 << 28, -(1 << 28), 5]) for c, d in SUMS],
        projections=[projection_case(*vector) for vector in VECTORS_OF_VALUES],
    )


if __name__ == "__main__":
    main()
