"""How many levels are enough: PM-SUB as a card of N levels, and as the paper discretises it (Algorithm 5).

Algorithm 5 of Zhao et al. (2021) draws the continuous output and rounds it at random to one of 2m + 1 equal steps of
[-A, A]. That is unbiased, and adds variance; in floating point it is also not exactly private. The window of a card
consists of levels from the start.
"""

from __future__ import annotations

import math

import numpy as np

from tern.card import decode
from ternhost.experiments.base import DATASET, Options, Outcome, card_of, load, two_classes
from ternhost.experiments.cells import Cell, Row, Tables
from ternhost.experiments.pictures import Curve, Panel, draw
from ternhost.experiments.rounds import figure_of, learned, optimal_figures
from ternhost.experiments.statistics import averaged, pick, values_of
from ternhost.learn.judging import WORDS, measure
from ternhost.privacy import certify
from ternhost.privacy.base import MICRO
from ternhost.privacy.mechanisms import design, piecewise

SUMMARY = "levels of PM-SUB against variance and accuracy, as cards and by the paper's Algorithm 5"

_KINDS = {"card, paper's window": "paper", "card, best window": "best"}
_ROUNDED = "Algorithm 5"
_EPSILONS = (1.0, 4.0)


def cells(options: Options) -> list[Cell]:
    levels = [3, 7, 15, 63, 255] if options.quick else [3, 5, 7, 11, 15, 31, 63, 127, 255]
    name = two_classes(options.dataset or DATASET).name
    training = {
        "dataset": name,
        "reports": 20_000 if options.quick else 80_000,
        "seeds": options.seeds(10, 2),
    }
    return [
        *Cell.each("discretisation", _variances, {}, _cost, epsilon=_EPSILONS, levels=levels),
        *Cell.each("trained", _trained, training, epsilon=_EPSILONS, levels=levels),
    ]


def _cost(levels: int, **_: object) -> float:
    return levels / 255


def _variances(epsilon: float, levels: int) -> list[Row]:
    t = piecewise.t_sub(epsilon)
    best = piecewise.worst_variance(epsilon, t)
    worst = {}
    for kind, window in _KINDS.items():
        card = decode(design("pm-sub", str(epsilon), levels, window=window).card)
        worst[kind] = float(certify.moments(card).worst_variance()[0])
    points = np.linspace(0, 1, 101)
    worst[_ROUNDED] = max(discretised_variance(epsilon, t, levels // 2, x) for x in points)
    return [
        {"epsilon": epsilon, "levels": levels, "kind": kind, "over_continuous": value / best}
        for kind, value in worst.items()
    ]


def piecewise_bound(epsilon: float, t: float) -> float:
    """A, the largest output of the continuous piecewise mechanism of parameter t."""
    e = math.exp(epsilon)
    return (e + t) * (t + 1) / (t * (e - 1))


def discretised_variance(epsilon: float, t: float, m: int, x: float) -> float:
    """Variance at x of the piecewise mechanism of parameter t after Algorithm 5 (exact but for rounding)."""
    e = math.exp(epsilon)
    bound = piecewise_bound(epsilon, t)
    step = bound / m
    half = bound / (t + 1)
    middle = x * bound * t / (t + 1)
    low, high = middle - half, middle + half
    near = e / (t + e) / (2 * half)
    far = t / (t + e) / (2 * bound - 2 * half)
    total = far * _rounding(-bound, bound, step) + (near - far) * _rounding(low, high, step)
    return piecewise.variance(epsilon, t, x) + total


def _rounding(a: float, b: float, step: float) -> float:
    """The integral over [a, b] of the variance that rounding adds, step**2 f (1 - f), f the fraction of a step."""

    def primitive(y: float) -> float:
        whole = math.floor(y / step)
        f = y / step - whole
        return step**3 * (whole / 6 + f * f / 2 - f**3 / 3)

    return primitive(b) - primitive(a)


def _trained(dataset: str, epsilon: float, levels: int, reports: int, seeds: range) -> list[Row]:
    data = load(dataset)
    card = card_of("pm-sub", round(epsilon * MICRO), levels).data.hex()
    reports = min(len(data.training), reports)
    learners = learned(data, reports, seeds, epsilon=f"{epsilon:g}", k=1, card=card)
    return [
        {
            "dataset": dataset,
            "reports": reports,
            "epsilon": epsilon,
            "levels": levels,
            "measure": measure(data),
            **averaged("figure", [figure_of(learner) for learner in learners]),
            "optimum": optimal_figures(data, "logistic")[measure(data)],
        }
    ]


def outcome(options: Options, tables: Tables) -> Outcome:
    rows, trained = tables["discretisation"], tables["trained"]
    panels = [
        Panel(
            f"Worst-case variance of PM-SUB, epsilon {epsilon:g}",
            "levels",
            "ratio to the continuous mechanism",
            Curve.each(pick(rows, epsilon=epsilon), "kind", "levels", "over_continuous"),
            log_x=True,
            lines={"continuous": 1.0},
        )
        for epsilon in _EPSILONS
    ]
    first = trained[0]
    panels.append(
        Panel(
            f"Logistic regression on {first['dataset']}, {first['reports']:,} reports",
            "levels",
            f"{WORDS[first['measure']]} on held-out records",
            [
                Curve.of(f"trained, epsilon {epsilon:g}", pick(trained, epsilon=epsilon), "levels", "figure")
                for epsilon in _EPSILONS
            ],
            log_x=True,
            lines={"without privacy": first["optimum"]},
        )
    )
    lines = [
        f"epsilon {row['epsilon']:g}, {row['levels']} levels, {row['kind']}: {row['over_continuous']:.4f} of continuous"
        for row in rows
        if row["levels"] in (15, 255)
    ]
    return Outcome(
        {"levels": values_of(rows, "levels")},
        {"discretisation": rows, "trained": trained},
        {"discretisation": draw(panels)},
        lines,
    )
