"""The optimum: the model that the same training records give without privacy, to compare with."""

import hashlib

import numpy as np

from tern.fixed import ONE
from tern.wire import SOFTMAX_GRADIENT
from ternhost.cache import cache_root, kept_file
from ternhost.datasets import Dataset
from ternhost.learn.models.losses import LOSSES
from ternhost.learn.parameters import Floats

_VERSION = 1  # of losses.py; count up if a loss changes, so that cached optima are fitted anew


def optimum(model: int, dataset: Dataset, regularisation: float) -> Floats:
    """Return the weights that fit the training records best, without privacy.

    They have the least mean loss plus regularisation / 2 times the sum of their squares. They are
    cached in a file, whose name has a hash of all that they depend on.

    model: the number of the model (wire.md).
    The result has a weight for each feature, of each class (d, or classes * d).
    """
    shape, classes = dataset.features.shape, len(dataset.classes)
    key = hashlib.sha256(f"{_VERSION} {model} {regularisation!r} {shape} {classes}".encode())
    for part in (dataset.features, dataset.labels, dataset.training):
        key.update(np.ascontiguousarray(part).data)
    path = cache_root() / "optima" / f"{dataset.name}-{key.hexdigest()[:24]}.npy"

    def make() -> Floats:
        """Return the weights if they are not in the cache."""
        return fit(model, dataset, regularisation)

    return kept_file(path, np.load, make, np.save)


def fit(model: int, dataset: Dataset, regularisation: float) -> Floats:
    """Fit a model to the training records without privacy, by L-BFGS-B (`optimum` caches it).

    model: the number of the model (wire.md).
    regularisation: the penalty is half of this, times the sum of the squared weights.
    Returns a weight for each feature, of each class (d, or classes * d).
    """
    from scipy.optimize import minimize  # takes half a second to import

    features = dataset.features[dataset.training] / ONE
    labels = dataset.labels[dataset.training].astype(np.float64)
    n, d = features.shape
    loss = LOSSES[model]  # a function of scores and labels
    classes = 1
    if model == SOFTMAX_GRADIENT:
        classes = len(dataset.classes)

    def penalised_loss(weights: Floats) -> tuple[float, Floats]:
        """Return the mean loss plus the penalty at weights (classes * d), and its gradient."""
        scores = features @ weights.reshape(classes, d).T  # n x classes
        if classes == 1:
            scores = scores[:, 0]
        losses, slopes = loss(scores, labels)  # the slopes are derivatives by the scores
        gradient = (slopes.reshape(n, classes).T @ features / n).reshape(-1)
        penalised = float(losses.mean() + regularisation / 2 * weights @ weights)
        return penalised, gradient + regularisation * weights

    start = np.zeros(classes * d)
    options = {"maxiter": 5000, "ftol": 1e-13, "gtol": 1e-7}
    result = minimize(penalised_loss, start, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(result.x)
