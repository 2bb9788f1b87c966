"""Local training in integers: weights stay within 16 bits, and it does not use the heap.

test_arithmetic has its values.
"""

from array import array

from checks import without_heap

from tern import wire
from tern.local import LocalTrainer

ONE = 16384


def reader(rows):
    """A function that copies row i into an array."""

    def read(i, row):
        for j in range(len(row)):
            row[j] = rows[i][j]

    return read


def allocates_nothing(model, labels):
    """Train by the heap that is there: five records of eight features, with these labels in turn."""
    classes = len(labels) if model == wire.SOFTMAX_GRADIENT else 1
    rows = []
    for i in range(5):
        rows.append(array("h", [3000 * (i - j) for j in range(8)] + [labels[i % len(labels)]]))
    trainer, read = LocalTrainer(8, classes), reader(rows)
    weights, out = array("h", range(8 * classes)), array("h", bytes(16 * classes))
    exponent, batch, rate = -12, 2, 2
    list(trainer.steps(model, weights, exponent, read, 5, 1, batch, rate))
    steps, report = trainer.steps(model, weights, exponent, read, 5, 2, batch, rate), trainer.report

    def calls():
        for _ in steps:
            pass
        report(777777, out)

    without_heap(calls)


def test_steps_and_the_report_allocate_nothing():
    allocates_nothing(wire.SVM, (ONE, -ONE))
    allocates_nothing(wire.SOFTMAX_GRADIENT, (0, 1, 2))


def test_weights_of_classes_stay_within_16_bits():
    # A device may train for some steps on its own and report how far the weights moved (divided by
    # tau, clipped to -1..1). The weights must saturate at 16 bits, not wrap around to the other
    # sign.
    # The largest steps, 255 of them, in both directions: the bounds of the scores rest on it.
    trainer, out = LocalTrainer(2, 2), array("h", bytes(8))
    far = (32767, -32767, -32767, 32767)  # of class 0, then of class 1
    for label, ends in ((0, far), (1, tuple([-weight for weight in far]))):
        read = reader([array("h", (ONE, -ONE, label))])

        def moved(weights, tau, read=read):
            """How far the weights move, in shares of tau."""
            list(trainer.steps(wire.SOFTMAX_GRADIENT, weights, -16, read, 1, 255, 0, 0))
            trainer.report(tau, out)
            return list(out)

        # Weights at their ends, by which the record is certain, do not move.
        assert moved(array("h", ends), 1 << 23) == [0, 0, 0, 0]
        opposite = array("h", [-weight for weight in ends])
        assert moved(opposite, 1) == [ONE if weight > 0 else -ONE for weight in ends]
