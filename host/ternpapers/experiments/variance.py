"""Compares the worst-case variance of every mechanism, by epsilon.

It is computed by the formula of its paper, and exactly from the integers of its card, the table
from which devices draw a report.

Tables I and II of Zhao et al. (2021) state at which epsilons the worst-case variances of two
mechanisms cross; here the equations are solved.
"""

import math
from collections.abc import Sequence
from itertools import product

from matplotlib.figure import Figure

from ternhost.errors import UsageError
from ternhost.planning.cells import Cell, Row, Tables
from ternhost.planning.statistics import pick, values_of
from ternhost.plots.curves import Curve, Panel, draw
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.mechanisms import lower_bound, parse_epsilon, shipped
from ternpapers.base import Contender, Options, Outcome, others
from ternpapers.orders import OF_EXISTING, OF_PROPOSED

_BOUND = "lower bound, any mechanism"


def _drawn(options: Options, epsilons: Sequence[float]) -> dict[str, Contender]:
    """Return the mechanisms to draw, by label.

    They are those with a formula, those whose variance with some numbers of levels is to be drawn,
    and those of other packages. The quick version leaves out those whose cards would have to be
    searched for.
    """
    curves: dict[str, Contender] = {}
    for name, mechanism in mechanisms.REGISTRY.items():
        is_drawn = mechanism.worst_variance or mechanism.drawn or name in others()
        if not is_drawn:
            continue
        numbers_of_levels = mechanism.drawn or (mechanism.levels,)
        for levels in numbers_of_levels:
            is_slow = options.quick and mechanism.slow
            if is_slow and not _are_shipped(name, levels, epsilons):
                continue
            label = name
            if len(mechanism.drawn) > 1:
                label += f", {levels} levels"
            curves[label] = Contender(name, levels)
    if options.contender is not None:
        curves[options.contender.label] = options.contender
    return curves


def _are_shipped(name: str, levels: int | None, epsilons: Sequence[float]) -> bool:
    """Return whether the cards of a mechanism at these epsilons come with tern.

    Other cards have to be searched for, which takes long.
    """
    cards = [shipped.load(name, parse_epsilon(epsilon), levels) for epsilon in epsilons]
    return all(cards)


def of_card(contender: Contender, epsilon: str) -> float:
    """Return the worst-case variance of a mechanism's card, computed exactly from its integers."""
    card = contender.card(parse_epsilon(epsilon))
    variance, _ = certify.moments(card).worst_variance()
    return float(variance)


def cells(options: Options) -> list[Cell]:
    """Return a computation for each epsilon and mechanism, and for each lower bound.

    Such a cell is one call of `_measured` or `_bounded`, whose rows go into the table "variance". A
    lower bound, below which no mechanism can be, takes long, and the longer the larger epsilon is.
    So only multiples of 1/2 have one. Raises UsageError for the option of a data set.
    """
    if options.data is not None:
        raise UsageError("the experiment 'variance' uses no data set", hint="leave --data out")
    epsilons = [0.25 * i for i in range(2, 25)]
    steps = lower_bound.STEPS
    if options.quick:
        epsilons = [1.0, 2.0]
        steps //= 2

    cells = []
    for epsilon in epsilons:
        if (2 * epsilon).is_integer():
            arguments = {"epsilon": epsilon, "steps": steps}
            cost = 5 * math.exp(epsilon / 2.2)  # a relative duration
            cells.append(Cell("variance", _bounded, arguments, cost))
    drawn = _drawn(options, epsilons)
    for epsilon, (label, contender) in product(epsilons, drawn.items()):
        case = {"epsilon": epsilon, "label": label, "contender": contender}
        cells.append(Cell("variance", _measured, case, cost=0.2))
    return cells


def _bounded(epsilon: float, steps: int) -> list[Row]:
    """Return the lower bound on the worst-case variance of all mechanisms, as one row.

    steps: into how many steps the inputs from 0 to 1 are divided to compute it.
    """
    bound = lower_bound.worst_variance(epsilon, steps)
    return [{"epsilon": epsilon, "mechanism": _BOUND, "card": None, "stated": bound}]


def _measured(epsilon: float, label: str, contender: Contender) -> list[Row]:
    """Return the worst-case variances of a mechanism, by its card and by its formula, as one row."""
    formula = mechanisms.REGISTRY.named(contender.name).worst_variance
    stated = None
    if formula is not None:
        stated = formula(epsilon)
    card = of_card(contender, str(epsilon))
    return [{"epsilon": epsilon, "mechanism": label, "card": card, "stated": stated}]


def outcome(options: Options, tables: Tables) -> Outcome:
    """Return the variances, the epsilons of the papers' crossings, and a picture."""
    rows = sorted(tables["variance"], key=lambda row: float(row["epsilon"]))
    crossings: list[Row] = []
    lines = []
    for crossing in dict.fromkeys((*OF_EXISTING, *OF_PROPOSED)):  # each of both tables once
        first, second, epsilon = crossing.first, crossing.second, crossing.epsilon()
        crossings.append({"first": first, "second": second, "epsilon": epsilon})
        both = f"{first} and {second} have the same worst-case variance"
        lines.append(f"{both} at epsilon {epsilon:.6f}")
    for bound in pick(rows, mechanism=_BOUND):
        # The variances of the cards at the epsilon of the bound, which itself has no card.
        with_card = [row for row in pick(rows, epsilon=bound["epsilon"]) if row["card"]]
        best = min(with_card, key=lambda row: float(row["card"]))
        lines.append(
            f"epsilon {bound['epsilon']:g}: {best['mechanism']} has the least worst-case variance, "
            f"{best['card']:.5g}; no mechanism has less than {bound['stated']:.5g}"
        )
    return Outcome(
        settings={"epsilons": values_of(rows, "epsilon")},
        tables={"variance": rows, "crossings": crossings},
        figures={"variance": _figure(rows)},
        lines=lines,
    )


def _figure(rows: list[Row]) -> Figure:
    """Draw the variances of the cards, and their ratios to the lower bound."""
    bounds = {}  # by epsilon
    for row in pick(rows, mechanism=_BOUND):
        bounds[row["epsilon"]] = row["stated"]
    absolute = [Curve(_BOUND, list(bounds), list(bounds.values()), everywhere=True)]
    relative = []
    for name in values_of(rows, "mechanism"):
        if name == _BOUND:
            continue
        mechanism_rows = pick(rows, mechanism=name)
        absolute.append(Curve.of(name, mechanism_rows, "epsilon", "card"))
        ratios = []
        for row in mechanism_rows:
            if row["epsilon"] in bounds:
                ratios.append(row["card"] / bounds[row["epsilon"]])
        relative.append(Curve(name, list(bounds), ratios))
    variance = "variance of a report of x in [-1, 1]"
    relative_title = "The same, relative to the lower bound"
    return draw(
        [
            Panel("Worst-case variance of one report", "epsilon", variance, absolute, log_y=True),
            Panel(relative_title, "epsilon", "ratio", relative, log_y=True),
            Panel("The same, enlarged", "epsilon", "ratio", relative, limits=(0.99, 1.5)),
        ]
    )
