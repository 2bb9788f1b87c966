"""How good the models of a plan are: one after a run, and all after several runs.

The *figure* of a model is its most telling measure on held-out records, such as its AUC. Models
that give probabilities have a log-loss, too, which tells whether these can be believed. Models that
predict classes have a recall: that of the class which is rarest among the records to learn from.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ternhost.datasets import REGRESSION, Dataset
from ternhost.learn.models import judging
from ternhost.learn.models.learning import Learning
from ternhost.learn.parameters import MODELS, Floats
from ternhost.planning.cells import Row
from ternhost.planning.statistics import intervals, mean_and_error

LOSS = judging.LOG_LOSS


def of_learner(learner: Learning) -> Row:
    """Return how good the model of a learner is, as of `of_model`. Its data set must be known."""
    assert learner.dataset is not None
    threshold = learner.threshold_of(learner.weights)
    return of_model(learner.dataset, learner.model, learner.weights, threshold)


def of_model(data: Dataset, model: str, weights: Floats, threshold: float = judging.EVEN) -> Row:
    """Return how good a model is on the held-out records.

    The row has its "figure", and its "log_loss" if it gives probabilities. If it predicts classes,
    the row has its "recall", and "never_predicted": the names of the classes that held-out records
    have and that it never predicts. The recall is None if no held-out record has the rarest class.
    model: its name. weights: for each feature, of each class (d, or classes * d). threshold: the
    model predicts the positive one of two classes if its probability is larger.
    """
    figures = judging.figures(data, MODELS[model], weights, threshold)
    row: Row = {"figure": next(iter(figures.values()))}
    if LOSS in figures:
        row[LOSS] = figures[LOSS]
    decisions = judging.decisions(data, MODELS[model], weights, threshold)
    if decisions:
        row["recall"] = decisions["recall"]
        row["never_predicted"] = judging.never_predicted(decisions)
    return row


def of_runs(runs: Sequence[Row], measure: str) -> Row:
    """Return how good the models of several runs are: columns for JSON and for frames.

    They are those of `intervals` for the figure, and those of the log-loss with its name before
    them, such as "log_loss_mean". Models that predict classes have their mean "recall", and
    "never_predicted": the names of the classes that the models of most runs never predict.

    runs: a row of `of_model` for each. measure: that of the figure.
    """
    figures = [run["figure"] for run in runs]
    columns = intervals(figures, judging.limits(measure))
    if LOSS in runs[0]:
        losses = [run[LOSS] for run in runs]
        for name, value in intervals(losses, judging.limits(LOSS)).items():
            columns[f"{LOSS}_{name}"] = value
    if "recall" in runs[0]:
        columns["recall"] = _mean_recall(runs)
        columns["never_predicted"] = _never_predicted_by_most(runs)
    return columns


def _mean_recall(runs: Sequence[Row]) -> float | None:
    """Return the mean recall of several runs; None if no held-out record has the rarest class."""
    recalls = [run["recall"] for run in runs]
    if None in recalls:
        return None
    mean, _ = mean_and_error(recalls)
    return mean


def _never_predicted_by_most(runs: Sequence[Row]) -> list[str]:
    """Return the classes that the models of more than half of the runs never predict."""
    runs_by_class = Counter(name for run in runs for name in run["never_predicted"])
    return [name for name, count in runs_by_class.items() if count > len(runs) / 2]


def of_reference(quality: Row, name: str) -> Row:
    """Return how good a model is that others are compared with, as part of the result of a plan.

    quality: as of `of_model`. name: of the model, such as "optimum"; its log-loss and its recall, if
    it has them, are named "log_loss_optimum" and "recall_optimum".
    """
    reference = {name: quality["figure"]}
    if LOSS in quality:
        reference[f"{LOSS}_{name}"] = quality[LOSS]
    if "recall" in quality:
        reference[f"recall_{name}"] = quality["recall"]
    return reference


def rarest_class(data: Dataset) -> Row:
    """Return which class is rarest among the records to learn from, and its share, for JSON.

    They are named "rarest" and "rarest_share", and are None if labels are numbers.
    """
    if data.task == REGRESSION:
        return {"rarest": None, "rarest_share": None}
    number = judging.rarest_class(data)
    names = data.classes or judging.SIGNS
    return {"rarest": names[number], "rarest_share": float(data.shares[number])}


def of_baseline(data: Dataset, model: str) -> Row:
    """Return how good the answer is that knows no features, as of `of_model`.

    model: the name of the model that is compared with it.
    """
    values = judging.baselines(data, MODELS[model])
    row: Row = {"figure": values[judging.measure(data)]}
    if LOSS in values:
        row[LOSS] = values[LOSS]
    return row


def loses_to_shares(result: Mapping[str, Any], row: Row) -> bool:
    """Tell whether the mean log-loss of a row of a plan is worse than that of the class shares.

    result: that of the plan. It is False where models give no probabilities.
    """
    if not has_log_loss(result):
        return False
    return judging.is_better(LOSS, result[f"{LOSS}_baseline"], row[f"{LOSS}_mean"])


def baseline_name(result: Mapping[str, Any]) -> str:
    """Return the name of the answer that knows no features, for people.

    Where models have probabilities, it is the share of each class. Its AUC is that of guessing, and
    its accuracy that of the most frequent class.
    """
    measure = result["measure"]
    if has_log_loss(result):
        measure = LOSS
    return judging.TRIVIAL[measure]


def has_log_loss(result: Mapping[str, Any]) -> bool:
    """Tell whether the models of a plan give probabilities, so that they have a log-loss."""
    return f"{LOSS}_baseline" in result


def measures(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the measures of the models of a plan, each with the prefix of its names in the result."""
    found = [(result["measure"], "")]
    if has_log_loss(result):
        found.append((LOSS, f"{LOSS}_"))
    return found
