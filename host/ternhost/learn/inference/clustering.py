"""Clusters of protected inference: noisy class probabilities, grouped by their largest entry.

The probabilities are those of tern.inference, under exact discrete Laplace noise. Clusters are
scored without labels.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ternhost import datasets
from ternhost.datasets import CLASSIFICATION, EVERYTHING, MULTICLASS, Dataset, Selection
from ternhost.errors import UsageError
from ternhost.learn.parameters import Floats
from ternhost.privacy import mechanisms
from ternhost.privacy.base import MICRO

Labels = npt.NDArray[np.int64]

# Scores of clusters.
NONE = "none"
SILHOUETTE = "silhouette"
SILHOUETTE_SELF = "silhouette-self"  # counts the distance of a vector to itself
CALINSKI_HARABASZ = "calinski-harabasz"
SCORES = (NONE, SILHOUETTE, SILHOUETTE_SELF, CALINSKI_HARABASZ)

_GRID_BITS = 10
_REACH = 8  # noise scales beyond a probability's 0..1 before a symbol stands for the tail
_MOST_LEVELS = 65535
_CHUNK = 1 << 22  # distances in memory at a time


def noise_card(epsilon: int) -> bytes:
    """Design a card that adds Laplace noise to vectors of class probabilities; returns its bytes.

    A card is the table from which a device draws its report. Two vectors of probabilities differ by
    at most 2 in the L1 norm, so the noise has the scale 2 / epsilon.

    epsilon: what a whole vector may cost, in millionths.
    Raises UsageError.
    """
    noise_scale = 2 * MICRO / epsilon
    # The symbols lie on a grid with a step of 2**-_GRID_BITS. They go from -reach to reach steps, so
    # that there is room for noise of _REACH scales beyond the largest probability, 1.
    reach = math.ceil((1 + _REACH * noise_scale) * (1 << _GRID_BITS))
    levels = min(2 * reach + 1, _MOST_LEVELS)  # the number of symbols
    return mechanisms.design("laplace", levels=levels, grid=_GRID_BITS, epsilon_micro=epsilon).card


# Data sets whose classes are all told apart; of the others, two are.
CLASSES = ("digits", "iris", "wine")


def load(name: str, selection: Selection = EVERYTHING) -> Dataset:
    """Load a data set with classes: all that there are, or the two of one that is not of CLASSES.

    A table of the user's own has all of its classes, unless its schema names a positive one.

    selection: as of `datasets.load`. Raises UsageError if there is no such data set, or if it has no classes.
    """
    is_own = datasets.is_own(name)
    has_several = name in CLASSES or (is_own and datasets.task_of(name, selection) == MULTICLASS)
    dataset = datasets.load(name, classes=has_several, selection=selection)
    if dataset.task not in (MULTICLASS, CLASSIFICATION):
        hint = f"one of: {', '.join(CLASSES)}"
        if is_own:
            hint = "the label needs categories in the schema of the table"
        raise UsageError(f"{name} has no classes", hint=hint)
    return dataset


def score(name: str, vectors: Floats, labels: Sequence[int] | npt.NDArray[Any]) -> float | None:
    """Score how well clusters of vectors are separated.

    name: that of the score, one of SCORES.
    vectors: the class probabilities of each client (n x classes).
    labels: the cluster of each vector (n).
    Returns None if the score is NONE, if there are fewer than 2 clusters, or if each vector is
    a cluster of its own.
    """
    labels = np.asarray(labels)
    clusters = len(np.unique(labels))
    is_defined = 2 <= clusters < len(vectors)
    if name == NONE or not is_defined:
        return None
    # Sorted, since the order of the reports would change the last bit of a sum.
    order = np.lexsort((labels, *vectors.T))
    vectors, labels = vectors[order], labels[order]
    if name == SILHOUETTE_SELF:
        return _silhouette_with_itself(vectors, labels)
    from sklearn import metrics  # takes a second to import

    if name == SILHOUETTE:
        return float(metrics.silhouette_score(vectors, labels))
    return float(metrics.calinski_harabasz_score(vectors, labels))


def _silhouette_with_itself(vectors: Floats, labels: Labels) -> float:
    """Return the mean silhouette of a clustering as MindSpore's guide defines it.

    The silhouette of a vector is (nearest - within) / max(nearest, within). `within` is the mean
    distance to its own cluster, and `nearest` the least mean distance to another one. Unlike in the
    usual definition, the mean distance to its own cluster counts the vector itself, at 0. A vector
    that has no distance to its cluster counts 0.

    vectors: n x classes. labels: the cluster of each (n).
    """
    from scipy.spatial.distance import cdist  # takes a while to import

    _, own_cluster, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    is_member = np.eye(len(sizes))[own_cluster]  # vectors x clusters, 1 or 0
    total = 0.0
    vectors_at_once = max(1, _CHUNK // len(vectors))  # so that memory is enough
    for start in range(0, len(vectors), vectors_at_once):
        part = slice(start, start + vectors_at_once)
        # The mean distance of each vector to each cluster: vectors x clusters.
        distances = cdist(vectors[part], vectors) @ is_member / sizes
        own_column = own_cluster[part, None]
        within = np.take_along_axis(distances, own_column, axis=1)[:, 0]
        np.put_along_axis(distances, own_column, np.inf, axis=1)  # only other clusters are left
        nearest = distances.min(axis=1)
        largest = np.maximum(within, nearest)
        silhouettes = np.zeros_like(within)
        np.divide(nearest - within, largest, out=silhouettes, where=within > 0)
        total += float(np.sum(silhouettes))
    return total / len(vectors)


def labelled(labels: Labels, exact: Floats | None = None) -> dict[str, Any]:
    """Count the clients with each label, for JSON. Labels, unlike vectors, have no score.

    labels: what each client reported (n).
    exact: the class probabilities of each client without noise (n x classes), if they are known.
    The agreement is the share of clients whose label is the most probable class; it is None if
    probabilities are not known.
    """
    sizes = {}
    for label, size in zip(*np.unique(labels, return_counts=True), strict=True):
        sizes[str(label)] = int(size)
    agreement = None
    if exact is not None:
        keeps_label = labels == exact.argmax(axis=1)
        agreement = float(keeps_label.mean())
    return {
        "clients": len(labels),
        "clusters": sizes,
        "score": None,
        "score_without_noise": None,
        "agreement": agreement,
    }


def cluster(score_name: str, vectors: Floats, exact: Floats | None = None) -> dict[str, Any]:
    """Group clients into clusters by their most probable class, and score the clusters, for JSON.

    score_name: that of the score, one of SCORES.
    vectors: the noisy class probabilities of each client (n x classes).
    exact: the vectors without noise, if they are known. Without them, the score without noise and
        the agreement (the share of clients in the same cluster without noise) are None.
    """
    labels = vectors.argmax(axis=1)
    evaluation = labelled(labels, exact)
    evaluation["score"] = score(score_name, vectors, labels)
    if exact is not None:
        evaluation["score_without_noise"] = score(score_name, exact, exact.argmax(axis=1))
    return evaluation
