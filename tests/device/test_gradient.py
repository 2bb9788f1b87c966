"""Integer gradients agree with wide arithmetic, also at the ends of every range, and do not use the
heap.
"""

import math
from array import array

from checks import without_heap
from streams import Words

from tern import gradient, wire

ONE = 16384
MODELS = (wire.LINEAR, wire.LOGISTIC, wire.SVM)
TOLERANCE = ONE >> 9


def record(words, d, binary):
    row = array("h", (words.between(-ONE, ONE) for _ in range(d + 1)))
    if binary:
        row[d] = ONE if words.below(2) else -ONE
    return row


def exact_product(params, exponent, row, d):
    """(numerator, denominator) of w.x; the denominator is 2**(14 - exponent)."""
    return sum(params[j] * row[j] for j in range(d)), 1 << (14 - exponent)


def reference_residual(model, params, exponent, row, d):
    """(numerator, denominator) of r in units of 2**-14: exact for the SVM, for the linear model to
    2**-30.
    """
    top, bottom = exact_product(params, exponent, row, d)
    if model == wire.LINEAR:
        return (top * ONE * 65536 // bottom) - row[d] * 65536, 65536
    sign = 1 if row[d] > 0 else -1
    if model == wire.SVM:
        return (-sign * ONE if sign * top < bottom else 0), 1
    # A device has single floats: their 24 bits make an error of 2**-10 of the tolerance.
    u = sign * ((top * 65536 // bottom) / 65536)
    if u > 80:
        return 0, 1
    return round(-sign * ONE * 256 / (1 + math.exp(max(u, -80)))), 256


def reference(model, params, exponent, rows, d):
    """Mean gradient clipped to [-1, 1], in units of 2**-14: exact but for the last rounding
    (linear, SVM).
    """
    out = []
    if all(row is rows[0] for row in rows):
        rows = rows[:1]  # the mean of equal rows
    residuals = [reference_residual(model, params, exponent, row, d) for row in rows]
    for j in range(d):
        total = sum(r * row[j] * (65536 // unit) for (r, unit), row in zip(residuals, rows))
        out.append(max(-ONE, min(ONE, total // (65536 * ONE * len(rows)))))
    return out


def run(model, params, exponent, rows, d):
    g = gradient.Gradient(d)
    for row in rows:
        g.add(model, params, exponent, row)
    out = array("h", (0 for _ in range(d)))
    g.finish(out)
    return out


def check(model, params, exponent, rows, d, tolerance=TOLERANCE):
    gradient = run(model, params, exponent, rows, d)
    expected = reference(model, params, exponent, rows, d)
    for j in range(d):
        assert abs(gradient[j] - expected[j]) <= tolerance, (
            model,
            exponent,
            d,
            j,
            gradient[j],
            expected[j],
        )


def test_extremes_neither_wrap_nor_lose_precision():
    d = 128
    for model in MODELS:
        for m in (-32768, 32767):
            for x in (-ONE, ONE):
                for y in (-ONE, ONE):
                    for exponent in (-30, -12):
                        params = array("h", (m for _ in range(d)))
                        row = array("h", (x for _ in range(d)))
                        row.append(y)
                        check(model, params, exponent, [row] * 32, d, 8)


def test_largest_sums_stay_in_bounds():
    """The docstring's bounds hold for any int16 values at all, features outside Q1.14 included."""
    d = 128
    sums = array("i", (0, 0))
    for m in (-32768, -1, 255, 32767):
        for x in (-32768, 32767):
            params = array("h", (m for _ in range(d)))
            row = array("h", (x for _ in range(d + 1)))
            gradient.dot(row, 0, params, sums, d)
            assert sums[0] == d * (m >> 8) * x and sums[1] == d * (m & 255) * x
            assert abs(sums[0]) <= 1 << 29 and abs(sums[1]) < 1 << 30
            for model in MODELS:
                g = gradient.Gradient(d)
                for _ in range(32):
                    g.add(model, params, -12, row)
                    assert abs(g.totals[0]) <= g.count * 2047 * 32768 < (1 << 31) - 16
                out = array("h", (0 for _ in range(d)))
                g.finish(out)
                # The total has the sign of the exact one, so nothing wrapped.
                r, _ = reference_residual(model, params, -12, row, d)
                assert (out[0] > 0) == (r * x > 0)


def test_sigmoid_tail_is_exact_at_its_knots_and_close_between_them():
    for i in range(80):
        assert gradient.sigmoid_tail(i << 11) == round(ONE / (1 + math.exp(i / 8))), i
    assert gradient.sigmoid_tail(80 << 11) == 0
    previous = ONE // 2
    for t in range(0, 11 * ONE, 37):
        v = gradient.sigmoid_tail(t)
        assert 0 <= v <= previous
        assert abs(v - ONE / (1 + math.exp(t / ONE))) < 4.2  # 2**-12 = 4 units, and half a rounding
        previous = v
    assert gradient.sigmoid_tail(1 << 25) == 0


def test_add_and_finish_allocate_nothing():
    d = 128
    words = Words(6)
    g = gradient.Gradient(d)
    params = array("h", (words.between(-32768, 32767) for _ in range(d)))
    row = record(words, d, True)
    out = array("h", (0 for _ in range(d)))

    def calls():
        for model in MODELS:
            g.reset()
            for _ in range(32):
                g.add(model, params, -12, row)
            g.finish(out)

    without_heap(calls)
