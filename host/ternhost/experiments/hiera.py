"""HierA: its errors of means and regression beside other mechanisms, the effect of reusing reports, a report's cost.

Five ranges with budgets (5, 4, 3, 2, 1) e, from the lowest one up (Hao, Wu, Wan 2023). Beside it: Laplace noise at the
budget of each value's own range, which keeps no epsilon at all, since the scale of the noise tells the range; PM and
Harmony at the least of the budgets, and at what a report of HierA truly costs.

In training the paper takes the level from the attribute that a coordinate of the gradient belongs to, and the sign from
the gradient, which may have any sign whatever the attribute. That costs more than level and sign of one value:
`loss_by_attribute`. Devices certify a card for one value and take the level from the gradient itself (learn/hiera.py):
the experiment compares that too, at its own cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tern.card import Card
from tern.fixed import ONE
from ternhost.datasets import Fixed, Floats, Indices, synthetic
from ternhost.experiments import baseline
from ternhost.experiments.base import Options, Outcome, card_of, load
from ternhost.experiments.cells import Cell, Row, Tables
from ternhost.experiments.pictures import Curve, Panel, draw
from ternhost.experiments.rounds import (
    GROUPS,
    collection,
    figure_of,
    group_of,
    optimal_figures,
    repeated,
    simulate,
)
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

SUMMARY = "HierA's errors beside Laplace, PM and Harmony at its least and at its true epsilon, and against mu"

_BUDGETS = (5, 4, 3, 2, 1)
_UNITS = (0.1, 0.2, 0.5, 1.0)
_MOST = 20 * MICRO
_SHAPES: dict[str, dict[str, Any]] = {
    "uniform": {"shape": "uniform"},
    "Gaussian, mean -0.5": {"mean": -0.5},
    "Gaussian, mean 0": {"mean": 0.0},
    "Gaussian, mean 0.5": {"mean": 0.5},
    "power law": {"shape": "power"},
}
_RATES = (0.01, 0.03, 0.1, 0.3, 1.0)  # each trainer gets its best, constant or decaying
_LAPLACE, _ATTRIBUTE, _GRADIENT = "graded Laplace", "HierA", "HierA, level of the gradient"
_LEAST, _TRUE = "the least epsilon", "the true epsilon"
_OTHERS = ("pm", "harmony")
_TRAINERS = (_ATTRIBUTE, _LAPLACE, *(f"{name} at {at}" for at in (_LEAST, _TRUE) for name in _OTHERS))


def levels(unit: float) -> Card:
    """The card of the paper's five levels, with budgets in this unit."""
    return cards.decode(lhp.card([round(budget * unit * MICRO) for budget in reversed(_BUDGETS)]))


def loss_by_attribute(card: Card) -> float:
    """The epsilon of a report whose level comes from one number and whose sign from another, both free."""
    hierarchy = certify.hierarchy(card)
    rows = [certify.at_knot(level_card, level) for level, level_card in enumerate(hierarchy.level_cards)]
    ratios = []
    for reports, value_card in zip(zip(*rows, strict=True), hierarchy.value_cards, strict=True):
        signs = [certify.distribution(value_card, end)[0] for end in (-ONE, ONE)]
        ratios.append(Fraction(max(reports), min(reports)) * Fraction(max(signs), min(signs)))
    return math.log(max(ratios))


def _epsilons(card: Card, true: float) -> dict[str, int]:
    """The epsilons (micro) of the other mechanisms."""
    return {_LEAST: min(lhp.budgets_of(card)), _TRUE: min(round(true * MICRO), _MOST)}


def _options(card: Card) -> dict[str, Any]:
    """The options for these levels."""
    return {"epsilon": str(card.epsilon / MICRO), "budgets": ",".join(map(str, _BUDGETS))}


def cells(options: Options) -> list[Cell]:
    common = {
        "clients": 20_000 if options.quick else 100_000,
        "shares": (0.0, 0.5, 1.0) if options.quick else (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
        "seeds": options.seeds(200, 20),
    }
    training = {"reports": 20_000 if options.quick else 80_000, "seeds": options.seeds(10, 2)}
    units = _UNITS[1::2] if options.quick else _UNITS
    return [
        *Cell.each("means", _estimated, common, cost=8, unit=units, source=options.sets(*_SHAPES)),
        *Cell.each("regression", _trained, training, unit=units, who=_TRAINERS),
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

    collecting = collection(values[:, None], method=HIERA, **_options(card))
    counts = [collected.counts[0][0] for collected in repeated(collecting, seeds)]
    for mu in shares:
        pairs = zip(counts, seeds, strict=True)
        means = [float(system.combine([(card, reports)], mu, seed=seed)[0]) for reports, seed in pairs]
        add(f"HierA, mu {mu:g}", mu, card.epsilon / MICRO, means)
    noisy = _graded(card, values / ONE)
    add(_LAPLACE, None, None, [float(noisy(baseline.generator(seed)).mean()) for seed in seeds])
    for at, epsilon in _epsilons(card, card.epsilon / MICRO).items():
        for name in _OTHERS:
            other = card_of(name, epsilon).data.hex()
            collecting = collection(values[:, None], epsilon=f"{epsilon / MICRO:f}", card=other)
            means = [one.result([])["attributes"][0]["mean"] for one in repeated(collecting, seeds)]
            add(f"{name} at {at}", None, epsilon / MICRO, means)
    return rows


def _graded(card: Card, x: Floats, levels_of: Floats | None = None) -> Callable[[Any], Floats]:
    """x with Laplace noise at the budget of its own range, or of that of `levels_of`."""
    scales = 2 * MICRO / np.array(lhp.budgets_of(card))[_level(card, x if levels_of is None else levels_of)]
    return lambda rng: x + rng.laplace(0, scales)


def _level(card: Card, x: Floats) -> Indices:
    bounds = np.array(certify.hierarchy(card).bounds)
    level: Indices = (x[..., None] * ONE < bounds).sum(axis=-1)
    return level


# Training


def _trained(unit: float, who: str, reports: int, seeds: range) -> list[Row]:
    """Linear regression by mini-batches in floats; the best of some learning rates, by its mean error."""
    card, dataset = levels(unit), load("synthetic-linear")
    true = loss_by_attribute(card)
    epsilon = None if who == _LAPLACE else true
    name, _, at = who.partition(" at ")
    if at:
        epsilon = _epsilons(card, true)[at] / MICRO
        perturb = baseline.MECHANISMS["duchi" if name == "harmony" else name](epsilon)
    errors_by_rate: dict[tuple[float, bool], list[float]] = {}
    for rate, decays in ((rate, decays) for rate in _RATES for decays in (False, True)):
        run = baseline.Run("linear", true, reports, rate, decays, GROUPS)
        errors = []
        for seed in seeds:
            rng = baseline.generator(seed)

            def mean(x: Floats, y: Floats, weights: Floats, rng: np.random.Generator = rng) -> Floats:
                chosen, values = baseline.gradients("linear", x, y, weights, 1, rng)
                if who == _LAPLACE:
                    noisy = _graded(card, values, np.take_along_axis(x, chosen, axis=1))(rng)
                elif who == _ATTRIBUTE:
                    noisy = _by_attribute(card, values, np.take_along_axis(x, chosen, axis=1), rng)
                else:
                    noisy = perturb(values, rng)
                return baseline.mean_of(chosen, noisy, x.shape)

            weights = baseline.descend(run, dataset, mean, rng)
            errors.append(judging.figures(dataset, MODELS["linear"], weights)["squared_error"])
        errors_by_rate[rate, decays] = errors
    best = min(errors_by_rate, key=lambda key: float(np.mean(errors_by_rate[key])))
    common = {"unit": unit, "trainer": who, "epsilon": epsilon, "reports": reports, "rate": best[0]}
    return [{**common, "run": i, "squared_error": error} for i, error in enumerate(errors_by_rate[best])]


def _by_attribute(card: Card, values: Floats, attributes: Floats, rng: np.random.Generator) -> Floats:
    """LHP's reports of values at the levels of their attributes, as they are."""
    level, level_cards = _level(card, attributes), certify.hierarchy(card).level_cards
    kept = np.array([level_card.threshold for level_card in level_cards]) / 2**30
    other = rng.integers(1, len(kept), level.shape)
    reported = np.where(rng.random(level.shape) < kept[level], level, (level + other) % len(kept))
    c = lhp.magnitudes(card)[reported]
    reports: Floats = np.where(rng.random(level.shape) < 0.5 + values / (2 * c), c, -c)
    return reports


def _on_devices(unit: float, reports: int, seeds: range) -> list[Row]:
    """HierA as devices run it: the level is that of the gradient."""
    card, dataset = levels(unit), load("synthetic-linear")
    epsilon = card.epsilon / MICRO
    common = {"unit": unit, "trainer": _GRADIENT, "epsilon": epsilon, "reports": reports, "rate": None}
    training = {"model": "linear", "reports": reports, "group": group_of(reports), **_options(card)}
    rows = []
    for i, seed in enumerate(seeds):
        learner = HierA(HierA.Options(seed=seed, **training), Population(clients=reports), dataset)
        rows.append({**common, "run": i, "squared_error": figure_of(simulate(learner, seed))})
    return rows


# The results


def outcome(options: Options, tables: Tables) -> Outcome:
    rows = summaries(tables["means"], ("data", "unit"), "estimate", "absolute_error")
    for row in rows:
        own = pick(tables["means"], data=row["data"], unit=row["unit"], estimate=row["estimate"])
        row["bias"] = float(np.mean([one["bias"] for one in own]))
    regression = summaries(tables["regression"], ("unit",), "trainer", "squared_error")
    losses = [_losses(unit) for unit in values_of(rows, "unit")]
    reused = [row for row in rows if row["mu"] is not None]
    lines = [
        f"unit {row['unit']:g}: the paper states epsilon {row['epsilon_stated']:g}; a report costs "
        f"{row['epsilon_true']:.3f}, in training by the level of the attribute {row['epsilon_by_attribute']:.3f}"
        for row in losses
    ]
    more = []
    for own in grouped(tables["means"], "data", "unit").values():
        none, every = (np.array([row["absolute_error"] for row in pick(own, mu=mu)]) for mu in (0.0, 1.0))
        more.append((beyond_noise(every - none), beyond_noise(none - every)))
    lines.append(
        f"reusing all reports (mu 1) had a larger error than reusing none (mu 0) beyond noise in "
        f"{sum(worse for worse, _ in more)} of {len(more)} cases, a smaller one in {sum(less for _, less in more)}"
    )
    for row in regression:
        lines.append(
            f"regression, unit {row['unit']:g}, {row['trainer']}: squared error {row['squared_error']:.4f} "
            f"+- {row['standard_error']:.4f}, {row['verdict']}"
        )
    best = optimal_figures(load("synthetic-linear"), "linear")["squared_error"]
    return Outcome(
        {"budgets": _BUDGETS},
        {"hiera": rows, "losses": losses, "regression": regression},
        {
            "hiera": draw([_against_epsilon(rows, name) for name in values_of(rows, "data")], 2),
            "hiera-mu": draw([_against_mu(reused, name) for name in values_of(rows, "data")], 2),
            "hiera-regression": draw([_regression_panel(regression, best)]),
        },
        lines,
    )


def _losses(unit: float) -> Row:
    card = levels(unit)
    stated = {"epsilon_stated": max(lhp.budgets_of(card)) / MICRO, "epsilon_true": card.epsilon / MICRO}
    return {"unit": unit, **stated, "epsilon_by_attribute": loss_by_attribute(card)}


def _against_epsilon(rows: list[Row], name: str) -> Panel:
    own = [row for row in pick(rows, data=name) if row["mu"] in (None, 0, 1)]
    curves = Curve.each(own, "estimate", "unit", "absolute_error")
    title = f"Mean of 1 attribute: {name}"
    return Panel(title, _ACROSS, "mean absolute error", curves, log_x=True, log_y=True)


_ACROSS = "unit e of the budgets (5, 4, 3, 2, 1) e"


def _against_mu(rows: list[Row], name: str) -> Panel:
    curves = [
        Curve.of(f"e = {unit:g}", pick(rows, data=name, unit=unit), "mu", "absolute_error")
        for unit in values_of(rows, "unit")
    ]
    return Panel(f"HierA: {name}", "mu, share of reports reused", "mean absolute error", curves, log_y=True)


def _regression_panel(rows: list[Row], best: float) -> Panel:
    return Panel(
        f"Linear regression by mini-batches, {rows[0]['reports']:,} reports",
        _ACROSS,
        "squared error on held-out records",
        Curve.each(rows, "trainer", "unit", "squared_error"),
        log_x=True,
        log_y=True,
        lines={"without privacy": best},
    )
