"""The device's gradient against a float64 reference, on random and on extreme records."""

from array import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    d = len(mantissas)
    gradient, out = Gradient(d), array("h", bytes(2 * d))
    parameters = array("h", mantissas.astype(np.int16).tobytes())
    for row in rows:
        gradient.add(model, parameters, exponent, array("h", row.astype(np.int16).tobytes()))
    gradient.finish(out)
    return np.array(out) / ONE


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("d", [1, 2, 28, 100, 128])
def test_the_error_of_a_gradient_is_below_two_to_the_minus_nine(model, d):
    rng, worst = np.random.default_rng(d), 0.0
    for exponent in range(-30, -11):
        for batch in (1, 2, 32):
            # Small mantissas too, so that predictions near the sigmoid's bend and the hinge's kink
            # occur.
            mantissas = rng.integers(-32768, 32768, d) >> rng.integers(0, 12)
            rows = rng.integers(-ONE, ONE + 1, (batch, d + 1))
            if model != wire.LINEAR:
                rows[:, -1] = rng.choice([-ONE, ONE], batch)
            arguments = model, mantissas, exponent, rows
            worst = max(worst, np.abs(device(*arguments) - reference(*arguments)).max())
    assert worst <= {wire.LINEAR: 2**-13, wire.LOGISTIC: 2**-11.5, wire.SVM: 2**-13}[model] < 2**-9


extremes = st.sampled_from([-ONE, -ONE + 1, -1, 0, 1, ONE - 1, ONE])


@settings(max_examples=300)
@given(st.data())
def test_the_gradient_is_accurate_at_the_ends_of_every_range(data):
    model = data.draw(st.sampled_from(MODELS))
    d = data.draw(st.sampled_from([1, 3, 127, 128]))
    exponent = data.draw(st.sampled_from([-30, -29, -15, -13, -12]))
    batch = data.draw(st.sampled_from([1, 31, 32]))
    mantissa, feature = data.draw(st.sampled_from([-32768, -32767, 32767, 1])), data.draw(extremes)
    mantissas, rows = np.full(d, mantissa), np.full((batch, d + 1), feature)
    rows[:, -1] = ONE if data.draw(st.booleans()) else -ONE
    rows[0, : d // 2] = data.draw(extremes)
    error = np.abs(
        device(model, mantissas, exponent, rows) - reference(model, mantissas, exponent, rows)
    )
    assert error.max() <= 2**-11.5
