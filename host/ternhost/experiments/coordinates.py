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
from ternhost.datasets import synthetic
from ternhost.experiments.base import (
    Curve,
    Options,
    Outcome,
    Panel,
    Row,
    card_of,
    draw,
    mean_and_error,
    two_classes,
)
from ternhost.experiments.rounds import collection, repeated, sgd, simulate, squared_error
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


def run(options: Options) -> Outcome:
    epsilons = [
        round(0.5 + i * (0.5 if options.quick else 0.05), 2) for i in range(16 if options.quick else 151)
    ]
    rows: list[Row] = []
    for d in _DIMENSIONS:
        for name, variance in VARIANCES.items():
            for epsilon in epsilons:
                options.progress(f"{name}, d {d}, epsilon {epsilon:g}")
                rows.append({"mechanism": name, "d": d, "epsilon": epsilon, **_losses(variance, epsilon, d)})
    measured = _measure(options)
    trained = _train(options)
    lines = [
        f"{name}, d {d}: the {rule} rule loses up to {max(row[f'{rule}_loss'] for row in _of(rows, name, d)):.1%}"
        for d in _DIMENSIONS
        for name in VARIANCES
        for rule in K_RULES
    ]
    lines += [
        f"measured, epsilon {row['epsilon']:g}, {row['rule']} rule (k = {row['k']}): "
        f"squared error {row['squared_error']:.3g}"
        for row in measured
    ]
    lines += [
        f"trained on {row['data']}, epsilon {row['epsilon']:g}, {row['rule']} rule (k = {row['k']}): "
        f"accuracy {row['accuracy']:.4f}"
        for row in trained
    ]
    across = "epsilon of a client's report"
    panels = [
        Panel(
            f"{name}, d = {d}: loss against the best k",
            across,
            "more variance, in %",
            [_curve(rule, _thin(_of(rows, name, d)), f"{rule}_k", f"{rule}_loss", 100) for rule in K_RULES],
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
            [
                _curve(rule, [r for r in measured if r["rule"] == rule], "k", "squared_error")
                for rule in K_RULES
            ],
            log_y=True,
        ),
        Panel(
            f"Measured: {trained[0]['data']}, {trained[0]['reports']:,} reports",
            across,
            "accuracy on held-out records",
            [_curve(rule, [r for r in trained if r["rule"] == rule], "k", "accuracy") for rule in K_RULES],
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


def _of(rows: list[Row], name: str, d: int) -> list[Row]:
    return [row for row in rows if row["mechanism"] == name and row["d"] == d]


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


def _measure(options: Options) -> list[Row]:
    clients = 10_000 if options.quick else 50_000
    runs = options.runs_or(40, 4)
    values = synthetic.attributes(clients, _D, mean=1 / 3, seed=options.seed).numeric
    rows = []
    for epsilon in (2.0, 4.9) if options.quick else (1.0, 2.0, 3.0, 4.0, 4.9, 6.0, 7.4, 8.0):
        for rule in K_RULES:
            options.progress(f"measuring {rule}, epsilon {epsilon:g}")
            k = coordinates_by_rule(rule, round(epsilon * MICRO), _D)
            card = card_of(_MECHANISM, round(epsilon * MICRO) // k)
            asked = collection(values, epsilon=f"{epsilon:g}", k=k, card=card.data.hex())
            seeds = range(options.seed, options.seed + 1000 * runs, 1000)
            mean, error = mean_and_error([squared_error(found) for found in repeated(asked, seeds)])
            rows.append(
                {
                    "rule": rule,
                    "epsilon": epsilon,
                    "k": k,
                    "clients": clients,
                    "squared_error": mean,
                    "standard_error": error,
                    "runs": runs,
                }
            )
    return rows


def _train(options: Options) -> list[Row]:
    dataset = two_classes(options.dataset or "synthetic-logistic")
    runs = options.runs_or(10, 2)
    reports = min(len(dataset.training), 10_000 if options.quick else 30_000)
    rows: list[Row] = []
    for epsilon in (2.0, 4.9) if options.quick else (1.0, 2.0, 3.0, 4.0, 4.9, 6.0, 7.4, 8.0):
        of_k: dict[int, Row] = {}
        for rule in K_RULES:
            options.progress(f"training, {rule}, epsilon {epsilon:g}")
            k = coordinates_by_rule(rule, round(epsilon * MICRO), dataset.dimension)
            if k not in of_k:
                card = card_of(_MECHANISM, round(epsilon * MICRO) // k)
                found = []
                for seed in range(options.seed, options.seed + runs):
                    asked = sgd(dataset, reports, seed, epsilon=f"{epsilon:g}", k=k, card=card.data.hex())
                    found.append(judging.accuracy(dataset, simulate(asked, seed).weights))
                mean, error = mean_and_error(found)
                of_k[k] = {
                    "data": dataset.name,
                    "reports": reports,
                    "epsilon": epsilon,
                    "k": k,
                    "accuracy": mean,
                    "standard_error": error,
                    "runs": runs,
                }
            rows.append({"rule": rule, **of_k[k]})
    return rows
