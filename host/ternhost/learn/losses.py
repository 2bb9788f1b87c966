"""The losses of the models: of each record, and the derivative by its scores."""

from collections.abc import Callable

import numpy as np

from tern.fixed import ONE
from tern.wire import LINEAR, LOGISTIC, SOFTMAX_GRADIENT, SVM
from ternhost.learn.parameters import Floats

# (scores: n, or n x classes; labels: n) -> (loss of each record, its derivative by the scores)
Loss = Callable[[Floats, Floats], tuple[Floats, Floats]]

_ROUNDED = 0.01  # the hinge's corner is a parabola of this width, so that there is a derivative


def _squares(scores: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """Half of the squared residuals; labels are numbers in Q1.14."""
    residual = scores - labels / ONE
    return residual**2 / 2, residual


def _logistic(scores: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """The logistic losses log(1 + exp(-margin)); the sign of a label is its class.

    They are computed from exp(-|score|), which cannot overflow.
    """
    sign = np.where(labels > 0, 1.0, -1.0)
    margin = sign * scores
    small = np.exp(-np.abs(scores))
    losses = np.log1p(small) + np.maximum(-margin, 0)
    return losses, -sign * np.where(margin > 0, small, 1) / (1 + small)


def _hinge(scores: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """The hinge losses max(0, 1 - margin), with a rounded corner; a label's sign is its class."""
    sign = np.where(labels > 0, 1.0, -1.0)
    shortfall = np.maximum(1 - sign * scores, 0)  # of the margin, from 1
    losses = np.where(shortfall < _ROUNDED, shortfall**2 / (2 * _ROUNDED), shortfall - _ROUNDED / 2)
    return losses, -sign * np.minimum(shortfall / _ROUNDED, 1)


def _cross_entropy(scores: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """The cross-entropy of softmax regression: scores are n x classes, labels are class numbers."""
    true_class = (np.arange(len(scores)), labels.astype(np.int64))  # an entry of each row
    shifted = scores - scores.max(axis=1, keepdims=True)  # so that no exponential overflows
    slopes = np.exp(shifted)
    total = slopes.sum(axis=1)
    slopes /= total[:, None]  # now these are the probabilities of the classes
    slopes[true_class] -= 1
    return np.log(total) - shifted[true_class], slopes


LOSSES: dict[int, Loss] = {
    LINEAR: _squares,
    LOGISTIC: _logistic,
    SVM: _hinge,
    SOFTMAX_GRADIENT: _cross_entropy,
}
