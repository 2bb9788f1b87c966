"""Models that are trained by LDP-FedSGD with several mechanisms."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from ternhost.datasets import CLASSIFICATION, REGRESSION, Dataset, Floats
from ternhost.errors import UsageError
from ternhost.learn import judging
from ternhost.learn.judging import SQUARED_ERROR
from ternhost.learn.optimum import optimum
from ternhost.learn.parameters import MODELS
from ternhost.learn.training import TrainingPlan
from ternhost.planning.cells import Cell, Row
from ternpapers import baseline
from ternpapers.base import Options, load
from ternpapers.comparison.contest import EPSILON, Case, Contest, cases, compared
from ternpapers.comparison.reports import reported
from ternpapers.experiments import erm
from ternpapers.figure import NON_PRIVATE, RUNS, Axis, Check, Figure

CLASSIFIED = ("synthetic-logistic", "breast-cancer")  # bundled data sets
REGRESSED = ("synthetic-linear", "diabetes")
ACCURACY = Axis("accuracy", "accuracy on the held-out fold", larger=True)
MISCLASSIFICATION = Axis("misclassification", "misclassification rate")
LINEAR_ERROR = Axis(SQUARED_ERROR, "mean squared error", log=True)


def models(
    title: str,
    model: str,
    contest: Contest,
    y: Axis,
    x: Axis = EPSILON,
    *,
    statements: Mapping[str, Check] | None = None,
) -> Figure:
    """Return a figure of models trained by LDP-FedSGD, with a panel for each data set.

    They are trained with each mechanism, and without privacy. model: the name of the model.
    contest: its settings are without share and d. y: accuracy or misclassification, by the sign of
    the score, or squared_error. statements: as of `Figure`.
    """
    cells = partial(_model_cells, model, y.column, contest)
    return Figure(title, x, y, cells, statements or {}, shared=erm.SHARED)


@dataclass(frozen=True)
class Folds:
    """A cross-validation of models.

    count: how many folds are held out, one after the other. seed: that of the division into folds
    and of the draws. quick: whether only few clients report.
    """

    count: int
    seed: int
    quick: bool


def _model_cells(model: str, measure: str, contest: Contest, options: Options) -> list[Cell]:
    """Return the cells of `models`: one for each case and mechanism.

    measure: the column of the y axis. Raises UsageError if the labels of a data set do not suit the
    model.
    """
    contest = contest.on(options)
    task = CLASSIFICATION
    if measure == SQUARED_ERROR:
        task = REGRESSION
    for name in contest.sources:
        if load(name).task != task:
            text = f"the labels of {name} do not suit a {model} model"
            raise UsageError(text, hint="name another --data")

    number_of_folds = options.runs_or(default=erm.FOLDS, quick=4, paper=5 * erm.FOLDS)
    folds = Folds(number_of_folds, options.seed, options.quick)
    return Cell.for_each_combination(
        table=RUNS,
        work=_trained,
        common={"model": model, "measure": measure, "folds": folds},
        case=cases(contest, options),
        mechanism=(*compared(contest.mechanisms, options), NON_PRIVATE),
    )


def _trained(case: Case, mechanism: str, model: str, measure: str, folds: Folds) -> list[Row]:
    """Train a model with a mechanism, and return how good it is on each held-out fold.

    measure: the column of the result, such as "accuracy".
    """
    common = {
        "panel": case.source,
        "curve": mechanism,
        "epsilon": case.epsilon,
        "outputs": case.outputs,
    }
    # A linear model is judged by the squared error of its score, an SVM by the sign of its score.
    judged_as = "svm"
    if measure == SQUARED_ERROR:
        judged_as = "linear"
    rows = []
    for index in range(folds.count):
        fold = erm.fold(case.source, index, folds.seed)
        if mechanism == NON_PRIVATE:
            weights = optimum(MODELS[model], fold, TrainingPlan.regularisation)
        else:
            reports = erm.reports_of(fold, folds.quick)
            run = baseline.Training(model, case.epsilon, reports, rate=1.0, decays=True)
            weights = _descend(run, fold, mechanism, case.outputs, folds.seed + index)
        figures = judging.figures(fold, MODELS[judged_as], weights)
        if measure == MISCLASSIFICATION.column:
            figure = 1 - figures["accuracy"]
        else:
            figure = figures[measure]
        rows.append({**common, "run": index, measure: figure})
    return rows


def _descend(
    run: baseline.Training, dataset: Dataset, mechanism: str, outputs: int | None, seed: int
) -> Floats:
    """Train by LDP-FedSGD, and return the weights of the model (d).

    Clients report whole gradients, each number clipped to [-1, 1], by a mechanism. outputs: as of
    `reported`.
    """
    rng = baseline.generator(seed)

    def mean_gradient(x: Floats, y: Floats, weights: Floats) -> Floats:
        """Estimate the mean gradient (d) of records with features x and labels y."""
        slopes = baseline.slopes(run.model, x, y, weights)
        gradients = np.clip(slopes[:, None] * x, -1, 1)
        reports = reported(gradients, mechanism, run.epsilon, rng, outputs)
        return np.asarray(reports.mean(axis=0))

    return baseline.descend(run, dataset, mean_gradient, rng)
