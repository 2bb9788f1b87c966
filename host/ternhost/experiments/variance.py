"""Worst-case variance against epsilon: of every mechanism as stated and of its card, and which one is least where.

Tables I and II of Zhao et al. (2021) say which of two mechanisms has the smaller worst-case variance on which side of
an epsilon; these crossings are solved for here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure
from scipy.optimize import brentq

from ternhost.errors import UsageError
from ternhost.experiments.base import Contender, Options, Outcome
from ternhost.experiments.cells import Cell, Row, Tables
from ternhost.experiments.pictures import Curve, Panel, draw
from ternhost.experiments.statistics import pick, values_of
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.mechanisms import lower_bound, parse_epsilon, shipped

_BOUND = "lower bound, any mechanism"
SUMMARY = "worst-case variance of every mechanism against epsilon, and the crossings of Tables I and II"

# Tables I and II; the crossing is between these epsilons.
CROSSINGS = (
    ("pm", "duchi", 1, 1.6),
    ("duchi", "laplace", 2, 3),
    ("pm-sub", "duchi", 1, 1.6),
    ("pm-sub", "three-outputs", 2, 3),
    ("pm", "three-outputs", 3, 4),
)


def crossing(first: str, second: str, low: float, high: float) -> float:
    """The epsilon at which two mechanisms have the same worst-case variance."""
    return float(brentq(lambda e: _stated(first, e) - _stated(second, e), low, high, xtol=1e-12))


def _stated(name: str, epsilon: float) -> float:
    """The worst-case variance that the paper states."""
    formula = mechanisms.REGISTRY.named(name).worst_variance
    assert formula is not None
    return formula(epsilon)


def _drawn(options: Options, epsilons: Sequence[float]) -> dict[str, Contender]:
    """The curves by label; a quick look leaves out those whose cards would have to be searched for."""
    curves: dict[str, Contender] = {}
    for name, mechanism in mechanisms.REGISTRY.items():
        if not (mechanism.worst_variance or mechanism.drawn or name in mechanisms.added()):
            continue
        for levels in mechanism.drawn or (mechanism.levels,):
            ready = (shipped.load(name, parse_epsilon(epsilon), levels) for epsilon in epsilons)
            if not (options.quick and mechanism.slow) or all(ready):
                label = f"{name}, {levels} levels" if len(mechanism.drawn) > 1 else name
                curves[label] = Contender(name, levels)
    if options.contender is not None:
        curves[options.contender.label] = options.contender
    return curves


def of_card(of: Contender, epsilon: str) -> float:
    """The worst-case variance of a mechanism's card: exact, from its integers."""
    return float(certify.moments(of.card(parse_epsilon(epsilon))).worst_variance()[0])


def _grid(options: Options) -> list[float]:
    return [1.0, 2.0] if options.quick else [0.25 * i for i in range(2, 25)]


def cells(options: Options) -> list[Cell]:
    if options.dataset is not None:
        raise UsageError("the experiment 'variance' uses no data set", hint="leave --dataset out")
    epsilons = _grid(options)
    drawn = _drawn(options, epsilons)
    steps = lower_bound.STEPS // 2 if options.quick else lower_bound.STEPS
    bounds = [
        Cell("variance", _bounded, {"epsilon": epsilon, "steps": steps}, cost=5 * math.exp(epsilon / 2.2))
        for epsilon in epsilons
        if (2 * epsilon).is_integer()
    ]
    return bounds + [
        Cell("variance", _measured, {"epsilon": epsilon, "label": label, "of": of}, cost=0.2)
        for epsilon in epsilons
        for label, of in drawn.items()
    ]


def _bounded(epsilon: float, steps: int) -> list[Row]:
    bound = lower_bound.worst_variance(epsilon, steps)
    return [{"epsilon": epsilon, "mechanism": _BOUND, "card": None, "stated": bound}]


def _measured(epsilon: float, label: str, of: Contender) -> list[Row]:
    formula = mechanisms.REGISTRY.named(of.name).worst_variance
    card, stated = of_card(of, str(epsilon)), formula and formula(epsilon)
    return [{"epsilon": epsilon, "mechanism": label, "card": card, "stated": stated}]


def outcome(options: Options, tables: Tables) -> Outcome:
    rows = sorted(tables["variance"], key=lambda row: float(row["epsilon"]))
    names = [name for name in values_of(rows, "mechanism") if name != _BOUND]
    crossings = [
        {"first": first, "second": second, "epsilon": crossing(first, second, low, high)}
        for first, second, low, high in CROSSINGS
    ]
    lines = [f"{row['first']} and {row['second']} cross at epsilon {row['epsilon']:.6f}" for row in crossings]
    for bound in pick(rows, mechanism=_BOUND):
        own = [row for row in pick(rows, epsilon=bound["epsilon"]) if row["card"]]
        best = min(own, key=lambda row: float(row["card"]))
        lines.append(
            f"epsilon {bound['epsilon']:g}: least is {best['mechanism']} with {best['card']:.5g}; "
            f"none is below {bound['stated']:.5g}"
        )
    return Outcome(
        {"epsilons": _grid(options)},
        {"variance": rows, "crossings": crossings},
        {"variance": _figure(rows, names)},
        lines,
    )


def _figure(rows: list[Row], names: list[str]) -> Figure:
    bound = {row["epsilon"]: row["stated"] for row in pick(rows, mechanism=_BOUND)}
    absolute, relative = [], []
    for name in names:
        own = pick(rows, mechanism=name)
        absolute.append(Curve.of(name, own, "epsilon", "card"))
        ratios = [row["card"] / bound[row["epsilon"]] for row in own if row["epsilon"] in bound]
        relative.append(Curve(name, list(bound), ratios))
    absolute.append(Curve(_BOUND, list(bound), list(bound.values()), everywhere=True))
    variance = "variance of a report of x in [-1, 1]"
    return draw(
        [
            Panel("Worst-case variance of one report", "epsilon", variance, absolute, log_y=True),
            Panel("The same, over the lower bound", "epsilon", "ratio", relative, log_y=True),
            Panel("The same, close up", "epsilon", "ratio", relative, limits=(0.99, 1.5)),
        ]
    )
