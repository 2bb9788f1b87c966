"""Local training in integers: it refuses arguments out of bounds, and does not use the heap."""

from array import array

from checks import without_heap
from streams import Keyed, uniform

from tern import wire
from tern.local import LocalTrainer

ONE = 16384


class Rows:
    """Records of d random features and a label, the same on every interpreter: a sign, or one of
    `classes`.
    """

    def __init__(self, n, d, label, classes=1):
        stream = Keyed(b"rows", label)
        self.rows = []
        for _ in range(n):
            features = [uniform(stream, 2 * ONE + 1) - ONE for _ in range(d)]
            y = uniform(stream, max(2, classes))
            self.rows.append(array("h", features + [y if classes > 1 else ONE if y else -ONE]))

    def read(self, i, row):
        source = self.rows[i]
        for j in range(len(row)):
            row[j] = source[j]


def _train(trainer, rows, params, exponent=-12, epochs=2, batch=3, rate=2, model=wire.LOGISTIC):
    list(trainer.steps(model, params, exponent, rows.read, len(rows.rows), epochs, batch, rate))


def _allocate_nothing(model, classes):
    trainer, rows = LocalTrainer(8, classes), Rows(5, 8, b"heap", classes)
    params, out = array("h", range(8 * classes)), array("h", bytes(16 * classes))
    read = rows.read
    list(trainer.steps(model, params, -12, read, 5, 1, 2, 0))
    steps, report = trainer.steps(model, params, -12, read, 5, 2, 2, 0), trainer.report

    def calls():
        for _ in steps:
            pass
        report(777777, out)

    without_heap(calls)


def test_steps_and_the_report_allocate_nothing():
    _allocate_nothing(wire.SVM, 1)
    _allocate_nothing(wire.SOFTMAX_GRADIENT, 3)


def test_weights_of_classes_stay_within_16_bits():
    # The largest steps, a thousand of them, in both directions: the bounds of the scores rest on
    # it.
    trainer, out = LocalTrainer(2, 2), array("h", bytes(8))
    for label in (0, 1):
        rows = Rows(1, 2, b"far", 2)
        rows.rows = [array("h", (ONE, -ONE, label))]
        params = array(
            "h", (-32767, 32767, 32767, -32767) if label else (32767, -32767, -32767, 32767)
        )
        _train(trainer, rows, params, -16, 255, 0, 0, wire.SOFTMAX_GRADIENT)
        trainer.report(1 << 23, out)
        assert list(out) == [0, 0, 0, 0]  # they were at their ends, and the record is certain
        _train(
            trainer, rows, array("h", (-v for v in params)), -16, 255, 0, 0, wire.SOFTMAX_GRADIENT
        )
        trainer.report(1, out)
        assert list(out) == [ONE if v > 0 else -ONE for v in params]
