"""Trains models with every mechanism on every data set, at several epsilons.

The models are linear and logistic regression and the SVM. Their training is empirical risk
minimisation (ERM).

LDP-FedSGD (Zhao et al. 2021, Algorithm 1, and their figures of trained models): every client
reports once, k coordinates of its gradient by the paper's rule, on a range of 1. It is compared
with tern in as many rounds, with its default mechanism and automatic ranges. Each of ten folds is
held out in turn. Small data sets are divided into ten folds twice, and many clients hold each of
their records. The optimal card has the least mean second moment for values that, like those of
gradients, are mostly small.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ternhost.datasets import CLASSIFICATION, REGRESSION, Dataset, Floats
from ternhost.errors import UsageError
from ternhost.learn.designs import coordinates_by_rule
from ternhost.learn.models.judging import SQUARED_ERROR, WORDS, measure
from ternhost.planning.cells import Cell, Row, Tables
from ternhost.planning.simulation import figure_of, optimal_figures, sgd, simulate
from ternhost.planning.statistics import (
    grouped,
    mean_and_error,
    pick,
    summaries,
    values_of,
    winners,
)
from ternhost.plots.curves import Curve, Panel, draw
from ternhost.privacy import mechanisms
from ternhost.privacy.base import MICRO
from ternpapers.base import BUNDLED, CLIENTS, SMALL, Contender, Options, Outcome, load
from ternpapers.cross_validation import require_records, shared_part, with_fold_held_out

_COMPARED = (
    "laplace",
    "duchi",
    "pm",
    "pm-sub",
    "pm-opt",
    "hm",
    "three-outputs",
    "hm-tp",
    "3r",
    "rr3",
    "pdpm",
    "optimal",
)
_TERN = "tern"
_LIKE_TERN = "three-outputs"  # tern's default mechanism, on a range of 1
FOLDS = 10
_MOST = 90_000  # the most reports of a run
_SHARED = shared_part(FOLDS)
_BY = ("data", "model", "epsilon")
_MODELS = {CLASSIFICATION: ("logistic", "svm"), REGRESSION: ("linear",)}
# Used if the publishers' files are on this machine.
_FILES = (
    "ipums",
    "ipums-regression",
    "wisdm-records",
    "wisdm",
    "vehicle",
    "vehicle-6",
    "basic-motions",
)


@dataclass(frozen=True)
class CrossValidation:
    """Which folds of a data set are held out, one after the other.

    name: the data set. folds: how many folds. seed: that of the division into folds and of all
    draws. reports: how many clients report in a run.
    """

    name: str
    folds: int
    seed: int
    reports: int

    def divided(self, index: int) -> Dataset:
        """Return the data set with the fold of this index held out."""
        return fold(self.name, index, self.seed)


@lru_cache(maxsize=FOLDS)
def fold(name: str, index: int, seed: int) -> Dataset:
    """Return the data set with a fold held out.

    index: 0 to 9 for ten random folds, 10 to 19 for ten others, and so on. seed: that of the random
    division into folds.
    """
    return with_fold_held_out(load(name), index, FOLDS, seed)


def reports_of(dataset: Dataset, quick: bool) -> int:
    """Return how many clients report in a run, each of them once.

    There is one for each training record; for a small data set there are CLIENTS.
    """
    records = len(dataset.labels)
    reports = min(_MOST, records * (FOLDS - 1) // FOLDS)
    if records < SMALL:
        reports = CLIENTS
    if quick:
        return min(reports, 10_000)
    return reports


def cells(options: Options) -> list[Cell]:
    """Return the cells of each data set, also of those whose files are on this machine.

    Raises UsageError for a data set that cannot be loaded, or has too few records.
    """
    sets = {name: load(name) for name in options.sets(*BUNDLED)}
    if options.data is None:
        for name in _FILES:
            with contextlib.suppress(UsageError):  # the file is missing
                sets[name] = load(name)
    cells = []
    for name, dataset in sets.items():
        require_records(dataset, FOLDS)
        cells += _cells(name, dataset, options)
    return cells


def _cells(name: str, dataset: Dataset, options: Options) -> list[Cell]:
    """Return the computations of a data set: its optimal models, and models with each mechanism.

    Each of these cells is one call of `_optimal` or `_trained` with one choice of arguments; its
    rows go into a table. All of them use the same cross-validation, in which each fold of the
    records is held out once.
    """
    records = len(dataset.labels)
    divisions = 1
    if records < SMALL:
        divisions = 2  # a small data set is divided into folds twice, for a smaller error
    validation = CrossValidation(
        name=name,
        folds=options.runs_or(default=divisions * FOLDS, quick=2),
        seed=options.seed,
        reports=reports_of(dataset, options.quick),
    )
    epsilons = [0.5, 1.0, 2.0, 4.0]
    if options.quick:
        epsilons = [0.5, 2.0]
    tern_itself = None  # stands for tern's own learner, in place of a mechanism
    contenders = [*options.compared(*_COMPARED).values(), tern_itself]

    def cost(contender: Contender | None, **_: object) -> float:
        """Return the relative duration of the runs with a mechanism, on all folds."""
        seconds = validation.folds * (1 + validation.reports / 1e5)
        if contender is not None and contender.label == "optimal":
            seconds += 20  # its card is searched for
        return seconds

    optima = Cell.for_each_combination(
        table="optima",
        work=_optimal,
        common={"validation": validation},
        cost=validation.folds * records / 1e4,
        model=_MODELS[dataset.task],
    )
    trained = Cell.for_each_combination(
        table="folds",
        work=_trained,
        common={"validation": validation},
        cost=cost,
        model=_MODELS[dataset.task],
        epsilon=epsilons,
        contender=contenders,
    )
    return [*optima, *trained]


def _optimal(validation: CrossValidation, model: str) -> list[Row]:
    """Return how good the optimal model without privacy is, on each held-out fold."""
    rows: list[Row] = []
    for index in range(validation.folds):
        divided = validation.divided(index)
        optimum = optimal_figures(divided, model)[measure(divided)]
        row = {"data": validation.name, "model": model, "run": index, "optimum": optimum}
        rows.append(row)
    return rows


def _trained(
    validation: CrossValidation, model: str, epsilon: float, contender: Contender | None
) -> list[Row]:
    """Train a model with a mechanism, and return how good it is on each held-out fold.

    epsilon: that of a client's report. contender: the mechanism; None for tern with its defaults.
    """
    micro_epsilon = round(epsilon * MICRO)
    rows = []
    for index in range(validation.folds):
        divided = validation.divided(index)
        settings: dict[str, Any] = {"model": model, "epsilon": f"{epsilon:g}"}
        label = _TERN
        if contender is not None:
            label = contender.label
            # By the papers' rule a client reports k coordinates, each at epsilon / k, by the card:
            # the certified table from which a device samples.
            k = coordinates_by_rule("paper", micro_epsilon, divided.dimension)
            card = contender.card(micro_epsilon // k, mechanisms.GRADIENTS)
            settings |= {"k": k, "card": card.data.hex(), "clip": "0"}
        seed = validation.seed + index
        learner = sgd(divided, validation.reports, seed, **settings)
        row = {
            "data": validation.name,
            "model": model,
            "measure": measure(divided),
            "reports": validation.reports,
            "d": divided.dimension,
            "epsilon": epsilon,
            "k": learner.designs[0].k,
            "mechanism": label,
            "run": index,
            "figure": figure_of(simulate(learner, seed)),
        }
        rows.append(row)
    return rows


def outcome(options: Options, tables: Tables) -> Outcome:
    """Return the result: how good models are with each mechanism, and a picture for each data set.

    It also has the best mechanisms, and how much tern gains by choosing ranges.
    """
    folds = tables["folds"]
    rows = _summaries(folds)
    measures = {}  # the measure of each data set, in words
    for row in rows:
        measures[row["data"]] = WORDS[row["measure"]]
        optima = pick(tables["optima"], data=row["data"], model=row["model"])
        row["optimum"] = float(np.mean([run["optimum"] for run in optima]))

    # Which mechanism is best on a range of 1, as in the papers; tern chooses its ranges.
    on_range_of_1 = [row for row in folds if row["mechanism"] != _TERN]
    best = winners(_summaries(on_range_of_1), _BY, compared="mechanism", figure="figure")
    ranges = _gains_of_ranges(folds)

    lines = [_words_of_best(row, measures[row["data"]]) for row in best]
    lines.append(_words_of_ranges(ranges))
    figures = {}
    for name in values_of(rows, "data"):
        without_path, _, _ = name.partition(":")  # a name may be NAME:FILE
        figures[f"erm-{without_path}"] = _figure(pick(rows, data=name))
    tables_of_outcome = {"erm": rows, "best": best, "ranges": ranges, "folds": folds}
    return Outcome({"folds": FOLDS}, tables_of_outcome, figures, lines)


def _words_of_best(row: Row, measure_in_words: str) -> str:
    """Return a line on the best mechanism of one case, and on those that are tied with it."""
    case = f"{row['model']} on {row['data']}, epsilon {row['epsilon']:g}"
    rivals = "the best beyond noise"
    if not row["wins"]:
        rivals = f"tied with {row['tied'] or 'others'}"
    return f"{case}: {measure_in_words} {row['figure']:.4f} by {row['best']}, {rivals}"


def _words_of_ranges(ranges: Sequence[Row]) -> str:
    """Return a line on how often tern's ranges are better, and how often they are worse."""
    better = len(pick(ranges, verdict="better"))
    worse = len(pick(ranges, verdict="worse"))
    return (
        f"tern's ranges, compared with {_LIKE_TERN} on a range of 1, are better beyond two standard "
        f"errors in {better} of {len(ranges)} cases, worse in {worse}"
    )


def _summaries(folds: Sequence[Row]) -> list[Row]:
    """Compare the mechanisms by the folds of each data set, model and epsilon."""
    return summaries(folds, _BY, "mechanism", "figure", larger=_larger, shared=_SHARED)


def _larger(row: Row) -> bool:
    """Return whether a larger figure is better, by the measure of a row."""
    return bool(row["measure"] != SQUARED_ERROR)


def _gains_of_ranges(folds: Sequence[Row]) -> list[Row]:
    """Return how much better tern is than its default mechanism on a range of 1.

    Both are compared on the same folds, for each data set, model and epsilon. The verdict is "tied"
    if the mean gain is within two standard errors of 0, or there is only one fold.
    """
    rows = []
    for group in grouped(folds, *_BY).values():
        automatic_range = _figures(pick(group, mechanism=_TERN))
        range_of_1 = _figures(pick(group, mechanism=_LIKE_TERN))
        gains = automatic_range - range_of_1
        if not _larger(group[0]):
            gains = -gains
        mean, error = mean_and_error(gains.tolist(), _SHARED)

        if abs(mean) <= 2 * error or len(gains) < 2:
            verdict = "tied"
        elif mean > 0:
            verdict = "better"
        else:
            verdict = "worse"
        row = {name: group[0][name] for name in _BY}
        row["better_by"] = mean
        row["standard_error"] = error
        row["verdict"] = verdict
        rows.append(row)
    return rows


def _figures(rows: Sequence[Row]) -> Floats:
    """Return the figure of each fold."""
    return np.array([row["figure"] for row in rows])


def _figure(rows: list[Row]) -> Figure:
    """Draw a panel for each model of one data set."""
    panels = []
    for model in values_of(rows, "model"):
        model_rows = pick(rows, model=model)
        first = model_rows[0]
        title = f"{model} on {first['data']}: {first['reports']:,} reports, d = {first['d']}"
        x_label = "epsilon of a client's report"
        y_label = f"{WORDS[first['measure']]} on the held-out fold"
        curves = Curve.each(model_rows, "mechanism", "epsilon", "figure")
        optimum = {"without privacy": first["optimum"]}
        panels.append(Panel(title, x_label, y_label, curves, lines=optimum))
    return draw(panels)
