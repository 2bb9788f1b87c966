"""The model that the same training records give without privacy, at the optimum: what privacy costs is told from it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tern.fixed import ONE
from tern.wire import LINEAR, LOGISTIC, SOFTMAX_GRADIENT, SVM
from ternhost.cache import cache_root, kept_file
from ternhost.datasets import Dataset

Floats = npt.NDArray[np.float64]
# Of scores (n, or n x classes) and labels (n): the loss of each record, and its derivative by the scores.
Loss = Callable[[Floats, Floats], tuple[Floats, Floats]]

_VERSION = 1  # of the losses below: count up to fit anew what is in the cache
_FAR = 700.0  # exp of it is a number
_ROUNDED = 0.01  # the hinge's corner is a parabola of this width, so that there is a derivative


def optimum(model: int, dataset: Dataset, regularisation: float) -> Floats:
    """The weights (d, or classes * d) of the least mean loss over the training records, from the cache if it has them.

    regularisation: half of it times the sum of the squared weights is added, as in training.
    """
    told = f"{_VERSION} {model} {regularisation!r} {dataset.features.shape}".encode()
    key = hashlib.sha256(told)
    for part in (dataset.features, dataset.labels, dataset.held_out):
        key.update(np.ascontiguousarray(part).data)
    path = cache_root() / "optima" / f"{dataset.name}-{key.hexdigest()[:24]}.npy"
    found: Floats = kept_file(path, np.load, lambda: fit(model, dataset, regularisation), np.save)
    return found


def fit(model: int, dataset: Dataset, regularisation: float) -> Floats:
    """`optimum`, whatever the cache has."""
    from scipy.optimize import minimize  # takes half a second to import

    x = dataset.features[dataset.training] / ONE
    y = dataset.labels[dataset.training].astype(np.float64)
    n, d = x.shape
    loss = _LOSSES[model]
    classes = len(dataset.classes) if model == SOFTMAX_GRADIENT else 1

    def mean_loss(weights: Floats) -> tuple[float, Floats]:
        rows = weights.reshape(classes, d)
        z = x @ rows.T
        each, slopes = loss(z if classes > 1 else z[:, 0], y)
        gradient = (slopes.reshape(n, classes).T @ x / n).reshape(-1)
        return float(
            each.mean() + regularisation / 2 * weights @ weights
        ), gradient + regularisation * weights

    options = {"maxiter": 5000, "ftol": 1e-13, "gtol": 1e-7}
    found: Floats = minimize(mean_loss, np.zeros(classes * d), jac=True, method="L-BFGS-B", options=options).x
    return found


def _squares(z: Floats, y: Floats) -> tuple[Floats, Floats]:
    residual = z - y / ONE
    return residual**2 / 2, residual


def _logistic(z: Floats, y: Floats) -> tuple[Floats, Floats]:
    sign = np.where(y > 0, 1.0, -1.0)
    return np.logaddexp(0, -sign * z), -sign / (1 + np.exp(np.minimum(sign * z, _FAR)))


def _hinge(z: Floats, y: Floats) -> tuple[Floats, Floats]:
    sign = np.where(y > 0, 1.0, -1.0)
    short = np.maximum(1 - sign * z, 0)
    each = np.where(short < _ROUNDED, short**2 / (2 * _ROUNDED), short - _ROUNDED / 2)
    return each, -sign * np.minimum(short / _ROUNDED, 1)


def _cross_entropy(z: Floats, y: Floats) -> tuple[Floats, Floats]:
    own = (np.arange(len(z)), y.astype(np.int64))
    z = z - z.max(axis=1, keepdims=True)
    slopes = np.exp(z)
    total = slopes.sum(axis=1)
    slopes /= total[:, None]
    slopes[own] -= 1
    return np.log(total) - z[own], slopes


_LOSSES: dict[int, Loss] = {
    LINEAR: _squares,
    LOGISTIC: _logistic,
    SVM: _hinge,
    SOFTMAX_GRADIENT: _cross_entropy,
}
