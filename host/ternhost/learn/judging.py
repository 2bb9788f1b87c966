"""Judge models by figures on held-out records, with intervals, beside the answer that knows no
features.
"""

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from tern.fixed import ONE
from tern.wire import LOGISTIC, SOFTMAX_GRADIENT
from ternhost.count import estimate
from ternhost.datasets import CLASSIFICATION, MULTICLASS, Dataset
from ternhost.learn.losses import LOSSES
from ternhost.learn.parameters import Floats

ACCURACY = "accuracy"
AUC = "auc"
LOG_LOSS = "log_loss"
SQUARED_ERROR = "squared_error"
WORDS = {
    ACCURACY: "accuracy",
    AUC: "AUC",
    LOG_LOSS: "log-loss",
    SQUARED_ERROR: "mean squared error",
}
# The answer that knows no features.
TRIVIAL = {
    ACCURACY: "majority",
    AUC: "guessing",
    LOG_LOSS: "class shares",
    SQUARED_ERROR: "mean label",
}

_UNBALANCED = 0.7  # where one of two classes has a larger share, accuracy tells little
_STEPS = 1 << 16
_HALVINGS = 40  # of where a bound can be
_Z = NormalDist().inv_cdf(0.975)


def measures(dataset: Dataset, model: int = LOGISTIC) -> tuple[str, ...]:
    """The figures that judge such a model of this data set, the most informative one first."""
    if dataset.task not in (CLASSIFICATION, MULTICLASS):
        return (SQUARED_ERROR,)
    names: list[str] = [ACCURACY]
    positive = dataset.judged[1] > 0
    if dataset.task == CLASSIFICATION and positive.any() and not positive.all():
        names.insert(0 if dataset.shares.max() > _UNBALANCED else 1, AUC)
    if model in (LOGISTIC, SOFTMAX_GRADIENT):
        names.append(LOG_LOSS)
    return tuple(names)


def measure(dataset: Dataset) -> str:
    """The one of `measures` that tells most."""
    return measures(dataset)[0]


def better(name: str, value: float, other: float) -> bool:
    """Whether a value of this figure is better than another."""
    return value > other if name in (ACCURACY, AUC) else value < other


def limits(name: str) -> tuple[float, float]:
    """The least and the largest value that a figure can have."""
    return 0.0, 1.0 if name in (ACCURACY, AUC) else math.inf


def scores(features: npt.NDArray[Any], weights: Floats) -> Floats:
    """w.x of every row of Q1.14 features: n, or n x classes for weights of several classes (classes
    * d).
    """
    # Not by BLAS: its threads wait for each other on a busy machine, longer than the sum takes.
    einsum: Any = np.einsum
    rows = weights.reshape(-1, features.shape[1]) / ONE
    z: Floats = (
        einsum("ij,cj->ic", features, rows)
        if len(rows) > 1
        else einsum("ij,j->i", features, rows[0])
    )
    return z


def figures(dataset: Dataset, model: int, weights: Floats) -> dict[str, float]:
    """The figures of a model (d weights, or classes * d) on the held-out records, by name."""
    features, labels = dataset.judged
    z = scores(features, weights)
    return {name: _figure(name, z, labels) for name in measures(dataset, model)}


def _figure(name: str, z: Floats, labels: Floats) -> float:
    return _auc(z, labels > 0) if name == AUC else float(_each(name, z, labels).mean())


def _each(name: str, z: Floats, labels: Floats) -> npt.NDArray[Any]:
    """The part of each record in a figure that is a mean."""
    if name == SQUARED_ERROR:
        return np.asarray((z - labels / ONE) ** 2)
    several = z.ndim > 1
    if name == ACCURACY:
        return np.asarray(z.argmax(axis=1) == labels if several else (z > 0) == (labels > 0))
    return LOSSES[SOFTMAX_GRADIENT if several else LOGISTIC](z, labels)[0]


def _auc(z: Floats, positive: npt.NDArray[np.bool_]) -> float:
    """The share of pairs of a positive and a negative record whose scores are in that order; ties
    count half. Scores are rounded to _STEPS steps of their range, since counting takes a fifth of
    the time of sorting.
    """
    least = z.min()
    step = ((z - least) * ((_STEPS - 1) / ((z.max() - least) or 1))).astype(np.int64)
    low, high = np.bincount(step + _STEPS * positive, minlength=2 * _STEPS).reshape(2, _STEPS)
    below = low.cumsum() - low / 2
    return float(high @ below / (low.sum() * high.sum()))


def intervals(dataset: Dataset, model: int, weights: Floats) -> dict[str, list[float]]:
    """The 95 % confidence intervals of `figures`, for records like the held-out ones and not for
    other runs: Wilson's for accuracy, Newcombe's for AUC, and the normal one for mean losses.
    """
    features, labels = dataset.judged
    z = scores(features, weights)
    return {name: list(_interval(name, z, labels)) for name in measures(dataset, model)}


def counts(dataset: Dataset) -> dict[str, int]:
    """The number of held-out records that judge a model, and how many are of the positive class, if
    there are two.
    """
    labels = dataset.judged[1]
    return {"records": len(labels), "positive": int((labels > 0).sum())}


def interval_of(
    name: str, figure: float, records: int, positive: int
) -> tuple[float, float] | None:
    """The interval of one figure, as `intervals` gives it; None for a loss, which needs every
    record.
    """
    if name == ACCURACY:
        return estimate.share_interval(figure, records)
    if name == AUC:
        return auc_interval(figure, positive, records - positive)
    return None


def _interval(name: str, z: Floats, labels: Floats) -> tuple[float, float]:
    figure = _figure(name, z, labels)
    if interval := interval_of(name, figure, len(labels), int((labels > 0).sum())):
        return interval
    half = _Z * float(_each(name, z, labels).std(ddof=1)) / math.sqrt(len(labels))
    return max(figure - half, limits(name)[0]), figure + half


def auc_interval(auc: float, positive: int, negative: int) -> tuple[float, float]:
    """The 95 % confidence interval of an AUC on these numbers of records (Newcombe, Statistics in
    Medicine 25, 2006, method 5). It inverts Hanley and McNeil's variance, so that it stays valid
    for few records and within [0, 1].
    """
    n = (positive + negative) / 2 - 1

    def bound(far: float) -> float:
        near = auc
        for _ in range(_HALVINGS):
            a = (near + far) / 2
            spread = (
                a * (1 - a) * (1 + n * (1 - a) / (2 - a) + n * a / (1 + a)) / (positive * negative)
            )
            if (a - auc) ** 2 < _Z * _Z * spread:
                near = a
            else:
                far = a
        return near

    return bound(0.0), bound(1.0)


def baselines(dataset: Dataset, model: int = LOGISTIC) -> dict[str, float]:
    """The same figures of the answer that knows no features: the majority, the share of each class,
    the mean label.
    """
    labels = dataset.judged[1]
    shares = dataset.shares
    least = 1 / len(dataset.training)  # of a class that no training record has
    figures = {}
    for name in measures(dataset, model):
        if name == SQUARED_ERROR:
            figures[name] = (
                float(np.mean((labels - dataset.labels[dataset.training].mean()) ** 2)) / ONE**2
            )
        elif name == AUC:
            figures[name] = 0.5
        else:
            classes = (labels if dataset.task == MULTICLASS else labels > 0).astype(np.int64)
            right, losses = classes == shares.argmax(), -np.log(np.maximum(shares, least))
            figures[name] = float(np.mean(right if name == ACCURACY else losses[classes]))
    return figures
