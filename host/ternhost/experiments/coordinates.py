"""How many coordinates to report: the paper's rule for k and the wider one, against the best k at every epsilon.

With k of d coordinates at epsilon / k each, the variance of a mean is ((d/k) (V(x) + x**2) - x**2) / n. The paper takes
k = floor(epsilon / 2.5); floor(epsilon / 2.5 + 0.6) loses less in the worst case over x. Both are kept within 1..d.
Near x = 0 fewer coordinates are better, so that on real values either rule may win: that is measured, on means and on a
model trained on gradients, which are mostly near 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ternhost import mechanisms
from ternhost.algorithms import judging
from ternhost.algorithms.designs import K_RULES, coordinates_by_rule
from ternhost.algorithms.judging import WORDS
from ternhost.datasets import synthetic
from ternhost.experiments.base import DATASET, Options, Outcome, card_of, load, two_classes
from ternhost.experiments.cells import Cell, Row, Tables
from ternhost.experiments.pictures import Curve, Panel, draw
from ternhost.experiments.rounds import collection, figure_of, repeated, sgd, simulate, squared_error
from ternhost.experiments.statistics import grouped, mean_and_error, pick
from ternhost.mechanisms.base import MICRO

SUMMARY = "what the rules for k cost, against the best k"

_DIMENSIONS = (2, 16)
_D = 16  # of what is measured
_MECHANISM = "hm-tp"
_POINTS = np.linspace(0, 1, 41)
VARIANCES: dict[str, Callable[[float, float], float]] = {
    name: law
    for name in ("three-outputs", "pm-sub", "hm-tp", "duchi")
    if (law := mechanisms.REGISTRY.named(name).variance)
}


def worst(variance: Callable[[float, float], float], epsilon: float, d: int, k: int) -> float:
    """The worst variance, over x, of one client's part in a mean when it reports k of d coordinates."""
    return float(max(d / k * (variance(epsilon / k, x) + x * x) - x * x for x in _POINTS))


def cells(options: Options) -> list[Cell]:
    count, step = (16, 0.5) if options.quick else (151, 0.05)
    laws = [
        Cell("coordinates", _by_law, {"name": name, "d": d, "count": count, "step": step}, cost=0.01 * count)
        for d in _DIMENSIONS
        for name in VARIANCES
    ]
    values = {"clients": 10_000 if options.quick else 50_000, "runs": options.runs_or(40, 4)}
    training = {
        "dataset": two_classes(options.dataset or DATASET).name,
        "reports": 10_000 if options.quick else 30_000,
        "runs": options.runs_or(10, 2),
    }
    found = []
    for epsilon in (2.0, 4.9) if options.quick else (1.0, 2.0, 3.0, 4.0, 4.9, 6.0, 7.4, 8.0):
        own = {"epsilon": epsilon, "seed": options.seed}
        found.append(Cell("measured", _measured, {**own, **values}, cost=2))
        found.append(Cell("trained", _trained, {**own, **training}, cost=10))
    return laws + found


def _by_law(name: str, d: int, count: int, step: float) -> list[Row]:
    epsilons = [round(0.5 + i * step, 2) for i in range(count)]
    losses = [(epsilon, _losses(VARIANCES[name], epsilon, d)) for epsilon in epsilons]
    return [{"mechanism": name, "d": d, "epsilon": epsilon, **row} for epsilon, row in losses]


def outcome(options: Options, tables: Tables) -> Outcome:
    rows, measured, trained = (tables[name] for name in ("coordinates", "measured", "trained"))
    lines = [
        f"{name}, d {d}: the {rule} rule loses up to {max(row[f'{rule}_loss'] for row in own):.1%}"
        for (d, name), own in grouped(rows, "d", "mechanism").items()
        for rule in K_RULES
    ]
    lines += [
        f"measured, epsilon {row['epsilon']:g}, {row['rule']} rule (k = {row['k']}): "
        f"squared error {row['squared_error']:.3g}"
        for row in measured
    ]
    lines += [
        f"trained on {row['data']}, epsilon {row['epsilon']:g}, {row['rule']} rule (k = {row['k']}): "
        f"{WORDS[row['measure']]} {row['figure']:.4f}"
        for row in trained
    ]
    across = "epsilon of a client's report"
    panels = [
        Panel(
            f"{name}, d = {d}: loss against the best k",
            across,
            "more variance, in %",
            [
                _curve(rule, _thin(pick(rows, mechanism=name, d=d)), f"{rule}_k", f"{rule}_loss", 100)
                for rule in K_RULES
            ],
        )
        for name in VARIANCES
        if name != "duchi"
        for d in _DIMENSIONS
    ]
    panels += [
        Panel(
            f"Measured: {measured[0]['clients']:,} clients, Gaussian attributes, {_MECHANISM}",
            across,
            "mean squared error of a mean",
            [_curve(rule, pick(measured, rule=rule), "k", "squared_error") for rule in K_RULES],
            log_y=True,
        ),
        Panel(
            f"Measured: {trained[0]['data']}, {trained[0]['reports']:,} reports",
            across,
            f"{WORDS[trained[0]['measure']]} on held-out records",
            [_curve(rule, pick(trained, rule=rule), "k", "figure") for rule in K_RULES],
        ),
    ]
    figure = draw(panels, 2)
    return Outcome(
        "coordinates",
        {"dimensions": _DIMENSIONS},
        {"coordinates": rows, "measured": measured, "trained": trained},
        {"coordinates": figure},
        lines,
    )


def _losses(variance: Callable[[float, float], float], epsilon: float, d: int) -> Row:
    cost = {k: worst(variance, epsilon, d, k) for k in range(1, min(d, math.ceil(epsilon)) + 1)}
    best = min(cost, key=lambda k: cost[k])
    row: Row = {"best_k": best, "best_variance": cost[best]}
    for rule in K_RULES:
        k = coordinates_by_rule(rule, round(epsilon * MICRO), d)
        row[f"{rule}_k"] = k
        row[f"{rule}_loss"] = worst(variance, epsilon, d, k) / cost[best] - 1
    return row


def _thin(rows: list[Row]) -> list[Row]:
    return rows[:: max(1, len(rows) // 50)]


def _curve(rule: str, rows: list[Row], k: str, what: str, unit: float = 1) -> Curve:
    """What a rule gives by epsilon; its line is broken where the rule's k changes, since the figure jumps there."""
    x, y, error = [], [], []
    for i, row in enumerate(rows):
        if i and row[k] != rows[i - 1][k]:
            x.append(row["epsilon"])
            y.append(math.nan)
            error.append(0.0)
        x.append(row["epsilon"])
        y.append(unit * row[what])
        error.append(row.get("standard_error", 0.0))
    return Curve(f"the {rule} rule", x, y, error)


def _measured(epsilon: float, clients: int, runs: int, seed: int) -> list[Row]:
    values = synthetic.attributes(clients, _D, mean=1 / 3, seed=seed).numeric

    def errors(k: int, card: str) -> list[float]:
        asked = collection(values, epsilon=f"{epsilon:g}", k=k, card=card)
        return [squared_error(found) for found in repeated(asked, range(seed, seed + 1000 * runs, 1000))]

    return _by_rule(epsilon, _D, {"clients": clients}, "squared_error", errors)


def _trained(dataset: str, epsilon: float, reports: int, runs: int, seed: int) -> list[Row]:
    data = load(dataset)
    reports = min(len(data.training), reports)

    def figures(k: int, card: str) -> list[float]:
        asked = (
            sgd(data, reports, one, epsilon=f"{epsilon:g}", k=k, card=card)
            for one in range(seed, seed + runs)
        )
        return [figure_of(simulate(one, one.seed)) for one in asked]

    common = {"data": dataset, "reports": reports, "measure": judging.measure(data)}
    return _by_rule(epsilon, data.dimension, common, "figure", figures)


def _by_rule(
    epsilon: float, d: int, common: Row, figure: str, measure: Callable[[int, str], list[float]]
) -> list[Row]:
    """A row for each rule; what is measured depends on the rule's k alone."""
    rows, of_k = [], {}
    for rule in K_RULES:
        k = coordinates_by_rule(rule, round(epsilon * MICRO), d)
        if k not in of_k:
            found = measure(k, card_of(_MECHANISM, round(epsilon * MICRO) // k).data.hex())
            mean, error = mean_and_error(found)
            of_k[k] = {figure: mean, "standard_error": error, "runs": len(found)}
        rows.append({"rule": rule, **common, "epsilon": epsilon, "k": k, **of_k[k]})
    return rows
