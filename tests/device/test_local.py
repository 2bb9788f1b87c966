"""Local training in integers: it refuses arguments out of bounds, and does not use the heap."""

from array import array

from checks import raises, without_heap
from streams import Keyed, uniform

from tern import wire
from tern.local import LocalTrainer

COMPILED = True
ONE = 16384


class Rows:
    """Records of d random features and a label, the same on every interpreter."""

    def __init__(self, n, d, label):
        stream = Keyed(b"rows", label)
        self.rows = []
        for _ in range(n):
            features = [uniform(stream, 2 * ONE + 1) - ONE for _ in range(d)]
            self.rows.append(array("h", features + [ONE if uniform(stream, 2) else -ONE]))

    def read(self, i, row):
        source = self.rows[i]
        for j in range(len(row)):
            row[j] = source[j]


def _train(trainer, rows, params, exponent=-12, epochs=2, batch=3, rate=2, model=wire.LOGISTIC):
    list(trainer.steps(model, params, exponent, rows.read, len(rows.rows), epochs, batch, rate))


def test_arguments_out_of_bounds_are_refused():
    trainer, rows, params = LocalTrainer(2), Rows(3, 2, b"x"), array("h", (0, 0))
    raises(ValueError, LocalTrainer, 0)
    raises(ValueError, LocalTrainer, 129)
    raises(ValueError, _train, trainer, rows, array("h", (0,)))
    for arguments in ((-17,), (-11,), (-12, 0), (-12, 1, 33), (-12, 1, 1, 17)):
        raises(ValueError, _train, trainer, rows, params, *arguments)
    raises(ValueError, _train, trainer, Rows(33, 2, b"y"), params, -12, 1, 0)
    raises(ValueError, trainer.report, 0, params)
    raises(ValueError, trainer.report, (1 << 23) + 1, params)
    raises(ValueError, trainer.report, 5, array("h", (0,)))


def test_steps_and_the_report_allocate_nothing():
    trainer, rows = LocalTrainer(8), Rows(5, 8, b"heap")
    params, out = array("h", range(8)), array("h", bytes(16))
    read = rows.read
    list(trainer.steps(wire.SVM, params, -12, read, 5, 1, 2, 0))
    steps, report = trainer.steps(wire.SVM, params, -12, read, 5, 2, 2, 0), trainer.report

    def calls():
        for _ in steps:
            pass
        report(777777, out)

    without_heap(calls)
