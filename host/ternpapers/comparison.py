"""Mechanisms of the papers compared in floats: means and frequencies of tables, and models by
LDP-FedSGD.

As in Wang et al. (ICDE 2019) and Zhao et al. (2021): Laplace, SCDF and Staircase noise at epsilon /
d for each of d numbers; Duchi's mechanism for tuples; of the others k of the d numbers, at epsilon
/ k each. Where a table has numbers and categories, the first two ways and optimised unary encoding
(OUE) split epsilon: d_n epsilon / d for the d_n numbers, and epsilon / d for each category; the
others report k of all d attributes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np

from tern.fixed import ONE
from ternhost.datasets import CLASSIFICATION, REGRESSION, Dataset, Floats, synthetic
from ternhost.errors import UsageError
from ternhost.learn import collect, judging
from ternhost.learn.designs import coordinates_by_rule
from ternhost.learn.judging import SQUARED_ERROR
from ternhost.learn.optimum import optimum
from ternhost.learn.parameters import MODELS
from ternhost.learn.training import TrainingPlan
from ternhost.planning.cells import Cell, Row
from ternhost.privacy.base import MICRO
from ternhost.privacy.mechanisms import REGISTRY
from ternpapers import baseline
from ternpapers.base import Options, load
from ternpapers.experiments import erm
from ternpapers.experiments.frequencies import unary
from ternpapers.figure import NON_PRIVATE, RUNS, Axis, Figure, Trends, better, no_trends
from ternpapers.perturbing import (
    MECHANISMS,
    WINDOWED,
    duchi_tuples,
    largest_output,
    rounded,
)

_SPLIT = ("laplace", "scdf", "staircase")  # at epsilon / d for each number
_TUPLES = "duchi"
_D = 16
_CHUNK = 100_000  # clients at once
_EPSILONS = (0.5, 1.0, 2.0, 4.0)
OUE, SAMPLED = "OUE, epsilon / d each", "k of d attributes"
EPSILON = Axis("epsilon", "epsilon of a client", log=True)
OUTPUTS = Axis("outputs", "number of outputs of a report", log=True)
CLIENTS = Axis("clients", "number of clients", log=True)
DIMENSION = Axis("d", "number of attributes")
_ERROR = Axis("squared_error", "mean squared error", log=True)
_SHAPES: Mapping[str, Mapping[str, Any]] = {
    **{f"Gaussian, mean {mean:.2g}": {"mean": mean} for mean in (0.0, 1 / 3, 2 / 3, 1.0)},
    "uniform": {"shape": "uniform"},
    "power law": {"shape": "power"},
}
GAUSSIANS = tuple(_SHAPES)[:4]
CLASSIFIED = ("synthetic-logistic", "breast-cancer")  # bundled data sets
REGRESSED = ("synthetic-linear", "diabetes")


@dataclass(frozen=True)
class Case:
    """A point of a figure: whose records are reported, and at which setting.

    source: a name of _SHAPES, or a data set. d: the number of attributes (None: all). outputs: see
    `reported`. share: of all clients.
    """

    source: str
    epsilon: float
    d: int | None = None
    outputs: int | None = None
    share: float = 1.0


def reported(
    x: Floats, name: str, epsilon: float, rng: np.random.Generator, outputs: int | None = None
) -> Floats:
    """Perturb tuples (n x d) by a mechanism of perturbing.py; return unbiased reports (n x d).

    A report is 0 at the numbers that its client leaves out. outputs: the number of values that a
    report of a windowed mechanism can have, by Algorithm 5 of Zhao et al.; None for all.
    """
    n, d = x.shape
    if name == _TUPLES:
        return duchi_tuples(x, epsilon, rng)

    # k: how many of the d numbers a client reports, each at epsilon / k.
    k = d
    if name not in _SPLIT:
        k = coordinates_by_rule("paper", round(epsilon * MICRO), d)
    perturb = MECHANISMS[name](epsilon / k)
    if outputs and name in WINDOWED:
        perturb = rounded(perturb, largest_output(name, epsilon / k), outputs)
    if k == d:
        return perturb(x, rng)

    coordinates = baseline.choose(n, d, k, rng)
    values = np.take_along_axis(x, coordinates, axis=1)
    reports = np.zeros((n, d))
    # The factor d / k makes up for the numbers that are left out.
    np.put_along_axis(reports, coordinates, d / k * perturb(values, rng), axis=1)
    return reports


# Means


def means(
    title: str,
    mechanisms: Sequence[str],
    sources: Sequence[str],
    x: Axis = EPSILON,
    *,
    settings: Mapping[str, Sequence[Any]] | None = None,
    trends: Callable[[Sequence[Row]], Trends] = no_trends,
) -> Figure:
    """Return a figure of the errors of means by several mechanisms, with a panel for each source.

    sources: names of _SHAPES, or data sets. settings: lists of epsilon, d, outputs and share (of
    all clients) where they are not the defaults. trends: compares the rows with the paper's text.
    """
    work = partial(_mean_cells, tuple(mechanisms), tuple(sources), settings or {})
    return Figure(title, x, _ERROR, work, trends=trends)


def _mean_cells(
    mechanisms: Sequence[str],
    sources: Sequence[str],
    settings: Mapping[str, Sequence[Any]],
    options: Options,
) -> list[Cell]:
    """Return the cells of `means`: one for each case and mechanism. Raises UsageError."""
    if options.dataset:
        collect.load(options.dataset)  # raises if it cannot be loaded
        sources = (options.dataset,)
    cases = _cases(sources, options, settings)
    compared = _compared(mechanisms, options)
    return Cell.for_each_combination(RUNS, _means, _common(options), case=cases, mechanism=compared)


def _common(options: Options) -> dict[str, Any]:
    """Return the arguments that all cells share: the largest number of clients, and the seeds."""
    most = 100_000
    if options.quick:
        most = 20_000
    elif options.in_full:
        most = 4_000_000
    return {"most": most, "seeds": options.seeds(20, 6, paper=100)}


def _cases(
    sources: Sequence[str], options: Options, settings: Mapping[str, Sequence[Any]]
) -> list[Case]:
    """Return a case for each source and combination of the settings, the last one varying fastest.

    The quick version has about three values of each setting.
    """
    values = {"epsilon": _EPSILONS, **settings}
    if options.quick:
        for name, all_values in values.items():
            step = max(1, (len(all_values) - 1) // 2)
            values[name] = all_values[::step]

    cases = []
    for source in sources:
        for combination in product(*values.values()):
            cases.append(Case(source, **dict(zip(values, combination, strict=True))))
    return cases


def _compared(compared: Sequence[str], options: Options) -> Sequence[str]:
    """Return the mechanisms of a figure, and the one of --mechanism.

    Raises UsageError if no paper has that one.
    """
    if options.contender is None:
        return compared
    name = options.contender.label
    if name not in MECHANISMS:
        known = [name for name in REGISTRY if name in MECHANISMS]
        hint = f"one of {', '.join(known)}, without options"
        raise UsageError(f"the figures of the papers compare their mechanisms, not {name}", hint)
    return tuple(dict.fromkeys((*compared, name)))


@lru_cache(maxsize=2)
def _numbers(source: str, most: int) -> Floats:
    """Return the numeric attributes of at most so many clients (n x d). source: as of Case."""
    if source in _SHAPES:
        values = synthetic.attributes(min(most, 1_000_000), _D, seed=0, **_SHAPES[source]).numeric
    else:
        values = collect.load(source)[0].numeric[:most]
    return values / ONE


def _sizes(source: str, d: int | None) -> tuple[int, int]:
    """Return how many of d attributes are numbers and how many are categories, as (n, c).

    They are in the proportion of all attributes of the source. d: None for all of them.
    """
    if source in _SHAPES:
        return d or _D, 0
    table, _ = collect.load(source)
    numbers, categories = table.numeric.shape[1], len(table.categories)
    if d is None:
        return numbers, categories
    share_of_numbers = round(d * numbers / (numbers + categories))
    kept_numbers = min(max(1, share_of_numbers), numbers)
    return kept_numbers, min(d - kept_numbers, categories)


def _means(case: Case, mechanism: str, most: int, seeds: Sequence[int]) -> list[Row]:
    """Return the mean squared error of the means that a mechanism estimates, for each seed.

    most: the largest number of clients.
    """
    numbers, categories = _sizes(case.source, case.d)
    total = numbers + categories
    x = _numbers(case.source, most)
    x = x[: round(case.share * len(x)), :numbers]
    common = {
        "panel": f"numbers of {case.source}" if categories else case.source,
        "curve": mechanism,
        "epsilon": case.epsilon,
        "clients": len(x),
        "d": total,
        "outputs": case.outputs,
    }
    rows = []
    for seed in seeds:
        rng = baseline.generator(seed)
        sums = np.zeros(numbers)  # of the reports of each number
        for start in range(0, len(x), _CHUNK):
            chunk = x[start : start + _CHUNK]
            if mechanism == _TUPLES:
                # A tuple of the numbers alone, at their share of epsilon.
                epsilon = case.epsilon * numbers / total
                sums += reported(chunk, mechanism, epsilon, rng).sum(axis=0)
            else:
                # Clients choose among all attributes; zeros stand for the categories, and their
                # reports do not count.
                attributes = np.pad(chunk, ((0, 0), (0, categories)))
                reports = reported(attributes, mechanism, case.epsilon, rng, case.outputs)
                sums += reports.sum(axis=0)[:numbers]
        error = float(np.mean((sums / len(x) - x.mean(axis=0)) ** 2))
        rows.append({**common, "run": seed, "squared_error": error})
    return rows


# Tables of numbers and categories


def tables(title: str, mechanisms: Sequence[str], x: Axis, **settings: Sequence[Any]) -> Figure:
    """Return a figure of the errors of a table's means and frequencies, in two panels.

    settings: as in `means`.
    """
    work = partial(_table_cells, tuple(mechanisms), settings)
    return Figure(title, x, _ERROR, work, _sampling_is_better)


def _sampling_is_better(rows: Sequence[Row]) -> Trends:
    """Whether reports of some attributes estimate frequencies better than those of all."""
    frequencies = [row for row in rows if row["curve"] in (OUE, SAMPLED)]
    return better(_ERROR.column, (SAMPLED,), (OUE,), frequencies)


def _table_cells(
    mechanisms: Sequence[str], settings: Mapping[str, Sequence[Any]], options: Options
) -> list[Cell]:
    """Return the cells of `tables`: for means by each mechanism, and for frequencies in two ways.

    Numbers of attributes that the table does not have are left out. Raises UsageError if it has no
    categorical attribute.
    """
    name = options.dataset or "flights-table"
    table, _ = collect.load(name)
    if not table.categories:
        raise UsageError(f"{name} has no categorical attribute", hint="leave --dataset out")
    if "d" in settings:
        all_attributes = sum(_sizes(name, None))
        dimensions = [d for d in settings["d"] if d <= all_attributes]
        settings = {**settings, "d": dimensions or [None]}
    cases = _cases((name,), options, settings)
    common = _common(options)
    compared = _compared(mechanisms, options)
    return [
        *Cell.for_each_combination(RUNS, _means, common, case=cases, mechanism=compared),
        *Cell.for_each_combination(RUNS, _frequencies, common, case=cases, way=(OUE, SAMPLED)),
    ]


def _frequencies(case: Case, way: str, most: int, seeds: Sequence[int]) -> list[Row]:
    """Return the mean squared error of the frequencies of a table's categories, for each seed.

    way: OUE or SAMPLED. most: the largest number of clients.
    """
    table, _ = collect.load(case.source)
    clients = round(case.share * min(most, len(table.numeric)))
    numbers, categories = _sizes(case.source, case.d)
    total = numbers + categories
    assert table.codes is not None
    true_counts = []  # by attribute, the clients in each of its categories
    for attribute, names in enumerate(table.categories[:categories]):
        codes = table.codes[:clients, attribute]
        true_counts.append(np.bincount(codes, minlength=len(names)))
    k = total  # attributes that a client reports
    if way == SAMPLED:
        k = coordinates_by_rule("paper", round(case.epsilon * MICRO), total)
    common = {
        "panel": f"categories of {case.source}",
        "curve": way,
        "epsilon": case.epsilon,
        "clients": clients,
        "d": total,
    }
    rows = []
    for seed in seeds:
        rng = baseline.generator(seed)
        errors = []
        for counts in true_counts:
            reporting_clients = rng.binomial(counts, k / total)
            estimate = unary(reporting_clients, case.epsilon / k, rng)
            errors.append(np.mean((estimate - counts / clients) ** 2))
        rows.append({**common, "run": seed, "squared_error": float(np.mean(errors))})
    return rows


# Models


def models(
    title: str,
    model: str,
    mechanisms: Sequence[str],
    sources: Sequence[str],
    y: Axis,
    x: Axis = EPSILON,
    *,
    settings: Mapping[str, Sequence[Any]] | None = None,
    trends: Callable[[Sequence[Row]], Trends] = no_trends,
) -> Figure:
    """Return a figure of models trained by LDP-FedSGD, with a panel for each data set.

    They are trained with each mechanism, and without privacy. y: accuracy or misclassification, by
    the sign of the score, or squared_error. settings: as in `means`, without share and d.
    """
    work = partial(_model_cells, model, tuple(mechanisms), tuple(sources), y.column, settings or {})
    return Figure(title, x, y, work, trends, shared=erm.SHARED)


ACCURACY = Axis("accuracy", "accuracy on the held-out fold", larger=True)
MISCLASSIFICATION = Axis("misclassification", "misclassification rate")
LINEAR_ERROR = Axis(SQUARED_ERROR, "mean squared error", log=True)


@dataclass(frozen=True)
class Folds:
    """The folds that are held out, the seed that divides and draws, and whether few clients report."""

    count: int
    seed: int
    quick: bool


def _model_cells(
    model: str,
    mechanisms: Sequence[str],
    sources: Sequence[str],
    measure: str,
    settings: Mapping[str, Sequence[Any]],
    options: Options,
) -> list[Cell]:
    """Return the cells of `models`: one for each case and mechanism.

    Raises UsageError if the labels of a data set do not suit the model.
    """
    if options.dataset:
        sources = (options.dataset,)
    task = REGRESSION if measure == SQUARED_ERROR else CLASSIFICATION
    for name in sources:
        if load(name).task != task:
            text = f"the labels of {name} do not suit a {model} model"
            raise UsageError(text, hint="name another --dataset")

    number_of_folds = options.runs_or(erm.FOLDS, 4, 5 * erm.FOLDS)  # default, quick, in full
    folds = Folds(number_of_folds, options.seed, options.quick)
    common = {"model": model, "measure": measure, "folds": folds}
    cases = _cases(sources, options, settings)
    compared = (*_compared(mechanisms, options), NON_PRIVATE)
    return Cell.for_each_combination(RUNS, _trained, common, case=cases, mechanism=compared)


def _trained(case: Case, mechanism: str, model: str, measure: str, folds: Folds) -> list[Row]:
    """Train a model with a mechanism, and return its figure on each held-out fold.

    measure: the column of the figure.
    """
    common = {
        "panel": case.source,
        "curve": mechanism,
        "epsilon": case.epsilon,
        "outputs": case.outputs,
    }
    judged_as = "linear" if measure == SQUARED_ERROR else "svm"  # by the error, or by the sign
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
    """Train by LDP-FedSGD with reports of whole gradients by a mechanism; return the weights (d)."""
    rng = baseline.generator(seed)

    def mean_gradient(x: Floats, y: Floats, weights: Floats) -> Floats:
        slopes = baseline.slopes(run.model, x, y, weights)
        gradients = np.clip(slopes[:, None] * x, -1, 1)
        reports = reported(gradients, mechanism, run.epsilon, rng, outputs)
        return np.asarray(reports.mean(axis=0))

    return baseline.descend(run, dataset, mean_gradient, rng)
