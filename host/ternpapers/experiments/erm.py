"""Empirical risk minimisation by epsilon: linear and logistic regression and SVM, every mechanism,
every data set.

LDP-FedSGD (Zhao et al. 2021, Algorithm 1, and their figures of trained models): every client
reports once, k coordinates of its gradient by the paper's rule, on a range of 1. It is compared
with tern in as many rounds, with its default mechanism and automatic ranges. Each of ten folds is
held out in turn. Small data sets are divided into ten folds twice, and many clients hold each of
their records. The optimal card has the least mean second moment for values that, like those of
gradients, are mostly small.
"""

import contextlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ternhost.datasets import CLASSIFICATION, REGRESSION, Dataset, Floats
from ternhost.errors import UsageError
from ternhost.learn.designs import coordinates_by_rule
from ternhost.learn.judging import SQUARED_ERROR, WORDS, measure
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
_MOST = 90_000  # reports
SHARED = 1 / (FOLDS - 1)  # held-out records over training records
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


@lru_cache(maxsize=FOLDS)
def fold(name: str, index: int, seed: int) -> Dataset:
    """Return the data set with a fold held out.

    index: 0 to 9 for ten random folds, 10 to 19 for ten others, and so on.
    """
    dataset = load(name)
    division, part = divmod(index, FOLDS)
    order = np.random.default_rng([seed, division]).permutation(len(dataset.labels))
    held_out = np.zeros(len(order), bool)
    held_out[order[part::FOLDS]] = True
    return dataset.divided(held_out)


def reports_of(dataset: Dataset, quick: bool) -> int:
    """Return how many clients report in a run, each of them once.

    There is one for each training record; for a small data set there are CLIENTS.
    """
    records = len(dataset.labels)
    reports = min(_MOST, records * (FOLDS - 1) // FOLDS)
    if records < SMALL:
        reports = CLIENTS
    return min(reports, 10_000) if quick else reports


def cells(options: Options) -> list[Cell]:
    """Return the units of work of each data set, also of those whose files are on this machine."""
    sets = {name: load(name) for name in options.sets(*BUNDLED)}
    if options.dataset is None:
        for name in _FILES:
            with contextlib.suppress(UsageError):  # the file is missing
                sets[name] = load(name)
    cells = []
    for name, dataset in sets.items():
        cells += _cells(name, dataset, options)
    return cells


def _cells(name: str, dataset: Dataset, options: Options) -> list[Cell]:
    """Return the units of work of a data set: its optima, and models with each mechanism."""
    reports = reports_of(dataset, options.quick)
    records = len(dataset.labels)
    divisions = 2 if records < SMALL else 1
    folds = options.runs_or(divisions * FOLDS, 2)
    common = {"name": name, "folds": folds, "seed": options.seed}
    models = {"model": _MODELS[dataset.task]}
    epsilons = [0.5, 2.0] if options.quick else [0.5, 1.0, 2.0, 4.0]
    contenders = [*options.compared(*_COMPARED).values(), None]
    choices: dict[str, Any] = {"epsilon": epsilons, "contender": contenders}

    def cost(contender: Contender | None, **_: object) -> float:
        seconds = folds * (1 + reports / 1e5)
        if contender is not None and contender.label == "optimal":
            seconds += 20
        return seconds

    return [
        *Cell.for_each_combination("optima", _optimal, common, folds * records / 1e4, **models),
        *Cell.for_each_combination(
            "folds", _trained, {**common, "reports": reports}, cost, **models, **choices
        ),
    ]


def _optimal(name: str, model: str, folds: int, seed: int) -> list[Row]:
    """Return the figure of the optimal model without privacy, on each held-out fold."""
    rows: list[Row] = []
    for index in range(folds):
        divided = fold(name, index, seed)
        optimum = optimal_figures(divided, model)[measure(divided)]
        rows.append({"data": name, "model": model, "run": index, "optimum": optimum})
    return rows


def _trained(
    name: str,
    model: str,
    epsilon: float,
    contender: Contender | None,
    folds: int,
    reports: int,
    seed: int,
) -> list[Row]:
    """Train a model with a mechanism, and return its figure on each held-out fold.

    contender: None for tern with its defaults.
    """
    micro_epsilon = round(epsilon * MICRO)
    rows = []
    for index in range(folds):
        divided = fold(name, index, seed)
        settings: dict[str, Any] = {"model": model, "epsilon": f"{epsilon:g}"}
        label = _TERN
        if contender is not None:
            label = contender.label
            k = coordinates_by_rule("paper", micro_epsilon, divided.dimension)
            card = contender.card(micro_epsilon // k, mechanisms.GRADIENTS)
            settings |= {"k": k, "card": card.data.hex(), "range": "0"}
        learner = sgd(divided, reports, seed + index, **settings)
        row = {
            "data": name,
            "model": model,
            "measure": measure(divided),
            "reports": reports,
            "d": divided.dimension,
            "epsilon": epsilon,
            "k": learner.designs[0].k,
            "mechanism": label,
            "run": index,
            "figure": figure_of(simulate(learner, seed + index)),
        }
        rows.append(row)
    return rows


def outcome(options: Options, tables: Tables) -> Outcome:
    """Return the figures of all mechanisms, the best ones, the gains of ranges, and the pictures."""
    folds = tables["folds"]
    rows = _summaries(folds)
    measures = {}  # by data set, in words
    for row in rows:
        measures[row["data"]] = WORDS[row["measure"]]
        optima = pick(tables["optima"], data=row["data"], model=row["model"])
        row["optimum"] = float(np.mean([run["optimum"] for run in optima]))
    of_papers = [row for row in folds if row["mechanism"] != _TERN]
    best = winners(_summaries(of_papers), _BY, "mechanism", "figure")
    ranges = _gains_of_ranges(folds)

    lines = [_words_of_best(row, measures[row["data"]]) for row in best]
    lines.append(_words_of_ranges(ranges))
    figures = {}
    for name in values_of(rows, "data"):
        without_path = name.partition(":")[0]
        figures[f"erm-{without_path}"] = _figure(pick(rows, data=name))
    kept = {"erm": rows, "best": best, "ranges": ranges, "folds": folds}
    return Outcome({"folds": FOLDS}, kept, figures, lines)


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
    return summaries(folds, _BY, "mechanism", "figure", larger=_larger, shared=SHARED)


def _larger(row: Row) -> bool:
    """Whether a larger figure is better."""
    return bool(row["measure"] != SQUARED_ERROR)


def _gains_of_ranges(folds: Sequence[Row]) -> list[Row]:
    """Return how much better tern is than its default mechanism on a range of 1, by paired folds.

    It is tied if the mean gain is within two standard errors, or there is only one fold.
    """
    rows = []
    for group in grouped(folds, *_BY).values():
        automatic_range = _figures(pick(group, mechanism=_TERN))
        range_of_1 = _figures(pick(group, mechanism=_LIKE_TERN))
        gains = automatic_range - range_of_1
        if not _larger(group[0]):
            gains = -gains
        mean, error = mean_and_error(gains.tolist(), SHARED)

        is_tied = abs(mean) <= 2 * error or len(gains) < 2
        verdict = "better" if mean > 0 else "worse"
        row = {name: group[0][name] for name in _BY}
        row["better_by"] = mean
        row["standard_error"] = error
        row["verdict"] = "tied" if is_tied else verdict
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
