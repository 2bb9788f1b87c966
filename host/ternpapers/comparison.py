"""Compares the mechanisms of the papers in floats.

They estimate means and frequencies of tables, and train models by LDP-FedSGD. A client has d
numbers and a total epsilon, which it spends as in Wang et al. (ICDE 2019) and Zhao et al. (2021):

- Laplace, SCDF and Staircase noise: all numbers, at epsilon / d each
- Duchi's mechanism for tuples: all numbers at once
- the others: k of the numbers, chosen at random, at epsilon / k each

Of a table with d_n numbers and some categorical attributes, d in all, the first two ways report the
numbers at d_n epsilon / d, and optimised unary encoding (OUE) reports each categorical attribute at
epsilon / d. The others report k of all d attributes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from ternpapers.figure import NON_PRIVATE, RUNS, Axis, Check, Figure, Verdict, better
from ternpapers.perturbing import (
    MECHANISMS,
    WINDOWED,
    duchi_tuples,
    largest_output,
    rounded,
)

_SPLIT = ("laplace", "scdf", "staircase")  # these report all numbers, at epsilon / d each
_TUPLES = "duchi"  # this one reports all numbers at once
_D = 16  # numbers of a client, if they are drawn
_CHUNK = 100_000  # so many clients at once, to need less memory
_EPSILONS = (0.5, 1.0, 2.0, 4.0)
OUE, SAMPLED = "OUE, epsilon / d each", "k of d attributes"
EPSILON = Axis("epsilon", "epsilon of a client", log=True)
OUTPUTS = Axis("outputs", "number of outputs of a report", log=True)
CLIENTS = Axis("clients", "number of clients", log=True)
DIMENSION = Axis("d", "number of attributes")
_ERROR = Axis("squared_error", "mean squared error", log=True)
# Distributions of drawn numbers: the options of `synthetic.attributes` by name.
_GAUSSIAN_SHAPES = {f"Gaussian, mean {mean:.2g}": {"mean": mean} for mean in (0, 1 / 3, 2 / 3, 1)}
_SHAPES: Mapping[str, Mapping[str, Any]] = {
    **_GAUSSIAN_SHAPES,
    "uniform": {"shape": "uniform"},
    "power law": {"shape": "power"},
}
GAUSSIANS = tuple(_GAUSSIAN_SHAPES)
CLASSIFIED = ("synthetic-logistic", "breast-cancer")  # bundled data sets
REGRESSED = ("synthetic-linear", "diabetes")


@dataclass(frozen=True)
class Case:
    """A point of a figure: whose records are reported, and at which setting.

    source: a name of _SHAPES, or a data set. epsilon: that of a client. d: how many attributes
    there are; None for all of the source. outputs: see `reported`. share: the part of all clients
    that report.
    """

    source: str
    epsilon: float
    d: int | None = None
    outputs: int | None = None
    share: float = 1.0


@dataclass(frozen=True)
class Contest:
    """What a figure compares: mechanisms, on the data of sources, at settings.

    mechanisms: names of perturbing.py. sources: names of _SHAPES, or data sets. settings: the
    values of fields of `Case` (epsilon, d, outputs and share) that are tried, where they are not
    the default.
    """

    mechanisms: Sequence[str]
    sources: Sequence[str]
    settings: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def on(self, options: Options) -> "Contest":
        """Return the same contest, on the data set of --data alone if the user has named one."""
        if not options.data:
            return self
        return replace(self, sources=(options.data,))


def reported(
    x: Floats, name: str, epsilon: float, rng: np.random.Generator, outputs: int | None = None
) -> Floats:
    """Perturb tuples (n x d) by a mechanism of perturbing.py; return unbiased reports (n x d).

    A report is 0 at the numbers that its client leaves out. name: that of the mechanism. epsilon:
    that of the whole report. outputs: how many values each number of a report can have, by
    Algorithm 5 of Zhao et al., which rounds the reports of some mechanisms; None for no rounding.
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
    contest: Contest,
    x: Axis = EPSILON,
    *,
    statements: Mapping[str, Check] | None = None,
) -> Figure:
    """Return a figure of the errors of means by several mechanisms, with a panel for each source.

    statements: as of `Figure`.
    """
    return Figure(title, x, _ERROR, partial(_mean_cells, contest), statements or {})


def _mean_cells(contest: Contest, options: Options) -> list[Cell]:
    """Return the cells of `means`: one for each case and mechanism. Raises UsageError."""
    if options.data:
        collect.load(options.data)  # raises if it cannot be loaded
    return Cell.for_each_combination(
        table=RUNS,
        work=_means,
        common=_common(options),
        case=_cases(contest.on(options), options),
        mechanism=_compared(contest.mechanisms, options),
    )


def _common(options: Options) -> dict[str, Any]:
    """Return the arguments that all cells share.

    most: the largest number of clients. seeds: those of the runs.
    """
    most = 100_000
    if options.quick:
        most = 20_000
    elif options.in_full:
        most = 4_000_000
    return {"most": most, "seeds": options.seeds(default=20, quick=6, paper=100)}


def _cases(contest: Contest, options: Options) -> list[Case]:
    """Return a case for each source and combination of the settings, the last one varying fastest.

    The quick version has about three values of each setting.
    """
    values = {"epsilon": _EPSILONS, **contest.settings}
    if options.quick:
        for name, all_values in values.items():
            step = max(1, (len(all_values) - 1) // 2)
            values[name] = all_values[::step]  # the first, one in the middle, and the last

    cases = []
    for source in contest.sources:
        for combination in product(*values.values()):
            setting = dict(zip(values, combination, strict=True))
            cases.append(Case(source, **setting))
    return cases


def _compared(compared: Sequence[str], options: Options) -> Sequence[str]:
    """Return the mechanisms of a figure, and the one of --mechanism, each once.

    compared: those of the figure. Raises UsageError if no paper has the one of --mechanism.
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
    """Return the numeric attributes of n clients (n x d). source: as of Case. most: the largest n."""
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
        if d is None:
            return _D, 0
        return d, 0
    table, _ = collect.load(source)
    numbers, categories = table.numeric.shape[1], len(table.categories)
    if d is None:
        return numbers, categories
    proportional = round(d * numbers / (numbers + categories))
    fewer_numbers = min(max(1, proportional), numbers)  # one at least
    fewer_categories = min(d - fewer_numbers, categories)
    return fewer_numbers, fewer_categories


def _means(case: Case, mechanism: str, most: int, seeds: Sequence[int]) -> list[Row]:
    """Return the mean squared error of the means that a mechanism estimates, for each seed.

    case: the table, how many of its attributes there are, epsilon, and the share of its clients.
    mechanism: perturbs the numbers of each client. most: the largest number of clients.
    """
    numbers, categories = _sizes(case.source, case.d)
    total = numbers + categories
    all_numbers = _numbers(case.source, most)
    clients = round(case.share * len(all_numbers))
    x = all_numbers[:clients, :numbers]
    panel = case.source
    if categories:
        panel = f"numbers of {case.source}"
    common = {
        "panel": panel,
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
        estimates = sums / len(x)
        error = float(np.mean((estimates - x.mean(axis=0)) ** 2))
        rows.append({**common, "run": seed, "squared_error": error})
    return rows


# Tables of numbers and categories


def tables(title: str, mechanisms: Sequence[str], x: Axis, **settings: Sequence[Any]) -> Figure:
    """Return a figure of the errors of a table's means and frequencies, in two panels.

    mechanisms: those that estimate the means. settings: as in `Contest`.
    """
    cells = partial(_table_cells, tuple(mechanisms), settings)
    return Figure(title, x, _ERROR, cells, {_SAMPLING: _sampling_is_better})


_SAMPLING = "reports about k of d attributes estimate frequencies better than reports about all"


def _sampling_is_better(rows: Sequence[Row]) -> Verdict:
    """Test whether reports of some attributes estimate frequencies better than reports of all."""
    frequencies = [row for row in rows if row["curve"] in (OUE, SAMPLED)]
    return better(_ERROR.column, names=(SAMPLED,), others=(OUE,), rows=frequencies)


def _table_cells(
    mechanisms: Sequence[str], settings: Mapping[str, Sequence[Any]], options: Options
) -> list[Cell]:
    """Return the cells of `tables`: for means by each mechanism, and for frequencies in two ways.

    Numbers of attributes that the table does not have are left out. Raises UsageError if it has no
    categorical attribute.
    """
    name = options.data or "flights-table"
    table, _ = collect.load(name)
    if not table.categories:
        raise UsageError(f"{name} has no categorical attribute", hint="leave --data out")
    if "d" in settings:
        all_attributes = sum(_sizes(name, None))
        dimensions = [d for d in settings["d"] if d <= all_attributes]
        settings = {**settings, "d": dimensions or [None]}
    cases = _cases(Contest(mechanisms, (name,), settings), options)
    common = _common(options)
    compared = _compared(mechanisms, options)
    of_means = Cell.for_each_combination(
        table=RUNS, work=_means, common=common, case=cases, mechanism=compared
    )
    of_frequencies = Cell.for_each_combination(
        table=RUNS, work=_frequencies, common=common, case=cases, way=(OUE, SAMPLED)
    )
    return [*of_means, *of_frequencies]


def _frequencies(case: Case, way: str, most: int, seeds: Sequence[int]) -> list[Row]:
    """Return the mean squared error of the frequencies of a table's categories, for each seed.

    Each client reports k of its attributes by optimized unary encoding, each at epsilon / k.

    case: the table, how many of its attributes there are, epsilon, and the share of its clients.
    way: OUE, by which a client reports all attributes, or SAMPLED, by which it reports a random
    part of them. most: the largest number of clients.
    """
    table, _ = collect.load(case.source)
    clients = round(case.share * min(most, len(table.numeric)))
    numbers, categories = _sizes(case.source, case.d)
    total = numbers + categories
    assert table.codes is not None
    true_counts = []  # for each attribute, the number of clients in each of its categories
    for attribute, names in enumerate(table.categories[:categories]):
        codes = table.codes[:clients, attribute]
        true_counts.append(np.bincount(codes, minlength=len(names)))
    k = total  # how many attributes a client reports
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
            # Of the clients in each category, those that report this attribute.
            reporting_clients = rng.binomial(counts, k / total)
            estimate = unary(reporting_clients, case.epsilon / k, rng)
            errors.append(np.mean((estimate - counts / clients) ** 2))
        rows.append({**common, "run": seed, "squared_error": float(np.mean(errors))})
    return rows


# Models


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


ACCURACY = Axis("accuracy", "accuracy on the held-out fold", larger=True)
MISCLASSIFICATION = Axis("misclassification", "misclassification rate")
LINEAR_ERROR = Axis(SQUARED_ERROR, "mean squared error", log=True)


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
        case=_cases(contest, options),
        mechanism=(*_compared(contest.mechanisms, options), NON_PRIVATE),
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
