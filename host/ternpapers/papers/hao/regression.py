"""Figure 3: linear regression with reports of HierA and of its rivals.

Each client takes part once, with one coordinate of the gradient of its record. The paper does not
say how a client shares its epsilon among the coordinates of its gradient.

The paper's learning rate is of the order of 1 / sqrt(t) in round t. The gradient is that of the
squared error, 2 (z - y) x at the score z, with each component clipped to [-1, 1]. At this rate most
of the models at small budgets are worse than an answer that is always the mean label. So the figure
compares how much noise the reports of each method have.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from tern.fixed import ONE
from ternhost.datasets import Dataset, Floats
from ternhost.learn.base import Population
from ternhost.learn.models import judging
from ternhost.learn.models.optimum import optimum
from ternhost.learn.models.training import TrainingPlan
from ternhost.learn.parameters import MODELS
from ternhost.planning.cells import Cell, Row
from ternhost.planning.simulation import simulate
from ternhost.privacy.base import MICRO
from ternpapers import baseline
from ternpapers.base import Options
from ternpapers.cross_validation import require_records, shared_part
from ternpapers.figure import NON_PRIVATE, RUNS, Axis, Figure
from ternpapers.hiera import HierA
from ternpapers.papers.hao.budgets import (
    BUDGETS,
    HIERA,
    LAPLACE,
    LEAST_RIVALS,
    MU,
    OF_UNIT,
    TRUE_RIVALS,
    UNITS,
    card_of,
    loss_by_attribute,
)
from ternpapers.papers.hao.noise import mean_gradient, noise_of
from ternpapers.papers.hao.records import FLIGHTS, FOLDS, Runs, dataset_of, fold
from ternpapers.verdicts import better

_REPEATS = 10  # of the cross-validation, in the paper
_SHARED = shared_part(FOLDS)
# Without the paper's census records: records of a known linear rule, and flights.
_SETS = ("synthetic-linear", FLIGHTS)
_GRADIENT = f"HierA, level of the gradient (mu = {MU})"
_TRAINERS = (HIERA, LAPLACE, *LEAST_RIVALS, *TRUE_RIVALS)


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
    card = card_of(unit)
    cost = loss_by_attribute(card)
    epsilon, noise = noise_of(trainer, unit, card, cost)
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


def _on_devices(unit: float, runs: Runs) -> list[Row]:
    """Train by HierA, the learner of this paper, on simulated devices; return a row for each fold.

    A device perturbs the level of its gradient, that is which of five ranges it is in. The learning
    rate is that of tern's learners. unit: the least of the paper's privacy budgets.
    """
    card = card_of(unit)
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
