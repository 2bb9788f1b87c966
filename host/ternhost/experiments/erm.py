"""Empirical risk minimisation against epsilon: logistic regression, linear SVM and linear regression, cross-validated.

LDP-FedSGD (Zhao et al. 2021, Algorithm 7): every client reports once, k coordinates of its gradient. Each of ten folds
is held out in turn. The optimal card is one for gradients: of the least mean second moment, small values being likely.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ternhost import datasets, mechanisms
from ternhost.algorithms import judging
from ternhost.algorithms.designs import coordinates_by_rule
from ternhost.datasets import CLASSIFICATION, REGRESSION, Dataset
from ternhost.errors import UsageError
from ternhost.experiments.base import Curve, Options, Outcome, Panel, Row, draw, mean_and_error
from ternhost.experiments.rounds import sgd, simulate
from ternhost.mechanisms.base import MICRO

SUMMARY = "accuracy and squared error of trained models against epsilon, by ten-fold cross-validation"

_COMPARED = ("laplace", "duchi", "pm", "three-outputs", "hm-tp", "rr3", "optimal")
_FOLDS = 10


def fold(dataset: Dataset, index: int, seed: int) -> Dataset:
    """The data set with the `index`-th of ten random parts held out."""
    order = np.random.default_rng(seed).permutation(len(dataset.labels))
    held = np.zeros(len(order), bool)
    held[order[index::_FOLDS]] = True
    return replace(dataset, held_out=held)


def _tasks(options: Options) -> list[tuple[str, Dataset]]:
    if options.dataset is None:
        logistic, linear = datasets.load("synthetic-logistic"), datasets.load("synthetic-linear")
        return [("logistic", logistic), ("svm", logistic), ("linear", linear)]
    dataset = datasets.load(options.dataset)
    models = {CLASSIFICATION: ("logistic", "svm"), REGRESSION: ("linear",)}.get(dataset.task)
    if models is None:
        raise UsageError(
            f"{options.dataset} is not for training as it is", hint="name another with --dataset"
        )
    return [(model, dataset) for model in models]


def run(options: Options) -> Outcome:
    epsilons = [0.5, 2.0] if options.quick else [0.5, 1.0, 2.0, 3.0, 4.0, 6.0]
    folds = min(_FOLDS, options.runs_or(_FOLDS, 2))
    compared = options.compared(*_COMPARED)
    names = list(compared)
    rows: list[Row] = []
    for model, dataset in _tasks(options):
        parts = [fold(dataset, i, options.seed) for i in range(folds)]
        options.progress(f"{model} without privacy")
        exact, _ = mean_and_error([_exactly(part, model, options.seed + i) for i, part in enumerate(parts)])
        for epsilon in epsilons:
            k = coordinates_by_rule("paper", round(epsilon * MICRO), dataset.dimension)
            for name, contender in compared.items():
                options.progress(f"{model}, epsilon {epsilon:g}, {name}")
                card = contender.card(round(epsilon * MICRO) // k, mechanisms.GRADIENTS)
                asked = {"model": model, "epsilon": f"{epsilon:g}", "k": k, "card": card.data.hex()}
                mean, error = mean_and_error(
                    [_privately(part, options.seed + i, **asked) for i, part in enumerate(parts)]
                )
                rows.append(
                    {
                        "data": dataset.name,
                        "model": model,
                        "measure": judging.WORDS[judging.measure(dataset)],
                        "reports": len(parts[0].training),
                        "d": dataset.dimension,
                        "epsilon": epsilon,
                        "k": k,
                        "mechanism": name,
                        "figure": mean,
                        "standard_error": error,
                        "nonprivate": exact,
                        "folds": folds,
                    }
                )
    return Outcome("erm", {"folds": folds}, {"erm": rows}, {"erm": _figure(rows, names)}, _lines(rows))


def _privately(dataset: Dataset, seed: int, **options: Any) -> float:
    """The figure of a model that every client of the data set has trained by a report."""
    learner = simulate(sgd(dataset, len(dataset.training), seed, **options), seed)
    return judging.judge(dataset, learner.weights)


def _exactly(dataset: Dataset, model: str, seed: int) -> float:
    """The figure of the model at the optimum without privacy."""
    learner = sgd(dataset, len(dataset.training), seed, model=model)
    return judging.judge(dataset, learner.optimum())


def _figure(rows: list[Row], names: list[str]) -> Figure:
    panels = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        curves = [
            Curve(
                name,
                [row["epsilon"] for row in own if row["mechanism"] == name],
                [row["figure"] for row in own if row["mechanism"] == name],
                [row["standard_error"] for row in own if row["mechanism"] == name],
            )
            for name in names
        ]
        title = f"{model} on {own[0]['data']}: {own[0]['reports']:,} reports, d = {own[0]['d']}"
        panels.append(
            Panel(
                title,
                "epsilon of a client's report",
                f"{own[0]['measure']} on the fold held out",
                curves,
                lines={"without privacy": own[0]["nonprivate"]},
            )
        )
    return draw(panels)


def _lines(rows: list[Row]) -> list[str]:
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
            own = [row for row in rows if row["model"] == model and row["epsilon"] == epsilon]
            pick = min if own[0]["measure"] == judging.WORDS[judging.SQUARED_ERROR] else max
            best = pick(own, key=lambda row: row["figure"])
            lines.append(
                f"{model}, epsilon {epsilon:g}: best {best['measure']} {best['figure']:.4f} by {best['mechanism']}, "
                f"{best['nonprivate']:.4f} without privacy"
            )
    return lines
