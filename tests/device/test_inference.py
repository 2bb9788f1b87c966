"""Protected inference on every interpreter: probabilities, their sum, the grid, and what a noised result draws."""

import math
from array import array

from raising import raises
from spec.cards import laplace, window

from tern.card import decode
from tern.compat import MICROPYTHON
from tern.frames import Round
from tern.inference import Answerer, Classifier, exp_minus
from tern.sampler import sample
from tern.streams import Keyed, Replay

NEEDS = {"test_none_of_many_vectors_adds_up_to_more_than_one": "time"}
ONE = 16384


class Numbers:
    """A generator of test numbers that is the same everywhere."""

    def __init__(self, label):
        self.stream = Keyed(b"test", label)

    def between(self, low, high):
        return low + self.stream.uniform(high - low + 1)


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


def _laplace(*fields):
    return decode(laplace(1_000_000, *fields))


def test_exponential():
    for t in range(0, 14 * ONE, 97):
        assert abs(exp_minus(t) / 32768 - math.exp(-t / ONE)) < 1 / 8192
    assert exp_minus(0) == 32768
    assert exp_minus(12 * ONE) == 0
    assert exp_minus(1 << 29) == 0


def test_probabilities_against_exact_ones():
    numbers = Numbers(b"probabilities")
    for exponent in (-12, -15, -18, -30):
        for classes in (2, 3, 10, 16):
            features = numbers.between(1, 8)
            parameters = [numbers.between(-32768, 32767) for _ in range(classes * features)]
            row = array("h", [numbers.between(-ONE, ONE) for _ in range(features)])
            out = array("h", bytes(2 * classes))
            Classifier(parameters, exponent, classes).probabilities(row, out)
            for p, exact in zip(out, _exact(parameters, exponent, classes, row)):
                assert abs(p / ONE - exact) < 1 / 2048


def sums(cases):
    numbers = Numbers(b"sums")
    for case in range(cases):
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


def test_no_vector_adds_up_to_more_than_one():
    # that is what bounds the sensitivity: whatever the inputs, at every grid
    sums(24)


def test_none_of_many_vectors_adds_up_to_more_than_one():
    sums(120)


def test_equal_classes():
    out = array("h", bytes(6))
    Classifier([0] * 12, -12, 3).probabilities(array("h", [ONE] * 4), out)
    assert list(out) == [5461] * 3
    Classifier([0] * 12, -12, 3).probabilities(array("h", [ONE] * 4), out, 2)
    assert list(out) == [4096] * 3


def test_certain_class():
    out = array("h", bytes(4))
    Classifier([32767, -32768], -12, 2).probabilities(array("h", [ONE]), out, 10)
    assert list(out) == [ONE, 0]


def test_noised_result_draws_what_the_sampler_draws():
    card = _laplace(8, 1024, 2, -2000, 2000)
    classifier = Classifier([900, -300, 20, 70, 5, -2000], -12, 3)
    row = array("h", (ONE, -9000))
    inputs = array("h", bytes(6))
    classifier.probabilities(row, inputs, 8)
    data = bytes((i * 89 + 7) & 255 for i in range(2000))
    expected, out = array("H", bytes(6)), array("H", bytes(6))
    sample(card, Replay(data), inputs, expected, 3)
    classifier.noised(card, Replay(data), row, out)
    assert list(out) == list(expected)
    assert len(set(out)) > 1


def test_on_the_grid_nothing_is_rounded_at_random():
    # the first byte read belongs to the noise: offset 0 (accepted), whole 0, positive; so the outputs are the inputs
    card = _laplace(4, 1, 1, -100, 100)
    classifier = Classifier([900, -300, 20], -12, 3)
    row = array("h", (ONE,))
    inputs = array("h", bytes(6))
    classifier.probabilities(row, inputs, 4)
    out = array("H", bytes(6))
    # t = 1: the offset and its acceptance read nothing; Bernoulli(exp(-1)) fails at k = 2 by an odd byte; then the sign
    classifier.noised(card, Replay(b"\x01\x00" * 3), row, out)
    assert [s - 100 for s in out] == [p >> 10 for p in inputs]


def test_only_a_laplace_card_will_do():
    card = decode(window(1_000_000, 3, 1, 1 << 28))
    classifier = Classifier([1, 2], -12, 2)
    raises(ValueError, classifier.noised, card, Replay(b""), array("h", (0,)), array("H", (0, 0)))


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
    classifier.probabilities(row, out, 8)
    if not MICROPYTHON:
        return
    import micropython

    micropython.heap_lock()
    try:
        classifier.probabilities(row, out, 8)
    finally:
        micropython.heap_unlock()


def test_a_label_is_drawn_by_randomised_response_and_costs_its_card_once():
    request = Round()
    request.round, request.d, request.classes, request.exponent, request.k = 1, 1, 3, -12, 1
    request.parameters = array("h", (5, 900, 900))
    answerer = Answerer(request)
    card = decode(window(1_000_000, 3, 1, 1 << 29))
    assert answerer.cost(card) == 1_000_000
    values = answerer.values(One, One, card)
    assert values[0] == 1
    stream = Keyed(b"labels", b"")
    out = array("H", (0,))
    seen = [0, 0, 0]
    for _ in range(400):
        answerer.draw(card, stream, values, out, 1)
        seen[out[0]] += 1
    assert 160 < seen[1] < 240
    assert seen[0] > 60 and seen[2] > 60
    request.classes = 2
    raises(ValueError, answerer.cost, card)
    request.classes = 3
    request.k = 3
    raises(ValueError, answerer.cost, card)
    request.k = 1
    raises(ValueError, answerer.cost, _laplace(4, 1, 1, -100, 100))


class One:
    """A client of one record."""

    start = 0
    records = 1

    @staticmethod
    def read(_, row):
        row[0] = ONE
