"""Empirical risk minimisation against epsilon: linear and logistic regression and SVM, every mechanism, every data set.

LDP-FedSGD (Zhao et al. 2021, Algorithm 7; their figures of trained models): every client reports once, k coordinates of
its gradient by the paper's rule. Each of ten folds is held out in turn; small sets are divided anew, ten folds again,
and their records are held by many clients each. The optimal card is one for gradients: of the least mean second moment,
small values being likely.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
from matplotlib.figure import Figure

from ternhost import datasets, mechanisms
from ternhost.algorithms.designs import coordinates_by_rule
from ternhost.algorithms.judging import SQUARED_ERROR, WORDS, measure
from ternhost.datasets import CLASSIFICATION, REGRESSION, Dataset
from ternhost.errors import UsageError
from ternhost.experiments.base import BUNDLED, CLIENTS, SMALL, Contender, Options, Outcome, load
from ternhost.experiments.cells import Cell, Row, Tables
from ternhost.experiments.pictures import Curve, Panel, draw
from ternhost.experiments.rounds import figure_of, optimal_figures, sgd, simulate
from ternhost.experiments.statistics import pick, summaries, values_of, winners
from ternhost.mechanisms.base import MICRO

SUMMARY = "trained models of every mechanism, kind and data set against epsilon, cross-validated"

_COMPARED = (
    "laplace", "duchi", "pm", "pm-sub", "pm-opt", "hm", "three-outputs", "hm-tp", "3r", "rr3", "pdpm", "optimal",
)  # fmt: skip
_FOLDS = 10
_MOST = 90_000
_MODELS = {CLASSIFICATION: ("logistic", "svm"), REGRESSION: ("linear",)}
_FILES = (
    "ipums",
    "ipums-regression",
    "wisdm",
    "vehicle",
    "basic-motions",
)  # where their publishers' files are here


@lru_cache(maxsize=_FOLDS)
def fold(name: str, index: int, seed: int) -> Dataset:
    """The data set with the `index`-th of ten random parts held out; from the tenth on, of another division."""
    dataset = load(name)
    division, part = divmod(index, _FOLDS)
    order = np.random.default_rng([seed, division]).permutation(len(dataset.labels))
    held = np.zeros(len(order), bool)
    held[order[part::_FOLDS]] = True
    return replace(dataset, held_out=held)


def _sets(options: Options) -> Iterator[tuple[str, Dataset]]:
    if options.dataset is not None:
        yield options.dataset, load(options.dataset)
        return
    for name in BUNDLED:
        yield name, datasets.load(name)
    for name in _FILES:
        with contextlib.suppress(UsageError):  # its file is not here
            yield name, datasets.load(name)


def cells(options: Options) -> list[Cell]:
    epsilons = [0.5, 2.0] if options.quick else [0.5, 1.0, 2.0, 4.0]
    found = []
    for name, dataset in _sets(options):
        if dataset.task not in _MODELS:
            raise UsageError(f"{name} is not for training as it is", hint="name another with --dataset")
        small = len(dataset.labels) < SMALL
        folds = options.runs_or(2 * _FOLDS if small else _FOLDS, 2)
        reports = CLIENTS if small else min(_MOST, len(dataset.labels) * (_FOLDS - 1) // _FOLDS)
        common = {"name": name, "folds": folds, "reports": min(reports, 10_000) if options.quick else reports}
        found += [
            Cell(
                "optima",
                _optimal,
                {"name": name, "model": model, "folds": folds, "seed": options.seed},
                cost=folds * len(dataset.labels) / 1e4,
            )
            for model in _MODELS[dataset.task]
        ]
        found += [
            Cell(
                "folds",
                _trained,
                {
                    **common, "model": model, "epsilon": epsilon, "label": label, "of": contender,
                    "seed": options.seed,
                },
                cost=folds * (1 + reports / 1e5) + (20 if label == "optimal" else 0),
            )
            for model in _MODELS[dataset.task]
            for epsilon in epsilons
            for label, contender in options.compared(*_COMPARED).items()
        ]  # fmt: skip
    return found


def _optimal(name: str, model: str, folds: int, seed: int) -> list[Row]:
    """The optimum without privacy of each fold."""
    parts = [fold(name, i, seed) for i in range(folds)]
    found = [optimal_figures(part, model)[measure(part)] for part in parts]
    return [{"data": name, "model": model, "run": i, "optimum": figure} for i, figure in enumerate(found)]


def _trained(
    name: str, model: str, epsilon: float, label: str, of: Contender, folds: int, reports: int, seed: int
) -> list[Row]:
    rows = []
    for i in range(folds):
        part = fold(name, i, seed)
        k = coordinates_by_rule("paper", round(epsilon * MICRO), part.dimension)
        card = of.card(round(epsilon * MICRO) // k, mechanisms.GRADIENTS).data.hex()
        asked = sgd(part, reports, seed + i, model=model, epsilon=f"{epsilon:g}", k=k, card=card)
        rows.append(
            {
                "data": name,
                "model": model,
                "measure": measure(part),
                "reports": reports,
                "d": part.dimension,
                "epsilon": epsilon,
                "k": k,
                "mechanism": label,
                "run": i,
                "figure": figure_of(simulate(asked, seed + i)),
            }
        )
    return rows


def outcome(options: Options, tables: Tables) -> Outcome:
    by = ("data", "model", "epsilon")
    folds = tables["folds"]
    rows = summaries(
        folds,
        by,
        "mechanism",
        "figure",
        larger=lambda row: row["measure"] != SQUARED_ERROR,
        shared=1 / (_FOLDS - 1),
    )
    for row in rows:
        optima = pick(tables["optima"], data=row["data"], model=row["model"])
        row["optimum"] = float(np.mean([one["optimum"] for one in optima]))
    best = winners(rows, by, "mechanism", "figure")
    return Outcome(
        "erm",
        {"folds": _FOLDS},
        {"erm": rows, "best": best, "folds": folds},
        {f"erm-{name}": _figure(pick(rows, data=name)) for name in values_of(rows, "data")},
        [
            f"{row['model']} on {row['data']}, epsilon {row['epsilon']:g}: {row['figure']:.4f} by {row['best']}, "
            + (
                "better than every other beyond noise"
                if row["wins"]
                else f"tied with {row['tied'] or 'others'}"
            )
            for row in best
        ],
    )


def _figure(rows: list[Row]) -> Figure:
    """A panel a model, of one data set."""
    panels = []
    for model in values_of(rows, "model"):
        own = pick(rows, model=model)
        curves = [
            Curve(
                name,
                [row["epsilon"] for row in part],
                [row["figure"] for row in part],
                [row["standard_error"] for row in part],
            )
            for name in values_of(own, "mechanism")
            for part in [pick(own, mechanism=name)]
        ]
        first = own[0]
        panels.append(
            Panel(
                f"{model} on {first['data']}: {first['reports']:,} reports, d = {first['d']}",
                "epsilon of a client's report",
                f"{WORDS[first['measure']]} on the fold held out",
                curves,
                lines={"without privacy": first["optimum"]},
            )
        )
    return draw(panels)
