"""Worst-case variance by epsilon of every mechanism: as stated in the papers, and of its card.

Tables I and II of Zhao et al. (2021) state at which epsilons the worst-case variances of two
mechanisms cross; here the equations are solved.
"""

import math
from collections.abc import Sequence

from matplotlib.figure import Figure
from scipy.optimize import brentq

from ternhost.errors import UsageError
from ternhost.planning.cells import Cell, Row, Tables
from ternhost.planning.statistics import pick, values_of
from ternhost.plots.curves import Curve, Panel, draw
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.mechanisms import lower_bound, parse_epsilon, shipped
from ternpapers.base import Contender, Options, Outcome, others
from ternpapers.formula import worst_variance

_BOUND = "lower bound, any mechanism"
# Two mechanisms of Tables I and II, and an interval of epsilon that contains their crossing.
CROSSINGS = (
    ("pm", "duchi", 1, 1.6),
    ("duchi", "laplace", 2, 3),
    ("pm-sub", "duchi", 1, 1.6),
    ("pm-sub", "three-outputs", 2, 3),
    ("pm", "three-outputs", 3, 4),
)


def crossing(first: str, second: str, low: float, high: float) -> float:
    """The epsilon at which two mechanisms have the same worst-case variance."""
    return float(
        brentq(
            lambda e: worst_variance(first)(e) - worst_variance(second)(e), low, high, xtol=1e-12
        )
    )


def _drawn(options: Options, epsilons: Sequence[float]) -> dict[str, Contender]:
    """The mechanisms by label.

    The quick version leaves out those whose cards would have to be searched for.
    """
    curves: dict[str, Contender] = {}
    for name, mechanism in mechanisms.REGISTRY.items():
        if not (mechanism.worst_variance or mechanism.drawn or name in others()):
            continue
        for levels in mechanism.drawn or (mechanism.levels,):
            ready = (shipped.load(name, parse_epsilon(epsilon), levels) for epsilon in epsilons)
            if not (options.quick and mechanism.slow) or all(ready):
                label = f"{name}, {levels} levels" if len(mechanism.drawn) > 1 else name
                curves[label] = Contender(name, levels)
    if options.contender is not None:
        curves[options.contender.label] = options.contender
    return curves


def of_card(contender: Contender, epsilon: str) -> float:
    """The worst-case variance of a mechanism's card: exact, from its integers."""
    return float(certify.moments(contender.card(parse_epsilon(epsilon))).worst_variance()[0])


def cells(options: Options) -> list[Cell]:
    if options.dataset is not None:
        raise UsageError("the experiment 'variance' uses no data set", hint="leave --dataset out")
    epsilons = [1.0, 2.0] if options.quick else [0.25 * i for i in range(2, 25)]
    drawn = _drawn(options, epsilons)
    steps = lower_bound.STEPS // 2 if options.quick else lower_bound.STEPS
    bounds = [
        Cell(
            "variance",
            _bounded,
            {"epsilon": epsilon, "steps": steps},
            cost=5 * math.exp(epsilon / 2.2),
        )
        for epsilon in epsilons
        if (2 * epsilon).is_integer()
    ]
    return bounds + [
        Cell(
            "variance",
            _measured,
            {"epsilon": epsilon, "label": label, "contender": contender},
            cost=0.2,
        )
        for epsilon in epsilons
        for label, contender in drawn.items()
    ]


def _bounded(epsilon: float, steps: int) -> list[Row]:
    bound = lower_bound.worst_variance(epsilon, steps)
    return [{"epsilon": epsilon, "mechanism": _BOUND, "card": None, "stated": bound}]


def _measured(epsilon: float, label: str, contender: Contender) -> list[Row]:
    formula = mechanisms.REGISTRY.named(contender.name).worst_variance
    card, stated = of_card(contender, str(epsilon)), formula and formula(epsilon)
    return [{"epsilon": epsilon, "mechanism": label, "card": card, "stated": stated}]


def outcome(options: Options, tables: Tables) -> Outcome:
    rows = sorted(tables["variance"], key=lambda row: float(row["epsilon"]))
    crossings = [
        {"first": first, "second": second, "epsilon": crossing(first, second, low, high)}
        for first, second, low, high in CROSSINGS
    ]
    text = "{first} and {second} have the same worst-case variance at epsilon {epsilon:.6f}"
    lines = [text.format(**row) for row in crossings]
    for bound in pick(rows, mechanism=_BOUND):
        certified = [row for row in pick(rows, epsilon=bound["epsilon"]) if row["card"]]
        best = min(certified, key=lambda row: float(row["card"]))
        line = (
            f"epsilon {bound['epsilon']:g}: {best['mechanism']} has the least worst-case variance, "
        )
        line += f"{best['card']:.5g}; no mechanism has less than {bound['stated']:.5g}"
        lines.append(line)
    kept = {"variance": rows, "crossings": crossings}
    return Outcome(
        {"epsilons": values_of(rows, "epsilon")}, kept, {"variance": _figure(rows)}, lines
    )


def _figure(rows: list[Row]) -> Figure:
    bound = {row["epsilon"]: row["stated"] for row in pick(rows, mechanism=_BOUND)}
    absolute = [Curve(_BOUND, list(bound), list(bound.values()), everywhere=True)]
    relative = []
    for name in values_of(rows, "mechanism"):
        if name != _BOUND:
            of_name = pick(rows, mechanism=name)
            absolute.append(Curve.of(name, of_name, "epsilon", "card"))
            ratios = [
                row["card"] / bound[row["epsilon"]] for row in of_name if row["epsilon"] in bound
            ]
            relative.append(Curve(name, list(bound), ratios))
    variance = "variance of a report of x in [-1, 1]"
    panels = [Panel("Worst-case variance of one report", "epsilon", variance, absolute, log_y=True)]
    panels += [
        Panel("The same, relative to the lower bound", "epsilon", "ratio", relative, log_y=True)
    ]
    panels += [Panel("The same, enlarged", "epsilon", "ratio", relative, limits=(0.99, 1.5))]
    return draw(panels)
