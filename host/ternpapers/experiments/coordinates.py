"""How many coordinates to report: rules for k, compared with the best k at every epsilon.

Each of n clients reports k of d coordinates, each at epsilon / k, so that the mean of a coordinate
rests on n k / d reports. The variance of the mean is

    d / (k n) times the mean over clients of (V(x) + (x - mean)**2)

where V(x) is the variance of a report of x at epsilon / k, which is noise, and the other term comes
from choosing clients at random. (The papers divide by all n clients, which gives
d / (k n) (V(x) + x**2) - x**2 / n: more if the mean is far from 0.) A larger k means less sampling
and more noise, so the best k depends on the values. For values spread evenly over [-1, 1] it is
computed how much each rule loses. For other values and for training, errors are measured.
"""

import math
from collections.abc import Callable
from itertools import product

import numpy as np

from ternhost.datasets import Fixed, to_fixed
from ternhost.datasets.shipped import synthetic
from ternhost.learn.designs import K_RULES, coordinates_by_rule
from ternhost.learn.models import judging
from ternhost.learn.models.judging import WORDS
from ternhost.planning.cells import Cell, Row, Tables
from ternhost.planning.simulation import collection, figure_of, learned, repeated, squared_error
from ternhost.planning.statistics import averaged, grouped, pick, values_of
from ternhost.plots.curves import Curve, Panel, draw
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.base import MICRO
from ternpapers.base import DATASET, Contender, Options, Outcome, load, two_classes

_DIMENSIONS = (2, 16)
_D = 16  # the number of coordinates where errors are measured
_MOST_K = 8  # the largest k where errors are measured
_MOST_POINTS = 50  # a curve has about so many points
_MECHANISM = "hm-tp"  # the mechanism where errors are measured
_POINTS = np.linspace(0, 1, 41)
_ONE = "one"  # k = 1 at every epsilon
RULES = (*K_RULES, _ONE)
_KINDS = ("spread evenly", "around 1/3", "-1 or 1", "nearly all 0.9")
_X_LABEL = "epsilon of a client's report"
_LAWS = {
    name: mechanisms.REGISTRY.named(name).variance
    for name in ("three-outputs", "pm-sub", "hm-tp", "duchi")
}
VARIANCES: dict[str, Callable[[float, float], float]] = {
    name: law for name, law in _LAWS.items() if law is not None
}


def even(variance: Callable[[float, float], float], epsilon: float) -> float:
    """Return the mean of V(x) + x**2 over x spread evenly over [-1, 1].

    variance: returns V(x), called with epsilon and x. Since V is even, x from 0 to 1 is enough.
    """
    squares = [variance(epsilon, x) + x * x for x in _POINTS]
    return float(np.trapezoid(squares, _POINTS))


def _k(rule: str, epsilon: float, d: int, variance: Callable[[int], float]) -> int:
    """Return how many of d coordinates a rule reports.

    variance: returns the mean of V(x) + x**2 of a coordinate at epsilon / k, called with k.
    """
    if rule == _ONE:
        return 1
    return coordinates_by_rule(rule, round(epsilon * MICRO), d, variance)


def cells(options: Options) -> list[Cell]:
    """Return the computations that compare rules for k, the number of reported coordinates.

    Each of these cells is one call of a function (`work`) with one choice of arguments, whose rows
    go into a table. The variances follow from formulas; the errors of means and of trained models
    are measured on simulated devices. A cost is a relative duration. With --quick the cells are
    fewer and smaller.
    """
    grid = {"count": 151, "step": 0.05}
    epsilons: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0, 4.9, 6.0, 7.4, 8.0)
    clients, reports = 50_000, 30_000
    if options.quick:
        grid = {"count": 16, "step": 0.5}
        epsilons = (2.0, 4.9)
        clients, reports = 10_000, 10_000

    dataset = two_classes(options.data or DATASET).name
    seeds_of_collecting = options.seeds(default=40, quick=4, step=1000)
    seeds_of_training = options.seeds(default=10, quick=2)
    by_law = Cell.for_each_combination(
        table="coordinates",
        work=_by_law,
        common=grid,
        cost=0.01 * grid["count"],
        d=_DIMENSIONS,
        name=VARIANCES,
    )
    measured = Cell.for_each_combination(
        table="measured",
        work=_measured,
        common={"clients": clients, "seeds": seeds_of_collecting},
        cost=2,
        epsilon=epsilons,
        kind=_KINDS,
    )
    trained = Cell.for_each_combination(
        table="trained",
        work=_trained,
        common={"dataset": dataset, "reports": reports, "seeds": seeds_of_training},
        cost=10,
        epsilon=epsilons,
    )
    return [*by_law, *measured, *trained]


def _by_law(name: str, d: int, count: int, step: float) -> list[Row]:
    """Compute the losses of the rules for a mechanism, by the formula of its variance.

    name: a key of VARIANCES. count, step: how many values of epsilon, from 0.5 on, and how far
    apart.
    """
    rows: list[Row] = []
    for i in range(count):
        epsilon = round(0.5 + i * step, 2)
        losses = _losses(VARIANCES[name], epsilon, d)
        rows.append({"mechanism": name, "d": d, "epsilon": epsilon, **losses})
    return rows


def outcome(options: Options, tables: Tables) -> Outcome:
    """Return the tables with their lines of text and one picture."""
    rows, measured, trained = tables["coordinates"], tables["measured"], tables["trained"]
    lines = _words_of_losses(rows) + _words_of_measurements(measured, trained)
    panels = [*_panels_of_losses(rows), *_panels_of_means(measured), _panel_of_training(trained)]
    return Outcome(
        settings={"dimensions": _DIMENSIONS},
        tables={"coordinates": rows, "measured": measured, "trained": trained},
        figures={"coordinates": draw(panels, columns=2)},
        lines=lines,
    )


def _words_of_losses(rows: list[Row]) -> list[str]:
    """Return lines on the largest loss of each rule, by mechanism and number of coordinates."""
    lines = []
    for (d, name), group in grouped(rows, "d", "mechanism").items():
        for rule in RULES:
            largest = max(row[f"{rule}_loss"] for row in group)
            lines.append(
                f"{name}, {d} coordinates: the error with {_named(rule)} is up to {largest:.1%} "
                "above the error with the best k"
            )
    return lines


def _words_of_measurements(measured: list[Row], trained: list[Row]) -> list[str]:
    """Return lines on the errors of means and the figures of models with each rule."""
    lines = []
    for row in measured:
        case = f"values {row['values']}, epsilon {row['epsilon']:g}"
        rule = _named(row["rule"], row["k"])
        lines.append(f"measured, {case}, {rule}: squared error {row['squared_error']:.3g}")
    for row in trained:
        case = f"{row['data']}, epsilon {row['epsilon']:g}"
        rule = _named(row["rule"], row["k"])
        figure = f"{WORDS[row['measure']]} {row['figure']:.4f}"
        lines.append(f"trained on {case}, {rule}: {figure}")
    return lines


def _panels_of_losses(rows: list[Row]) -> list[Panel]:
    """Return a panel with a curve for each rule, for each mechanism and number of coordinates d.

    A rule chooses k, how many coordinates a client reports. Its loss is by how much the variance
    exceeds that with the best k; it is drawn in per cent over epsilon.
    """
    step = max(1, len(values_of(rows, "epsilon")) // _MOST_POINTS)  # draws each step-th point
    panels = []
    for name, d in product(VARIANCES, _DIMENSIONS):
        if name == "duchi":  # only in the table, not in the picture
            continue
        points = pick(rows, mechanism=name, d=d)[::step]
        curves = []
        for rule in RULES:
            curves.append(_curve(rule, points, f"{rule}_k", f"{rule}_loss", factor=100))
        title = f"{name}, d = {d}: loss compared with the best k"
        panels.append(Panel(title, _X_LABEL, "additional variance, in %", curves))
    return panels


def _panels_of_means(measured: list[Row]) -> list[Panel]:
    """Return a panel of the rules' measured errors for each kind of values."""
    panels = []
    for (kind,), group in grouped(measured, "values").items():
        curves = [_curve(rule, pick(group, rule=rule), "k", "squared_error") for rule in RULES]
        title = f"Measured: values {kind}, {group[0]['clients']:,} clients, {_MECHANISM}"
        y_label = "mean squared error of a mean"
        panels.append(Panel(title, _X_LABEL, y_label, curves, log_y=True))
    return panels


def _panel_of_training(trained: list[Row]) -> Panel:
    """Return a panel of the figures of models with each rule."""
    curves = [_curve(rule, pick(trained, rule=rule), "k", "figure") for rule in RULES]
    first = trained[0]
    title = f"Measured: {first['data']}, {first['reports']:,} reports"
    return Panel(title, _X_LABEL, f"{WORDS[first['measure']]} on held-out records", curves)


def _named(rule: str, k: int | None = None) -> str:
    """Return the name of a rule for people, with the number of coordinates if it is given."""
    if rule == _ONE:
        return "k = 1"
    words = f"the {rule} rule"
    if k:
        words += f" (k = {k})"
    return words


def _losses(variance: Callable[[float, float], float], epsilon: float, d: int) -> Row:
    """Return the best k, the k of each rule, and how much more variance the rule has than the best.

    The variance of a mean is in proportion to the mean of V(x) + x**2, divided by k. variance: as
    of `even`.
    """

    def variance_of_report(k: int) -> float:
        """Return the mean of V(x) + x**2 of a coordinate at epsilon / k."""
        return even(variance, epsilon / k)

    variances = {}
    most = min(d, math.ceil(epsilon))  # a larger k leaves a coordinate less than epsilon 1
    for k in range(1, most + 1):
        variances[k] = variance_of_report(k) / k
    best = min(variances, key=lambda k: variances[k])
    row: Row = {"best_k": best, "best_variance": variances[best]}
    for rule in RULES:
        k = _k(rule, epsilon, d, variance_of_report)
        variance_by_rule = variance_of_report(k) / k
        row[f"{rule}_k"] = k
        row[f"{rule}_loss"] = variance_by_rule / variances[best] - 1
    return row


def _curve(rule: str, rows: list[Row], k: str, figure: str, factor: float = 1) -> Curve:
    """Return the curve of one of a rule's columns, times `factor`, by epsilon.

    k: the name of the column that has the rule's k. figure: that of the column to draw. The line is
    broken where k changes, since the values jump there.
    """
    points = []
    for index, row in enumerate(rows):
        if index > 0 and row[k] != rows[index - 1][k]:
            points.append((row["epsilon"], math.nan, 0.0))  # breaks the line
        standard_error = row.get("standard_error", 0.0)
        points.append((row["epsilon"], factor * row[figure], standard_error))
    x, y, error = zip(*points, strict=True)
    return Curve(_named(rule), x, y, error)


def _values(kind: str, clients: int, seed: int) -> Fixed:
    """Draw the values of each client, a matrix of clients x _D numbers in [-1, 1].

    kind: how they are distributed, one of _KINDS; the last kind is a normal distribution around 0.9.
    """
    rng = np.random.default_rng(seed)
    if kind == "around 1/3":
        return synthetic.attributes(clients, _D, mean=1 / 3, seed=seed).numeric
    if kind == "spread evenly":
        return to_fixed(rng.uniform(-1, 1, (clients, _D)))
    if kind == "-1 or 1":
        return to_fixed(rng.choice((-1, 1), (clients, _D)))
    return to_fixed(rng.normal(0.9, 0.02, (clients, _D)))


def _measured(kind: str, epsilon: float, clients: int, seeds: range) -> list[Row]:
    """Measure the squared error of means with the k of each rule, for one kind of values."""
    values = _values(kind, clients, seeds[0])

    def errors(k: int, card: str) -> list[float]:
        """Return the squared error of each run. card: that of a coordinate, in hexadecimal."""
        algorithm = collection(values, epsilon=f"{epsilon:g}", k=k, card=card)
        return [squared_error(collected) for collected in repeated(algorithm, seeds)]

    common = {"values": kind, "clients": clients}
    return _by_rule(epsilon, _D, common, figure="squared_error", measure=errors)


def _trained(dataset: str, epsilon: float, reports: int, seeds: range) -> list[Row]:
    """Measure how good models are that are trained with the k of each rule.

    k is how many coordinates of its gradient a client reports. reports: how many clients report, at
    most as many as there are training records. seeds: one for each run.
    """
    data = load(dataset)
    reports = min(len(data.training), reports)

    def figures(k: int, card: str) -> list[float]:
        """Return the figure of the model of each run. card: as in `_measured`."""
        learners = learned(data, reports, seeds, epsilon=f"{epsilon:g}", k=k, card=card)
        return [figure_of(learner) for learner in learners]

    common = {"data": dataset, "reports": reports, "measure": judging.measure(data)}
    return _by_rule(epsilon, data.dimension, common, figure="figure", measure=figures)


def _by_rule(
    epsilon: float, d: int, common: Row, figure: str, measure: Callable[[int, str], list[float]]
) -> list[Row]:
    """Return a row for each rule, with its k and what is measured, averaged over runs.

    d: the number of coordinates. common: columns that all rows have. figure: the name of the column
    of what is measured. measure: called with k and the card of a coordinate in hexadecimal, once
    for each k that a rule chooses; it returns the value of each run.
    """
    mechanism = Contender(_MECHANISM)
    cards = {}
    for k in range(1, min(d, _MOST_K) + 1):
        cards[k] = mechanism.card(round(epsilon * MICRO) // k)

    def second_moment(k: int) -> float:
        """Return the mean of V(x) + x**2 of a coordinate at epsilon / k, by its card."""
        return certify.moments(cards[k]).even_second_moment()

    rows: list[Row] = []
    figures: dict[int, Row] = {}
    for rule in RULES:
        k = _k(rule, epsilon, d, second_moment)
        if k not in figures:
            figures[k] = averaged(figure, measure(k, cards[k].data.hex()))
        rows.append({"rule": rule, **common, "epsilon": epsilon, "k": k, **figures[k]})
    return rows
