"""Worst-case variance against epsilon: every mechanism as stated and as its card is, and who is least where.

Tables I and II of Zhao et al. (2021) say which of two mechanisms has the smaller worst-case variance on which side of
an epsilon; these crossings are solved for here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from matplotlib.figure import Figure
from scipy.optimize import brentq

from ternhost import mechanisms
from ternhost.errors import UsageError
from ternhost.experiments.base import Curve, Options, Outcome, Panel, Row, card_of, draw, known
from ternhost.mechanisms import (
    certify,
    duchi,
    hybrid,
    laplace,
    lower_bound,
    parse_epsilon,
    pdpm,
    piecewise,
    shipped,
    three_outputs,
)

_BOUND = "lower bound, any mechanism"
SUMMARY = "worst-case variance of every mechanism against epsilon, and the crossings of Tables I and II"

Variance = Callable[[float], float]

# As the papers state them, continuous where they are.
STATED: dict[str, Variance] = {
    "laplace": laplace.worst_variance,
    "duchi": duchi.worst_variance,
    "pm": lambda e: piecewise.worst_variance(e, piecewise.t_pm(e)),
    "hm": hybrid.hm_worst_variance,
    "three-outputs": three_outputs.worst_variance,
    "pm-sub": lambda e: piecewise.worst_variance(e, piecewise.t_sub(e)),
    "pm-opt": lambda e: piecewise.worst_variance(e, piecewise.t_opt(e)),
    "hm-tp": hybrid.hm_tp_worst_variance,
    "pdpm": pdpm.worst_variance,
    "3r": three_outputs.better_worst_variance,
}
# Tables I and II; the crossing is between these epsilons.
CROSSINGS = (
    ("pm", "duchi", 1, 1.6),
    ("duchi", "laplace", 2, 3),
    ("pm-sub", "duchi", 1, 1.6),
    ("pm-sub", "three-outputs", 2, 3),
    ("pm", "three-outputs", 3, 4),
)
_LEVELS = {"laplace": 1023, "pm": 255, "pm-sub": 255, "pm-opt": 255}
_OPTIMAL = (4, 8, 16)


def crossing(first: str, second: str, low: float, high: float) -> float:
    """The epsilon at which two mechanisms have the same worst-case variance."""
    return float(brentq(lambda e: STATED[first](e) - STATED[second](e), low, high, xtol=1e-12))


def of_card(name: str, epsilon: str, levels: int | None) -> float:
    """The worst-case variance of a mechanism's card: exact, from its integers."""
    return float(certify.moments(card_of(name, parse_epsilon(epsilon), levels)).worst_variance()[0])


def run(options: Options) -> Outcome:
    if options.dataset is not None:
        raise UsageError("the experiment 'variance' uses no data set", hint="leave --dataset out")
    epsilons = [1.0, 2.0] if options.quick else [0.25 * i for i in range(2, 25)]
    drawn: dict[str, Callable[[str], float]] = {
        name: partial(of_card, name, levels=_LEVELS.get(name)) for name in known(*STATED)
    }
    if "optimal" in mechanisms.NAMES:
        drawn |= {
            f"optimal, {m} levels": partial(of_card, "optimal", levels=m)
            for m in _OPTIMAL
            if not options.quick or all(shipped.load("optimal", parse_epsilon(e), m) for e in epsilons)
        }
    rows: list[Row] = []
    for epsilon in epsilons:
        options.progress(f"epsilon {epsilon:g}")
        for name, variance in drawn.items():
            stated = STATED[name](epsilon) if name in STATED else None
            rows.append(
                {"epsilon": epsilon, "mechanism": name, "card": variance(str(epsilon)), "stated": stated}
            )
        if (2 * epsilon).is_integer():  # it may take a minute
            bound = lower_bound.worst_variance(epsilon)
            rows.append({"epsilon": epsilon, "mechanism": _BOUND, "card": None, "stated": bound})
    crossings = [
        {"first": first, "second": second, "epsilon": crossing(first, second, low, high)}
        for first, second, low, high in CROSSINGS
    ]
    lines = [f"{row['first']} and {row['second']} cross at epsilon {row['epsilon']:.6f}" for row in crossings]
    for epsilon in [row["epsilon"] for row in rows if row["mechanism"] == _BOUND]:
        own = [row for row in rows if row["epsilon"] == epsilon]
        best = min((row for row in own if row["card"]), key=lambda row: row["card"])
        bound = next(row["stated"] for row in own if row["mechanism"] == _BOUND)
        lines.append(
            f"epsilon {epsilon:g}: least is {best['mechanism']} with {best['card']:.5g}; none is below {bound:.5g}"
        )
    return Outcome(
        "variance",
        {"epsilons": epsilons, "levels": _LEVELS},
        {"variance": rows, "crossings": crossings},
        {"variance": _figure(rows, list(drawn))},
        lines,
    )


def _figure(rows: list[Row], names: list[str]) -> Figure:
    bound = {row["epsilon"]: row["stated"] for row in rows if row["mechanism"] == _BOUND}
    absolute, relative = [], []
    for name in names:
        own = [row for row in rows if row["mechanism"] == name]
        x = [row["epsilon"] for row in own]
        absolute.append(Curve(name, x, [row["card"] for row in own]))
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
