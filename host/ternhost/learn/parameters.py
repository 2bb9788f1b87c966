"""Parameters as a ROUND carries them: d int16 mantissas of one power of two."""

import math
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tern.wire import LINEAR, LOGISTIC, MAX_EXPONENT, MIN_EXPONENT, SOFTMAX_GRADIENT, SVM
from ternhost.datasets import CLASSIFICATION, MULTICLASS, REGRESSION
from ternhost.errors import UsageError

Floats = npt.NDArray[np.float64]

LINEAR_MODELS = {"linear": LINEAR, "logistic": LOGISTIC, "svm": SVM}  # a weight a feature
MODELS = {**LINEAR_MODELS, "softmax": SOFTMAX_GRADIENT}
# By the task of a data set.
SUITED = {CLASSIFICATION: "logistic", MULTICLASS: "softmax", REGRESSION: "linear"}

_MANTISSA = 32767
LARGEST_WEIGHT = _MANTISSA * 2.0**MAX_EXPONENT  # just under 8


@contextmanager
def reading_state(what: str) -> Iterator[None]:
    """Raise UsageError where the stored state of `what` turns out to be something else."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"the stored state of {what} cannot be read: {error}") from error


@dataclass(frozen=True)
class Parameters:
    """Parameters in a ROUND: d int16 mantissas of `2**exponent`."""

    mantissas: "array[int]"
    exponent: int

    @property
    def values(self) -> Floats:
        return np.array(self.mantissas, np.float64) * 2.0**self.exponent


def quantise(weights: npt.ArrayLike) -> Parameters:
    """Quantise `weights`, cut to +-LARGEST_WEIGHT, at the finest exponent.

    Raises ValueError unless all are finite.
    """
    real = np.asarray(weights, np.float64)
    if not np.isfinite(real).all():
        raise ValueError("not a finite number")
    real = np.clip(real, -LARGEST_WEIGHT, LARGEST_WEIGHT)
    exponent = MIN_EXPONENT
    largest = float(np.abs(real).max(initial=0.0))
    if largest:
        _, binary_exponent = math.frexp(largest)
        exponent = min(MAX_EXPONENT, max(MIN_EXPONENT, binary_exponent - 15))
        if np.rint(largest * 2.0**-exponent) > _MANTISSA:
            exponent += 1
    mantissas = np.rint(real * 2.0**-exponent).astype(np.int16)
    return Parameters(array("h", mantissas.tobytes()), exponent)
