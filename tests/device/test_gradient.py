"""Integer gradients stay within 32 bits for any int16 values, and do not use the heap; test_arithmetic
has their values.
"""

import math
from array import array

from checks import without_heap
from streams import Words

from tern import gradient, wire

ONE = 16384
D = 128  # the most features
MODELS = (wire.LINEAR, wire.LOGISTIC, wire.SVM)
MOST_RESIDUAL = 2047  # a longer residual is held to it: the docstring of gradient.py

# Any parameter with any value of a feature, features outside of [-1, 1] included.
EXTREMES = [
    (parameter, value) for parameter in (-32768, -1, 255, 32767) for value in (-32768, 32767)
]


def test_the_largest_products_stay_in_bounds():
    # Boards multiply parameters and features in 32-bit integers, in two parts: by the high and by
    # the low 8 bits of the parameters. Even the most extreme values fit, without the slow big
    # integers of MicroPython.
    sums = array("i", (0, 0))
    for parameter, value in EXTREMES:
        parameters = array("h", [parameter] * D)
        gradient.dot(array("h", [value] * D), 0, parameters, sums, D)
        high, low = sums
        assert high == D * (parameter >> 8) * value and low == D * (parameter & 255) * value
        assert abs(high) <= 1 << 29 and abs(low) < 1 << 30


def test_the_largest_totals_stay_in_bounds():
    # A gradient is a total over the records of a batch; with the most records and the most extreme
    # values it still fits 32 bits.
    for parameter, value in EXTREMES:
        parameters = array("h", [parameter] * D)
        row = array("h", [value] * (D + 1))
        for model in MODELS:
            batch = gradient.Gradient(D)
            for _ in range(wire.MAX_BATCH):
                batch.add(model, parameters, -12, row)
                bound = batch.count * MOST_RESIDUAL * 32768
                assert abs(batch.totals[0]) <= bound < (1 << 31) - 16  # room to round


def test_the_sigmoid_is_exact_at_its_knots():
    for knot in range(80):
        assert gradient.sigmoid_tail(knot << 11) == round(ONE / (1 + math.exp(knot / 8)))
    assert gradient.sigmoid_tail(80 << 11) == gradient.sigmoid_tail(1 << 25) == 0


def test_the_sigmoid_is_close_between_its_knots_and_falls():
    # Boards have no fast floating point: sigmoid_tail(t) is 1 / (1 + e**t), interpolated between
    # the knots of a table, in units of 1 / ONE = 2**-14.
    previous = ONE // 2
    for t in range(0, 11 * ONE, 37):
        value = gradient.sigmoid_tail(t)
        assert 0 <= value <= previous
        # Off by at most 2**-12, which is 4 units, and what is rounded.
        assert abs(value - ONE / (1 + math.exp(t / ONE))) < 4.2
        previous = value


def test_add_and_finish_allocate_nothing():
    # The gradient of a batch is computed without the heap, for each kind of model.
    words = Words(6)
    batch = gradient.Gradient(D)
    parameters = array("h", [words.between(-32768, 32767) for _ in range(D)])
    row = array("h", [words.between(-ONE, ONE) for _ in range(D)] + [ONE])
    out = array("h", bytes(2 * D))

    def calls():
        for model in MODELS:
            batch.reset()
            for _ in range(wire.MAX_BATCH):
                batch.add(model, parameters, -12, row)
            batch.finish(out)

    without_heap(calls)
