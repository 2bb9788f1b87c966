"""The optimum: the model that the same training records give without privacy, to compare with."""

import hashlib

import numpy as np

from tern.fixed import ONE
from tern.wire import SOFTMAX_GRADIENT
from ternhost.cache import cache_root, kept_file
from ternhost.datasets import Dataset
from ternhost.learn.losses import LOSSES
from ternhost.learn.parameters import Floats

_VERSION = 1  # of losses.py: count up to fit anew what is in the cache


def optimum(model: int, dataset: Dataset, regularisation: float) -> Floats:
    """The weights (d, or classes * d) of the least mean loss plus regularisation / 2 times their
    squares, cached.
    """
    fitted = f"{_VERSION} {model} {regularisation!r} {dataset.features.shape} {len(dataset.classes)}".encode()
    key = hashlib.sha256(fitted)
    for part in (dataset.features, dataset.labels, dataset.training):
        key.update(np.ascontiguousarray(part).data)
    path = cache_root() / "optima" / f"{dataset.name}-{key.hexdigest()[:24]}.npy"
    return kept_file(path, np.load, lambda: fit(model, dataset, regularisation), np.save)


def fit(model: int, dataset: Dataset, regularisation: float) -> Floats:
    """`optimum`, whatever the cache has."""
    from scipy.optimize import minimize  # takes half a second to import

    x = dataset.features[dataset.training] / ONE
    y = dataset.labels[dataset.training].astype(np.float64)
    n, d = x.shape
    loss = LOSSES[model]
    classes = len(dataset.classes) if model == SOFTMAX_GRADIENT else 1

    def mean_loss(weights: Floats) -> tuple[float, Floats]:
        rows = weights.reshape(classes, d)
        z = x @ rows.T
        each, slopes = loss(z if classes > 1 else z[:, 0], y)
        gradient = (slopes.reshape(n, classes).T @ x / n).reshape(-1)
        penalised = float(each.mean() + regularisation / 2 * weights @ weights)
        return penalised, gradient + regularisation * weights

    options = {"maxiter": 5000, "ftol": 1e-13, "gtol": 1e-7}
    found = minimize(mean_loss, np.zeros(classes * d), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x)
