"""Local training in integers: against wide arithmetic, at the ends of every range, without the heap."""

from array import array

from raising import raises

from tern import local, wire
from tern.compat import MICROPYTHON
from tern.local import LocalTrainer
from tern.streams import Keyed

COMPILED = True
ONE = 16384


class Rows:
    """Records of d random features and a label, the same everywhere."""

    def __init__(self, n, d, label):
        stream = Keyed(b"rows", label)
        self.rows = [
            array(
                "h",
                [stream.uniform(2 * ONE + 1) - ONE for _ in range(d)] + [ONE if stream.uniform(2) else -ONE],
            )
            for _ in range(n)
        ]

    def read(self, i, row):
        source = self.rows[i]
        for j in range(len(row)):
            row[j] = source[j]


def _train(trainer, rows, params, exponent=-12, epochs=2, batch=3, rate=2, model=wire.LOGISTIC):
    trainer.train(model, params, exponent, rows.read, len(rows.rows), epochs, batch, rate)


def test_step_is_exact():
    for shift in (-10, -1, 0, 1, 10):
        fine = array("i", (1000, -1000, 8388000, -8388000, 0, 7))
        gradient = array("h", (ONE, -ONE, -ONE, ONE, -1, 1))
        before = list(fine)
        params = array("h", bytes(12))
        local.step(fine, gradient, params, shift, 6)
        for j in range(6):
            move = gradient[j] * 2**shift if shift >= 0 else (gradient[j] + 2 ** (-shift - 1)) // 2**-shift
            expected = max(-8388352, min(8388352, before[j] - move))
            assert fine[j] == expected
            assert params[j] == (expected + 128) // 256


def test_shares_are_rounded_quotients():
    fine = array("i", (0, 1, -1, 4000, -4000, 8388352, -8388352, 77))
    start = array("h", (0, 0, 0, 0, 0, -32767, 32767, -5))
    out = array("h", bytes(16))
    for tau in (1, 2, 3, 4001, 99999, 1 << 23):
        local.shares(fine, start, tau, out, 8)
        for j in range(8):
            moved = fine[j] - 256 * start[j]
            q = min(ONE, (abs(moved) * ONE * 2 + tau) // (2 * tau))
            assert out[j] == (-q if moved < 0 else q)


def test_training_moves_along_the_gradient():
    # one record, whole batch, one epoch: the move is the gradient times the rate
    rows = Rows(1, 4, b"one")
    trainer = LocalTrainer(4)
    params = array("h", (100, -200, 300, 4))
    _train(trainer, rows, params, epochs=1, batch=0, rate=6)
    out, gradient = array("h", bytes(8)), array("h", bytes(8))
    trainer.report(ONE, out)  # 2**14 fine units are 2**-6: a gradient of 1 is a share of 1
    trainer._gradient.reset()
    trainer._gradient.add(wire.LOGISTIC, params, -12, rows.rows[0])
    trainer._gradient.finish(gradient)
    assert list(out) == [-g for g in gradient]
    assert any(out)


def test_epochs_and_batches():
    rows = Rows(7, 3, b"seven")
    one, two = LocalTrainer(3), LocalTrainer(3)
    params = array("h", (0, 0, 0))
    _train(one, rows, params, epochs=1, batch=3)
    _train(two, rows, params, epochs=2, batch=3)
    a, b = array("h", bytes(6)), array("h", bytes(6))
    one.report(1 << 20, a)
    two.report(1 << 20, b)
    assert list(a) != list(b)
    # the second epoch starts where the first ended: the same as a round from there, up to the rounding of its start
    _train(one, rows, array("h", [f + 128 >> 8 for f in one._fine]), epochs=1, batch=3)
    for fine, other in zip(one._fine, two._fine):
        assert abs(fine - other) < 512


def test_weights_stay_in_range():
    class Extreme:
        rows = (0,) * 32

        def read(self, i, row):
            for j in range(len(row)):
                row[j] = 32767
            row[len(row) - 1] = -ONE

    for exponent in (-16, -12):
        trainer = LocalTrainer(2)
        _train(trainer, Extreme(), array("h", (-32767, 32767)), exponent, epochs=40, batch=1, rate=0)
        assert max(trainer._fine) <= 8388352
        assert min(trainer._fine) >= -8388352


def test_what_is_out_of_bounds():
    trainer, rows, params = LocalTrainer(2), Rows(3, 2, b"x"), array("h", (0, 0))
    raises(ValueError, LocalTrainer, 0)
    raises(ValueError, LocalTrainer, 129)
    raises(ValueError, _train, trainer, rows, array("h", (0,)))
    raises(ValueError, _train, trainer, rows, params, -17)
    raises(ValueError, _train, trainer, rows, params, -11)
    raises(ValueError, _train, trainer, rows, params, -12, 0)
    raises(ValueError, _train, trainer, rows, params, -12, 1, 33)
    raises(ValueError, _train, trainer, rows, params, -12, 1, 1, 17)
    raises(ValueError, _train, trainer, Rows(33, 2, b"y"), params, -12, 1, 0)
    raises(ValueError, trainer.report, 0, params)
    raises(ValueError, trainer.report, (1 << 23) + 1, params)
    raises(ValueError, trainer.report, 5, array("h", (0,)))


def test_no_allocation():
    trainer, rows = LocalTrainer(8), Rows(5, 8, b"heap")
    params, out = array("h", range(8)), array("h", bytes(16))
    read = rows.read
    trainer.train(wire.SVM, params, -12, read, 5, 1, 2, 0)
    if not MICROPYTHON:
        return
    import micropython

    steps, report = trainer.steps(wire.SVM, params, -12, read, 5, 2, 2, 0), trainer.report
    micropython.heap_lock()
    try:
        for _ in steps:
            pass
        report(777777, out)
    finally:
        micropython.heap_unlock()
