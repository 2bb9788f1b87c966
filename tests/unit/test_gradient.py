"""The device's gradient against a float64 reference, on random and on extreme records."""

from array import array

import numpy as np
import pytest

from tern import wire
from tern.gradient import Gradient

ONE = 16384
MODELS = (wire.LINEAR, wire.LOGISTIC, wire.SVM)


def reference(model, mantissas, exponent, rows):
    """The clipped mean gradient in float64.

    Its dot products are exact: at most 2**36 units of 2**(exponent - 14).
    """
    x, y = rows[:, :-1] / ONE, rows[:, -1] / ONE
    z = x @ (mantissas * 2.0**exponent)
    if model == wire.LINEAR:
        residual = z - y
    else:
        sign = np.where(y > 0, 1.0, -1.0)
        if model == wire.SVM:
            residual = np.where(sign * z < 1, -sign, 0.0)
        else:
            residual = -sign / (1 + np.exp(np.clip(sign * z, -700, 700)))
    return np.clip((residual[:, None] * x).mean(axis=0), -1, 1)


def device(model, mantissas, exponent, rows):
    """The clipped mean gradient that the device computes, as floats."""
    d = len(mantissas)
    gradient, out = Gradient(d), array("h", bytes(2 * d))
    parameters = array("h", mantissas.astype(np.int16).tobytes())
    for row in rows:
        gradient.add(model, parameters, exponent, array("h", row.astype(np.int16).tobytes()))
    gradient.finish(out)
    return np.array(out) / ONE


# By arithmetic.md, which allows the logistic model, whose table is interpolated, 2**-9.
LARGEST_ERROR = {wire.LINEAR: 2**-13, wire.LOGISTIC: 2**-11.5, wire.SVM: 2**-13}


def largest_error(model, mantissas, exponent, rows):
    """The largest distance of a coordinate of the device's gradient from the reference."""
    computed = device(model, mantissas, exponent, rows)
    return np.abs(computed - reference(model, mantissas, exponent, rows)).max()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("d", [1, 2, 28, 100, 128])
@pytest.mark.parametrize("batch", [1, 2, 32])
def test_the_gradient_of_random_records_is_accurate(model, d, batch):
    random = np.random.default_rng(d)
    for exponent in range(-30, -11):
        # Small mantissas too, so that predictions near the sigmoid's bend and the hinge's kink
        # occur.
        mantissas = random.integers(-32768, 32768, d) >> random.integers(0, 12)
        rows = random.integers(-ONE, ONE + 1, (batch, d + 1))
        if model != wire.LINEAR:
            rows[:, -1] = random.choice([-ONE, ONE], batch)
        assert largest_error(model, mantissas, exponent, rows) <= LARGEST_ERROR[model]
