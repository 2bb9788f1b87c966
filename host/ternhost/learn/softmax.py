"""Protected inference: noisy class probabilities of many clients, clustered and scored without labels.

Each client classifies a record of its own on the device (tern.inference) and sends the probability vector under exact
discrete Laplace noise. The host takes the largest entry for the cluster and judges the clusters by a score that needs
no truth. The settings are those of MindSpore Federated, by their names. There, noise of scale 1 / laplace_eval_eps is
added to each entry as if a softmax vector could change by 1; in L1 norm it can change by 2. So the privacy
loss of that setting is twice its value: `Settings.epsilon` is the true one, and what the card is certified for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from tern.fixed import MAX_EPSILON, ONE
from ternhost import datasets
from ternhost.datasets import CLASSIFICATION, MULTICLASS, Dataset
from ternhost.errors import UsageError
from ternhost.learn.parameters import LARGEST_WEIGHT, quantise
from ternhost.privacy import mechanisms
from ternhost.privacy.accounting import Account, Release
from ternhost.privacy.base import MICRO, parse_epsilon

Floats = npt.NDArray[np.float64]
Fixed = npt.NDArray[np.int16]
Labels = npt.NDArray[np.int64]

NOT_ENCRYPT = "NOT_ENCRYPT"
LAPLACE = "LAPLACE"
NOT_EVAL = "NOT_EVAL"
SILHOUETTE_SCORE = "SILHOUETTE_SCORE"
CALINSKI_HARABASZ = "CALINSKI_HARABASZ"
CALINSKI_HARABASZ_SCORE = "CALINSKI_HARABASZ_SCORE"  # the same, as MindSpore's text has it in places

_GRID_BITS = 10
_REACH = 8  # noise scales beyond a probability's 0..1 before a symbol stands for the tail
_MOST_LEVELS = 65535


@dataclass(frozen=True)
class Settings:
    """Of an evaluation, by MindSpore's names. `with_epsilon` makes them from an honest epsilon."""

    privacy_eval_type: str = LAPLACE
    laplace_eval_eps: str = "1"
    cluster_client_num: int = 1000
    eval_type: str = SILHOUETTE_SCORE

    def __post_init__(self) -> None:
        if self.privacy_eval_type not in (NOT_ENCRYPT, LAPLACE):
            raise UsageError(
                f"privacy_eval_type {self.privacy_eval_type!r} is none", hint=f"{NOT_ENCRYPT} or {LAPLACE}"
            )
        known = (NOT_EVAL, SILHOUETTE_SCORE, CALINSKI_HARABASZ, CALINSKI_HARABASZ_SCORE)
        if self.eval_type not in known:
            raise UsageError(f"eval_type {self.eval_type!r} is none", hint=", ".join(known))
        if self.cluster_client_num < 2:
            raise UsageError("cluster_client_num must be 2 or more")
        if self.privacy_eval_type == LAPLACE and self._epsilon() > MAX_EPSILON:
            raise UsageError(
                f"laplace_eval_eps {self.laplace_eval_eps} means a true epsilon above {MAX_EPSILON // MICRO}, "
                "which protects nothing",
                hint=f"give at most {MAX_EPSILON // MICRO // 2}, or say {NOT_ENCRYPT}",
            )

    @classmethod
    def with_epsilon(cls, epsilon: str, **others: Any) -> Settings:
        """Settings whose true epsilon is `epsilon`."""
        return cls(laplace_eval_eps=str(Decimal(parse_epsilon(epsilon)) / 2 / MICRO), **others)

    def _epsilon(self) -> int:
        try:
            return int(2 * Decimal(self.laplace_eval_eps) * MICRO)
        except ArithmeticError:
            raise UsageError(f"laplace_eval_eps {self.laplace_eval_eps!r} is no number") from None

    @property
    def epsilon(self) -> int | None:
        """The true privacy loss of one result in micro-epsilon: twice laplace_eval_eps; None without protection."""
        return self._epsilon() if self.privacy_eval_type == LAPLACE else None

    def account(self) -> Account:
        """What a result costs a client: the true loss, once for the vector."""
        account = Account()
        if self.epsilon is not None:
            account.charge([Release("inference result", self.epsilon)])
        return account


def noise_card(epsilon: int) -> bytes:
    """A laplace card for probability vectors: certified at `epsilon` (micro) for a change of 2 in L1 norm.

    Raises UsageError for an epsilon too small or too large for one.
    """
    reach = math.ceil((1 + _REACH * 2 * MICRO / epsilon) * (1 << _GRID_BITS))
    levels = min(2 * reach + 1, _MOST_LEVELS)
    return mechanisms.design("laplace", levels=levels, grid=_GRID_BITS, epsilon_micro=epsilon).card


# The classifier

CLASSES = ("digits", "iris", "wine")  # those of which all classes are told; of others two


def load(name: str) -> Dataset:
    """A data set with classes: one of CLASSES, or the two classes of another by its name. Raises UsageError."""
    dataset = datasets.load(name, classes=name in CLASSES)
    if dataset.task not in (MULTICLASS, CLASSIFICATION):
        raise UsageError(f"{name} has no classes", hint=f"one of: {', '.join(CLASSES)}")
    return dataset


@dataclass(frozen=True)
class Weights:
    """Of a softmax classifier: classes x features mantissas of 2**exponent."""

    mantissas: Fixed
    exponent: int


def train_classifier(dataset: Dataset) -> Weights:
    """A softmax classifier of the training records, by scikit-learn."""
    from sklearn.linear_model import LogisticRegression  # takes a second to import

    x = dataset.features[dataset.training] / ONE
    model = LogisticRegression(C=1.0, fit_intercept=False, max_iter=2000).fit(
        x, dataset.labels[dataset.training]
    )
    weights = model.coef_
    if len(weights) == 1:  # scikit-learn has one row for two classes
        weights = np.stack([np.zeros_like(weights[0]), weights[0]])
    largest = float(np.abs(weights).max())
    parameters = quantise((weights * min(1.0, LARGEST_WEIGHT / largest)).reshape(-1))
    return Weights(np.array(parameters.mantissas, np.int16).reshape(weights.shape), parameters.exponent)


# Clusters and scores


@dataclass(frozen=True)
class Evaluation:
    """Of the vectors of one evaluation: clusters by their size, the score (None: not asked, or one cluster only).

    What is `None` beside it is known only where the records are: not of boards that somebody else filled.
    """

    settings: Settings
    clients: int
    clusters: dict[int, int]
    score: float | None
    score_without_noise: float | None
    agreement: float | None  # share of clients whose cluster is that of their noiseless vector

    def summary(self) -> dict[str, Any]:
        """For JSON, with the true epsilon beside the setting."""
        epsilon = self.settings.epsilon
        return {
            "privacy_eval_type": self.settings.privacy_eval_type,
            "laplace_eval_eps": float(self.settings.laplace_eval_eps) if epsilon is not None else None,
            "epsilon_true": None if epsilon is None else epsilon / MICRO,
            "eval_type": self.settings.eval_type,
            "clients": self.clients,
            "clusters": {str(label): size for label, size in self.clusters.items()},
            "score": self.score,
            "score_without_noise": self.score_without_noise,
            "agreement": self.agreement,
            "accounting": self.settings.account().summary(),
        }


def score(eval_type: str, vectors: Floats, labels: Sequence[int] | npt.NDArray[Any]) -> float | None:
    """The score of a clustering; None where none is asked, or there are fewer than 2 clusters or a cluster each."""
    count = len(set(np.asarray(labels).tolist()))
    if eval_type == NOT_EVAL or not 2 <= count < len(vectors):
        return None
    from sklearn import metrics  # takes a second to import

    order = np.lexsort((labels, *vectors.T))  # that of the reports would change the last bit of a sum
    measure = metrics.silhouette_score if eval_type == SILHOUETTE_SCORE else metrics.calinski_harabasz_score
    return float(measure(vectors[order], np.asarray(labels)[order]))


def labelled(settings: Settings, labels: Labels, exact: Floats | None = None) -> Evaluation:
    """The same of reported labels (n), which have no score: that is of vectors."""
    agreement = None if exact is None else float((labels == exact.argmax(axis=1)).mean())
    return Evaluation(settings, len(labels), _sizes(labels), None, None, agreement)


def _sizes(labels: Labels) -> dict[int, int]:
    return {int(label): int(size) for label, size in zip(*np.unique(labels, return_counts=True), strict=True)}


def cluster(settings: Settings, vectors: Floats, exact: Floats | None = None) -> Evaluation:
    """Cluster vectors (n x c) by their largest entry and score them, beside the `exact` ones if they are known."""
    labels = vectors.argmax(axis=1)
    true = None if exact is None else exact.argmax(axis=1)
    return Evaluation(
        settings,
        len(vectors),
        _sizes(labels),
        score(settings.eval_type, vectors, labels),
        None if exact is None or true is None else score(settings.eval_type, exact, true),
        None if true is None else float((labels == true).mean()),
    )
