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
from ternhost import vectorised


def some_records(random, count, d):
    """Random records, in one of two tries with features, or labels, at the ends alone."""
    features = random.integers(-ONE, ONE + 1, (count, d))
    labels = random.integers(-ONE, ONE + 1, (count, 1))
    if random.integers(0, 2):
        features = random.choice([-ONE, 0, ONE], (count, d))
    if random.integers(0, 2):
        labels = random.choice([-ONE, ONE], (count, 1))
    return np.concatenate([features, labels], axis=1).tolist()


def some_mantissas(random, count):
    """So many random mantissas, small, middle or of any size."""
    most = int(random.choice([3, 1000, 32767]))
    return random.integers(-most, most + 1, count).tolist()


def gradient_of(model, mantissas, exponent, records):
    """The mean gradient that the device library computes."""
    d = len(mantissas)
    gradient, out = Gradient(d, many=True), array("h", bytes(2 * d))
    gradient.reset()
    for row in records:
        gradient.add(model, array("h", mantissas), exponent, array("h", row))
    gradient.finish(out)
    return out.tolist()


@pytest.mark.parametrize("model", [wire.LINEAR, wire.LOGISTIC, wire.SVM])
@pytest.mark.parametrize("seed", range(3))
def test_the_mean_gradient_is_the_specified_one(model, seed):
    """The device library's gradient equals that of the specification, bit by bit, for random models
    and records in fixed point.
    """
    random = np.random.default_rng([model, seed])
    for _ in range(150):
        d, count = int(random.integers(1, 30)), int(random.integers(1, 80))
        exponent = int(random.integers(-30, -11))
        records, mantissas = some_records(random, count, d), some_mantissas(random, d)
        specified = mean_gradient(model, mantissas, exponent, records)
        assert gradient_of(model, mantissas, exponent, records) == specified


def gradient_in_floats(model, mantissas, exponent, records):
    """The clipped mean gradient in float64."""
    x, y = records[:, :-1] / ONE, records[:, -1] / ONE
    z = x @ (mantissas * 2.0**exponent)
    sign = np.where(y > 0, 1.0, -1.0)
    if model == wire.LINEAR:
        residual = z - y
    elif model == wire.SVM:
        residual = np.where(sign * z < 1, -sign, 0.0)
    else:
        residual = -sign / (1 + np.exp(np.clip(sign * z, -700, 700)))
    return np.clip((residual[:, None] * x).mean(axis=0), -1, 1)


# arithmetic.md allows the logistic model, whose table is interpolated, 2**-9.
LARGEST_ERROR = {wire.LINEAR: 2**-13, wire.LOGISTIC: 2**-11.5, wire.SVM: 2**-13}


@pytest.mark.parametrize("model", LARGEST_ERROR)
@pytest.mark.parametrize("d", [1, 28, 128])
@pytest.mark.parametrize("batch", [1, 32])
def test_the_mean_gradient_is_close_to_that_of_floats(model, d, batch):
    """The gradient in fixed point is near the exact one, for all exponents of a model: the error
    stays below a bound for each model.
    """
    random = np.random.default_rng(d)
    for exponent in range(-30, -11):
        # Small mantissas too, near the sigmoid's bend and the hinge's kink.
        mantissas = random.integers(-32768, 32768, d) >> random.integers(0, 12)
        records = random.integers(-ONE, ONE + 1, (batch, d + 1))
        if model != wire.LINEAR:
            records[:, -1] = random.choice([-ONE, ONE], batch)
        computed = gradient_of(model, mantissas.tolist(), exponent, records.tolist())
        exact = gradient_in_floats(model, mantissas, exponent, records)
        assert np.abs(np.array(computed) / ONE - exact).max() <= LARGEST_ERROR[model]


@pytest.mark.parametrize("exponent", [-12, -13, -14])
@pytest.mark.parametrize("label", [ONE, -ONE])
@pytest.mark.parametrize(("units_beyond_1", "is_inside"), [(-1, True), (0, False), (1, False)])
def test_the_kink_of_the_svm_is_where_it_is_specified(exponent, label, units_beyond_1, is_inside):
    """The label times the score is 1, or one unit below or above: below, the gradient is not 0."""
    sign = label // ONE
    mantissas = [2**-exponent, 1]  # the weights 1 and 2**exponent
    record = [sign * ONE, sign * units_beyond_1, label]
    gradient = gradient_of(wire.SVM, mantissas, exponent, [record])
    assert gradient == mean_gradient(wire.SVM, mantissas, exponent, [record])
    assert bool(gradient[0]) == is_inside


@pytest.mark.parametrize("model", [wire.LINEAR, wire.LOGISTIC, wire.SVM, wire.SOFTMAX_GRADIENT])
def test_local_training_is_the_specified_one(model):
    """Training on a device, for a few epochs in batches, gives the clipped move of the weights that
    the specification gives, bit by bit.
    """
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


def test_probabilities_of_devices_and_of_simulated_clients_are_the_specified_ones():
    """What a classifier says of a record, rounded to a grid, is the same on a device, for simulated
    clients and in the specification.
    """
    random = np.random.default_rng(4)
    for _ in range(300):
        classes, features = int(random.integers(2, 12)), int(random.integers(1, 20))
        exponent, grid_bits = int(random.integers(-30, -11)), int(random.integers(0, 15))
        mantissas = some_mantissas(random, classes * features)
        ((*values, _),) = some_records(random, 1, features)  # without the label

        classifier = Classifier(array("h", mantissas), exponent, classes)
        computed = array("h", bytes(2 * classes))
        classifier.probabilities(array("h", values), computed, grid_bits)

        rows = np.reshape(mantissas, (classes, features))
        specified = probabilities(rows.tolist(), exponent, values, grid_bits)
        assert computed.tolist() == specified
        simulated = vectorised.probabilities(rows, exponent, np.int16([values]), grid_bits)
        assert simulated.tolist() == [specified]
