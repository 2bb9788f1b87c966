"""Hao, Wu, Wan, Hierarchical Aggregation for Numerical Data under Local Differential Privacy.

Sensors 2023, 23, 1115.

HierA divides [-1, 1] into five ranges, the *levels*. Each has a budget: an epsilon of its own, from
the lowest range up 5 e, 4 e, 3 e, 2 e and e, where e is the *unit*. A report tells the level of a
value and a sign, both perturbed by that epsilon. HierA is compared with PM and Harmony at two
epsilons: at the least of the budgets, and at the true privacy loss of a report of HierA. It is also
compared with Laplace noise at the budget of each value's own range, which keeps no epsilon, since
the scale of the noise reveals the range.

In training, the paper takes the level from an attribute and the sign from the coordinate of the
gradient that belongs to it. Either may have any value, so a report costs more than level and sign
of one value: `loss_by_attribute`. Devices use a card that is certified for one value, and take the
level from the gradient itself (hiera.py). The experiment includes that variant, at its own cost.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from tern.card import Card, T
from tern.fixed import ONE
from ternhost.datasets import Dataset, Fixed, Floats, Indices, synthetic
from ternhost.errors import UsageError
from ternhost.learn import judging
from ternhost.learn.base import Population
from ternhost.learn.optimum import optimum
from ternhost.learn.parameters import MODELS
from ternhost.learn.training import TrainingPlan
from ternhost.planning.cells import Cell, Row
from ternhost.planning.simulation import collection, repeated, simulate
from ternhost.privacy import cards, certify
from ternhost.privacy.base import MICRO
from ternpapers import baseline
from ternpapers import levels as system
from ternpapers.base import Contender, Options, load
from ternpapers.collecting import CollectLevels
from ternpapers.figure import NON_PRIVATE, RUNS, Axis, Figure, Verdict, better, every
from ternpapers.formula import formula
from ternpapers.hiera import HierA
from ternpapers.mechanisms import lhp
from ternpapers.perturbing import MECHANISMS

_BUDGETS = (5, 4, 3, 2, 1)
_UNITS = (0.1, 0.2, 0.5, 1.0)
_MOST = 20 * MICRO  # the largest epsilon of the other mechanisms, in millionths
_MUS = tuple(range(1, len(_BUDGETS) + 1))
_SHAPES: dict[str, dict[str, Any]] = {
    "uniform": {"shape": "uniform"},  # Fig. 2 has these three
    "Gaussian(0.3, 0.2)": {"mean": 0.3, "deviation": 0.2},
    "exponential(0.3)": {"shape": "exponential", "mean": 0.3},
    "Gaussian, mean -0.5": {"mean": -0.5},
    "Gaussian, mean 0": {"mean": 0.0},
    "Gaussian, mean 0.5": {"mean": 0.5},
    "power law": {"shape": "power"},
}
_REGRESSION = "synthetic-linear"
# Learning rates to try, constant or decaying; of each trainer the best one counts.
_RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
_LAPLACE, _ATTRIBUTE, _GRADIENT = "graded Laplace", "HierA", "HierA, level of the gradient"
_LEAST, _TRUE = "the least epsilon", "the true epsilon"
_OTHERS = ("pm", "harmony")
_RIVALS = [f"{name} at {at}" for at, name in product((_LEAST, _TRUE), _OTHERS)]
_TRAINERS = (_ATTRIBUTE, _LAPLACE, *_RIVALS)

Noise = Callable[[Floats, Floats, np.random.Generator], Floats]
"""Takes values of a gradient, the attributes that belong to them, and a generator."""


def levels(unit: float) -> Card:
    """Return the card of the paper's five levels, with budgets of 5 to 1 times this unit.

    The card is the table from which devices draw a report.
    """
    budgets = [round(budget * unit * MICRO) for budget in reversed(_BUDGETS)]
    return cards.decode(lhp.card(budgets))


def loss_by_attribute(card: Card) -> float:
    """Return the epsilon of a report with the level of one number and the sign of another.

    The numbers are independent. So the largest ratio of the probabilities of a report, for any two
    pairs of numbers, is the largest ratio for its level, over all levels of the first number, times
    the largest for its sign, over all values of the second one. Epsilon is the logarithm of the
    largest ratio over all reports.
    """
    hierarchy = certify.hierarchy(card)
    distributions = []  # that of the reported level, for each true level
    for level, level_card in enumerate(hierarchy.level_cards):
        distributions.append(certify.at_knot(level_card, level))

    largest_ratio = Fraction(1)
    for reported_level, value_card in enumerate(hierarchy.value_cards):
        level_probabilities = [distribution[reported_level] for distribution in distributions]
        ratio_of_level = Fraction(max(level_probabilities), min(level_probabilities))
        # The signs' probabilities are furthest apart at the ends, and symmetric.
        sign_probabilities = [certify.distribution(value_card, end)[0] for end in (-ONE, ONE)]
        ratio_of_sign = Fraction(max(sign_probabilities), min(sign_probabilities))
        largest_ratio = max(largest_ratio, ratio_of_level * ratio_of_sign)
    return math.log(largest_ratio)


def _epsilons(card: Card, cost: float) -> dict[str, int]:
    """Return the two epsilons of the other mechanisms, in millionths.

    cost: the true epsilon of a report of HierA.
    """
    true_epsilon = round(cost * MICRO)
    return {_LEAST: min(lhp.budgets_of(card)), _TRUE: min(true_epsilon, _MOST)}


def _options(card: Card) -> dict[str, Any]:
    """Return the options with which an algorithm uses this card."""
    budgets = [str(budget) for budget in _BUDGETS]
    return {"epsilon": str(card.epsilon / MICRO), "proportions": ",".join(budgets)}


def _units(options: Options) -> Sequence[float]:
    """Return the units e of the budgets to try: every other one in the quick version."""
    if options.quick:
        return _UNITS[1::2]
    return _UNITS


def _clients(options: Options) -> int:
    """Return how many clients report, each of them once."""
    if options.quick:
        return 20_000
    return 100_000


def _values(source: str, clients: int, seed: int) -> Fixed:
    """Return one value for each client.

    source: a name of _SHAPES, from whose distribution the values are drawn, or a data set, whose
    first attribute is taken, repeated if there are too few records.
    """
    if source in _SHAPES:
        return synthetic.attributes(clients, 1, seed=seed, **_SHAPES[source]).numeric[:, 0]
    return np.resize(load(source).features[:, 1], clients)


# Reuse of reports


def _reused(unit: float, source: str, clients: int, seed: int) -> list[Row]:
    """Return the exact root mean squared error of a mean at each mu.

    mu: how often each report is used, converted to more private levels. unit, source: the unit of
    the budgets, and whose values are reported.
    """
    card = levels(unit)
    values = _values(source, clients, seed)
    errors = {}
    for mu in _MUS:
        errors[mu] = float(system.variance(card, values, mu)) ** 0.5
    common = {"panel": source, "curve": f"e = {unit:g}", "unit": unit, "run": 0}
    rows: list[Row] = []
    for mu, error in errors.items():
        rows.append({**common, "mu": mu, "error": error, "over_mu_1": error / errors[1]})
    return rows


def _reusing(options: Options) -> list[Cell]:
    """Return the cells of errors by mu, for each source and unit. Raises UsageError."""
    if options.runs is not None:
        raise UsageError("this figure is exact, and has no runs", hint="leave --runs out")
    return Cell.for_each_combination(
        table=RUNS,
        work=_reused,
        common={"clients": _clients(options), "seed": options.seed},
        source=options.sets(*_SHAPES),
        unit=_units(options),
    )


def _larger_mu_is_better(rows: Sequence[Row]) -> Verdict:
    """Test whether using a report more often makes the mean more accurate."""
    return every(row["over_mu_1"] < 1 for row in rows if row["mu"] > 1)


# Means


def _estimated(unit: float, source: str, clients: int, seeds: range) -> list[Row]:
    """Return the errors of means by HierA, by graded Laplace noise, and by the other mechanisms.

    unit, source: the unit of the budgets, and whose values are reported.
    """
    card = levels(unit)
    values = _values(source, clients, seeds[0])
    truth = float(values.mean()) / ONE
    rows: list[Row] = []

    def add_rows(curve: str, epsilon: float | None, means: Sequence[float]) -> None:
        """Add a row with the error of the mean of each run. epsilon: None if none is kept."""
        common = {"panel": source, "unit": unit, "curve": curve, "epsilon": epsilon}
        for run, mean in enumerate(means):
            rows.append({**common, "run": run, "absolute_error": abs(mean - truth)})

    # HierA on simulated devices.
    column = values[:, None]  # a table with one attribute
    algorithm = collection(column, CollectLevels, **_options(card))
    means = []
    for collected in repeated(algorithm, seeds):
        counts = collected.counts[0][0]  # of the only class and attribute
        means.append(float(system.combine([(card, counts)])[0]))
    add_rows(_ATTRIBUTE, card.epsilon / MICRO, means)

    # Laplace noise at the budget of each value's range, in floats.
    x = values / ONE
    means = []
    for seed in seeds:
        reports = _graded(card, x, x, baseline.generator(seed))
        means.append(float(reports.mean()))
    add_rows(_LAPLACE, None, means)

    # The other mechanisms on simulated devices, at two epsilons each.
    epsilons = _epsilons(card, card.epsilon / MICRO)
    for (at, epsilon), name in product(epsilons.items(), _OTHERS):
        other_card = Contender(name).card(epsilon).data.hex()
        algorithm = collection(column, epsilon=f"{epsilon / MICRO:f}", card=other_card)
        means = []
        for collected in repeated(algorithm, seeds):
            means.append(collected.result([])["attributes"][0]["mean"])
        add_rows(f"{name} at {at}", epsilon / MICRO, means)
    return rows


def _collecting(options: Options) -> list[Cell]:
    """Return the cells of errors of means, for each source and unit."""
    seeds = options.seeds(default=50, quick=5, paper=100)
    return Cell.for_each_combination(
        table=RUNS,
        work=_estimated,
        common={"clients": _clients(options), "seeds": seeds},
        source=options.sets(*_SHAPES),
        unit=_units(options),
    )


def _graded(card: Card, x: Floats, attributes: Floats, rng: np.random.Generator) -> Floats:
    """Add Laplace noise to x, at the budget of the range in which each value's attribute lies.

    attributes: of the shape of x. The noise has the scale 2 / epsilon.
    """
    budgets_by_level = np.array(lhp.budgets_of(card))
    budgets = budgets_by_level[_level(card, attributes)]
    return x + rng.laplace(0, 2 * MICRO / budgets)


def _level(card: Card, x: Floats) -> Indices:
    """Return the level of each number: how many bounds it is below, from the top range down."""
    bounds = np.array(certify.hierarchy(card).bounds)
    is_below = x[..., None] * ONE < bounds  # the shape of x, then bounds
    return np.asarray(is_below.sum(axis=-1))


# Regression


def _group(unit: float, d: int, reports: int) -> int:
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


def _trained(unit: float, trainer: str, dataset: str, reports: int, seeds: range) -> list[Row]:
    """Train a linear regression in floats at several learning rates; return the errors at the best.

    There is a row for each run. The best rate is the one with the least mean error over all runs.

    unit: the least of the privacy budgets in the paper's hierarchy, of which the others are
    multiples. trainer: one of _TRAINERS, which says how reports are perturbed. reports: their
    number, one from each client.
    """
    card = levels(unit)
    data = load(dataset)
    cost = loss_by_attribute(card)
    epsilon, noise = _noise_of(trainer, card, cost)
    group = _group(unit, data.dimension, reports)
    rounds = math.ceil(reports / group)

    def errors_at(rate: float, decays: bool) -> list[float]:
        """Train at a learning rate, and return the error of each run."""
        training = baseline.Training(
            model="linear", epsilon=cost, reports=reports, rate=rate, decays=decays, rounds=rounds
        )
        errors = []
        for seed in seeds:
            rng = baseline.generator(seed)
            weights = baseline.descend(training, data, _mean_gradient(noise, rng), rng)
            errors.append(_squared_error(data, weights))
        return errors

    best_rate, best_errors = 0.0, [math.inf]
    for rate, decays in product(_RATES, (False, True)):
        errors = errors_at(rate, decays)
        if np.mean(errors) < np.mean(best_errors):
            best_rate, best_errors = rate, errors

    common = {
        "panel": dataset,
        "unit": unit,
        "curve": trainer,
        "epsilon": epsilon,
        "reports": reports,
        "group": group,
        "rate": best_rate,
    }
    rows = []
    for run, error in enumerate(best_errors):
        rows.append({**common, "run": run, "squared_error": error})
    return rows


def _noise_of(trainer: str, card: Card, cost: float) -> tuple[float | None, Noise]:
    """Return the epsilon of a trainer's report, and the function that adds its noise.

    The epsilon is None if the trainer keeps none. cost: the epsilon of a report of HierA whose
    level is that of another number.
    """
    if trainer == _LAPLACE:
        return None, partial(_graded, card)
    if trainer == _ATTRIBUTE:
        return cost, partial(_by_attribute, card)

    name, _, at = trainer.partition(" at ")
    epsilon = _epsilons(card, cost)[at] / MICRO
    if name == "harmony":
        name = "duchi"  # the same for one value
    perturb = MECHANISMS[name](epsilon)

    def noise(values: Floats, _attributes: Floats, rng: np.random.Generator) -> Floats:
        """Perturb values. The attributes make no difference to this mechanism."""
        return perturb(values, rng)

    return epsilon, noise


def _mean_gradient(noise: Noise, rng: np.random.Generator) -> Callable[..., Floats]:
    """Return a function that estimates the mean gradient of records, for `baseline.descend`.

    Each record reports one coordinate of its gradient, with this noise.
    """

    def mean(x: Floats, y: Floats, weights: Floats) -> Floats:
        """Estimate the mean gradient (d) of records with features x and labels y."""
        coordinates, values = baseline.gradients("linear", x, y, weights, k=1, rng=rng)
        attributes = np.take_along_axis(x, coordinates, axis=1)
        reports = noise(values, attributes, rng)
        return baseline.mean_of(coordinates, reports, x.shape)

    return mean


def _by_attribute(
    card: Card, values: Floats, attributes: Floats, rng: np.random.Generator
) -> Floats:
    """Perturb values by LHP, the local part of HierA, at the levels of their attributes.

    The level is kept with a probability that depends on it, else replaced by any other one. A
    report is C or -C, where C is Duchi's magnitude at the reported level; C has the probability
    (1 + x / C) / 2. Reports are not converted to other levels.
    """
    level = _level(card, attributes)
    level_cards = certify.hierarchy(card).level_cards
    keeping_probability = np.array([level_card.threshold for level_card in level_cards]) / T
    # A shift by 1 to levels - 1, cyclically, leads to every other level with the same probability.
    shift = rng.integers(1, len(level_cards), level.shape)
    other_level = (level + shift) % len(level_cards)
    is_kept = rng.random(level.shape) < keeping_probability[level]
    reported_level = np.where(is_kept, level, other_level)
    c = lhp.magnitudes(card)[reported_level]
    is_positive = rng.random(level.shape) < 0.5 + values / (2 * c)
    return np.where(is_positive, c, -c)


def _on_devices(unit: float, dataset: str, reports: int, seeds: range) -> list[Row]:
    """Train by HierA, the learner of this paper, on simulated devices; return the error of each run.

    A device perturbs the level of its gradient, that is which of five ranges it is in. unit: the
    least of the paper's privacy budgets. reports: their number, one from each client.
    """
    card = levels(unit)
    data = load(dataset)
    group = _group(unit, data.dimension, reports)
    common = {
        "panel": dataset,
        "unit": unit,
        "curve": _GRADIENT,
        "epsilon": card.epsilon / MICRO,
        "reports": reports,
        "group": group,
        "rate": None,
    }
    training = {"model": "linear", "reports": reports, "group": group, **_options(card)}
    rows = []
    for run, seed in enumerate(seeds):
        options = HierA.Options(seed=seed, **training)
        learner = HierA(options, Population(clients=reports), data)
        error = _squared_error(data, simulate(learner, seed).weights)
        rows.append({**common, "run": run, "squared_error": error})
    return rows


def _without_privacy(unit: float, dataset: str) -> list[Row]:
    """Return the error of the optimal linear regression, which no privacy limits."""
    data = load(dataset)
    weights = optimum(MODELS["linear"], data, TrainingPlan.regularisation)
    row = {"panel": dataset, "unit": unit, "curve": NON_PRIVATE, "run": 0}
    return [{**row, "squared_error": _squared_error(data, weights)}]


def _regressing(options: Options) -> list[Cell]:
    """Return the computations of linear regression by all trainers. Raises UsageError.

    Such a cell is one call of a function with one trainer and one unit, the least privacy budget.
    Training is computed in floats, on simulated devices, and without privacy, to compare with.
    """
    dataset = options.data or _REGRESSION
    load(dataset)  # raises if it cannot be loaded
    reports = 80_000
    if options.quick:
        reports = 20_000
    seeds = options.seeds(default=10, quick=2, paper=100)
    common: dict[str, Any] = {"dataset": dataset, "reports": reports, "seeds": seeds}
    units = _units(options)
    in_floats = Cell.for_each_combination(
        table=RUNS, work=_trained, common=common, cost=6, trainer=_TRAINERS, unit=units
    )
    on_devices = Cell.for_each_combination(table=RUNS, work=_on_devices, common=common, unit=units)
    without_privacy = Cell.for_each_combination(
        table=RUNS, work=_without_privacy, common={"dataset": dataset}, cost=0.1, unit=units
    )
    return [*in_floats, *on_devices, *without_privacy]


# The true cost


def _costs() -> list[Row]:
    """Return the epsilon of a report at each unit: as the paper states it, and the true ones."""
    rows: list[Row] = []
    for unit in _UNITS:
        card = levels(unit)
        costs = {
            "as the paper states": max(lhp.budgets_of(card)) / MICRO,
            "of level and sign of one number": card.epsilon / MICRO,
            "of an attribute's level and its gradient's sign": loss_by_attribute(card),
        }
        for curve, epsilon in costs.items():
            row = {"panel": "a report of HierA", "curve": curve, "unit": unit, "epsilon": epsilon}
            rows.append(row)
    return rows


_UNIT = Axis("unit", "unit e of the budgets (5, 4, 3, 2, 1) e", log=True)
_MU = Axis("mu", "mu, how often a report counts")
_OVER = Axis("over_mu_1", "error over that at mu = 1")
_EPSILON = Axis("epsilon", "epsilon", log=True)
_ABSOLUTE = Axis("absolute_error", "mean absolute error", log=True)
_SQUARED = Axis("squared_error", "squared error on held-out records", log=True)


def _compared(title: str, y: Axis, cells: Callable[[Options], list[Cell]]) -> Figure:
    """Return a figure by the unit of the budgets, in which HierA competes with its rivals."""
    statements = {}
    for rival in _RIVALS:
        check = partial(better, y.column, (_ATTRIBUTE,), (rival,))
        statements[f"HierA is better than {rival}"] = check
    return Figure(title, _UNIT, y, cells, statements)


_ABOUT_MU = {"a larger mu is more accurate": _larger_mu_is_better}
FIGURES: dict[str, Figure] = {
    "1": Figure(
        "error of a mean by mu, exactly",
        _MU,
        _OVER,
        _reusing,
        {"a larger mu is more accurate": _larger_mu_is_better},
    ),
    "2": _compared("errors of means", _ABSOLUTE, _collecting),
    "3": _compared("linear regression", _SQUARED, _regressing),
    "cost": formula("what a report costs, and what the paper states", _UNIT, _EPSILON, _costs),
}
