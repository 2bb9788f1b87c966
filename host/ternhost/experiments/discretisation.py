"""How many levels are enough: PM-SUB as a card of N levels, and discretised by the paper's Algorithm 5.

Algorithm 5 of Zhao et al. (2021) draws the continuous output in [-A, A] and rounds it at random to one of the two
multiples of A / m beside it. That is unbiased and adds variance, and in floating point it is not exactly private. A
card needs no rounding, since its window consists of levels."""

import math
from typing import Any

import numpy as np

from tern.card import decode
from ternhost.experiments.base import DATASET, Contender, Options, Outcome, load, two_classes
from ternhost.experiments.cells import Cell, Row, Tables
from ternhost.experiments.pictures import Curve, Panel, draw
from ternhost.experiments.rounds import figure_of, learned, optimal_figures
from ternhost.experiments.statistics import averaged, pick, values_of
from ternhost.learn.judging import WORDS, measure
from ternhost.privacy import certify
from ternhost.privacy.base import MICRO
from ternhost.privacy.mechanisms import design, piecewise

_KINDS = {"card, paper's window": "paper", "card, best window": "best"}
_ROUNDED = "Algorithm 5"
_EPSILONS = (1.0, 4.0)


def cells(options: Options) -> list[Cell]:
    levels = [3, 7, 15, 63, 255] if options.quick else [3, 5, 7, 11, 15, 31, 63, 127, 255]
    dataset, reports = two_classes(options.dataset or DATASET).name, 20_000 if options.quick else 80_000
    training = {"dataset": dataset, "reports": reports, "seeds": options.seeds(10, 2)}
    choices: dict[str, Any] = {"epsilon": _EPSILONS, "levels": levels}
    return [
        *Cell.each("discretisation", _variances, {}, cost=lambda levels, **_: levels / 255, **choices),
        *Cell.each("trained", _trained, training, **choices),
    ]


def _variances(epsilon: float, levels: int) -> list[Row]:
    t = piecewise.t_sub(epsilon)
    continuous = piecewise.worst_variance(epsilon, t)
    variances = {}
    for kind, window in _KINDS.items():
        card = decode(design("pm-sub", str(epsilon), levels, window=window).card)
        variances[kind] = float(certify.moments(card).worst_variance()[0])
    points = np.linspace(0, 1, 101)
    variances[_ROUNDED] = max(discretised_variance(epsilon, t, levels // 2, x) for x in points)
    return [
        {"epsilon": epsilon, "levels": levels, "kind": kind, "over_continuous": variance / continuous}
        for kind, variance in variances.items()
    ]


def piecewise_bound(epsilon: float, t: float) -> float:
    """A, the largest output of the continuous piecewise mechanism of parameter t."""
    e = math.exp(epsilon)
    return (e + t) * (t + 1) / (t * (e - 1))


def discretised_variance(epsilon: float, t: float, m: int, x: float) -> float:
    """Variance at x of the piecewise mechanism of parameter t, rounded to steps of A / m by Algorithm 5."""
    e = math.exp(epsilon)
    bound = piecewise_bound(epsilon, t)
    step = bound / m
    half = bound / (t + 1)
    middle = x * bound * t / (t + 1)
    low, high = middle - half, middle + half
    near = e / (t + e) / (2 * half)
    far = t / (t + e) / (2 * bound - 2 * half)
    added = far * _rounding(-bound, bound, step) + (near - far) * _rounding(low, high, step)
    return piecewise.variance(epsilon, t, x) + added


def _rounding(a: float, b: float, step: float) -> float:
    """The integral over [a, b] of the variance that rounding adds: step**2 f (1 - f), f the fraction of a step."""

    def antiderivative(y: float) -> float:
        whole = math.floor(y / step)
        f = y / step - whole
        return step**3 * (whole / 6 + f * f / 2 - f**3 / 3)

    return antiderivative(b) - antiderivative(a)


def _trained(dataset: str, epsilon: float, levels: int, reports: int, seeds: range) -> list[Row]:
    data = load(dataset)
    card = Contender("pm-sub", levels).card(round(epsilon * MICRO)).data.hex()
    reports = min(len(data.training), reports)
    learners = learned(data, reports, seeds, epsilon=f"{epsilon:g}", k=1, card=card)
    setting = {"dataset": dataset, "reports": reports, "epsilon": epsilon, "levels": levels}
    figures = averaged("figure", [figure_of(learner) for learner in learners])
    optimum = optimal_figures(data, "logistic")[measure(data)]
    return [{**setting, "measure": measure(data), **figures, "optimum": optimum}]


def outcome(options: Options, tables: Tables) -> Outcome:
    rows, trained = tables["discretisation"], tables["trained"]
    panels, models = [], []
    y_label, known = "ratio to the continuous mechanism", {"continuous": 1.0}
    for epsilon in _EPSILONS:
        title = f"Worst-case variance of PM-SUB, epsilon {epsilon:g}"
        curves = Curve.each(pick(rows, epsilon=epsilon), "kind", "levels", "over_continuous")
        panels.append(Panel(title, "levels", y_label, curves, log_x=True, lines=known))
        of_epsilon = pick(trained, epsilon=epsilon)
        models.append(Curve.of(f"trained, epsilon {epsilon:g}", of_epsilon, "levels", "figure"))
    first = trained[0]
    title = f"Logistic regression on {first['dataset']}, {first['reports']:,} reports"
    y_label, known = f"{WORDS[first['measure']]} on held-out records", {"without privacy": first["optimum"]}
    panels.append(Panel(title, "levels", y_label, models, log_x=True, lines=known))
    lines = [
        f"epsilon {row['epsilon']:g}, {row['levels']} levels, {row['kind']}: {row['over_continuous']:.4f} times the "
        "variance of the continuous mechanism"
        for row in rows
        if row["levels"] in (15, 255)
    ]
    kept = {"discretisation": rows, "trained": trained}
    return Outcome({"levels": values_of(rows, "levels")}, kept, {"discretisation": draw(panels)}, lines)
