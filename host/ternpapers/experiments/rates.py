"""Which learning rate is best: the automatic one, which follows from the noise of a run, and
multiples of it.

The experiment justifies the constant of the automatic rate (optimisers.py), which is the same for
all data sets of a model. It compares the loss at rates from a quarter of the automatic one to four
times it with the loss at the best of them, on every bundled data set at four values of epsilon, in
100 rounds.
"""

import numpy as np

from ternhost.learn.optimisers import OPTIMISERS, Averaging, Noise
from ternhost.planning.cells import Cell, Row, Tables
from ternhost.planning.simulation import learned
from ternhost.planning.statistics import averaged, grouped, pick, values_of
from ternhost.plots.curves import Curve, Panel, draw
from ternpapers.base import BUNDLED, CLIENTS, Options, Outcome, load
from ternpapers.experiments.reports_needed import trained_by

_FACTORS = tuple(round(2 ** (i / 2), 3) for i in range(-4, 5))
_MEAN = "mean of all data sets"


def cells(options: Options) -> list[Cell]:
    common = {"reports": 5000 if options.quick else CLIENTS, "seeds": options.seeds(10, 2)}
    epsilons = (1.0,) if options.quick else (0.5, 1.0, 2.0, 4.0)
    factors = _FACTORS[::4] if options.quick else _FACTORS
    sets = options.sets(*BUNDLED)
    return Cell.each("losses", _trained, common, name=sets, epsilon=epsilons, factor=factors)


def _trained(name: str, epsilon: float, factor: float, reports: int, seeds: range) -> list[Row]:
    class Scaled(Averaging):
        @staticmethod
        def automatic_rate(noise: Noise) -> float:
            return factor * Averaging.automatic_rate(noise)

    dataset = load(name)
    model, loss = trained_by(dataset)
    training = {
        "model": model,
        "epsilon": f"{epsilon:g}",
        "optimiser": f"averaging, rate times {factor:g}",
    }
    with OPTIMISERS.lent(training["optimiser"], Scaled):
        losses = [
            learner.figures()[loss] for learner in learned(dataset, reports, seeds, **training)
        ]
    setting = {
        "data": name,
        "model": model,
        "epsilon": epsilon,
        "reports": reports,
        "factor": factor,
    }
    return [{**setting, "measure": loss, **averaged("loss", losses)}]


def outcome(options: Options, tables: Tables) -> Outcome:
    rows = tables["losses"]
    for group in grouped(rows, "data", "epsilon").values():
        best = min(row["loss"] for row in group)
        for row in group:
            row["over_best"] = row["loss"] / best
            row["over_best_error"] = row["standard_error"] / best
    summary = []
    for (model, factor), group in grouped(rows, "model", "factor").items():
        ratios = [float(row["over_best"]) for row in group]
        worst = max(group, key=lambda row: float(row["over_best"]))
        average = float(np.exp(np.mean(np.log(ratios))))
        on_average = {"median_over_best": float(np.median(ratios)), "mean_over_best": average}
        worst_on = f"{worst['data']}, epsilon {worst['epsilon']:g}"
        at_worst = {"worst_over_best": worst["over_best"], "worst_on": worst_on}
        summary.append({"model": model, "factor": factor, **on_average, **at_worst})
    panels = [_panel(pick(rows, epsilon=epsilon)) for epsilon in values_of(rows, "epsilon")]
    lines = [
        f"{row['model']}, {row['factor']:.3g} times the automatic rate: the loss exceeds that of the best rate by "
        f"{row['median_over_best'] - 1:.1%} in the median, {row['mean_over_best'] - 1:.1%} on average, "
        f"{row['worst_over_best'] - 1:.1%} at worst ({row['worst_on']})"
        for row in summary
    ]
    kept = {"rates": rows, "summary": summary}
    return Outcome({"factors": values_of(rows, "factor")}, kept, {"rates": draw(panels, 2)}, lines)


def _panel(rows: list[Row]) -> Panel:
    factors = values_of(rows, "factor")
    curves = Curve.each(rows, "data", "factor", "over_best", "over_best_error")
    means = [
        float(np.mean([row["over_best"] for row in pick(rows, factor=factor)]))
        for factor in factors
    ]
    curves.append(Curve(_MEAN, factors, means, everywhere=True))
    title = f"epsilon {rows[0]['epsilon']:g}, {rows[0]['reports']:,} reports"
    x_label = "learning rate, relative to the automatic one"
    y_label = "held-out loss, relative to the loss of the best rate"
    return Panel(title, x_label, y_label, curves, log_x=True)
