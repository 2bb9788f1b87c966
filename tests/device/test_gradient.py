"""Integer gradients stay within 32 bits for any int16 values, and do not use the heap; test_arithmetic
has their values.
"""

import math
from array import array

from checks import raises, without_heap
from streams import Words

from tern import gradient, wire
from tern.residual import SIGMOID, sigmoid_tail
from tern.residual import residual as residual_of

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


def exact_means(residuals, row, range_):
    """The means of arithmetic.md, in integers of any size, of records with the features `row`.

    residuals: pairs of a residual and of how many records have it.
    """
    fine = min(range_, gradient.MAX_FINE)
    n = sum(count for _, count in residuals)
    means = []
    for x in row:
        total = 0
        for residual, count in residuals:
            total += count * ((residual * x + (1 << 13 - fine)) >> 14 - fine)
        mean = ((total << range_ - fine) + (n >> 1)) // n
        means.append(max(-ONE, min(ONE, mean)))
    return means


# Features whose mean is clipped, and some whose mean is just not.
FEATURES = (-32768, 32767, -ONE, ONE, 9, -9, 8, -8, 7, 1, -1, 0, -1000, 1000, 300, -300)


def check_means(d, range_, *blocks):
    """Check the gradient of a batch: blocks of a label and of how many records have it.

    With weights of 0, the residual of the linear model is the label with the other sign. If the
    label is None, a large weight makes it the largest residual that there is from range 7 on.
    """
    row = array("h", [FEATURES[j % len(FEATURES)] for j in range(d)])
    none = array("h", bytes(2 * d))
    large = array("h", [32767] + [0] * (d - 1))  # times the first feature, which is -2
    batch = gradient.Gradient(d, many=True)
    batch.reset(range_)
    residuals = []
    for label, count in blocks:
        largest = -(MOST_RESIDUAL >> min(range_, gradient.MAX_FINE)) * ONE
        residuals.append((largest if label is None else -label, count))
        with_label = row + array("h", [label or 0])
        for _ in range(count):
            batch.add(wire.LINEAR, large if label is None else none, -12, with_label)
    out = array("h", bytes(2 * d))
    batch.finish(out)
    assert list(out) == exact_means(residuals, row, range_), (d, range_, blocks)


def test_a_mean_of_more_than_32_records_is_exact():
    # The totals are carried after 32 records, or just not.
    for n in (31, 32, 33, 63, 64, 65, 97):
        check_means(16, 0, (-9000, n))
        check_means(16, 11, (7, n - 1), (-16384, 1))
        check_means(16, 12, (-ONE, n))


def test_a_mean_of_records_that_nearly_cancel_is_exact():
    # The totals rise far, and fall again.
    check_means(16, 5, (ONE, 250), (-ONE, 249), (3, 1))
    check_means(16, 12, (-ONE, 250), (ONE, 250), (-3, 9))


def test_a_mean_of_16384_records_at_the_extreme_is_exact():
    # Some of these totals need 41 bits. With the range of 12, the limited totals are shifted.
    check_means(D, 7, (None, 16384))
    check_means(2, 12, (None, 16384))


def test_the_largest_totals_of_16384_records_are_carried():
    # All features are the most extreme ones, and so are the parameters: no residual is larger.
    row = array("h", [32767, -32768] * (D // 2) + [0])
    parameters = array("h", [32767, -32768] * (D // 2))
    batch = gradient.Gradient(D, many=True)
    for _ in range(16384):
        batch.add(wire.LINEAR, parameters, -12, row)
    out = array("h", bytes(2 * D))
    batch.finish(out)
    assert list(out) == [ONE, -ONE] * (D // 2)


def test_a_mean_of_the_most_records_is_exact():
    parameters = array("h", [0])
    row = array("h", [-32768, -ONE])
    out = array("h", [0])
    batch = gradient.Gradient(1, many=True)
    batch.reset(range_=10)
    for _ in range(65536):  # one more than a client has
        batch.add(wire.LINEAR, parameters, -12, row)
    batch.finish(out)
    assert out[0] == -ONE


def test_a_batch_without_room_to_carry_has_32_records():
    parameters = array("h", [0])
    row = array("h", [ONE, ONE])
    batch = gradient.Gradient(1)
    for _ in range(32):
        batch.add(wire.SVM, parameters, -12, row)
    raises(ValueError, batch.add, wire.SVM, parameters, -12, row)


def test_a_batch_that_was_not_finished_leaves_nothing_behind():
    batch = gradient.Gradient(1, many=True)
    parameters = array("h", [0])
    out = array("h", [0])
    batch.reset()
    for _ in range(40):
        batch.add(wire.SVM, parameters, -12, array("h", [ONE, ONE]))
    batch.reset()
    for _ in range(50):
        batch.add(wire.SVM, parameters, -12, array("h", [5, -ONE]))
    batch.finish(out)
    assert out[0] == 5


def test_the_sigmoid_is_exact_at_its_knots():
    for knot in range(80):
        assert sigmoid_tail(knot << 11, SIGMOID) == round(ONE / (1 + math.exp(knot / 8)))
    assert sigmoid_tail(80 << 11, SIGMOID) == sigmoid_tail(1 << 25, SIGMOID) == 0


def test_the_sigmoid_is_close_between_its_knots_and_falls():
    # Boards have no fast floating point: sigmoid_tail(t) is 1 / (1 + e**t), interpolated between
    # the knots of a table, in units of 1 / ONE = 2**-14.
    previous = ONE // 2
    for t in range(0, 11 * ONE, 37):
        value = sigmoid_tail(t, SIGMOID)
        assert 0 <= value <= previous
        # Off by at most 2**-12, which is 4 units, and what is rounded.
        assert abs(value - ONE / (1 + math.exp(t / ONE))) < 4.2
        previous = value


def exact_residual(model, total, exponent, fine, label):
    """The residual of arithmetic.md for the score total * 2**exponent, in integers of any size."""
    shift = -exponent
    if model == wire.SVM:
        y = 1 if label > 0 else -1
        return -y * ONE if y * total < ONE << shift else 0
    score = (total >> 8) + (1 << shift - 9) >> shift - 8
    if model == wire.LINEAR:
        limit = (MOST_RESIDUAL >> fine) * ONE
        return max(-limit, min(limit, score - label))
    sigmoid = sigmoid_tail(-score, SIGMOID) if score <= 0 else ONE - sigmoid_tail(score, SIGMOID)
    return sigmoid - (ONE if label > 0 else 0)


def test_residuals_are_exact():
    # Scores at and beside the bounds of each model, and any; every exponent; both labels.
    words = Words(9)
    for model in MODELS:
        for exponent in range(-30, -11, 3):
            one = ONE << -exponent
            near = [unit + part for unit in (-one, 0, one) for part in (-256, -255, -1, 0, 1, 255)]
            for total in near + [words.between(-one, one) * 5 for _ in range(20)]:
                # The two sums of dot(): the high one must fit 30 bits.
                high, low = total >> 8, total & 255
                if not -(1 << 29) <= high <= 1 << 29:
                    continue
                for label, fine in ((ONE, 0), (-ONE, 10)):
                    job = array("i", (high, low, model, exponent, 1, fine))
                    expected = exact_residual(model, total, exponent, fine, label)
                    result = residual_of(job, label, SIGMOID)
                    assert result == expected, (model, total, exponent, fine, label)


def test_add_and_finish_allocate_nothing():
    # The gradient of a batch is computed without the heap, for each kind of model.
    words = Words(6)
    batch = gradient.Gradient(D, many=True)
    parameters = array("h", [words.between(-32768, 32767) for _ in range(D)])
    row = array("h", [words.between(-ONE, ONE) for _ in range(D)] + [ONE])
    out = array("h", bytes(2 * D))

    def calls():
        for model in MODELS:
            batch.reset()
            for _ in range(2 * wire.MAX_BATCH + 1):  # its totals are carried
                batch.add(model, parameters, -12, row)
            batch.finish(out)

    without_heap(calls)
