"""HierA: reuse of reports (Fig. 1 of the paper); errors of means (Fig. 2) and of regression (Fig. 3), compared with
other mechanisms; the true cost of a report.

HierA has five ranges with budgets (5, 4, 3, 2, 1) e, from the lowest one up (Hao, Wu, Wan 2023). It is compared with PM
and Harmony at the least of the budgets and at the true cost of a report of HierA, and with Laplace noise at the budget
of each value's own range. The latter keeps no epsilon, since the scale of the noise reveals the range.

In training, the paper takes the level from an attribute and the sign from the coordinate of the gradient that belongs
to it. Either may have any value, so a report costs more than level and sign of one value: `loss_by_attribute`. Devices
certify a card for one value and take the level from the gradient itself (learn/hiera.py). The experiment includes that
variant, at its own cost."""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from tern.card import Card
from tern.fixed import ONE
from ternhost.datasets import Dataset, Fixed, Floats, Indices, synthetic
from ternhost.experiments import baseline
from ternhost.experiments.base import Contender, Options, Outcome, load
from ternhost.experiments.cells import Cell, Row, Tables
from ternhost.experiments.pictures import Curve, Panel, draw
from ternhost.experiments.rounds import collection, repeated, simulate
from ternhost.experiments.statistics import pick, summaries, values_of
from ternhost.learn import judging
from ternhost.learn import levels as system
from ternhost.learn.base import Population
from ternhost.learn.collect import HIERA
from ternhost.learn.hiera import HierA
from ternhost.learn.optimum import optimum
from ternhost.learn.parameters import MODELS
from ternhost.learn.training import TrainingPlan
from ternhost.privacy import cards, certify
from ternhost.privacy.base import MICRO
from ternhost.privacy.mechanisms import lhp

_BUDGETS = (5, 4, 3, 2, 1)
_X_LABEL = "unit e of the budgets (5, 4, 3, 2, 1) e"
_UNITS = (0.1, 0.2, 0.5, 1.0)
_MOST = 20 * MICRO  # epsilon of the other mechanisms
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
_RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # of each trainer the best one counts, constant or decaying
_LAPLACE, _ATTRIBUTE, _GRADIENT = "graded Laplace", "HierA", "HierA, level of the gradient"
_WITH_MU = "HierA, mu {}"
_LEAST, _TRUE = "the least epsilon", "the true epsilon"
_OTHERS = ("pm", "harmony")
_TRAINERS = (_ATTRIBUTE, _LAPLACE, *(f"{name} at {at}" for at in (_LEAST, _TRUE) for name in _OTHERS))


def levels(unit: float) -> Card:
    """The card of the paper's five levels, with budgets of 5 to 1 times this unit."""
    return cards.decode(lhp.card([round(budget * unit * MICRO) for budget in reversed(_BUDGETS)]))


def loss_by_attribute(card: Card) -> float:
    """The epsilon of a report whose level comes from one number and whose sign from another, independent one."""
    hierarchy = certify.hierarchy(card)
    by_level = [certify.at_knot(level_card, level) for level, level_card in enumerate(hierarchy.level_cards)]
    ratios = []
    for of_level, value_card in zip(zip(*by_level, strict=True), hierarchy.value_cards, strict=True):
        of_sign = [certify.distribution(value_card, end)[0] for end in (-ONE, ONE)]
        ratios.append(Fraction(max(of_level), min(of_level)) * Fraction(max(of_sign), min(of_sign)))
    return math.log(max(ratios))


def _epsilons(card: Card, cost: float) -> dict[str, int]:
    """The epsilons (micro) of the other mechanisms. cost: the true epsilon of a report of HierA."""
    return {_LEAST: min(lhp.budgets_of(card)), _TRUE: min(round(cost * MICRO), _MOST)}


def _options(card: Card) -> dict[str, Any]:
    """The options of an algorithm for these levels."""
    return {"epsilon": str(card.epsilon / MICRO), "budgets": ",".join(map(str, _BUDGETS))}


def cells(options: Options) -> list[Cell]:
    clients = 20_000 if options.quick else 100_000
    units = _UNITS[1::2] if options.quick else _UNITS
    sources = options.sets(*_SHAPES)
    common = {"clients": clients, "seeds": options.seeds(200, 20)}
    dataset = options.dataset or _REGRESSION
    training = {
        "dataset": dataset,
        "reports": 20_000 if options.quick else 80_000,
        "seeds": options.seeds(10, 2),
    }
    return [
        *Cell.each(
            "mu", _reused, {"clients": clients, "seed": options.seed}, 0.1, unit=units, source=sources
        ),
        *Cell.each("means", _estimated, common, cost=8, unit=units, source=sources),
        *Cell.each("regression", _trained, training, 6, unit=units, trainer=_TRAINERS),
        *Cell.each("regression", _on_devices, training, unit=units),
    ]


def _values(source: str, clients: int, seed: int) -> Fixed:
    """A value of each client: of a distribution, or the first attribute of a data set, cyclically."""
    if source in _SHAPES:
        return synthetic.attributes(clients, 1, seed=seed, **_SHAPES[source]).numeric[:, 0]
    return np.resize(load(source).features[:, 1], clients)


# Reuse of reports


def _reused(unit: float, source: str, clients: int, seed: int) -> list[Row]:
    """The exact root mean squared error of the mean at each mu."""
    card, values = levels(unit), _values(source, clients, seed)
    errors = {mu: float(system.variance(card, values, mu)) ** 0.5 for mu in _MUS}
    common = {"data": source, "unit": unit, "epsilon": card.epsilon / MICRO}
    return [
        {**common, "mu": mu, "error": error, "over_mu_1": error / errors[1]} for mu, error in errors.items()
    ]


def _about_mu(rows: list[Row]) -> list[str]:
    """How much larger the error is at each mu, over all data and units."""
    lines = []
    for mu in _MUS[1:]:
        ratios = [row["over_mu_1"] for row in pick(rows, mu=mu)]
        low, high = (100 * (ratio - 1) for ratio in (min(ratios), max(ratios)))
        lines.append(
            f"mu {mu}: the error of a mean is {low:.3g} to {high:.3g} % larger than at mu 1, exactly"
        )
    return lines


def _by_mu(rows: list[Row], name: str) -> Panel:
    groups = {mu: pick(rows, data=name, mu=mu) for mu in _MUS}
    curves = [Curve.of(f"mu = {mu}", group, "unit", "over_mu_1") for mu, group in groups.items()]
    return Panel(f"HierA: {name}", _X_LABEL, "error of the mean over that at mu = 1", curves, log_x=True)


# Means


def _estimated(unit: float, source: str, clients: int, seeds: range) -> list[Row]:
    card = levels(unit)
    values = _values(source, clients, seeds[0])
    truth = float(values.mean()) / ONE
    rows: list[Row] = []

    def add(estimate: str, epsilon: float | None, means: Sequence[float]) -> None:
        common = {"data": source, "unit": unit, "estimate": estimate, "epsilon": epsilon}
        errors = [mean - truth for mean in means]
        rows.extend({**common, "run": i, "bias": e, "absolute_error": abs(e)} for i, e in enumerate(errors))

    algorithm = collection(values[:, None], method=HIERA, **_options(card))
    counts = [collected.counts[0][0] for collected in repeated(algorithm, seeds)]
    for mu in _MUS:
        pairs = zip(counts, seeds, strict=True)
        means = [float(system.combine([(card, reports)], mu, seed=seed)[0]) for reports, seed in pairs]
        add(_WITH_MU.format(mu), card.epsilon / MICRO, means)
    x = values / ONE
    noisy = (_graded(card, x, x, baseline.generator(seed)) for seed in seeds)
    add(_LAPLACE, None, [float(reports.mean()) for reports in noisy])
    for at, epsilon in _epsilons(card, card.epsilon / MICRO).items():
        for name in _OTHERS:
            other = Contender(name).card(epsilon).data.hex()
            algorithm = collection(values[:, None], epsilon=f"{epsilon / MICRO:f}", card=other)
            results = (collected.result([]) for collected in repeated(algorithm, seeds))
            means = [result["attributes"][0]["mean"] for result in results]
            add(f"{name} at {at}", epsilon / MICRO, means)
    return rows


def _graded(card: Card, x: Floats, attributes: Floats, rng: np.random.Generator) -> Floats:
    """x with Laplace noise at the budgets of the ranges of their attributes."""
    return x + rng.laplace(0, 2 * MICRO / np.array(lhp.budgets_of(card))[_level(card, attributes)])


def _level(card: Card, x: Floats) -> Indices:
    bounds = np.array(certify.hierarchy(card).bounds)
    return np.asarray((x[..., None] * ONE < bounds).sum(axis=-1))


# Regression


def _group(unit: float, d: int, reports: int) -> int:
    """The number of devices in a round: the paper's d log d / epsilon^2 at the least of the budgets, at which the paper
    compares; at most all the reports."""
    return min(math.ceil(d * math.log(d) / unit**2), reports)


def _squared_error(dataset: Dataset, weights: Floats) -> float:
    """On the held-out records, also where their labels are two classes, -1 and 1."""
    features, labels = dataset.judged
    return float(np.square(judging.scores(features, weights) - labels / ONE).mean())


def _trained(unit: float, trainer: str, dataset: str, reports: int, seeds: range) -> list[Row]:
    """Linear regression by mini-batches in floats, at the learning rate with the least mean error."""
    card, data = levels(unit), load(dataset)
    cost = loss_by_attribute(card)
    epsilon = None if trainer == _LAPLACE else cost
    name, _, at = trainer.partition(" at ")
    if at:
        epsilon = _epsilons(card, cost)[at] / MICRO
        perturb = baseline.MECHANISMS["duchi" if name == "harmony" else name](epsilon)
    group = _group(unit, data.dimension, reports)
    errors_by_rate: dict[tuple[float, bool], list[float]] = {}
    for rate, decays in product(_RATES, (False, True)):
        run = baseline.Training("linear", cost, reports, rate, decays, math.ceil(reports / group))
        errors = []
        for seed in seeds:
            rng = baseline.generator(seed)

            def mean(x: Floats, y: Floats, weights: Floats, rng: np.random.Generator = rng) -> Floats:
                chosen, values = baseline.gradients("linear", x, y, weights, 1, rng)
                attributes = np.take_along_axis(x, chosen, axis=1)
                if trainer == _LAPLACE:
                    noisy = _graded(card, values, attributes, rng)
                elif trainer == _ATTRIBUTE:
                    noisy = _by_attribute(card, values, attributes, rng)
                else:
                    noisy = perturb(values, rng)
                return baseline.mean_of(chosen, noisy, x.shape)

            errors.append(_squared_error(data, baseline.descend(run, data, mean, rng)))
        errors_by_rate[rate, decays] = errors
    best = min(errors_by_rate, key=lambda key: float(np.mean(errors_by_rate[key])))
    common = {"data": dataset, "unit": unit, "trainer": trainer, "epsilon": epsilon, "reports": reports}
    common |= {"group": group, "rate": best[0]}
    return [{**common, "run": i, "squared_error": error} for i, error in enumerate(errors_by_rate[best])]


def _by_attribute(card: Card, values: Floats, attributes: Floats, rng: np.random.Generator) -> Floats:
    """LHP's reports of values at the levels of their attributes, without conversion."""
    level, level_cards = _level(card, attributes), certify.hierarchy(card).level_cards
    kept = np.array([level_card.threshold for level_card in level_cards]) / 2**30
    other = rng.integers(1, len(kept), level.shape)
    reported = np.where(rng.random(level.shape) < kept[level], level, (level + other) % len(kept))
    c = lhp.magnitudes(card)[reported]
    return np.where(rng.random(level.shape) < 0.5 + values / (2 * c), c, -c)


def _on_devices(unit: float, dataset: str, reports: int, seeds: range) -> list[Row]:
    """HierA as devices run it, with the level of the gradient."""
    card, data = levels(unit), load(dataset)
    group = _group(unit, data.dimension, reports)
    common = {"data": dataset, "unit": unit, "trainer": _GRADIENT, "epsilon": card.epsilon / MICRO}
    common |= {"reports": reports, "group": group, "rate": None}
    training = {"model": "linear", "reports": reports, "group": group, **_options(card)}
    rows = []
    for i, seed in enumerate(seeds):
        learner = HierA(HierA.Options(seed=seed, **training), Population(clients=reports), data)
        error = _squared_error(data, simulate(learner, seed).weights)
        rows.append({**common, "run": i, "squared_error": error})
    return rows


def _regression_panel(rows: list[Row]) -> Panel:
    data = load(rows[0]["data"])
    optimal = optimum(MODELS["linear"], data, TrainingPlan.regularisation)
    title = f"Linear regression by mini-batches, {rows[0]['reports']:,} reports: {data.name}"
    curves, lines = (
        Curve.each(rows, "trainer", "unit", "squared_error"),
        {"without privacy": _squared_error(data, optimal)},
    )
    y_label = "squared error on held-out records"
    return Panel(title, _X_LABEL, y_label, curves, log_x=True, log_y=True, lines=lines)


# Conclusions


def outcome(options: Options, tables: Tables) -> Outcome:
    means = summaries(tables["means"], ("data", "unit"), "estimate", "absolute_error")
    for row in means:
        runs = pick(tables["means"], data=row["data"], unit=row["unit"], estimate=row["estimate"])
        row["bias"] = float(np.mean([run["bias"] for run in runs]))
    regression = summaries(tables["regression"], ("unit",), "trainer", "squared_error")
    losses = [_losses(unit) for unit in values_of(means, "unit")]
    lines = [
        f"unit {row['unit']:g}: the paper states epsilon {row['epsilon_stated']:g}; a report costs "
        f"{row['epsilon_true']:.3f}, in training with the level of the attribute {row['epsilon_by_attribute']:.3f}"
        for row in losses
    ]
    lines += _about_mu(tables["mu"])
    for row in regression:
        line = f"regression, unit {row['unit']:g}, {row['trainer']}: squared error "
        line += f"{row['squared_error']:.4f} +- {row['standard_error']:.4f}, {row['verdict']}"
        lines.append(line)
    names = values_of(means, "data")
    figures = {
        "hiera-mu": draw([_by_mu(tables["mu"], name) for name in names], 2),
        "hiera": draw([_by_unit(means, name) for name in names], 2),
        "hiera-regression": draw([_regression_panel(regression)]),
    }
    kept = {"hiera": means, "mu": tables["mu"], "losses": losses, "regression": regression}
    return Outcome({"budgets": _BUDGETS}, kept, figures, lines)


def _losses(unit: float) -> Row:
    card = levels(unit)
    stated = {"epsilon_stated": max(lhp.budgets_of(card)) / MICRO, "epsilon_true": card.epsilon / MICRO}
    return {"unit": unit, **stated, "epsilon_by_attribute": loss_by_attribute(card)}


def _by_unit(rows: list[Row], name: str) -> Panel:
    left_out = [_WITH_MU.format(mu) for mu in _MUS[1:-1]]
    shown = [row for row in pick(rows, data=name) if row["estimate"] not in left_out]
    curves = Curve.each(shown, "estimate", "unit", "absolute_error")
    title = f"Mean of 1 attribute: {name}"
    return Panel(title, _X_LABEL, "mean absolute error", curves, log_x=True, log_y=True)
