"""Compares multiples of the automatic learning rate, which follows from the noise of a run.

The experiment justifies the constant of the automatic rate (optimisers.py), which is the same for
all data sets of a model. It compares the loss at rates from a quarter of the automatic one to four
times it with the loss at the best of them, on every bundled data set at four values of epsilon, in
100 rounds.
"""

import numpy as np

from ternhost.learn.models.optimisers import OPTIMISERS, Averaging, Noise
from ternhost.planning.cells import Cell, Row, Tables
from ternhost.planning.simulation import learned
from ternhost.planning.statistics import averaged, grouped, pick, values_of
from ternhost.plots.curves import Curve, Panel, draw
from ternpapers.base import BUNDLED, CLIENTS, Options, Outcome, load
from ternpapers.experiments.reports_needed import trained_by

_FACTORS = tuple(round(2 ** (i / 2), 3) for i in range(-4, 5))
_MEAN = "mean of all data sets"


def cells(options: Options) -> list[Cell]:
    """Return a computation for each data set, epsilon and multiple of the automatic rate.

    Such a cell is one call of `_trained`, whose rows go into the table "losses". The automatic rate
    is the learning rate that tern chooses by the noise of the reports.
    """
    reports = CLIENTS
    epsilons: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    factors = _FACTORS
    if options.quick:
        reports = 5000
        epsilons, factors = (1.0,), _FACTORS[::4]
    return Cell.for_each_combination(
        table="losses",
        work=_trained,
        common={"reports": reports, "seeds": options.seeds(default=10, quick=2)},
        name=options.sets(*BUNDLED),
        epsilon=epsilons,
        factor=factors,
    )


def _trained(name: str, epsilon: float, factor: float, reports: int, seeds: range) -> list[Row]:
    """Train at `factor` times the automatic rate, and return the loss averaged over the seeds.

    name: the data set. reports: their number, one from each client.
    """

    class Scaled(Averaging):
        """Averaging at a multiple of its automatic rate."""

        @staticmethod
        def automatic_rate(noise: Noise) -> float:
            return factor * Averaging.automatic_rate(noise)

    dataset = load(name)
    model, loss = trained_by(dataset)
    optimiser = f"averaging, rate times {factor:g}"
    training = {"model": model, "epsilon": f"{epsilon:g}", "optimiser": optimiser}
    losses = []
    # The option of training is a name, so that the optimiser is registered for the time of this run.
    with OPTIMISERS.lent(optimiser, Scaled):
        for learner in learned(dataset, reports, seeds, **training):
            losses.append(learner.figures()[loss])
    setting = {"data": name, "model": model, "epsilon": epsilon, "reports": reports}
    return [{**setting, "factor": factor, "measure": loss, **averaged("loss", losses)}]


def outcome(options: Options, tables: Tables) -> Outcome:
    """Return the result: the losses relative to the best rate, a summary, and a picture.

    The summary has a row for each model and multiple of the automatic rate.
    """
    rows = tables["losses"]
    for group in grouped(rows, "data", "epsilon").values():
        least_loss = min(row["loss"] for row in group)
        for row in group:
            row["over_best"] = row["loss"] / least_loss
            row["over_best_error"] = row["standard_error"] / least_loss

    summary = [_summary(group) for group in grouped(rows, "model", "factor").values()]
    lines = []
    for row in summary:
        lines.append(
            f"{row['model']}, {row['factor']:.3g} times the automatic rate: the loss exceeds that of "
            f"the best rate by {row['median_over_best'] - 1:.1%} in the median, "
            f"{row['mean_over_best'] - 1:.1%} on average, {row['worst_over_best'] - 1:.1%} at worst "
            f"({row['worst_on']})"
        )
    panels = []
    for epsilon in values_of(rows, "epsilon"):
        panels.append(_panel(pick(rows, epsilon=epsilon)))
    return Outcome(
        settings={"factors": values_of(rows, "factor")},
        tables={"rates": rows, "summary": summary},
        figures={"rates": draw(panels, columns=2)},
        lines=lines,
    )


def _summary(rows: list[Row]) -> Row:
    """Return how much a multiple of the automatic rate loses with one model, over all data sets.

    The mean of ratios is the geometric mean.
    """
    ratios = [float(row["over_best"]) for row in rows]
    worst = max(rows, key=lambda row: float(row["over_best"]))
    return {
        "model": worst["model"],
        "factor": worst["factor"],
        "median_over_best": float(np.median(ratios)),
        "mean_over_best": float(np.exp(np.mean(np.log(ratios)))),
        "worst_over_best": worst["over_best"],
        "worst_on": f"{worst['data']}, epsilon {worst['epsilon']:g}",
    }


def _panel(rows: list[Row]) -> Panel:
    """Return a panel of the losses by rate at one epsilon: each data set, and their mean."""
    factors = values_of(rows, "factor")
    curves = Curve.each(rows, "data", "factor", "over_best", "over_best_error")
    means = []
    for factor in factors:
        ratios = [row["over_best"] for row in pick(rows, factor=factor)]
        means.append(float(np.mean(ratios)))
    curves.append(Curve(_MEAN, factors, means, everywhere=True))
    title = f"epsilon {rows[0]['epsilon']:g}, {rows[0]['reports']:,} reports"
    x_label = "learning rate, relative to the automatic one"
    y_label = "held-out loss, relative to the loss of the best rate"
    return Panel(title, x_label, y_label, curves, log_x=True)
