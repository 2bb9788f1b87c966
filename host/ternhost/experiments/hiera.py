"""HierA: error against the share mu of reports reused, distributions, and what a report truly costs.

Five ranges with budgets (5, 4, 3, 2, 1) e from the top one down. Beside it Duchi's mechanism, once at the epsilon that
the paper states for the pair of level and value, once at the true one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tern.fixed import ONE
from ternhost import datasets
from ternhost.algorithms import levels as system
from ternhost.algorithms.base import Audience
from ternhost.algorithms.collect import HIERA
from ternhost.algorithms.hiera import HierA
from ternhost.datasets import synthetic
from ternhost.experiments.base import Options, Outcome, card_of, load
from ternhost.experiments.cells import Cell, Row, Tables
from ternhost.experiments.pictures import Curve, Panel, draw
from ternhost.experiments.rounds import GROUPS, collection, figure_of, optimal_figures, repeated, simulate
from ternhost.experiments.statistics import mean_and_error
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


_SHAPES: dict[str, dict[str, Any]] = {
    "uniform": {"shape": "uniform"},
    "Gaussian, mean -0.5": {"mean": -0.5},
    "Gaussian, mean 0.5": {"mean": 0.5},
    "power law": {"shape": "power"},
}


def _values(source: str, clients: int, seed: int) -> datasets.Fixed:
    if source in _SHAPES:
        return synthetic.attributes(clients, 1, seed=seed, **_SHAPES[source]).numeric[:, 0]
    return load(source).features[:clients, 1]


def cells(options: Options) -> list[Cell]:
    common = {
        "clients": 20_000 if options.quick else 100_000,
        "runs": options.runs_or(200, 20),
        "shares": (0.0, 0.5, 1.0) if options.quick else (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
        "seed": options.seed,
    }
    sources = [options.dataset] if options.dataset else list(_SHAPES)
    return [
        Cell("hiera", _estimated, {"unit": unit, "source": source, **common}, cost=10)
        for unit in _UNITS
        for source in sources
    ] + [
        Cell(
            "regression",
            _trained,
            {
                "unit": unit, "mu": mu, "reports": 20_000 if options.quick else 80_000,
                "runs": options.runs_or(5, 2), "seed": options.seed,
            },
        )
        for unit in _UNITS
        for mu in (0.0, 1.0)
    ]  # fmt: skip


def _estimated(
    unit: float, source: str, clients: int, runs: int, shares: Sequence[float], seed: int
) -> list[Row]:
    of = levels(unit)
    values = _values(source, clients, seed)
    truth = float(values.mean()) / ONE
    seeds = range(seed, seed + runs)
    asked = collection(values[:, None], method=HIERA, **_asked(of))
    counts = [found.counts[0] for found in repeated(asked, seeds)]
    rows = []
    for mu in shares:
        found = [
            float(system.combine([(of, own[0])], mu, seed=one)[0])
            for own, one in zip(counts, seeds, strict=True)
        ]
        rows.append(_row(source, unit, f"HierA, mu {mu:g}", mu, found, truth))
    for kind, epsilon in (("stated", of.epsilon_stated), ("true", of.epsilon)):
        card = card_of("duchi", min(epsilon, 20 * MICRO))
        asked = collection(values[:, None], epsilon=str(epsilon / MICRO), card=card.data.hex())
        found = [one.result([])["attributes"][0]["mean"] for one in repeated(asked, seeds)]
        rows.append(_row(source, unit, f"Duchi at the {kind} epsilon", None, found, truth))
    return rows


def outcome(options: Options, tables: Tables) -> Outcome:
    rows, regression = tables["hiera"], tables["regression"]
    losses = [
        {"unit": unit, "epsilon_stated": of.epsilon_stated / MICRO, "epsilon_true": of.epsilon / MICRO}
        for unit in _UNITS
        for of in [levels(unit)]
    ]
    return Outcome(
        "hiera",
        {"budgets": _BUDGETS, "runs": rows[0]["runs"]},
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


def _trained(unit: float, mu: float, reports: int, runs: int, seed: int) -> list[Row]:
    of = levels(unit)
    dataset = load("synthetic-linear")
    found = []
    for one in range(seed, seed + runs):
        asked = HierA.Options(
            model="linear", reports=reports, group=max(1, reports // GROUPS), mu=mu, seed=one, **_asked(of)
        )
        found.append(figure_of(simulate(HierA(asked, Audience(clients=reports), dataset), one)))
    mean, error = mean_and_error(found)
    return [
        {
            "unit": unit,
            "mu": mu,
            "reports": reports,
            "squared_error": mean,
            "standard_error": error,
            "optimum": optimal_figures(dataset, "linear")["squared_error"],
            "epsilon_true": of.epsilon / MICRO,
        }
    ]


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
        lines={"without privacy": rows[0]["optimum"]},
    )
