"""Figures that judge models on held-out records, with intervals, beside those of a baseline.

The baseline is the answer that knows no features.
"""

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from tern.fixed import ONE
from tern.wire import LOGISTIC, SOFTMAX_GRADIENT
from ternhost.datasets import CLASSIFICATION, MULTICLASS, Dataset
from ternhost.learn import estimate
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
# The baseline of each figure, for people.
TRIVIAL = {
    ACCURACY: "majority",
    AUC: "guessing",
    LOG_LOSS: "class shares",
    SQUARED_ERROR: "mean label",
}

_UNBALANCED = 0.7  # where one of two classes has a larger share, accuracy tells little
_STEPS = 1 << 16  # to which scores are rounded for the AUC
_HALVINGS = 40  # of the interval in which a bound can be
_Z = NormalDist().inv_cdf(0.975)


def measures(dataset: Dataset, model: int = LOGISTIC) -> tuple[str, ...]:
    """The names of the figures that judge such a model, the most informative one first."""
    if dataset.task not in (CLASSIFICATION, MULTICLASS):
        return (SQUARED_ERROR,)
    names: list[str] = [ACCURACY]
    _, labels = dataset.judged
    positive = labels > 0
    if dataset.task == CLASSIFICATION and positive.any() and not positive.all():
        place = 0 if dataset.shares.max() > _UNBALANCED else 1
        names.insert(place, AUC)
    if model in (LOGISTIC, SOFTMAX_GRADIENT):
        names.append(LOG_LOSS)
    return tuple(names)


def measure(dataset: Dataset) -> str:
    """The most informative one of `measures`."""
    return measures(dataset)[0]


def better(name: str, value: float, other: float) -> bool:
    """Whether a value of this figure is better than another."""
    if name in (ACCURACY, AUC):
        return value > other
    return value < other


def limits(name: str) -> tuple[float, float]:
    """The least and the largest value that a figure can have."""
    if name in (ACCURACY, AUC):
        return 0.0, 1.0
    return 0.0, math.inf


def scores(features: npt.NDArray[Any], weights: Floats) -> Floats:
    """The scores w.x of rows of Q1.14 features (n x d): n, or n x classes for several classes.

    weights: d, or classes * d.
    """
    # Not by BLAS: its threads wait for each other on a busy machine, longer than the sum takes.
    einsum: Any = np.einsum
    rows = weights.reshape(-1, features.shape[1]) / ONE
    if len(rows) > 1:
        several: Floats = einsum("ij,cj->ic", features, rows)
        return several
    single: Floats = einsum("ij,j->i", features, rows[0])
    return single


def figures(dataset: Dataset, model: int, weights: Floats) -> dict[str, float]:
    """The figures of a model (d weights, or classes * d) on the held-out records, by name."""
    features, labels = dataset.judged
    z = scores(features, weights)
    return {name: _figure(name, z, labels) for name in measures(dataset, model)}


def _figure(name: str, z: Floats, labels: Floats) -> float:
    if name == AUC:
        return _auc(z, labels > 0)
    return float(_by_record(name, z, labels).mean())


def _by_record(name: str, z: Floats, labels: Floats) -> npt.NDArray[Any]:
    """The part of each record (n) in a figure that is a mean."""
    several = z.ndim > 1
    if name == SQUARED_ERROR:
        return np.asarray((z - labels / ONE) ** 2)
    if name == ACCURACY and several:
        return np.asarray(z.argmax(axis=1) == labels)
    if name == ACCURACY:
        return np.asarray((z > 0) == (labels > 0))
    model = SOFTMAX_GRADIENT if several else LOGISTIC
    losses, _ = LOSSES[model](z, labels)
    return losses


def _auc(z: Floats, positive: npt.NDArray[np.bool_]) -> float:
    """The share of pairs of a positive and a negative record whose scores are in that order.

    Ties count half. Scores are rounded to _STEPS steps of their range, since counting takes a fifth
    of the time of sorting.
    """
    least = z.min()
    scale = (_STEPS - 1) / ((z.max() - least) or 1)
    step = ((z - least) * scale).astype(np.int64)
    counts = np.bincount(step + _STEPS * positive, minlength=2 * _STEPS)
    negatives, positives = counts.reshape(2, _STEPS)
    below = negatives.cumsum() - negatives / 2
    return float(positives @ below / (negatives.sum() * positives.sum()))


# Intervals


def intervals(dataset: Dataset, model: int, weights: Floats) -> dict[str, list[float]]:
    """The 95 % confidence intervals of `figures`, by name.

    They are for records like the held-out ones, and not for other runs: Wilson's for accuracy,
    Newcombe's for AUC, and the normal one for mean losses.
    """
    features, labels = dataset.judged
    z = scores(features, weights)
    return {name: list(_interval(name, z, labels)) for name in measures(dataset, model)}


def _interval(name: str, z: Floats, labels: Floats) -> tuple[float, float]:
    figure = _figure(name, z, labels)
    interval = interval_of(name, figure, len(labels), int((labels > 0).sum()))
    if interval:
        return interval
    deviation = float(_by_record(name, z, labels).std(ddof=1))
    half = _Z * deviation / math.sqrt(len(labels))
    lowest, _ = limits(name)
    return max(figure - half, lowest), figure + half


def interval_of(
    name: str, figure: float, records: int, positive: int
) -> tuple[float, float] | None:
    """The interval of one figure, as `intervals` gives it.

    None for a loss, whose interval needs every record.
    """
    if name == ACCURACY:
        return estimate.share_interval(figure, records)
    if name == AUC:
        return auc_interval(figure, positive, records - positive)
    return None


def auc_interval(auc: float, positive: int, negative: int) -> tuple[float, float]:
    """The 95 % confidence interval of an AUC on these numbers of records.

    Source: Newcombe, Statistics in Medicine 25, 2006, method 5. It inverts Hanley and McNeil's
    variance, so that it stays valid for few records and within [0, 1].
    """
    n = (positive + negative) / 2 - 1
    pairs = positive * negative

    def bound(far: float) -> float:
        """The value farthest towards `far` that the AUC still does not contradict."""
        near = auc
        for _ in range(_HALVINGS):
            a = (near + far) / 2
            variance = a * (1 - a) * (1 + n * (1 - a) / (2 - a) + n * a / (1 + a)) / pairs
            if (a - auc) ** 2 < _Z * _Z * variance:
                near = a
            else:
                far = a
        return near

    return bound(0.0), bound(1.0)


# The baseline


def counts(dataset: Dataset) -> dict[str, int]:
    """The number of held-out records, and how many of them are of the positive class, if any."""
    _, labels = dataset.judged
    return {"records": len(labels), "positive": int((labels > 0).sum())}


def baselines(dataset: Dataset, model: int = LOGISTIC) -> dict[str, float]:
    """The figures of the baseline: the majority, guessing, the share of each class, the mean label."""
    return {name: _baseline(name, dataset) for name in measures(dataset, model)}


def _baseline(name: str, dataset: Dataset) -> float:
    _, labels = dataset.judged
    if name == AUC:
        return 0.5
    if name == SQUARED_ERROR:
        mean = dataset.labels[dataset.training].mean()
        return float(np.mean((labels - mean) ** 2)) / ONE**2

    shares = dataset.shares
    classes = (labels > 0).astype(np.int64)
    if dataset.task == MULTICLASS:
        classes = labels.astype(np.int64)
    if name == ACCURACY:
        return float(np.mean(classes == shares.argmax()))
    least = 1 / len(dataset.training)  # of a class that no training record has
    losses = -np.log(np.maximum(shares, least))
    return float(np.mean(losses[classes]))
