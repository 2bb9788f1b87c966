"""Error of estimated means against epsilon: Gaussian attributes, and the features of a data set.

The paper has 16 dimensions and Gaussians of means 0, 1/3, 2/3 and 1, cut at -1 and 1. Every client reports k of its d
attributes (Algorithm 6 of Zhao et al. 2021). The error is the mean of the squared errors of the
d means, over the runs. The optimal card has the least mean second moment where all values are as likely.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from ternhost import datasets, mechanisms
from ternhost.algorithms.designs import coordinates_by_rule
from ternhost.datasets import synthetic
from ternhost.experiments.base import Curve, Options, Outcome, Panel, Row, draw, mean_and_error
from ternhost.experiments.rounds import collection, repeated, squared_error
from ternhost.mechanisms.base import MICRO

SUMMARY = "squared error of estimated means against epsilon, synthetic and real"

_COMPARED = ("laplace", "duchi", "pm", "hm", "three-outputs", "pm-sub", "hm-tp", "rr3", "optimal")
_D = 16
_BESIDE = "duchi"
_REAL = "flights"
_MEANS = (0.0, 1 / 3, 2 / 3, 1.0)


def _sets(options: Options, clients: int) -> dict[str, datasets.Fixed]:
    name = options.dataset or _REAL
    real = {name: datasets.load(name).features[:clients, 1:]}  # the constant is known
    if options.dataset is not None:
        return real
    return real | {
        f"Gaussian, mean {mean:.2g}": synthetic.attributes(clients, _D, mean=mean, seed=options.seed).numeric
        for mean in _MEANS
    }


def run(options: Options) -> Outcome:
    clients = 20_000 if options.quick else 100_000
    epsilons = [1.0, 4.0] if options.quick else [0.5, 1.0, 2.0, 4.0, 6.0, 8.0]
    runs = options.runs_or(40, 3)
    compared = options.compared(*_COMPARED)
    names = list(compared)
    seeds = range(options.seed, options.seed + 1000 * runs, 1000)
    rows: list[Row] = []
    for source, values in _sets(options, clients).items():
        for epsilon in epsilons:
            options.progress(f"{source}, epsilon {epsilon:g}")
            k = coordinates_by_rule("wide", round(epsilon * MICRO), values.shape[1])
            for name, contender in compared.items():
                card = contender.card(round(epsilon * MICRO) // k, mechanisms.VALUES)
                asked = collection(values, epsilon=f"{epsilon:g}", k=k, card=card.data.hex())
                mean, error = mean_and_error([squared_error(found) for found in repeated(asked, seeds)])
                rows.append(
                    {
                        "data": source,
                        "clients": len(values),
                        "d": values.shape[1],
                        "epsilon": epsilon,
                        "k": k,
                        "mechanism": name,
                        "squared_error": mean,
                        "standard_error": error,
                        "runs": runs,
                    }
                )
    return Outcome(
        "mean",
        {"runs": runs, "epsilons": epsilons},
        {"mean": rows},
        {"mean": _figure(rows, names), "mean-relative": _figure(rows, names, relative=True)},
        _lines(rows),
    )


def _figure(rows: list[Row], names: list[str], relative: bool = False) -> Figure:
    """The errors, a panel a source; `relative` to Duchi's mechanism, where the curves lie apart."""
    up = "mean squared error of a mean" + (f", over {_BESIDE}'s" if relative else "")
    panels = []
    for source in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == source]
        unit = {
            row["epsilon"]: row["squared_error"] if relative else 1.0
            for row in own
            if row["mechanism"] == _BESIDE
        }
        curves = [
            Curve(
                name,
                list(unit),
                [row["squared_error"] / unit[row["epsilon"]] for row in own if row["mechanism"] == name],
                [row["standard_error"] / unit[row["epsilon"]] for row in own if row["mechanism"] == name],
            )
            for name in names
            if not (relative and name == _BESIDE)
        ]
        title = f"{source}: {own[0]['clients']:,} clients, d = {own[0]['d']}"
        lines = {_BESIDE: 1.0} if relative else {}
        panels.append(Panel(title, "epsilon of a client's report", up, curves, log_y=True, lines=lines))
    return draw(panels, 2 if len(panels) > 1 else 1)


def _lines(rows: list[Row]) -> list[str]:
    lines = []
    for source in dict.fromkeys(row["data"] for row in rows):
        for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
            own = [row for row in rows if row["data"] == source and row["epsilon"] == epsilon]
            best = min(own, key=lambda row: row["squared_error"])
            lines.append(
                f"{source}, epsilon {epsilon:g}: least error {best['squared_error']:.3g} by {best['mechanism']}"
            )
    return lines
