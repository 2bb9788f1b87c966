"""Protected inference on every interpreter: probabilities, their sum, the grid, and what a noised result draws."""

import math
from array import array

from checks import raises, without_heap
from streams import Words

from tern.compat import MICROPYTHON
from tern.inference import Classifier, exp_minus

ONE = 16384


def _exact(parameters, exponent, classes, row):
    features = len(row)
    scale = 2.0**exponent
    z = [
        sum(parameters[i * features + j] * scale * (row[j] / ONE) for j in range(features))
        for i in range(classes)
    ]
    top = max(z)
    e = [math.exp(v - top) for v in z]
    total = sum(e)
    return [v / total for v in e]


def test_exponential():
    for t in range(0, 14 * ONE, 97):
        assert abs(exp_minus(t) / 32768 - math.exp(-t / ONE)) < 1 / 8192
    assert exp_minus(0) == 32768
    assert exp_minus(12 * ONE) == 0
    assert exp_minus(1 << 29) == 0


def test_probabilities_against_exact_ones():
    numbers = Words(1)
    for exponent in (-12, -15, -18, -30):
        for classes in (2, 3, 10, 16):
            features = numbers.between(1, 8)
            parameters = [numbers.between(-32768, 32767) for _ in range(classes * features)]
            row = array("h", [numbers.between(-ONE, ONE) for _ in range(features)])
            out = array("h", bytes(2 * classes))
            Classifier(parameters, exponent, classes).probabilities(row, out)
            for p, exact in zip(out, _exact(parameters, exponent, classes, row)):
                assert abs(p / ONE - exact) < 1 / 2048


def test_no_vector_adds_up_to_more_than_one():
    # that is what bounds the sensitivity: whatever the inputs, at every grid
    numbers = Words(2)
    for case in range(24 if MICROPYTHON else 240):
        classes = numbers.between(2, 128)
        features = numbers.between(1, 3)
        wide = 32767 if case % 3 else 40
        parameters = [numbers.between(-wide - 1, wide) for _ in range(classes * features)]
        row = array("h", [numbers.between(-32768, 32767) for _ in range(features)])
        out = array("h", bytes(2 * classes))
        classifier = Classifier(parameters, -12 - case % 19, classes)
        for grid_bits in (14, 10, 8, 3, 0):
            classifier.probabilities(row, out, grid_bits)
            assert min(out) >= 0
            assert sum(out) <= ONE
            assert all(p % (ONE >> grid_bits) == 0 for p in out)


def test_what_is_out_of_bounds():
    raises(ValueError, Classifier, [1], -12, 1)
    raises(ValueError, Classifier, [1, 2, 3], -12, 2)
    raises(ValueError, Classifier, [1, 2], -11, 2)
    raises(ValueError, Classifier, [1, 2], -31, 2)
    raises(ValueError, Classifier, [], -12, 2)
    raises(ValueError, Classifier, [0] * 258, -12, 2)
    raises(ValueError, Classifier, [0] * 129, -12, 129)
    classifier = Classifier([1, 2], -12, 2)
    raises(ValueError, classifier.probabilities, array("h"), array("h", (0, 0)))
    raises(ValueError, classifier.probabilities, array("h", (0,)), array("h", (0,)))
    raises(ValueError, classifier.probabilities, array("h", (0,)), array("h", (0, 0)), 15)


def test_no_allocation():
    classifier = Classifier([32767, -32768] * 30, -30, 6)
    row = array("h", [-32768] * 10)
    out = array("h", bytes(12))
    without_heap(lambda: classifier.probabilities(row, out, 8))
