"""What a bound toward the owner of the server is worth: three sites with as many devices each, in
ROUNDS rounds.

A run with --toward-server 1 chooses the epsilon of a report. Beside it are runs that keep a local
epsilon of 1, toward everybody: in the same rounds, and in one report of each device. Simulated
clients stand for those of three gateways, whose counts add up to the same.
"""

import numpy as np

from terngateway.bound import Bound
from terngateway.planning import PlannedReports, Site, largest_epsilon
from ternhost.count.disclosures import Disclosures
from ternhost.learn import judging
from ternhost.learn.base import Population
from ternhost.learn.fedsgd import FedSGD
from ternhost.learn.learning import Learning
from ternhost.learn.parameters import MODELS
from ternhost.planning.cells import Cell, Row, Tables
from ternhost.planning.simulation import default, figure_of, optimal_figures, simulate
from ternhost.planning.statistics import averaged, pick
from ternhost.plots.curves import Curve, Panel, draw
from ternhost.privacy.base import MICRO
from ternhost.privacy.composing import ReportKind
from ternpapers.base import DATASET, Options, Outcome, load
from ternpapers.experiments.reports_needed import trained_by

SUMMARY = "models that keep an epsilon toward the owner of the server, or toward everybody"
SITES, ROUNDS = 3, 20
BOUND = Bound(MICRO)
_DEVICES = (100, 300, 1000, 3000, 10_000)  # of a site
_SERVER = f"toward the server's owner 1 at delta {BOUND.delta:g}"
_SAME = f"toward everybody 1, in the same {ROUNDS} rounds"
_ONCE = "toward everybody 1, in one report"


def chosen(devices: int) -> float:
    """Return the epsilon of a report that --toward-server chooses for ROUNDS rounds.

    devices: the number at each site.
    """
    ids = np.arange(1, devices + 1)
    site = Site("site", ids, Disclosures(), [BOUND])
    planned = PlannedReports(ReportKind(MICRO).among(devices), ids, ROUNDS)
    return largest_epsilon(site, [planned]) / MICRO


def cells(options: Options) -> list[Cell]:
    """Return a unit of work for each number of devices and each kind of bound."""
    numbers = (100, 1000) if options.quick else _DEVICES
    common = {"name": options.sets(DATASET)[0], "seeds": options.seeds(8, 2)}
    kinds = (_SERVER, _SAME, _ONCE)

    def cost(devices: int, **_: object) -> float:
        return devices

    return Cell.for_each_combination("figures", _trained, common, cost, kind=kinds, devices=numbers)


def _trained(name: str, seeds: range, kind: str, devices: int) -> list[Row]:
    """Train a model of a data set under one kind of bound; return its figure, averaged over seeds.

    kind: _SERVER, _SAME or _ONCE. devices: the number at each site.
    """
    dataset = load(name)
    model, _ = trained_by(dataset)
    epsilon = {_SERVER: chosen(devices), _SAME: 1 / ROUNDS, _ONCE: 1.0}[kind]
    epsilon_option = f"{epsilon:.3g}"
    all_devices = SITES * devices
    learner: Learning
    figures = []
    for seed in seeds:
        if kind == _ONCE:
            learner = default(dataset, all_devices, seed, model, epsilon_option)
        else:
            settings = FedSGD.Options(rounds=ROUNDS, seed=seed, model=model, epsilon=epsilon_option)
            learner = FedSGD(settings, Population(clients=all_devices), dataset)
        figures.append(figure_of(simulate(learner, seed)))

    reports_of_a_device = 1 if kind == _ONCE else ROUNDS
    setting = {
        "data": name,
        "kind": kind,
        "devices": devices,
        "epsilon_report": float(epsilon_option),
        "epsilon_local": epsilon * reports_of_a_device,
    }
    return [{**setting, **averaged("figure", figures)}]


def outcome(options: Options, tables: Tables) -> Outcome:
    """Return the figures by kind of bound and number of devices, with a picture and sentences."""
    rows = tables["figures"]
    dataset = load(rows[0]["data"])
    measure = judging.measure(dataset)
    model, _ = trained_by(dataset)
    optimum = optimal_figures(dataset, model)[measure]
    trivial = judging.baselines(dataset, MODELS[model])[measure]

    title = f"{rows[0]['data']}, {SITES} sites, epsilon of all rounds together"
    x_label, y_label = "devices of each site", judging.WORDS[measure]
    curves = Curve.each(rows, "kind", "devices", "figure")
    lines = {"without privacy": optimum, judging.TRIVIAL[measure]: trivial}
    panel = Panel(title, x_label, y_label, curves, log_x=True, lines=lines)

    sentences = []
    for row in pick(rows, kind=_SERVER):
        # The first row of a number of devices is that of _SERVER; the others are compared with it.
        _, *local_rows = pick(rows, devices=row["devices"])
        local_figures = ", ".join(f"{each['figure']:.3f} {each['kind']}" for each in local_rows)
        sentences.append(
            f"{row['devices']:,} devices a site: {y_label} {row['figure']:.3f} at epsilon "
            f"{row['epsilon_report']:g} a report, {row['epsilon_local']:.3g} toward the own gateway; "
            f"{local_figures}"
        )
    rows_with_limits = [row | {"without_privacy": optimum, "trivial": trivial} for row in rows]
    return Outcome(
        {"rounds": ROUNDS, "sites": SITES},
        {"gateways": rows_with_limits},
        {"gateways": draw([panel])},
        sentences,
    )
