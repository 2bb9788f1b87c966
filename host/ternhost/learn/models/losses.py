"""The losses of the models: of each record, and the derivative by its scores; and what they predict."""

from collections.abc import Callable

import numpy as np

from tern.fixed import ONE
from tern.wire import LINEAR, LOGISTIC, SOFTMAX_GRADIENT, SVM
from ternhost.learn.parameters import Floats

# (scores: n, or n x classes; labels: n) -> (loss of each record, its derivative by the scores)
Loss = Callable[[Floats, Floats], tuple[Floats, Floats]]

_ROUNDED = 0.01  # the hinge's corner is a parabola of this width, so that there is a derivative


def _squares(scores: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """Return half of each squared residual, and the residuals, its derivative by the score.

    labels: numbers in fixed point, where ONE stands for 1.
    """
    residual = scores - labels / ONE
    return residual**2 / 2, residual


def _logistic(scores: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """Return the logistic loss of each record, and its derivative by the score (n each).

    The loss is log(1 + exp(-margin)), where the margin is the score times the sign of the label, -1
    or 1. Both are computed from exp(-|score|), which cannot overflow.

    labels: only their signs count.
    """
    sign = np.where(labels > 0, 1.0, -1.0)
    margin = sign * scores
    small = np.exp(-np.abs(scores))
    losses = np.log1p(small) + np.maximum(-margin, 0)
    # 1 / (1 + exp(margin)), the probability of the other class.
    probability_of_error = np.where(margin > 0, small, 1) / (1 + small)
    return losses, -sign * probability_of_error


def _hinge(scores: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """Return the hinge loss of each record, and its derivative by the score (n each).

    The loss is max(0, 1 - margin), where the margin is the score times the sign of the label, -1 or
    1. Its corner is rounded to a parabola, so that there is a derivative everywhere.

    labels: only their signs count.
    """
    sign = np.where(labels > 0, 1.0, -1.0)
    shortfall = np.maximum(1 - sign * scores, 0)  # of the margin, from 1
    parabola = shortfall**2 / (2 * _ROUNDED)
    line = shortfall - _ROUNDED / 2
    losses = np.where(shortfall < _ROUNDED, parabola, line)
    return losses, -sign * np.minimum(shortfall / _ROUNDED, 1)


def _cross_entropy(scores: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """Return the cross-entropy of each record in softmax regression, and its derivatives.

    The loss is -log p[label], where p are the class probabilities, the softmax of the scores. Its
    derivative by the score of class c is p[c] - 1[c = label].

    scores: n x classes. labels: class numbers (n).
    Returns the losses (n) and the derivatives (n x classes).
    """
    record_numbers = np.arange(len(scores))
    true_class = (record_numbers, labels.astype(np.int64))  # the index of one score in each row
    shifted = scores - scores.max(axis=1, keepdims=True)  # so that no exponential overflows
    probabilities = np.exp(shifted)
    total = probabilities.sum(axis=1)
    probabilities /= total[:, None]
    losses = np.log(total) - shifted[true_class]
    slopes = probabilities
    slopes[true_class] -= 1
    return losses, slopes


def mean_labels(model: int, scores: Floats) -> Floats:
    """Return the mean label that a model predicts for each record (n x classes).

    For classes it is their probability: the softmax of the scores, or their logistic function if
    there are two classes.

    model: LINEAR, LOGISTIC or SOFTMAX_GRADIENT. scores: n x classes; one column except for softmax.
    """
    if model == LINEAR:
        return scores
    if model == LOGISTIC:
        return (1 + np.tanh(scores / 2)) / 2  # = 1 / (1 + exp(-scores)), without overflow
    shifted = scores - scores.max(axis=1, keepdims=True)  # so that no exponential overflows
    exponentials = np.exp(shifted)
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


LOSSES: dict[int, Loss] = {
    LINEAR: _squares,
    LOGISTIC: _logistic,
    SVM: _hinge,
    SOFTMAX_GRADIENT: _cross_entropy,
}
