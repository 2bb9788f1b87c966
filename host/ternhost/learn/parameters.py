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

_MANTISSA_BITS = 15  # beside the sign
_MANTISSA = (1 << _MANTISSA_BITS) - 1
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
    """Round the weights of a model to integers, as a question carries them to devices.

    A weight becomes a 16-bit mantissa times 2**exponent, with a single exponent for all: the least
    for which the largest weight fits. Weights beyond +-LARGEST_WEIGHT are clipped. Raises
    ValueError unless all are finite.
    """
    clipped = np.asarray(weights, np.float64)
    if not np.isfinite(clipped).all():
        raise ValueError("not a finite number")
    clipped = np.clip(clipped, -LARGEST_WEIGHT, LARGEST_WEIGHT)
    exponent = MIN_EXPONENT
    largest = float(np.abs(clipped).max(initial=0.0))
    if largest:
        _, binary_exponent = math.frexp(largest)  # largest < 2**binary_exponent
        exponent = min(MAX_EXPONENT, max(MIN_EXPONENT, binary_exponent - _MANTISSA_BITS))
        if np.rint(largest * 2.0**-exponent) > _MANTISSA:  # it would round up to 2**15
            exponent += 1
    mantissas = np.rint(clipped * 2.0**-exponent).astype(np.int16)
    return Parameters(array("h", mantissas.tobytes()), exponent)
