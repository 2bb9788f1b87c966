"""The device library computes what shared_specs/arithmetic.md specifies, for random records and
parameters.
"""

from array import array

import numpy as np
import pytest
from spec.arithmetic import ONE, local_training, mean_gradient, probabilities

from tern import wire
from tern.gradient import Gradient
from tern.inference import Classifier
from tern.local import LocalTrainer


def some_records(rng, c, d):
    edges = rng.integers(0, 2)
    features = rng.choice([-ONE, 0, ONE], (c, d)) if edges else rng.integers(-ONE, ONE + 1, (c, d))
    labels = (
        rng.choice([-ONE, ONE], (c, 1))
        if rng.integers(0, 2)
        else rng.integers(-ONE, ONE + 1, (c, 1))
    )
    return np.concatenate([features, labels], axis=1).tolist()


def some_mantissas(rng, d):
    most = int(rng.choice([3, 1000, 32767]))
    return rng.integers(-most, most + 1, d).tolist()


def gradient_of(model, m, e, records):
    """The mean gradient that the device library computes."""
    gradient, out = Gradient(len(m)), array("h", bytes(2 * len(m)))
    gradient.reset()
    for row in records:
        gradient.add(model, array("h", m), e, array("h", row))
    gradient.finish(out)
    return out.tolist()


@pytest.mark.parametrize("model", [wire.LINEAR, wire.LOGISTIC, wire.SVM])
@pytest.mark.parametrize("seed", range(3))
def test_the_mean_gradient_is_the_specified_one(model, seed):
    rng = np.random.default_rng([model, seed])
    for _ in range(150):
        d, n, e = int(rng.integers(1, 30)), int(rng.integers(1, 33)), int(rng.integers(-30, -11))
        records, m = some_records(rng, n, d), some_mantissas(rng, d)
        assert gradient_of(model, m, e, records) == mean_gradient(model, m, e, records)


@pytest.mark.parametrize("e", [-12, -13, -14])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_kink_of_the_svm_is_where_it_is_specified(e, sign):
    for near, inside in (
        (-1, True),
        (0, False),
        (1, False),
    ):  # y w.x is 1, or one unit below or above
        m, records = [2**-e, 1], [[sign * ONE, sign * near, sign * ONE]]
        gradient = gradient_of(wire.SVM, m, e, records)
        assert gradient == mean_gradient(wire.SVM, m, e, records)
        assert bool(gradient[0]) == inside


@pytest.mark.parametrize("model", [wire.LINEAR, wire.LOGISTIC, wire.SVM, wire.SOFTMAX_GRADIENT])
def test_local_training_is_the_specified_one(model):
    random = np.random.default_rng([model, 9])
    for _ in range(100):
        classes = int(random.integers(2, 7)) if model == wire.SOFTMAX_GRADIENT else 1
        d, count = int(random.integers(1, 8)), int(random.integers(1, 40))
        epochs, batch = int(random.integers(1, 4)), int(random.integers(0, 40))
        rate, exponent = int(random.integers(0, 17)), int(random.integers(-16, -11))
        tau = int(random.choice([1, 7, 2**10, 2**18 + 1, 2**23]))
        mantissas = some_mantissas(random, classes * d)
        records = some_records(random, count, d)
        if classes > 1:
            for record in records:
                record[d] = int(random.integers(-1, classes + 1))  # also none of them

        def read(i, row, records=records):
            row[:] = array("h", records[i])

        trainer, out = LocalTrainer(d, classes), array("h", bytes(2 * classes * d))
        size = min(batch or count, count, wire.MAX_BATCH)
        start = array("h", mantissas)
        list(trainer.steps(model, start, exponent, read, count, epochs, size, rate))
        trainer.report(tau, out)
        specified = local_training(
            model, mantissas, exponent, records, epochs, batch, rate, tau, classes
        )
        assert out.tolist() == specified


def test_probabilities_are_the_specified_ones():
    rng = np.random.default_rng(4)
    for _ in range(300):
        classes, features, e = (
            int(rng.integers(2, 12)),
            int(rng.integers(1, 20)),
            int(rng.integers(-30, -11)),
        )
        q = int(rng.integers(0, 15))
        rows = [some_mantissas(rng, features) for _ in range(classes)]
        x = some_records(rng, 1, features)[0][:-1]
        out = array("h", bytes(2 * classes))
        classifier = Classifier(
            array("h", [mantissa for row in rows for mantissa in row]), e, classes
        )
        classifier.probabilities(array("h", x), out, q)
        assert out.tolist() == probabilities(rows, e, x, q)
