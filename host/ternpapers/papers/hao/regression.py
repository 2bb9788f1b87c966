"""Figure 3: linear regression with reports of HierA and of its rivals.

Each client takes part once, with one coordinate of the gradient of its record. The paper does not
say how a client shares its epsilon among the coordinates of its gradient.

The paper's learning rate is of the order of 1 / sqrt(t) in round t. The gradient is that of the
squared error, 2 (z - y) x at the score z, with each component clipped to [-1, 1]. At this rate most
of the models at small budgets are worse than an answer that is always the mean label. So the figure
compares how much noise the reports of each method have.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from tern.card import Card, T
from tern.fixed import ONE
from ternhost.datasets import Dataset, Floats, Table
from ternhost.learn import collect, judging
from ternhost.learn.base import Population
from ternhost.learn.optimum import optimum
from ternhost.learn.parameters import MODELS
from ternhost.learn.training import TrainingPlan
from ternhost.planning.cells import Cell, Row
from ternhost.planning.simulation import simulate
from ternhost.privacy import certify
from ternhost.privacy.base import MICRO
from ternpapers import baseline
from ternpapers import levels as system
from ternpapers.base import CLIENTS, SMALL, Options, load, require_records
from ternpapers.datasets import ipums, one_column_each
from ternpapers.figure import NON_PRIVATE, RUNS, Axis, Figure
from ternpapers.hiera import HierA
from ternpapers.mechanisms import lhp
from ternpapers.papers.hao.budgets import (
    BUDGETS,
    HIERA,
    LAPLACE,
    LEAST_RIVALS,
    MU,
    OF_UNIT,
    TRUE_RIVALS,
    UNITS,
    laplace_scales,
    level_of,
    levels,
    loss_by_attribute,
    rivals,
)
from ternpapers.perturbing import MECHANISMS
from ternpapers.verdicts import better

FOLDS = 5
_REPEATS = 10  # of the cross-validation, in the paper
_SHARED = 1 / (FOLDS - 1)  # held-out records over training records
_GRADIENT = f"HierA, level of the gradient (mu = {MU})"
_TRAINERS = (HIERA, LAPLACE, *LEAST_RIVALS, *TRUE_RIVALS)
# Without the paper's census records: records of a known linear rule, and flights, whose time in the
# air is predicted from some of their other attributes.
_FLIGHTS = "flights-table"
_SETS = ("synthetic-linear", _FLIGHTS)
_TIME_IN_THE_AIR = "minutes in the air"
_OF_FLIGHTS = ("origin", "month", "weekday", "rain", "arrival")  # those with few categories

Noise = Callable[[Floats, Floats, np.random.Generator], Floats]
"""Takes values of a gradient, the attributes that belong to them, and a generator."""


@lru_cache(maxsize=4)
def dataset_of(name: str) -> Dataset:
    """Load the data set of that name, with a column for each category where it is a table.

    Of an extract of IPUMS, the label is the income. Raises UsageError.
    """
    kind, _, _ = name.partition(":")
    if kind in (ipums.NAME, "ipums-regression"):
        table, _ = collect.load(name)
        return one_column_each.regression(table, ipums.INCOME, ipums.ORDERED)
    if kind == _FLIGHTS:
        table, _ = collect.load(name)
        return one_column_each.regression(_with_categories(table, _OF_FLIGHTS), _TIME_IN_THE_AIR)
    return load(name)


def _with_categories(table: Table, names: tuple[str, ...]) -> Table:
    """Return a table with all of its numbers, and only these of its categorical attributes."""
    assert table.codes is not None
    positions = [table.categorical_names.index(name) for name in names]
    categories = tuple(table.categories[position] for position in positions)
    codes = table.codes[:, positions]
    return replace(table, categorical_names=names, codes=codes, categories=categories)


def fold(name: str, index: int, seed: int) -> Dataset:
    """Return a data set of which one of FOLDS parts is held out.

    index: 0 to 4 for a random division into parts, 5 to 9 for another one, and so on. seed: that of
    the divisions.
    """
    dataset = dataset_of(name)
    division, part = divmod(index, FOLDS)
    order = np.random.default_rng([seed, division]).permutation(dataset.size)
    held_out = np.zeros(dataset.size, bool)
    held_out[order[part::FOLDS]] = True
    return dataset.divided(held_out)


@dataclass(frozen=True)
class Runs:
    """The runs of all trainers: with each fold of a repeated cross-validation held out.

    name: the data set. folds: how many folds, FOLDS for each division of the records. seed: that of
    the divisions and draws. most: the largest number of reports in a run; None for no bound.
    """

    name: str
    folds: int
    seed: int
    most: int | None

    def reports(self) -> int:
        """Return how many clients report in a run, each of them once.

        Each holds a record for training; the records of small data sets are held by several.
        """
        records = dataset_of(self.name).size
        reports = records * (FOLDS - 1) // FOLDS
        if records < SMALL:
            reports = CLIENTS
        return min(reports, self.most or reports)


def group_of(unit: float, d: int, reports: int) -> int:
    """Return the number of devices in a round, which is at most `reports`, all that report.

    It is d log d / epsilon**2, the paper's rule, where d is the number of features and epsilon the
    least of the budgets: the unit.
    """
    group = math.ceil(d * math.log(d) / unit**2)
    return min(group, reports)


def _squared_error(dataset: Dataset, weights: Floats) -> float:
    """Return the mean squared error on the held-out records; two classes count as -1 and 1."""
    features, labels = dataset.judged
    return float(np.square(judging.scores(features, weights) - labels / ONE).mean())


def trained(unit: float, trainer: str, runs: Runs) -> list[Row]:
    """Train a linear regression in floats with each fold held out, and return a row for each.

    unit: the least of the privacy budgets. trainer: one of _TRAINERS, which says how reports are
    perturbed.
    """
    card = levels(unit)
    cost = loss_by_attribute(card)
    epsilon, noise = _noise_of(trainer, unit, card, cost)
    dimension, reports = dataset_of(runs.name).dimension, runs.reports()
    group = group_of(unit, dimension, reports)
    training = baseline.Training(
        model="linear",
        epsilon=cost,
        reports=reports,
        rate=1.0,
        decays=True,
        rounds=math.ceil(reports / group),
    )
    common = {
        "panel": runs.name,
        "unit": unit,
        "curve": trainer,
        "epsilon": epsilon,
        "reports": reports,
        "group": group,
    }
    rows = []
    for index in range(runs.folds):
        data = fold(runs.name, index, runs.seed)
        rng = baseline.generator(runs.seed + index)
        weights = baseline.descend(training, data, mean_gradient(noise, rng), rng)
        rows.append({**common, "run": index, "squared_error": _squared_error(data, weights)})
    return rows


def _noise_of(trainer: str, unit: float, card: Card, cost: float) -> tuple[float | None, Noise]:
    """Return the epsilon of a trainer's report, and the function that adds its noise.

    The epsilon is None if the trainer keeps none. cost: the epsilon of a report of HierA whose
    level is that of another number.
    """
    if trainer == LAPLACE:
        return None, partial(graded_laplace, card)
    if trainer == HIERA:
        return cost, partial(by_attribute, card)

    mechanism, epsilon = rivals(unit, cost)[trainer]
    perturb = MECHANISMS[mechanism](epsilon)

    def noise(values: Floats, _attributes: Floats, rng: np.random.Generator) -> Floats:
        """Perturb values. The attributes make no difference to this mechanism."""
        return perturb(values, rng)

    return epsilon, noise


def mean_gradient(noise: Noise, rng: np.random.Generator) -> Callable[..., Floats]:
    """Return a function that estimates the mean gradient of records, for `baseline.descend`.

    Each record reports one coordinate of its gradient, with this noise.
    """

    def mean(x: Floats, y: Floats, weights: Floats) -> Floats:
        """Estimate the mean gradient (d) of records with features x and labels y."""
        n, d = x.shape
        coordinates = baseline.choose(n, d, 1, rng)
        attributes = np.take_along_axis(x, coordinates, axis=1)
        slopes = 2 * baseline.slopes("linear", x, y, weights)
        values = np.clip(slopes[:, None] * attributes, -1, 1)
        reports = noise(values, attributes, rng)
        return baseline.mean_of(coordinates, reports, x.shape)

    return mean


def graded_laplace(
    card: Card, values: Floats, attributes: Floats, rng: np.random.Generator
) -> Floats:
    """Add Laplace noise to values, at the budget of the range in which each one's attribute lies.

    attributes: of the shape of the values.
    """
    return values + rng.laplace(0, laplace_scales(card, attributes))


def by_attribute(
    card: Card, values: Floats, attributes: Floats, rng: np.random.Generator
) -> Floats:
    """Perturb values by LHP, the local part of HierA, at the levels of their attributes.

    The level is kept with a probability that depends on it, else replaced by any other one. A
    report is C or -C, where C is Duchi's magnitude at the reported level; C has the probability
    (1 + x / C) / 2. Returns the mean of the MU copies of each report that HierA counts.
    """
    level = level_of(card, attributes)
    level_cards = certify.hierarchy(card).level_cards
    keeping_probability = np.array([level_card.threshold for level_card in level_cards]) / T
    # A shift by 1 to levels - 1, cyclically, leads to every other level with the same probability.
    shift = rng.integers(1, len(level_cards), level.shape)
    other_level = (level + shift) % len(level_cards)
    is_kept = rng.random(level.shape) < keeping_probability[level]
    reported_level = np.where(is_kept, level, other_level)

    magnitudes = lhp.magnitudes(card)
    c = magnitudes[reported_level]
    is_positive = rng.random(level.shape) < 0.5 + values / (2 * c)
    signs = np.where(is_positive, 1, -1)
    return system.mean_of_copies(magnitudes, reported_level, signs, MU, rng)


def _on_devices(unit: float, runs: Runs) -> list[Row]:
    """Train by HierA, the learner of this paper, on simulated devices; return a row for each fold.

    A device perturbs the level of its gradient, that is which of five ranges it is in. The learning
    rate is that of tern's learners. unit: the least of the paper's privacy budgets.
    """
    card = levels(unit)
    reports = runs.reports()
    group = group_of(unit, dataset_of(runs.name).dimension, reports)
    common = {
        "panel": runs.name,
        "unit": unit,
        "curve": _GRADIENT,
        "epsilon": card.epsilon / MICRO,
        "reports": reports,
        "group": group,
    }
    rows = []
    for index in range(runs.folds):
        data = fold(runs.name, index, runs.seed)
        seed = runs.seed + index
        options = HierA.Options(
            seed=seed,
            model="linear",
            reports=reports,
            group=group,
            mu=MU,
            epsilon=str(card.epsilon / MICRO),
            proportions=",".join(str(budget) for budget in BUDGETS),
        )
        learner = simulate(HierA(options, Population(clients=reports), data), seed)
        error = _squared_error(data, learner.weights)
        rows.append({**common, "run": index, "squared_error": error})
    return rows


def _without_privacy(runs: Runs, units: Sequence[float]) -> list[Row]:
    """Return the error of the optimal linear regression, which no privacy limits, for each unit."""
    data = fold(runs.name, 0, runs.seed)
    weights = optimum(MODELS["linear"], data, TrainingPlan.regularisation)
    row = {"panel": runs.name, "curve": NON_PRIVATE, "run": 0}
    error = _squared_error(data, weights)
    return [{**row, "unit": unit, "squared_error": error} for unit in units]


def _cells(options: Options) -> list[Cell]:
    """Return the computations of linear regression by all trainers. Raises UsageError.

    Such a cell is one call of a function with one trainer and one unit, the least privacy budget.
    Training is computed in floats, on simulated devices, and without privacy, to compare with.
    """
    names: Sequence[str] = _SETS
    if options.data is not None:
        names = (options.data,)
    folds = options.runs_or(default=2 * FOLDS, quick=2 * FOLDS, paper=_REPEATS * FOLDS)
    most = None
    units: Sequence[float] = UNITS
    if options.quick:
        most = 20_000
        units = UNITS[1::2]
    cells = []
    for name in names:
        require_records(dataset_of(name), FOLDS)
        runs = Runs(name, folds, options.seed, most)
        common = {"runs": runs}
        cells += Cell.for_each_combination(
            table=RUNS, work=trained, common=common, cost=2, trainer=_TRAINERS, unit=units
        )
        cells += Cell.for_each_combination(
            table=RUNS, work=_on_devices, common=common, cost=4, unit=units
        )
        cells.append(Cell(RUNS, _without_privacy, {**common, "units": units}, cost=0.1))
    return cells


_SQUARED = Axis("squared_error", "squared error on held-out records", log=True)
_better = partial(better, _SQUARED.column, shared=_SHARED)
COMPARED = Figure(
    title=f"linear regression, cross-validated in {FOLDS} folds, at mu = {MU}",
    x=OF_UNIT,
    y=_SQUARED,
    cells=_cells,
    statements={
        "the graded methods beat PM and Harmony at the least budget": partial(
            _better, (HIERA, LAPLACE), tuple(LEAST_RIVALS)
        ),
        "HierA beats graded Laplace": partial(_better, (HIERA,), (LAPLACE,)),
    },
    shared=_SHARED,
)
