"""What a bound toward the owner of the server is worth: three sites with as many devices each.

Four kinds of bound are compared, each of which keeps epsilon 1 over all rounds. Toward the owner of
the server, who sees only the counts of each site, a report may have a larger epsilon, which a run
with --toward-server 1 chooses: in ROUNDS rounds (_SERVER), or in one report of each device, all in
the same round (_SERVER_ONCE). Toward everybody, also the site's own gateway, the epsilons of a
device's reports add up to 1: in the same number of rounds (_SAME), or in one report (_ONCE).
Simulated clients stand for those of three gateways, whose counts add up to the same.
"""

import numpy as np

from terngateway.bound import Bound
from terngateway.planning import PlannedReports, Site, largest_epsilon
from terngateway.weighing import ROUNDS
from ternhost.count.disclosures import Disclosures
from ternhost.datasets import Dataset
from ternhost.learn import choice
from ternhost.learn.base import Population
from ternhost.learn.models import judging
from ternhost.learn.models.fedsgd import FedSGD
from ternhost.learn.models.learning import Learning
from ternhost.learn.one_answer.direct import Direct
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
SITES = 3
BOUND = Bound(MICRO)
_DEVICES = (100, 300, 1000, 3000, 10_000)  # of each site, in one run after another
# The kinds of bound, as the legend of the picture names them.
_SERVER = f"toward the server's owner 1 at delta {BOUND.delta:g}, in {ROUNDS} rounds"
_SERVER_ONCE = "the same, in one report"
_SAME = f"toward everybody 1, in the same {ROUNDS} rounds"
_ONCE = "toward everybody 1, in one report"


def chosen(devices: int, reports: int = ROUNDS) -> float:
    """Return the epsilon of a report that --toward-server 1 chooses.

    devices: the number at each site. reports: how many each device sends, in as many rounds.
    """
    ids = np.arange(1, devices + 1)
    site = Site("site", devices=ids, disclosed=Disclosures(), bounds=[BOUND])
    report = ReportKind(MICRO).among(devices)  # its cost does not matter
    planned = PlannedReports(report, devices=ids, times=reports)
    return largest_epsilon(site, [planned]) / MICRO


def cells(options: Options) -> list[Cell]:
    """Return the computations of this experiment: one for each kind of bound and size of a site.

    Each trains models with several seeds, and may run on a core of its own. options: of the command,
    which may ask for a quick version.
    """
    sizes = (100, 1000) if options.quick else _DEVICES
    dataset_name = options.sets(DATASET)[0]
    seeds = options.seeds(default=8, quick=2)
    dataset = load(dataset_name)
    model, _ = trained_by(dataset)
    kinds = [_SERVER, _SAME, _ONCE]
    if choice.suits_direct(model, dataset):
        kinds.insert(1, _SERVER_ONCE)

    def cost(devices: int, **_others: object) -> float:
        """Return how long a computation takes, relative to the others."""
        return devices

    return Cell.for_each_combination(
        table="figures",
        work=_trained,
        common={"name": dataset_name, "seeds": seeds},
        cost=cost,
        kind=kinds,
        devices=sizes,
    )


def _trained(name: str, seeds: range, kind: str, devices: int) -> list[Row]:
    """Train models under one kind of bound; return how good they are, averaged over the seeds.

    name: of the data set. kind: one of the four kinds (this module's text says what they are).
    devices: the number at each site. The result is one row of a table, in a list since a
    computation may return several.
    """
    dataset = load(name)
    model, _ = trained_by(dataset)
    epsilon = _epsilon_of_report(kind, devices)
    epsilon_text = f"{epsilon:.3g}"  # in the form of an option
    all_devices = SITES * devices
    figures = []  # for each seed, the accuracy or error of the model on test data
    for seed in seeds:
        learner: Learning
        if kind == _SERVER_ONCE:
            learner = all_at_once(dataset, all_devices, seed, model, epsilon_text)
        elif kind == _ONCE:
            learner = default(dataset, all_devices, seed, model, epsilon_text)
        else:
            settings = FedSGD.Options(rounds=ROUNDS, seed=seed, model=model, epsilon=epsilon_text)
            learner = FedSGD(settings, Population(clients=all_devices), dataset)
        figures.append(figure_of(simulate(learner, seed)))

    reports_of_a_device = ROUNDS
    if kind in (_ONCE, _SERVER_ONCE):
        reports_of_a_device = 1
    setting = {
        "data": name,
        "kind": kind,
        "devices": devices,
        "epsilon_report": float(epsilon_text),
        "epsilon_local": epsilon * reports_of_a_device,
    }
    return [{**setting, **averaged("figure", figures)}]


def all_at_once(dataset: Dataset, devices: int, seed: int, model: str, epsilon: str) -> Learning:
    """Return the learner of one report of each device in the same round, before this round.

    devices: the number at all sites together. model: its name. epsilon: that of a report.
    """
    options = Direct.Options(reports=devices, seed=seed, model=model, epsilon=epsilon, at_once=True)
    return Direct(options, Population(clients=devices), dataset)


def _epsilon_of_report(kind: str, devices: int) -> float:
    """Return the epsilon of one report under a kind of bound. devices: the number at each site."""
    if kind == _SERVER:
        return chosen(devices)
    if kind == _SERVER_ONCE:
        return chosen(devices, reports=1)
    if kind == _SAME:
        return 1 / ROUNDS  # a device reports in each round, and the epsilons add up to 1
    return 1.0  # the only report of the device spends all of it


def outcome(options: Options, tables: Tables) -> Outcome:
    """Return the results of the experiment: its table, a picture and sentences about them.

    options: of the command. tables: by name, the rows that the computations have returned.
    """
    rows = tables["figures"]
    dataset = load(rows[0]["data"])
    measure = judging.measure(dataset)  # accuracy or an error, as suits the data set
    model, _ = trained_by(dataset)
    without_privacy = optimal_figures(dataset, model)[measure]
    trivial = judging.baselines(dataset, MODELS[model])[measure]  # of a model without features

    curves = Curve.each(rows, label="kind", x="devices", y="figure")
    panel = Panel(
        title=f"{rows[0]['data']}, {SITES} sites, epsilon of all rounds together",
        x_label="devices of each site",
        y_label=judging.WORDS[measure],
        curves=curves,
        log_x=True,
        lines={"without privacy": without_privacy, judging.TRIVIAL[measure]: trivial},
    )

    sentences = []
    for row in pick(rows, kind=_SERVER):
        sentences.append(_comparison(row, rows, judging.WORDS[measure]))
    rows_with_limits = []
    for row in rows:
        rows_with_limits.append({**row, "without_privacy": without_privacy, "trivial": trivial})
    return Outcome(
        settings={"rounds": ROUNDS, "sites": SITES},
        tables={"gateways": rows_with_limits},
        figures={"gateways": draw([panel])},
        lines=sentences,
    )


def _comparison(server_row: Row, rows: list[Row], figure_name: str) -> str:
    """Return a sentence that compares the kinds of bound for one number of devices.

    server_row: the row of kind _SERVER. rows: those of all kinds and numbers. figure_name: what the
    figures are, such as "accuracy".
    """
    local_figures = []
    for row in pick(rows, devices=server_row["devices"]):
        if row["kind"] == _SERVER_ONCE:
            once = f"{row['figure']:.3f} in one report at {row['epsilon_report']:g}"
            local_figures.append(once)
        elif row["kind"] != _SERVER:
            local_figures.append(f"{row['figure']:.3f} {row['kind']}")
    return (
        f"{server_row['devices']:,} devices a site: {figure_name} {server_row['figure']:.3f} at epsilon "
        f"{server_row['epsilon_report']:g} a report, {server_row['epsilon_local']:.3g} toward the own "
        f"gateway; {', '.join(local_figures)}"
    )
