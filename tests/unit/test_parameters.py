"""Parameters as devices get them: int16 mantissas of the finest power of two that holds them all."""

import numpy as np
import pytest

from ternhost.learn.parameters import LARGEST_WEIGHT, quantise


@pytest.mark.parametrize(
    ("weights", "exponent"),
    [
        ([0.0, 0.0], -30), ([8.0, -8.0], -12), ([1.0], -14), ([2.0**-16], -30), ([0.9999999], -14),
        ([0.99], -15),
    ],
)  # fmt: skip
def test_the_finest_exponent_that_fits(weights, exponent):
    p = quantise(weights)
    assert p.exponent == exponent
    assert p.mantissas.typecode == "h"
    cut = np.clip(weights, -LARGEST_WEIGHT, LARGEST_WEIGHT)
    assert np.abs(p.values - cut).max() <= 2.0 ** (exponent - 1)


def test_any_size():
    rng = np.random.default_rng(1)
    for size in 10.0 ** rng.uniform(-9, 2, 2000):
        w = rng.uniform(-size, size, 5)
        p = quantise(w)
        largest = max(abs(m) for m in p.mantissas)
        assert largest <= 32767
        assert -30 <= p.exponent <= -12
        # Half the mantissas' range or more is in use, unless the exponent is at its end.
        assert largest >= 16383 or p.exponent == -30
        assert np.abs(p.values).max() <= LARGEST_WEIGHT


def test_nan_is_refused():
    with pytest.raises(ValueError, match="finite"):
        quantise([0.0, np.nan])
