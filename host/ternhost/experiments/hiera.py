"""HierA: errors of means and regression, compared with other mechanisms; reuse of reports; the true cost of a report.

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
from ternhost.datasets import Fixed, Floats, Indices, synthetic
from ternhost.experiments import baseline
from ternhost.experiments.base import Contender, Options, Outcome, load
from ternhost.experiments.cells import Cell, Row, Tables
from ternhost.experiments.pictures import Curve, Panel, draw
from ternhost.experiments.rounds import collection, figure_of, group_of, optimal_figures, repeated, simulate
from ternhost.experiments.statistics import beyond_noise, grouped, pick, summaries, values_of
from ternhost.learn import judging
from ternhost.learn import levels as system
from ternhost.learn.base import Population
from ternhost.learn.collect import HIERA
from ternhost.learn.hiera import HierA
from ternhost.learn.parameters import MODELS
from ternhost.privacy import cards, certify
from ternhost.privacy.base import MICRO
from ternhost.privacy.mechanisms import lhp

_BUDGETS = (5, 4, 3, 2, 1)
_X_LABEL = "unit e of the budgets (5, 4, 3, 2, 1) e"
_UNITS = (0.1, 0.2, 0.5, 1.0)
_MOST = 20 * MICRO  # epsilon of the other mechanisms
_SHAPES: dict[str, dict[str, Any]] = {
    "uniform": {"shape": "uniform"},
    "Gaussian, mean -0.5": {"mean": -0.5},
    "Gaussian, mean 0": {"mean": 0.0},
    "Gaussian, mean 0.5": {"mean": 0.5},
    "power law": {"shape": "power"},
}
_RATES = (0.01, 0.03, 0.1, 0.3, 1.0)  # of each trainer the best one counts, constant or decaying
_LAPLACE, _ATTRIBUTE, _GRADIENT = "graded Laplace", "HierA", "HierA, level of the gradient"
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
    shares = (0.0, 0.5, 1.0) if options.quick else (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    clients = 20_000 if options.quick else 100_000
    common = {"clients": clients, "shares": shares, "seeds": options.seeds(200, 20)}
    training = {"reports": 20_000 if options.quick else 80_000, "seeds": options.seeds(10, 2)}
    units = _UNITS[1::2] if options.quick else _UNITS
    return [
        *Cell.each("means", _estimated, common, cost=8, unit=units, source=options.sets(*_SHAPES)),
        *Cell.each("regression", _trained, training, unit=units, trainer=_TRAINERS),
        *Cell.each("regression", _on_devices, training, unit=units),
    ]


def _values(source: str, clients: int, seed: int) -> Fixed:
    if source in _SHAPES:
        return synthetic.attributes(clients, 1, seed=seed, **_SHAPES[source]).numeric[:, 0]
    return load(source).features[:clients, 1]


def _estimated(unit: float, source: str, clients: int, shares: Sequence[float], seeds: range) -> list[Row]:
    card = levels(unit)
    values = _values(source, clients, seeds[0])
    truth = float(values.mean()) / ONE
    rows: list[Row] = []

    def add(estimate: str, mu: float | None, epsilon: float | None, means: Sequence[float]) -> None:
        common = {"data": source, "unit": unit, "estimate": estimate, "mu": mu, "epsilon": epsilon}
        errors = [mean - truth for mean in means]
        rows.extend({**common, "run": i, "bias": e, "absolute_error": abs(e)} for i, e in enumerate(errors))

    algorithm = collection(values[:, None], method=HIERA, **_options(card))
    counts = [collected.counts[0][0] for collected in repeated(algorithm, seeds)]
    for mu in shares:
        pairs = zip(counts, seeds, strict=True)
        means = [float(system.combine([(card, reports)], mu, seed=seed)[0]) for reports, seed in pairs]
        add(f"HierA, mu {mu:g}", mu, card.epsilon / MICRO, means)
    x = values / ONE
    noisy = (_graded(card, x, x, baseline.generator(seed)) for seed in seeds)
    add(_LAPLACE, None, None, [float(reports.mean()) for reports in noisy])
    for at, epsilon in _epsilons(card, card.epsilon / MICRO).items():
        for name in _OTHERS:
            other = Contender(name).card(epsilon).data.hex()
            algorithm = collection(values[:, None], epsilon=f"{epsilon / MICRO:f}", card=other)
            results = (collected.result([]) for collected in repeated(algorithm, seeds))
            means = [result["attributes"][0]["mean"] for result in results]
            add(f"{name} at {at}", None, epsilon / MICRO, means)
    return rows


def _graded(card: Card, x: Floats, attributes: Floats, rng: np.random.Generator) -> Floats:
    """x with Laplace noise at the budgets of the ranges of their attributes."""
    return x + rng.laplace(0, 2 * MICRO / np.array(lhp.budgets_of(card))[_level(card, attributes)])


def _level(card: Card, x: Floats) -> Indices:
    bounds = np.array(certify.hierarchy(card).bounds)
    return np.asarray((x[..., None] * ONE < bounds).sum(axis=-1))


def _trained(unit: float, trainer: str, reports: int, seeds: range) -> list[Row]:
    """Linear regression by mini-batches in floats, at the learning rate with the least mean error."""
    card, dataset = levels(unit), load("synthetic-linear")
    cost = loss_by_attribute(card)
    epsilon = None if trainer == _LAPLACE else cost
    name, _, at = trainer.partition(" at ")
    if at:
        epsilon = _epsilons(card, cost)[at] / MICRO
        perturb = baseline.MECHANISMS["duchi" if name == "harmony" else name](epsilon)
    errors_by_rate: dict[tuple[float, bool], list[float]] = {}
    for rate, decays in product(_RATES, (False, True)):
        run = baseline.Training("linear", cost, reports, rate, decays)
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

            weights = baseline.descend(run, dataset, mean, rng)
            errors.append(judging.figures(dataset, MODELS["linear"], weights)["squared_error"])
        errors_by_rate[rate, decays] = errors
    best = min(errors_by_rate, key=lambda key: float(np.mean(errors_by_rate[key])))
    common = {"unit": unit, "trainer": trainer, "epsilon": epsilon, "reports": reports, "rate": best[0]}
    return [{**common, "run": i, "squared_error": error} for i, error in enumerate(errors_by_rate[best])]


def _by_attribute(card: Card, values: Floats, attributes: Floats, rng: np.random.Generator) -> Floats:
    """LHP's reports of values at the levels of their attributes, without conversion."""
    level, level_cards = _level(card, attributes), certify.hierarchy(card).level_cards
    kept = np.array([level_card.threshold for level_card in level_cards]) / 2**30
    other = rng.integers(1, len(kept), level.shape)
    reported = np.where(rng.random(level.shape) < kept[level], level, (level + other) % len(kept))
    c = lhp.magnitudes(card)[reported]
    return np.where(rng.random(level.shape) < 0.5 + values / (2 * c), c, -c)


def _on_devices(unit: float, reports: int, seeds: range) -> list[Row]:
    """HierA as devices run it, with the level of the gradient."""
    card, dataset = levels(unit), load("synthetic-linear")
    epsilon = card.epsilon / MICRO
    common = {"unit": unit, "trainer": _GRADIENT, "epsilon": epsilon, "reports": reports, "rate": None}
    training = {"model": "linear", "reports": reports, "group": group_of(reports), **_options(card)}
    rows = []
    for i, seed in enumerate(seeds):
        learner = HierA(HierA.Options(seed=seed, **training), Population(clients=reports), dataset)
        rows.append({**common, "run": i, "squared_error": figure_of(simulate(learner, seed))})
    return rows


def outcome(options: Options, tables: Tables) -> Outcome:
    rows = summaries(tables["means"], ("data", "unit"), "estimate", "absolute_error")
    for row in rows:
        runs = pick(tables["means"], data=row["data"], unit=row["unit"], estimate=row["estimate"])
        row["bias"] = float(np.mean([run["bias"] for run in runs]))
    regression = summaries(tables["regression"], ("unit",), "trainer", "squared_error")
    losses = [_losses(unit) for unit in values_of(rows, "unit")]
    reused = [row for row in rows if row["mu"] is not None]
    lines = [
        f"unit {row['unit']:g}: the paper states epsilon {row['epsilon_stated']:g}; a report costs "
        f"{row['epsilon_true']:.3f}, in training with the level of the attribute {row['epsilon_by_attribute']:.3f}"
        for row in losses
    ]
    larger, smaller = [], []
    for group in grouped(tables["means"], "data", "unit").values():
        by_mu = (pick(group, mu=mu) for mu in (0.0, 1.0))
        none, all_reports = (np.array([row["absolute_error"] for row in of_mu]) for of_mu in by_mu)
        larger.append(beyond_noise(all_reports - none))
        smaller.append(beyond_noise(none - all_reports))
    line = "reusing all reports (mu 1) had a larger error than reusing none (mu 0) beyond noise in "
    line += f"{sum(larger)} of {len(larger)} cases, a smaller one in {sum(smaller)}"
    lines.append(line)
    for row in regression:
        line = f"regression, unit {row['unit']:g}, {row['trainer']}: squared error "
        line += f"{row['squared_error']:.4f} +- {row['standard_error']:.4f}, {row['verdict']}"
        lines.append(line)
    best = optimal_figures(load("synthetic-linear"), "linear")["squared_error"]
    figures = {"hiera-regression": draw([_regression_panel(regression, best)])}
    figures["hiera"] = draw([_by_unit(rows, name) for name in values_of(rows, "data")], 2)
    figures["hiera-mu"] = draw([_by_mu(reused, name) for name in values_of(rows, "data")], 2)
    kept = {"hiera": rows, "losses": losses, "regression": regression}
    return Outcome({"budgets": _BUDGETS}, kept, figures, lines)


def _losses(unit: float) -> Row:
    card = levels(unit)
    stated = {"epsilon_stated": max(lhp.budgets_of(card)) / MICRO, "epsilon_true": card.epsilon / MICRO}
    return {"unit": unit, **stated, "epsilon_by_attribute": loss_by_attribute(card)}


def _by_unit(rows: list[Row], name: str) -> Panel:
    extremes = [row for row in pick(rows, data=name) if row["mu"] in (None, 0, 1)]
    curves = Curve.each(extremes, "estimate", "unit", "absolute_error")
    title = f"Mean of 1 attribute: {name}"
    return Panel(title, _X_LABEL, "mean absolute error", curves, log_x=True, log_y=True)


def _by_mu(rows: list[Row], name: str) -> Panel:
    groups = {unit: pick(rows, data=name, unit=unit) for unit in values_of(rows, "unit")}
    curves = [Curve.of(f"e = {unit:g}", group, "mu", "absolute_error") for unit, group in groups.items()]
    x_label = "mu, share of reports that are reused"
    return Panel(f"HierA: {name}", x_label, "mean absolute error", curves, log_y=True)


def _regression_panel(rows: list[Row], best: float) -> Panel:
    title = f"Linear regression by mini-batches, {rows[0]['reports']:,} reports"
    curves, lines = Curve.each(rows, "trainer", "unit", "squared_error"), {"without privacy": best}
    y_label = "squared error on held-out records"
    return Panel(title, _X_LABEL, y_label, curves, log_x=True, log_y=True, lines=lines)
