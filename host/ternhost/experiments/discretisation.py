"""How many levels are enough: PM-SUB as a card of N levels, and as the paper discretises it (Algorithm 5).

Algorithm 5 of Zhao et al. (2021) draws the continuous output and rounds it at random to one of 2m + 1 equal steps of
[-A, A]. That is unbiased, and adds variance; in floating point it is also not exactly private. A card of N levels has
its window made of levels to begin with.
"""

from __future__ import annotations

import numpy as np

from tern.card import decode
from ternhost.algorithms import judging
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
from ternhost.experiments.rounds import sgd, simulate
from ternhost.mechanisms import certify, design, piecewise
from ternhost.mechanisms.base import MICRO
from ternhost.mechanisms.discretise import discretised_variance

SUMMARY = "levels of PM-SUB against variance and accuracy, as cards and by the paper's Algorithm 5"


def run(options: Options) -> Outcome:
    levels = [3, 7, 15, 63, 255] if options.quick else [3, 5, 7, 11, 15, 31, 63, 127, 255]
    rows: list[Row] = []
    panels = []
    for epsilon in (1.0, 4.0):
        best = piecewise.worst_variance(epsilon, piecewise.t_sub(epsilon))
        kinds: dict[str, list[float]] = {
            "card, paper's window": [],
            "card, best window": [],
            "Algorithm 5": [],
        }
        for n in levels:
            options.progress(f"epsilon {epsilon:g}, {n} levels")
            for kind, window in (("card, paper's window", "paper"), ("card, best window", "best")):
                card = decode(design("pm-sub", str(epsilon), n, window=window).card)
                kinds[kind].append(float(certify.moments(card).worst_variance()[0]) / best)
            t = piecewise.t_sub(epsilon)
            worst = max(discretised_variance(epsilon, t, n // 2, x) for x in np.linspace(0, 1, 101))
            kinds["Algorithm 5"].append(worst / best)
        for kind, ratios in kinds.items():
            rows += [
                {"epsilon": epsilon, "levels": n, "kind": kind, "over_continuous": ratio}
                for n, ratio in zip(levels, ratios, strict=True)
            ]
        panels.append(
            Panel(
                f"Worst-case variance of PM-SUB, epsilon {epsilon:g}",
                "levels",
                "ratio to the continuous mechanism",
                [Curve(kind, levels, ratios) for kind, ratios in kinds.items()],
                log_x=True,
                lines={"continuous": 1.0},
            )
        )
    accuracies = _accuracies(options, levels)
    panels.append(
        Panel(
            f"Logistic regression on {accuracies[0]['dataset']}, {accuracies[0]['reports']:,} reports",
            "levels",
            "accuracy on held-out records",
            [
                Curve(
                    f"accuracy, epsilon {epsilon:g}",
                    levels,
                    [row["accuracy"] for row in accuracies if row["epsilon"] == epsilon],
                    [row["standard_error"] for row in accuracies if row["epsilon"] == epsilon],
                )
                for epsilon in (1.0, 4.0)
            ],
            log_x=True,
            lines={"without privacy": accuracies[0]["accuracy_optimum"]},
        )
    )
    lines = [
        f"epsilon {row['epsilon']:g}, {row['levels']} levels, {row['kind']}: {row['over_continuous']:.4f} of continuous"
        for row in rows
        if row["levels"] in (15, 255)
    ]
    return Outcome(
        "discretisation",
        {"levels": levels},
        {"discretisation": rows, "accuracy": accuracies},
        {"discretisation": draw(panels)},
        lines,
    )


def _accuracies(options: Options, levels: list[int]) -> list[Row]:
    dataset = two_classes(options.dataset or "synthetic-logistic")
    reports = min(len(dataset.training), 20_000 if options.quick else 80_000)
    runs = options.runs_or(10, 2)
    rows = []
    for epsilon in (1.0, 4.0):
        for n in levels:
            options.progress(f"training at epsilon {epsilon:g}, {n} levels")
            card = card_of("pm-sub", round(epsilon * MICRO), n)
            found = []
            for seed in range(options.seed, options.seed + runs):
                asked = sgd(dataset, reports, seed, epsilon=f"{epsilon:g}", k=1, card=card.data.hex())
                learner = simulate(asked, seed)
                found.append(judging.accuracy(dataset, learner.weights))
            mean, error = mean_and_error(found)
            rows.append(
                {
                    "dataset": dataset.name,
                    "reports": reports,
                    "epsilon": epsilon,
                    "levels": n,
                    "accuracy": mean,
                    "standard_error": error,
                    "accuracy_optimum": judging.accuracy(dataset, learner.optimum()),
                    "runs": runs,
                }
            )
    return rows
