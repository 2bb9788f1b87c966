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
    """Return the weights (d, or classes * d) of the least penalised mean loss on training records.

    They are cached. The penalty is regularisation / 2 times the sum of their squares.
    """
    shape, classes = dataset.features.shape, len(dataset.classes)
    key = hashlib.sha256(f"{_VERSION} {model} {regularisation!r} {shape} {classes}".encode())
    for part in (dataset.features, dataset.labels, dataset.training):
        key.update(np.ascontiguousarray(part).data)
    path = cache_root() / "optima" / f"{dataset.name}-{key.hexdigest()[:24]}.npy"
    return kept_file(path, np.load, lambda: fit(model, dataset, regularisation), np.save)


def fit(model: int, dataset: Dataset, regularisation: float) -> Floats:
    """Compute what `optimum` returns, by L-BFGS-B."""
    from scipy.optimize import minimize  # takes half a second to import

    features = dataset.features[dataset.training] / ONE
    labels = dataset.labels[dataset.training].astype(np.float64)
    n, d = features.shape
    loss = LOSSES[model]
    classes = 1
    if model == SOFTMAX_GRADIENT:
        classes = len(dataset.classes)

    def penalised_loss(weights: Floats) -> tuple[float, Floats]:
        """The penalised loss at these weights (classes * d), and its gradient."""
        scores = features @ weights.reshape(classes, d).T
        if classes == 1:
            scores = scores[:, 0]
        losses, slopes = loss(scores, labels)
        gradient = (slopes.reshape(n, classes).T @ features / n).reshape(-1)
        penalised = float(losses.mean() + regularisation / 2 * weights @ weights)
        return penalised, gradient + regularisation * weights

    start = np.zeros(classes * d)
    options = {"maxiter": 5000, "ftol": 1e-13, "gtol": 1e-7}
    result = minimize(penalised_loss, start, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(result.x)
