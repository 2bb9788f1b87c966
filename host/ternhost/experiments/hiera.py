"""HierA: error against the share mu of reports reused, distributions, and what a report truly costs.

Five ranges with budgets (5, 4, 3, 2, 1) e from the top one down. Beside it Duchi's mechanism, once at the epsilon that
the paper states for the pair of level and value, once at the true one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ternhost import datasets
from ternhost.algorithms import levels as system
from ternhost.algorithms.base import Audience
from ternhost.algorithms.collect import HIERA
from ternhost.algorithms.hiera import HierA
from ternhost.datasets import synthetic
from ternhost.experiments.base import Curve, Options, Outcome, Panel, Row, card_of, draw, mean_and_error
from ternhost.experiments.rounds import GROUPS, collection, repeated, simulate
from ternhost.mechanisms.base import MICRO

SUMMARY = "HierA's error against mu, over distributions, beside its true joint loss"

_BUDGETS = (5, 4, 3, 2, 1)
_UNITS = (0.1, 0.5, 1.0)


def levels(unit: float) -> system.Levels:
    """The paper's five levels, with budgets in this unit."""
    return system.levels([round(budget * unit * MICRO) for budget in _BUDGETS])


def _asked(of: system.Levels) -> dict[str, Any]:
    """The options that mean these levels."""
    return {"epsilon": str(of.epsilon / MICRO), "budgets": ",".join(map(str, _BUDGETS))}


def _values(options: Options, clients: int) -> dict[str, datasets.Fixed]:
    if options.dataset is not None:
        features = datasets.load(options.dataset).features
        return {f"{options.dataset}, its second feature": features[:clients, 1]}
    shapes = {
        "uniform": {"shape": "uniform"},
        "Gaussian, mean -0.5": {"mean": -0.5},
        "Gaussian, mean 0.5": {"mean": 0.5},
        "power law": {"shape": "power"},
    }
    return {
        name: synthetic.attributes(clients, 1, seed=options.seed, **choice).numeric[:, 0]  # type: ignore[arg-type]
        for name, choice in shapes.items()
    }


def run(options: Options) -> Outcome:
    clients = 20_000 if options.quick else 100_000
    runs = options.runs_or(200, 20)
    shares = [0.0, 0.5, 1.0] if options.quick else [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    rows: list[Row] = []
    losses = []
    for unit in _UNITS:
        of = levels(unit)
        stated, true = of.epsilon_stated, of.epsilon
        losses.append({"unit": unit, "epsilon_stated": stated / MICRO, "epsilon_true": true / MICRO})
        for name, values in _values(options, clients).items():
            options.progress(f"unit {unit:g}, {name}")
            truth = float(values.mean()) / (1 << 14)
            seeds = range(options.seed, options.seed + runs)
            asked = collection(values[:, None], method=HIERA, **_asked(of))
            counts = [found.counts[0] for found in repeated(asked, seeds)]
            for mu in shares:
                found = [
                    float(system.combine([(of, own[0])], mu, seed=seed)[0])
                    for own, seed in zip(counts, seeds, strict=True)
                ]
                rows.append(_row(name, unit, f"HierA, mu {mu:g}", mu, found, truth))
            for kind, epsilon in (("stated", stated), ("true", true)):
                card = card_of("duchi", min(epsilon, 20 * MICRO))
                asked = collection(values[:, None], epsilon=str(epsilon / MICRO), card=card.data.hex())
                found = [one.result([])["attributes"][0]["mean"] for one in repeated(asked, seeds)]
                rows.append(_row(name, unit, f"Duchi at the {kind} epsilon", None, found, truth))
    regression = _regression(options)
    return Outcome(
        "hiera",
        {"clients": clients, "runs": runs, "budgets": _BUDGETS},
        {"hiera": rows, "losses": losses, "regression": regression},
        {"hiera": draw(_panels(rows), 2), "hiera-regression": draw([_regression_panel(regression)])},
        [
            *(
                f"unit {row['unit']:g}: the paper states epsilon {row['epsilon_stated']:g}, a report costs "
                f"{row['epsilon_true']:.3f}"
                for row in losses
            ),
            "reusing reports (mu > 0) adds noise: mu = 0 has the least error"
            if all(_error_at(rows, row, 0.0) <= _error_at(rows, row, 1.0) for row in rows if row["mu"] == 0)
            else "reusing reports (mu > 0) did not add noise everywhere: too few runs to tell",
        ],
    )


def _row(name: str, unit: float, kind: str, mu: float | None, found: list[float], truth: float) -> Row:
    squared, error = mean_and_error([(value - truth) ** 2 for value in found])
    bias, bias_error = mean_and_error([value - truth for value in found])
    return {
        "data": name,
        "unit": unit,
        "estimate": kind,
        "mu": mu,
        "squared_error": squared,
        "standard_error": error,
        "bias": bias,
        "bias_standard_error": bias_error,
        "runs": len(found),
    }


def _error_at(rows: list[Row], like: Row, mu: float) -> float:
    return next(
        float(row["squared_error"])
        for row in rows
        if (row["data"], row["unit"], row["mu"]) == (like["data"], like["unit"], mu)
    )


def _panels(rows: list[Row]) -> list[Panel]:
    panels = []
    for name in dict.fromkeys(row["data"] for row in rows):
        curves = []
        for unit in _UNITS:
            own = [row for row in rows if row["data"] == name and row["unit"] == unit]
            reused = [row for row in own if row["mu"] is not None]
            x = [row["mu"] for row in reused]
            errors = [row["standard_error"] for row in reused]
            curves.append(Curve(f"HierA, e = {unit:g}", x, [row["squared_error"] for row in reused], errors))
            for kind in ("stated", "true"):
                height = next(
                    row["squared_error"] for row in own if row["estimate"] == f"Duchi at the {kind} epsilon"
                )
                curves.append(
                    Curve(f"Duchi at the {kind} epsilon, e = {unit:g}", x[:: len(x) - 1], [height] * 2)
                )
        panels.append(
            Panel(name, "mu, share of reports reused", "mean squared error of the mean", curves, log_y=True)
        )
    return panels


def _regression(options: Options) -> list[Row]:
    dataset = datasets.load("synthetic-linear")
    reports = min(len(dataset.training), 20_000 if options.quick else 80_000)
    rows = []
    for unit in _UNITS:
        of = levels(unit)
        for mu in (0.0, 1.0):
            options.progress(f"regression, unit {unit:g}, mu {mu:g}")
            found = []
            for seed in range(options.seed, options.seed + (2 if options.quick else 5)):
                asked = HierA.Options(
                    model="linear",
                    reports=reports,
                    group=max(1, reports // GROUPS),
                    mu=mu,
                    seed=seed,
                    **_asked(of),
                )
                learner = simulate(HierA(asked, Audience(clients=reports), dataset), seed)
                found.append(learner.result([]))
            mean, error = mean_and_error([result["squared_error"] for result in found])
            rows.append(
                {
                    "unit": unit,
                    "mu": mu,
                    "reports": reports,
                    "squared_error": mean,
                    "standard_error": error,
                    "nonprivate": float(np.mean([result["squared_error_optimum"] for result in found])),
                    "epsilon_true": of.epsilon / MICRO,
                }
            )
    return rows


def _regression_panel(rows: list[Row]) -> Panel:
    return Panel(
        f"Linear regression by mini-batches, {rows[0]['reports']:,} reports",
        "true epsilon of a client's report",
        "squared error on held-out records",
        [
            Curve(
                f"HierA, mu {mu:g}",
                [row["epsilon_true"] for row in rows if row["mu"] == mu],
                [row["squared_error"] for row in rows if row["mu"] == mu],
                [row["standard_error"] for row in rows if row["mu"] == mu],
            )
            for mu in (0.0, 1.0)
        ],
        log_y=True,
        lines={"without noise": min(row["nonprivate"] for row in rows)},
    )
