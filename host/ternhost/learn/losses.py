"""The losses of the models: of each record, and the derivative by its scores."""

from collections.abc import Callable

import numpy as np

from tern.fixed import ONE
from tern.wire import LINEAR, LOGISTIC, SOFTMAX_GRADIENT, SVM
from ternhost.learn.parameters import Floats

# (scores: n, or n x classes; labels: n) -> (loss of each record, its derivative by the scores)
Loss = Callable[[Floats, Floats], tuple[Floats, Floats]]

_ROUNDED = 0.01  # the hinge's corner is a parabola of this width, so that there is a derivative


def _squares(z: Floats, y: Floats) -> tuple[Floats, Floats]:
    residual = z - y / ONE
    return residual**2 / 2, residual


def _logistic(z: Floats, y: Floats) -> tuple[Floats, Floats]:
    sign = np.where(y > 0, 1.0, -1.0)
    right = sign * z
    small = np.exp(-np.abs(z))
    losses = np.log1p(small) + np.maximum(-right, 0)
    return losses, -sign * np.where(right > 0, small, 1) / (1 + small)


def _hinge(z: Floats, y: Floats) -> tuple[Floats, Floats]:
    sign = np.where(y > 0, 1.0, -1.0)
    short = np.maximum(1 - sign * z, 0)
    each = np.where(short < _ROUNDED, short**2 / (2 * _ROUNDED), short - _ROUNDED / 2)
    return each, -sign * np.minimum(short / _ROUNDED, 1)


def _cross_entropy(z: Floats, y: Floats) -> tuple[Floats, Floats]:
    right = (np.arange(len(z)), y.astype(np.int64))
    z = z - z.max(axis=1, keepdims=True)
    slopes = np.exp(z)
    total = slopes.sum(axis=1)
    slopes /= total[:, None]
    slopes[right] -= 1
    return np.log(total) - z[right], slopes


LOSSES: dict[int, Loss] = {
    LINEAR: _squares,
    LOGISTIC: _logistic,
    SVM: _hinge,
    SOFTMAX_GRADIENT: _cross_entropy,
}
