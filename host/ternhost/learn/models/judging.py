"""Metrics that judge models on held-out records, with intervals, beside those of a baseline.

The baseline is the answer that knows no features.
"""

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from tern.fixed import ONE
from tern.wire import LOGISTIC, SOFTMAX_GRADIENT
from ternhost.datasets import CLASSIFICATION, MULTICLASS, Dataset, Indices
from ternhost.errors import UsageError
from ternhost.learn.collecting import estimate
from ternhost.learn.models.losses import LOSSES
from ternhost.learn.parameters import Floats
from ternhost.text import counted

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


def require_different_labels(dataset: Dataset) -> None:
    """Raise UsageError if all records to learn from have the same label."""
    labels = dataset.labels[dataset.training]
    if not len(labels) or (labels != labels[0]).any():
        return
    label = "the same label"
    if dataset.classes:
        number = int(labels[0])
        if dataset.task != MULTICLASS:
            number = int(labels[0] > 0)
        label = f"the label {dataset.classes[number]}"
    text = f"all {counted(len(labels), 'record')} to learn from have {label}: there is nothing to learn"
    raise UsageError(text, "use records with different labels, or name another label in the schema")


# The baseline of each metric, for people.
TRIVIAL = {
    ACCURACY: "majority",
    AUC: "guessing",
    LOG_LOSS: "class shares",
    SQUARED_ERROR: "mean label",
}

EVEN = 0.5  # the threshold at which a model predicts the more probable one of two classes
# The float after 0, and the float before 1: what a threshold can be.
LEAST, LARGEST = math.ulp(0.0), 1 - math.ulp(0.5)
SIGNS = ("-1", "1")  # stand for the names of two classes that have none

_UNBALANCED = 0.7  # where one of two classes has a larger share, accuracy tells little
_RECALLS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # of which a result has the thresholds
_OF_A_CHOICE = ("threshold", "recall", "precision", "predicted")
_STEPS = 1 << 16  # to which scores are rounded for the AUC
_HALVINGS = 40  # of the interval in which a bound can be
_Z = NormalDist().inv_cdf(0.975)


def measures(dataset: Dataset, model: int = LOGISTIC) -> tuple[str, ...]:
    """Return the names of the metrics that judge a model, the most informative one first.

    Data with numeric labels have only the squared error. For classes there is the accuracy, and the
    log-loss if the model gives probabilities. The AUC needs held-out records of both classes; it
    comes before the accuracy if one class is much more frequent.

    model: its number (wire.md).
    """
    if dataset.task not in (CLASSIFICATION, MULTICLASS):
        return (SQUARED_ERROR,)
    names: list[str] = [ACCURACY]
    _, labels = dataset.judged
    positive = labels > 0
    if dataset.task == CLASSIFICATION and positive.any() and not positive.all():
        if dataset.shares.max() > _UNBALANCED:
            names = [AUC, ACCURACY]
        else:
            names = [ACCURACY, AUC]
    if model in (LOGISTIC, SOFTMAX_GRADIENT):
        names.append(LOG_LOSS)
    return tuple(names)


def measure(dataset: Dataset) -> str:
    """The most informative one of `measures`."""
    return measures(dataset)[0]


def is_better(name: str, value: float, other: float) -> bool:
    """Whether a value of this metric is better than another."""
    if name in (ACCURACY, AUC):
        return value > other
    return value < other


def limits(name: str) -> tuple[float, float]:
    """The least and the largest value that a metric can have."""
    if name in (ACCURACY, AUC):
        return 0.0, 1.0
    return 0.0, math.inf


def scores(features: npt.NDArray[Any], weights: Floats) -> Floats:
    """Compute the score of each record: the product of its features and the weights.

    features: of the records, in fixed point, where ONE stands for 1 (n x d).
    weights: d, or classes * d, class by class.
    Returns n scores, or n x classes for several classes.
    """
    # Not by BLAS: its threads wait for each other on a busy machine, longer than the sum takes.
    einsum: Any = np.einsum
    weights_by_class = weights.reshape(-1, features.shape[1]) / ONE
    if len(weights_by_class) > 1:
        scores_by_class: Floats = einsum("ij,cj->ic", features, weights_by_class)
        return scores_by_class
    single_scores: Floats = einsum("ij,j->i", features, weights_by_class[0])
    return single_scores


def figures(
    dataset: Dataset, model: int, weights: Floats, threshold: float = EVEN
) -> dict[str, float]:
    """Return the metrics of a model (accuracy, AUC and so on) on the held-out records, by name.

    weights: the weights of the model (d, or classes * d).
    threshold: the model predicts the positive one of two classes if its probability is larger.
    """
    features, labels = dataset.judged
    z = scores(features, weights)
    return {name: _metric(name, z, labels, threshold) for name in measures(dataset, model)}


def _metric(name: str, z: Floats, labels: Floats, threshold: float) -> float:
    """Return a metric, such as the accuracy, of scores z (n, or n x classes)."""
    if name == AUC:
        return _auc(z, labels > 0)
    return float(_by_record(name, z, labels, threshold).mean())


def _by_record(name: str, z: Floats, labels: Floats, threshold: float) -> npt.NDArray[Any]:
    """Return what each record contributes to a metric that is a mean over records (n).

    name: the name of the metric, any but AUC.
    z: the scores of a model (n, or n x classes).
    labels: the true labels: numbers in fixed point, signs, or class numbers (n).
    threshold: of the probability of the positive one of two classes.
    """
    has_several_classes = z.ndim > 1
    if name == SQUARED_ERROR:
        return np.asarray((z - labels / ONE) ** 2)
    if name == ACCURACY:
        return np.asarray(_predicted_classes(z, threshold) == _class_numbers(z, labels))

    model = LOGISTIC
    if has_several_classes:
        model = SOFTMAX_GRADIENT
    losses, _ = LOSSES[model](z, labels)
    return losses


def _auc(z: Floats, positive: npt.NDArray[np.bool_]) -> float:
    """Return the AUC: the share of pairs of records in which the positive one scores higher.

    A pair has a positive and a negative record; ties count half. Scores are rounded to _STEPS steps
    of their range, and counted: that takes a fifth of the time of sorting.

    z: the scores (n). positive: which records are positive (n).
    """
    least = z.min()
    score_range = z.max() - least
    if score_range == 0:  # all scores are equal
        score_range = 1
    scale = (_STEPS - 1) / score_range
    step = ((z - least) * scale).astype(np.int64)
    # The counts of negative records by step, then those of positive ones.
    counts = np.bincount(step + _STEPS * positive, minlength=2 * _STEPS)
    negatives, positives = counts.reshape(2, _STEPS)
    negatives_below = negatives.cumsum() - negatives / 2  # with half of those at the same step
    pairs = negatives.sum() * positives.sum()
    return float(positives @ negatives_below / pairs)


# Decisions: which class the model predicts


def decisions(
    dataset: Dataset, model: int, weights: Floats, threshold: float = EVEN
) -> dict[str, Any]:
    """Return how a model of classes decides on the held-out records, for JSON.

    A model can have a good AUC and a good log-loss, and yet never predict a rare class, since no
    record has it as its most probable one. The entries tell this. They are about the class that is
    rarest among the records to learn from:

    - rarer: its name, or the sign of its label if the classes have no names
    - recall: the share of its held-out records for which the model predicts it; None if there are
      none
    - precision: the share of the records predicted to be of it that are; None if there are none
    - predicted: the share of all held-out records that the model predicts to be of it
    - mean_probability: the mean of the probabilities that the model gives to it; None if the model
      gives none
    - share: its real share among the held-out records, which the mean probability should equal
    - threshold: that at which the model decided; None if it has none

    A softmax model has two entries more: `recall_of_class`, the recall of each class by its name,
    and `never_predicted`, the names of the classes that held-out records have, and that the model
    predicts for none. Labels that are numbers have no entries at all.

    model: its number (wire.md).
    weights: the weights of the model (d, or classes * d).
    threshold: the model predicts the positive one of two classes if its probability is larger.
    """
    if dataset.task not in (CLASSIFICATION, MULTICLASS):
        return {}
    features, labels = dataset.judged
    z = scores(features, weights)
    true_classes = _class_numbers(z, labels)
    predicted_classes = _predicted_classes(z, threshold)
    names = dataset.classes or SIGNS
    rarer = rarest_class(dataset)
    is_rarer = true_classes == rarer
    is_predicted = predicted_classes == rarer
    found: dict[str, Any] = {
        "rarer": names[rarer],
        "recall": _share_of(is_predicted, among=is_rarer),
        "precision": _share_of(is_rarer, among=is_predicted),
        "predicted": float(is_predicted.mean()),
        "mean_probability": None,
        "share": float(is_rarer.mean()),
        "threshold": None,
    }
    if model == LOGISTIC:
        found["threshold"] = threshold
    if model in (LOGISTIC, SOFTMAX_GRADIENT):
        found["mean_probability"] = float(_probabilities(z, rarer).mean())
    if dataset.task == MULTICLASS:
        recall_of_class, missed = {}, []
        for number, name in enumerate(names):
            has_it = true_classes == number
            predicts_it = predicted_classes == number
            recall_of_class[name] = _share_of(predicts_it, among=has_it)
            if has_it.any() and not predicts_it.any():
                missed.append(name)
        found["recall_of_class"] = recall_of_class
        found["never_predicted"] = missed
    return found


def choices(dataset: Dataset, model: int, weights: Floats) -> list[dict[str, Any]]:
    """Return thresholds at which a logistic model finds more or less of the rarer class, for JSON.

    Each entry is for one of some shares of the held-out records of the rarer class, such as 80 %. It
    has the "threshold" at which the model finds so many or slightly more, and the "recall",
    "precision" and "predicted" at this threshold (`decisions`). The list is empty for other models,
    and if no held-out record is of this class.

    model: its number (wire.md). weights: those of the model (d).
    """
    if model != LOGISTIC or dataset.task != CLASSIFICATION:
        return []
    features, labels = dataset.judged
    z = scores(features, weights)
    rarer = rarest_class(dataset)
    of_rarer = z[_class_numbers(z, labels) == rarer]
    if not len(of_rarer):
        return []
    found = []
    for recall in _RECALLS:
        count = math.ceil(recall * len(of_rarer))
        threshold = _threshold_that_finds(count, of_rarer, z, positive=rarer == 1)
        judged = decisions(dataset, model, weights, threshold)
        found.append({name: judged[name] for name in _OF_A_CHOICE})
    return found


def _threshold_that_finds(count: int, of_class: Floats, z: Floats, *, positive: bool) -> float:
    """Return the threshold at which a model predicts a class for so many of its records.

    The score at the threshold is in the middle between two scores of records.

    count: of the records, at least 1. of_class: the scores of the records of the class. z: those of
    all records. positive: whether the class is the positive one.
    """
    from scipy.special import expit  # takes long to import

    sign = 1 if positive else -1
    last_found = np.sort(sign * of_class)[-count]
    below = sign * z[sign * z < last_found]
    first_missed = below.max() if len(below) else last_found - 1
    threshold = float(expit(sign * (last_found + first_missed) / 2))
    return min(max(threshold, LEAST), LARGEST)


def never_predicted(decisions: Mapping[str, Any]) -> list[str]:
    """Return the classes that a model never predicts, although held-out records have them.

    Of two classes only the rarer one is meant. decisions: as of `decisions`; may be empty.
    """
    if not decisions:
        return []
    if "never_predicted" in decisions:
        return list(decisions["never_predicted"])
    has_records = decisions["recall"] is not None
    if has_records and not decisions["predicted"]:
        return [decisions["rarer"]]
    return []


def rarest_class(dataset: Dataset) -> int:
    """Return the number of the class that the fewest records to learn from have, but at least one."""
    shares = dataset.shares
    return int(np.where(shares > 0, shares, np.inf).argmin())


def logit(threshold: float) -> float:
    """Return the score at which the probability of the positive class is `threshold`."""
    return math.log(threshold / (1 - threshold))


def _predicted_classes(z: Floats, threshold: float) -> Indices:
    """Return the number of the class that a model predicts for each record (n).

    z: the scores of the model (n, or n x classes).
    threshold: of the probability of the positive one of two classes, whose number is 1.
    """
    if z.ndim > 1:
        return np.asarray(z.argmax(axis=1), np.int64)
    return np.asarray(z > logit(threshold), np.int64)


def _class_numbers(z: Floats, labels: Floats) -> Indices:
    """Return the number of the class of each record (n). z: as of `_predicted_classes`."""
    if z.ndim > 1:
        return labels.astype(np.int64)
    return np.asarray(labels > 0, np.int64)


def _probabilities(z: Floats, class_number: int) -> Floats:
    """Return the probability that a model gives to a class, for each record (n).

    z: the scores of a logistic model (n), or of a softmax model (n x classes).
    """
    from scipy.special import expit, softmax  # takes long to import

    if z.ndim > 1:
        return np.asarray(softmax(z, axis=1)[:, class_number])
    sign = 1 if class_number else -1
    return np.asarray(expit(sign * z))


def _share_of(flags: npt.NDArray[np.bool_], *, among: npt.NDArray[np.bool_]) -> float | None:
    """Return the share of records with a flag among some of them; None if these are none."""
    if not among.any():
        return None
    return float(flags[among].mean())


# Intervals


def intervals(
    dataset: Dataset, model: int, weights: Floats, threshold: float = EVEN
) -> dict[str, list[float] | None]:
    """Return the 95 % confidence intervals of a model's metrics, by name.

    They are for records like the held-out ones, and not for other runs: Wilson's for accuracy,
    Newcombe's for AUC, and the normal one for mean losses. A loss of a single record has none: its
    interval is None.

    weights: the weights of the model (d, or classes * d).
    threshold: as of `figures`.
    """
    features, labels = dataset.judged
    z = scores(features, weights)
    found: dict[str, list[float] | None] = {}
    for name in measures(dataset, model):
        interval = _interval(name, z, labels, threshold)
        found[name] = None if interval is None else list(interval)
    return found


def _interval(name: str, z: Floats, labels: Floats, threshold: float) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of a metric of a model on these records.

    It follows from the metric itself for accuracy and AUC, and for losses from their standard
    deviation over the records. None: there is a single record, which has no standard deviation.

    name: the name of the metric.
    z: the scores that the model gives to the records (n, or n x classes).
    labels: their true labels (n).
    threshold: as of `figures`.
    """
    metric = _metric(name, z, labels, threshold)
    positive = int((labels > 0).sum())
    interval = interval_of(name, metric, records=len(labels), positive=positive)
    if interval:
        return interval
    if len(labels) == 1:
        return None
    # A loss is a mean over records, with the standard error deviation / sqrt(n).
    deviation = float(_by_record(name, z, labels, threshold).std(ddof=1))
    half = _Z * deviation / math.sqrt(len(labels))
    lowest, _ = limits(name)
    return max(metric - half, lowest), metric + half


def interval_of(
    name: str, metric: float, records: int, positive: int
) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of an accuracy or an AUC.

    name: the name of the metric. metric: its value.
    records: the number of records that it is about, of which so many are `positive`.
    Returns None for a loss, whose interval needs the loss of every record.
    """
    if name == ACCURACY:
        return estimate.share_interval(metric, records)
    if name == AUC:
        return auc_interval(metric, positive=positive, negative=records - positive)
    return None


def auc_interval(auc: float, positive: int, negative: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of an AUC.

    It has all values of the true AUC from which the observed one is less than 1.96 standard
    deviations away, by the variance of Hanley and McNeil. So it stays valid for few records and
    within [0, 1]. Source: Newcombe, Statistics in Medicine 25, 2006, method 5.

    positive, negative: the numbers of records that the AUC is about.
    """
    mean_count = (positive + negative) / 2 - 1  # N* of the paper
    pairs = positive * negative

    def is_plausible(true_auc: float) -> bool:
        """Tell whether the interval has this value of the true AUC."""
        of_positives = mean_count * (1 - true_auc) / (2 - true_auc)
        of_negatives = mean_count * true_auc / (1 + true_auc)
        variance = true_auc * (1 - true_auc) * (1 + of_positives + of_negatives) / pairs
        return (true_auc - auc) ** 2 < _Z * _Z * variance

    def bound(end: float) -> float:
        """Return the end of the interval on the side of `end`, 0 or 1, found by bisection."""
        plausible, implausible = auc, end
        for _ in range(_HALVINGS):
            middle = (plausible + implausible) / 2
            if is_plausible(middle):
                plausible = middle
            else:
                implausible = middle
        return plausible

    return bound(0.0), bound(1.0)


# The baseline


def counts(dataset: Dataset) -> dict[str, int]:
    """The number of held-out records, and how many of them are of the positive class, if any."""
    _, labels = dataset.judged
    return {"records": len(labels), "positive": int((labels > 0).sum())}


def baselines(dataset: Dataset, model: int = LOGISTIC) -> dict[str, float]:
    """Return the metrics of the answer that knows no features, by name.

    It is the majority class, guessing, the share of each class, or the mean label.
    """
    return {name: _baseline(name, dataset) for name in measures(dataset, model)}


def _baseline(name: str, dataset: Dataset) -> float:
    """Return a metric, on the held-out records, of the best answer that knows no features.

    It is guessing for the AUC, the mean label for numbers, the most frequent class for accuracy,
    and the share of each class as its probability for the log-loss.
    """
    _, labels = dataset.judged
    if name == AUC:
        return 0.5
    if name == SQUARED_ERROR:
        mean = dataset.labels[dataset.training].mean()
        return float(np.mean((labels - mean) ** 2)) / ONE**2  # labels are in units of 1 / ONE

    shares = dataset.shares  # of each class among the training records
    class_of_record = (labels > 0).astype(np.int64)
    if dataset.task == MULTICLASS:
        class_of_record = labels.astype(np.int64)
    if name == ACCURACY:
        return float(np.mean(class_of_record == shares.argmax()))
    least_share = 1 / len(dataset.training)  # for a class that no training record has
    loss_of_class = -np.log(np.maximum(shares, least_share))
    return float(np.mean(loss_of_class[class_of_record]))
