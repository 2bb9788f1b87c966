"""Protected inference on every interpreter: probabilities, their sum, and their grid."""

import math
from array import array

from checks import without_heap
from streams import Words

from tern.compat import MICROPYTHON
from tern.inference import Classifier, exp_minus

ONE = 16384


def _classifier(parameters, exponent, classes):
    return Classifier(array("h", parameters), exponent, classes)


def _exact(parameters, exponent, classes, row):
    d = len(row)
    scale = 2.0**exponent / ONE
    z = [sum(parameters[i * d + j] * scale * row[j] for j in range(d)) for i in range(classes)]
    weights = [math.exp(v - max(z)) for v in z]
    return [weight / sum(weights) for weight in weights]


def test_exp_minus_is_close_to_the_exponential():
    for t in range(0, 14 * ONE, 97):
        assert abs(exp_minus(t) / 32768 - math.exp(-t / ONE)) < 1 / 8192
    assert exp_minus(0) == 32768
    assert exp_minus(12 * ONE) == 0
    assert exp_minus(1 << 29) == 0


def test_probabilities_are_close_to_exact_ones():
    # Boards compute the probabilities of classes in integers of 2**-14 (ONE is 1). They differ
    # from floating point by less than 1/2048, for parameters in units of 2**exponent.
    numbers = Words(1)
    for exponent in (-12, -15, -18, -30):
        for classes in (2, 3, 10, 16):
            features = numbers.between(1, 8)
            parameters = [numbers.between(-32768, 32767) for _ in range(classes * features)]
            row = array("h", [numbers.between(-ONE, ONE) for _ in range(features)])
            out = array("h", bytes(2 * classes))
            _classifier(parameters, exponent, classes).probabilities(row, out)
            for p, exact in zip(out, _exact(parameters, exponent, classes, row)):
                assert abs(p / ONE - exact) < 1 / 2048


def test_probabilities_add_up_to_at_most_one():
    # grid_bits: probabilities are rounded down to multiples of 2**-grid_bits.
    # This bounds the sensitivity, whatever the inputs, on every grid.
    numbers = Words(2)
    for case in range(24 if MICROPYTHON else 240):
        classes = numbers.between(2, 128)
        features = numbers.between(1, 3)
        wide = 32767 if case % 3 else 40  # parameters are extreme or close together
        parameters = [numbers.between(-wide - 1, wide) for _ in range(classes * features)]
        row = array("h", [numbers.between(-32768, 32767) for _ in range(features)])
        out = array("h", bytes(2 * classes))
        classifier = _classifier(parameters, -12 - case % 19, classes)
        for grid_bits in (14, 10, 8, 3, 0):
            classifier.probabilities(row, out, grid_bits)
            assert min(out) >= 0
            assert sum(out) <= ONE
            assert all(p % (ONE >> grid_bits) == 0 for p in out)


def test_probabilities_allocate_nothing():
    # Six classes with ten features: neither a prediction nor the change to other parameters uses
    # the heap.
    classifier = _classifier([32767, -32768] * 30, -30, 6)
    others = array("h", [1] * 60)
    row = array("h", [-32768] * 10)
    out = array("h", bytes(12))

    def calls():
        classifier.probabilities(row, out, 8)
        classifier.use(others, -12)
        classifier.probabilities(row, out, 8)

    without_heap(calls)
