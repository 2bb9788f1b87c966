"""How many coordinates to report: the rules for k, and k = 1, compared with the best k at every
epsilon.

A client reports k of d coordinates at epsilon / k each, so the mean of a coordinate rests on n k /
d of n reports. Its variance is d / (k n) times V(x) + (x - mean)**2: the noise of a card of epsilon
/ k, and the sampling of clients. (The papers divide by all n clients, which gives d / (k n) (V(x) +
x**2) - x**2 / n: more if the mean is far from 0.) A larger k means less sampling and more noise, so
the best k depends on the values. For values spread evenly over [-1, 1], the losses of the rules are
computed. For other values and for training, the errors are measured.
"""

import math
from collections.abc import Callable
from itertools import product

import numpy as np

from ternhost.datasets import Fixed, synthetic, to_fixed
from ternhost.learn import judging
from ternhost.learn.designs import K_RULES, coordinates_by_rule
from ternhost.learn.judging import WORDS
from ternhost.planning.cells import Cell, Row, Tables
from ternhost.planning.simulation import collection, figure_of, learned, repeated, squared_error
from ternhost.planning.statistics import averaged, grouped, pick, values_of
from ternhost.plots.curves import Curve, Panel, draw
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.base import MICRO
from ternpapers.base import DATASET, Contender, Options, Outcome, load, two_classes

_DIMENSIONS = (2, 16)
_D = 16  # of the measured values
_MOST_K = 8
_MECHANISM = "hm-tp"
_POINTS = np.linspace(0, 1, 41)
_ONE = "one"  # k = 1 at every epsilon
RULES = (*K_RULES, _ONE)
_KINDS = ("spread evenly", "around 1/3", "-1 or 1", "nearly all 0.9")
VARIANCES: dict[str, Callable[[float, float], float]] = {
    name: law
    for name in ("three-outputs", "pm-sub", "hm-tp", "duchi")
    if (law := mechanisms.REGISTRY.named(name).variance)
}


def even(variance: Callable[[float, float], float], epsilon: float) -> float:
    """The mean of V(x) + x**2 over x spread evenly over [-1, 1]."""
    return float(np.trapezoid([variance(epsilon, x) + x * x for x in _POINTS], _POINTS))


def _k(rule: str, epsilon: float, d: int, variance: Callable[[int], float]) -> int:
    return 1 if rule == _ONE else coordinates_by_rule(rule, round(epsilon * MICRO), d, variance)


def cells(options: Options) -> list[Cell]:
    count, step = (16, 0.5) if options.quick else (151, 0.05)
    grid = {"count": count, "step": step}
    measuring = {
        "clients": 10_000 if options.quick else 50_000,
        "seeds": options.seeds(40, 4, 1000),
    }
    dataset, reports = (
        two_classes(options.dataset or DATASET).name,
        10_000 if options.quick else 30_000,
    )
    training = {"dataset": dataset, "reports": reports, "seeds": options.seeds(10, 2)}
    epsilons = (2.0, 4.9) if options.quick else (1.0, 2.0, 3.0, 4.0, 4.9, 6.0, 7.4, 8.0)
    return [
        *Cell.each("coordinates", _by_law, grid, cost=0.01 * count, d=_DIMENSIONS, name=VARIANCES),
        *Cell.each("measured", _measured, measuring, cost=2, epsilon=epsilons, kind=_KINDS),
        *Cell.each("trained", _trained, training, cost=10, epsilon=epsilons),
    ]


def _by_law(name: str, d: int, count: int, step: float) -> list[Row]:
    epsilons = [round(0.5 + i * step, 2) for i in range(count)]
    losses = ({"epsilon": epsilon, **_losses(VARIANCES[name], epsilon, d)} for epsilon in epsilons)
    return [{"mechanism": name, "d": d, **row} for row in losses]


def outcome(options: Options, tables: Tables) -> Outcome:
    rows, measured, trained = (tables[name] for name in ("coordinates", "measured", "trained"))
    lines = [
        f"{name}, {d} coordinates: the error with {_named(rule)} is up to "
        f"{max(row[f'{rule}_loss'] for row in group):.1%} above the error with the best k"
        for (d, name), group in grouped(rows, "d", "mechanism").items()
        for rule in RULES
    ]
    lines += [
        f"measured, values {row['values']}, epsilon {row['epsilon']:g}, {_named(row['rule'], row['k'])}: "
        f"squared error {row['squared_error']:.3g}"
        for row in measured
    ]
    lines += [
        f"trained on {row['data']}, epsilon {row['epsilon']:g}, {_named(row['rule'], row['k'])}: "
        f"{WORDS[row['measure']]} {row['figure']:.4f}"
        for row in trained
    ]
    x_label = "epsilon of a client's report"
    every = max(1, len(values_of(rows, "epsilon")) // 50)  # at most about 50 points of a curve
    panels = []
    for name, d in product([name for name in VARIANCES if name != "duchi"], _DIMENSIONS):
        drawn = pick(rows, mechanism=name, d=d)[::every]
        curves = [_curve(rule, drawn, f"{rule}_k", f"{rule}_loss", 100) for rule in RULES]
        title = f"{name}, d = {d}: loss compared with the best k"
        panels.append(Panel(title, x_label, "additional variance, in %", curves))
    for (kind,), group in grouped(measured, "values").items():
        curves = [_curve(rule, pick(group, rule=rule), "k", "squared_error") for rule in RULES]
        title = f"Measured: values {kind}, {group[0]['clients']:,} clients, {_MECHANISM}"
        panels.append(Panel(title, x_label, "mean squared error of a mean", curves, log_y=True))
    curves = [_curve(rule, pick(trained, rule=rule), "k", "figure") for rule in RULES]
    title = f"Measured: {trained[0]['data']}, {trained[0]['reports']:,} reports"
    panels.append(
        Panel(title, x_label, f"{WORDS[trained[0]['measure']]} on held-out records", curves)
    )
    kept = {"coordinates": rows, "measured": measured, "trained": trained}
    return Outcome({"dimensions": _DIMENSIONS}, kept, {"coordinates": draw(panels, 2)}, lines)


def _named(rule: str, k: int | None = None) -> str:
    return "k = 1" if rule == _ONE else f"the {rule} rule" + (f" (k = {k})" if k else "")


def _losses(variance: Callable[[float, float], float], epsilon: float, d: int) -> Row:
    """The best k, the k of each rule, and the variance that the rule loses, relative to the best."""

    def of_one(k: int) -> float:
        return even(variance, epsilon / k)

    variances = {k: of_one(k) / k for k in range(1, min(d, math.ceil(epsilon)) + 1)}
    best = min(variances, key=lambda k: variances[k])
    row: Row = {"best_k": best, "best_variance": variances[best]}
    for rule in RULES:
        k = _k(rule, epsilon, d, of_one)
        row[f"{rule}_k"] = k
        row[f"{rule}_loss"] = of_one(k) / k / variances[best] - 1
    return row


def _curve(rule: str, rows: list[Row], k: str, figure: str, factor: float = 1) -> Curve:
    """A rule's figure by epsilon.

    The line is broken where the rule's k changes, since the figure jumps there.
    """
    points = []
    for i, row in enumerate(rows):
        if i and row[k] != rows[i - 1][k]:
            points.append((row["epsilon"], math.nan, 0.0))
        points.append((row["epsilon"], factor * row[figure], row.get("standard_error", 0.0)))
    x, y, error = zip(*points, strict=True)
    return Curve(_named(rule), x, y, error)


def _values(kind: str, clients: int, seed: int) -> Fixed:
    rng = np.random.default_rng(seed)
    if kind == "around 1/3":
        return synthetic.attributes(clients, _D, mean=1 / 3, seed=seed).numeric
    if kind == "spread evenly":
        return to_fixed(rng.uniform(-1, 1, (clients, _D)))
    if kind == "-1 or 1":
        return to_fixed(rng.choice((-1, 1), (clients, _D)))
    return to_fixed(rng.normal(0.9, 0.02, (clients, _D)))


def _measured(kind: str, epsilon: float, clients: int, seeds: range) -> list[Row]:
    values = _values(kind, clients, seeds[0])

    def errors(k: int, card: str) -> list[float]:
        algorithm = collection(values, epsilon=f"{epsilon:g}", k=k, card=card)
        return [squared_error(collected) for collected in repeated(algorithm, seeds)]

    return _by_rule(epsilon, _D, {"values": kind, "clients": clients}, "squared_error", errors)


def _trained(dataset: str, epsilon: float, reports: int, seeds: range) -> list[Row]:
    data = load(dataset)
    reports = min(len(data.training), reports)

    def figures(k: int, card: str) -> list[float]:
        learners = learned(data, reports, seeds, epsilon=f"{epsilon:g}", k=k, card=card)
        return [figure_of(learner) for learner in learners]

    common = {"data": dataset, "reports": reports, "measure": judging.measure(data)}
    return _by_rule(epsilon, data.dimension, common, "figure", figures)


def _by_rule(
    epsilon: float, d: int, common: Row, figure: str, measure: Callable[[int, str], list[float]]
) -> list[Row]:
    """A row for each rule. The figure is measured once for each k."""
    rows, figures = [], {}
    mechanism = Contender(_MECHANISM)
    cards = {k: mechanism.card(round(epsilon * MICRO) // k) for k in range(1, min(d, _MOST_K) + 1)}
    for rule in RULES:
        k = _k(rule, epsilon, d, lambda k: certify.moments(cards[k]).even_second_moment())
        if k not in figures:
            figures[k] = averaged(figure, measure(k, cards[k].data.hex()))
        rows.append({"rule": rule, **common, "epsilon": epsilon, "k": k, **figures[k]})
    return rows
