"""What a model is worth: figures on held-out records, their intervals, and the answer that knows no features."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from tern.fixed import ONE
from tern.wire import LINEAR, SVM
from ternhost.aggregate import estimate
from ternhost.datasets import CLASSIFICATION, Dataset

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

ACCURACY = "accuracy"
SQUARED_ERROR = "squared_error"
WORDS = {ACCURACY: "accuracy", SQUARED_ERROR: "mean squared error"}

_AT_ONCE = 1 << 16  # records of an exact gradient


def measure(dataset: Dataset) -> str:
    """The figure that a model of this data set is judged by: "accuracy" or "squared_error"."""
    return ACCURACY if dataset.task == CLASSIFICATION else SQUARED_ERROR


def scores(features: npt.NDArray[Any], weights: Floats) -> Floats:
    """w.x of every row of Q1.14 features."""
    # Not by BLAS: its threads wait for each other on a busy machine, longer than the sum takes.
    einsum: Any = np.einsum
    result: Floats = einsum("ij,j->i", features, weights / ONE)
    return result


def accuracy(dataset: Dataset, weights: Floats) -> float:
    """The share of held-out records whose sign w.x tells (0 counts as -1)."""
    features, labels = dataset.judged
    return float(np.mean((scores(features, weights) > 0) == (labels > 0)))


def majority(dataset: Dataset) -> float:
    """The accuracy of always answering what most training records say: the least that a model must beat."""
    answer = np.mean(dataset.labels[dataset.training] > 0) > 0.5
    return float(np.mean((dataset.labels[dataset.test] > 0) == answer))


def squared_error(dataset: Dataset, weights: Floats) -> float:
    """The mean squared error of w.x on held-out records."""
    return float(_squares(dataset, weights).mean())


def _squares(dataset: Dataset, weights: Floats) -> Floats:
    features, labels = dataset.judged
    squares: Floats = (scores(features, weights) - labels / ONE) ** 2
    return squares


def judge(dataset: Dataset, weights: Floats) -> float:
    """The figure that a model is judged by: accuracy for classification, mean squared error for regression."""
    return accuracy(dataset, weights) if dataset.task == CLASSIFICATION else squared_error(dataset, weights)


def judge_interval(dataset: Dataset, weights: Floats) -> tuple[float, float]:
    """The 95 % confidence interval of that figure, for records like the held-out ones: it tells how far their number
    lets the model be judged, not what another run would give."""
    if dataset.task == CLASSIFICATION:
        return estimate.share_interval(accuracy(dataset, weights), len(dataset.test))
    squares = _squares(dataset, weights)
    half = NormalDist().inv_cdf(0.975) * float(squares.std(ddof=1)) / math.sqrt(len(squares))
    mean = float(squares.mean())
    return mean - half, mean + half


def baseline(dataset: Dataset) -> float:
    """The same figure of the answer that knows no features: the majority's, or the mean label's."""
    if dataset.task == CLASSIFICATION:
        return majority(dataset)
    mean = dataset.labels[dataset.training].mean()
    return float(np.mean((dataset.labels[dataset.test] / ONE - mean / ONE) ** 2))


def exact_gradient(model: int, features: npt.ArrayLike, labels: npt.ArrayLike, weights: Floats) -> Floats:
    """The mean over records of the gradient that a device of one record computes, clipped as there, in floats."""
    x = np.asarray(features, np.float64) / ONE
    y = np.asarray(labels, np.float64) / ONE
    z = x @ weights
    if model == LINEAR:
        residual = z - y
    else:
        sign = np.where(y > 0, 1.0, -1.0)
        if model == SVM:
            residual = np.where(sign * z < 1, -sign, 0.0)
        else:
            residual = -sign / (1 + np.exp(np.clip(sign * z, -700, 700)))
    mean: Floats = np.clip(residual[:, None] * x, -1, 1).mean(axis=0)
    return mean


def mean_gradient(model: int, dataset: Dataset, positions: Indices, weights: Floats) -> Floats:
    """`exact_gradient` over the records at these positions, by parts: the memory is bounded whatever their number."""
    total = np.zeros(len(weights))
    for start in range(0, len(positions), _AT_ONCE):
        part = positions[start : start + _AT_ONCE]
        total += len(part) * exact_gradient(model, dataset.features[part], dataset.labels[part], weights)
    mean: Floats = total / len(positions)
    return mean
