"""Error of estimated means against epsilon: Gaussian attributes, and the features of a data set.

The paper has 16 dimensions and Gaussians of means 0, 1/3, 2/3 and 1, cut at -1 and 1. Every client reports k of its d
attributes (Algorithm 6 of Zhao et al. 2021). The error is the mean of the squared errors of the
d means, over the runs. The optimal card has the least mean second moment where all values are as likely.
"""

from __future__ import annotations

from functools import lru_cache

from matplotlib.figure import Figure

from ternhost import datasets
from ternhost.datasets import synthetic
from ternhost.experiments.base import Contender, Options, Outcome, load
from ternhost.experiments.cells import Cell, Row, Tables
from ternhost.experiments.pictures import Curve, Panel, draw
from ternhost.experiments.rounds import collection, repeated, squared_error
from ternhost.experiments.statistics import pick, summaries, values_of, winners
from ternhost.learn.designs import coordinates_by_rule
from ternhost.privacy import mechanisms
from ternhost.privacy.base import MICRO

SUMMARY = "squared error of estimated means against epsilon, synthetic and real"

_COMPARED = ("laplace", "duchi", "pm", "hm", "three-outputs", "pm-sub", "hm-tp", "rr3", "optimal")
_D = 16
_BESIDE = "duchi"
_REAL = "flights"
_MEANS = (0.0, 1 / 3, 2 / 3, 1.0)


_GAUSSIANS = {f"Gaussian, mean {mean:.2g}": mean for mean in _MEANS}


@lru_cache(maxsize=4)
def _values(source: str, clients: int, seed: int) -> datasets.Fixed:
    if source in _GAUSSIANS:
        return synthetic.attributes(clients, _D, mean=_GAUSSIANS[source], seed=seed).numeric
    return load(source).features[:clients, 1:]  # the constant is known


def cells(options: Options) -> list[Cell]:
    clients = 20_000 if options.quick else 100_000
    return Cell.each(
        "runs",
        _collected,
        {"clients": clients, "runs": options.runs_or(40, 3), "seed": options.seed},
        cost=lambda contender, **_: 15 if contender.label == "optimal" else 1,
        source=options.sets(_REAL, *_GAUSSIANS),
        epsilon=[1.0, 4.0] if options.quick else [0.5, 1.0, 2.0, 4.0, 6.0, 8.0],
        contender=options.compared(*_COMPARED).values(),
    )


def _collected(
    source: str, clients: int, epsilon: float, contender: Contender, runs: int, seed: int
) -> list[Row]:
    values = _values(source, clients, seed)
    k = coordinates_by_rule("wide", round(epsilon * MICRO), values.shape[1])
    card = contender.card(round(epsilon * MICRO) // k, mechanisms.VALUES)
    asked = collection(values, epsilon=f"{epsilon:g}", k=k, card=card.data.hex())
    common = {"data": source, "clients": len(values), "d": values.shape[1], "epsilon": epsilon, "k": k}
    seeds = range(seed, seed + 1000 * runs, 1000)
    return [
        {**common, "mechanism": contender.label, "run": i, "squared_error": squared_error(found)}
        for i, found in enumerate(repeated(asked, seeds))
    ]


def outcome(options: Options, tables: Tables) -> Outcome:
    by = ("data", "epsilon")
    rows = summaries(tables["runs"], by, "mechanism", "squared_error")
    best = winners(rows, by, "mechanism", "squared_error")
    names = values_of(rows, "mechanism")
    return Outcome(
        "mean",
        {"runs": rows[0]["runs"]},
        {"mean": rows, "best": best},
        {"mean": _figure(rows, names), "mean-relative": _figure(rows, names, relative=True)},
        [
            f"{row['data']}, epsilon {row['epsilon']:g}: least error {row['squared_error']:.3g} by {row['best']}"
            + ("" if row["wins"] else f", which noise does not tell from {row['tied'] or 'the others'}")
            for row in best
        ],
    )


def _figure(rows: list[Row], names: list[str], relative: bool = False) -> Figure:
    """The errors, a panel a source; `relative` to Duchi's mechanism, where the curves lie apart."""
    up = "mean squared error of a mean" + (f", over {_BESIDE}'s" if relative else "")
    panels = []
    for source in values_of(rows, "data"):
        own = pick(rows, data=source)
        beside = pick(own, mechanism=_BESIDE)
        unit = {row["epsilon"]: row["squared_error"] if relative else 1.0 for row in beside}
        curves = [
            Curve(
                name,
                list(unit),
                [row["squared_error"] / unit[row["epsilon"]] for row in pick(own, mechanism=name)],
                [row["standard_error"] / unit[row["epsilon"]] for row in pick(own, mechanism=name)],
            )
            for name in names
            if not (relative and name == _BESIDE)
        ]
        title = f"{source}: {own[0]['clients']:,} clients, d = {own[0]['d']}"
        lines = {_BESIDE: 1.0} if relative else {}
        panels.append(Panel(title, "epsilon of a client's report", up, curves, log_y=True, lines=lines))
    return draw(panels, 2 if len(panels) > 1 else 1)
