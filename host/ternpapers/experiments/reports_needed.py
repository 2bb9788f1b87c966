"""Measures how many reports tern needs for the loss that the papers' LDP-FedSGD reaches.

The papers' learner is that of baseline.py: it computes in floats, clips gradients to a range of 1,
and follows the paper's rule for k. It has two versions:

- as described: a learning rate of 1 / sqrt(t) (Wang et al., ICDE 2019), 100 rounds, and the best of
  four mechanisms
- tuned on the held-out loss itself, which nobody can do in practice: at each number of reports, the
  best of these mechanisms, two numbers of rounds, and five learning rates, constant or decaying

Each run uses the setting that is best in the other runs, so that luck does not count. tern's
learner trains with its defaults.
"""

from collections.abc import Sequence
from itertools import product
from operator import itemgetter
from typing import Any

import numpy as np

from ternhost.datasets import REGRESSION, Dataset, Floats
from ternhost.learn.models import judging
from ternhost.learn.models.judging import LOG_LOSS, SQUARED_ERROR, WORDS
from ternhost.learn.parameters import MODELS, SUITED
from ternhost.planning.cells import Cell, Row, Tables
from ternhost.planning.simulation import default, optimal_figures, simulate
from ternhost.planning.statistics import averaged, enough, grouped, half_interval, pick
from ternhost.plots.curves import Curve, Panel, draw
from ternpapers import baseline
from ternpapers.base import DATASET, Options, Outcome, load
from ternpapers.perturbing import MECHANISMS

_SETS = (DATASET, "synthetic-logistic", "synthetic-linear")
_RATES = (0.03, 0.1, 0.3, 1.0, 3.0)
_ROUNDS = (25, 100)
_MECHANISMS = ("duchi", "pm", "three-outputs", "pm-sub")  # of the papers
_DESCRIBED = "rate 1 / sqrt(t), 100 rounds"  # the end of the name of a setting
_PAPERS, _TUNED, _TERN = "LDP-FedSGD in floats", "LDP-FedSGD, tuned on the held-out records", "tern"


def trained_by(dataset: Dataset) -> tuple[str, str]:
    """Return the model that is trained on a data set, and the loss that it is judged by."""
    loss = LOG_LOSS
    if dataset.task == REGRESSION:
        loss = SQUARED_ERROR
    return SUITED[dataset.task], loss


def cells(options: Options) -> list[Cell]:
    """Return the computations of the losses by tern's learner, and by the papers' learner.

    Each of these cells is one call of `_by_tern` or `_by_papers` with one choice of data set,
    epsilon and number of reports, and for the papers of a mechanism. All rows go into one table.
    """
    epsilons: tuple[float, ...] = (1.0, 4.0)
    counts: tuple[int, ...] = (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
    if options.quick:
        epsilons, counts = (1.0,), (1000, 4000, 16_000)
    common = {"seeds": options.seeds(default=16, quick=2)}
    choices: dict[str, Any] = {"name": options.sets(*_SETS), "epsilon": epsilons, "reports": counts}

    def cost(reports: int, **_: object) -> float:
        """Return the relative duration of training by the papers' learner."""
        return 2 + reports / 2e4

    by_tern = Cell.for_each_combination(table="losses", work=_by_tern, common=common, **choices)
    by_papers = Cell.for_each_combination(
        table="losses",
        work=_by_papers,
        common=common,
        cost=cost,
        **choices,
        mechanism=_MECHANISMS,
    )
    return [*by_tern, *by_papers]


def _by_tern(name: str, epsilon: float, reports: int, seeds: range) -> list[Row]:
    """Train by tern's learner, and return the loss of each run."""
    dataset = load(name)
    model, loss = trained_by(dataset)
    rows = []
    for run, seed in enumerate(seeds):
        untrained = default(dataset, reports, seed, model, epsilon=f"{epsilon:g}")
        learner = simulate(untrained, seed)
        rows.append(_row(name, epsilon, reports, _TERN, run, learner.figures()[loss]))
    return rows


def _by_papers(name: str, epsilon: float, reports: int, seeds: range, mechanism: str) -> list[Row]:
    """Train by the papers' learner with each of its settings, and return the loss of each run.

    A setting is a learning rate, which is constant or decays as 1 / sqrt(t), and a number of rounds.

    name: that of the data set. mechanism: how reports are perturbed, a key of MECHANISMS.
    """
    dataset = load(name)
    model, loss = trained_by(dataset)
    rows = []
    for rate, decays, rounds in product(_RATES, (False, True), _ROUNDS):
        training = baseline.Training(
            model=model, epsilon=epsilon, reports=reports, rate=rate, decays=decays, rounds=rounds
        )
        rate_text = f"rate {rate:g}"
        if decays:
            rate_text += " / sqrt(t)"
        setting = f"{mechanism}, {rate_text}, {rounds} rounds"
        for run, seed in enumerate(seeds):
            weights = baseline.train(training, dataset, MECHANISMS[mechanism], seed)
            figure = judging.figures(dataset, MODELS[model], weights)[loss]
            rows.append(_row(name, epsilon, reports, setting, run, figure))
    return rows


def _row(name: str, epsilon: float, reports: int, learner: str, run: int, loss: float) -> Row:
    """Return the row of a run. learner: tern, or a setting of the papers' learner."""
    setting = {"data": name, "epsilon": epsilon, "reports": reports}
    return {**setting, "learner": learner, "run": run, "loss": loss}


def outcome(options: Options, tables: Tables) -> Outcome:
    """Return how many reports tern needs, the losses of both learners, and a picture."""
    losses = _losses_of_learners(tables["losses"])
    groups = list(grouped(losses, "data", "epsilon").values())
    needed = []
    for group, papers in product(groups, (_PAPERS, _TUNED)):
        needed.append(_needed(group, papers))
    lines = []
    for row in needed:
        case = f"{row['data']}, epsilon {row['epsilon']:g}"
        learner = f"{row['learner']} ({row['setting']})"
        reached = f"a loss of {row['loss']:.4f} with {row['papers_reports']:,} reports"
        lines.append(f"{case}: {learner} reaches {reached}; tern needs {_words(row)}")
    panels = [_panel(group) for group in groups]
    return Outcome(
        settings={"rates": _RATES, "rounds": _ROUNDS},
        tables={"reports-needed": needed, "losses": losses},
        figures={"reports-needed": draw(panels, columns=2)},
        lines=lines,
    )


def _losses_of_learners(runs: Sequence[Row]) -> list[Row]:
    """Return the average loss of tern's learner and of both versions of the papers' learner.

    One version has the setting that the papers describe, with the best of their mechanisms; the
    other one has the best of all settings, chosen by the held-out records. There is a row for each
    learner at each data set, epsilon and number of reports.

    runs: the loss of each run; the name of a papers' learner is that of its setting.
    """
    rows: list[Row] = []
    cases = grouped(runs, "data", "epsilon", "reports")
    for (name, epsilon, reports), case_runs in cases.items():
        papers_runs, described_runs = [], []
        for run in case_runs:
            if run["learner"] != _TERN:
                papers_runs.append(run)
                if run["learner"].endswith(_DESCRIBED):
                    described_runs.append(run)
        tern_losses = [run["loss"] for run in pick(case_runs, learner=_TERN)]
        by_learner = {
            _TERN: ("", tern_losses),
            _PAPERS: _best_setting(described_runs),
            _TUNED: _best_setting(papers_runs),
        }
        for learner, (setting, losses) in by_learner.items():
            case = {"data": name, "epsilon": epsilon, "reports": reports, "learner": learner}
            rows.append({**case, "setting": setting, **averaged("loss", losses)})
    return rows


def _best_setting(rows: Sequence[Row]) -> tuple[str, list[float]]:
    """Choose the best setting for each run by the other runs, so that luck does not count.

    rows: a loss for each run in each setting, which the column "learner" names. Returns the setting
    that is chosen most often, and the loss of each run in its chosen setting.
    """
    by_setting = grouped(rows, "learner")
    table = []
    for setting_rows in by_setting.values():
        in_order = sorted(setting_rows, key=itemgetter("run"))
        table.append([row["loss"] for row in in_order])
    losses = np.array(table)  # settings x runs
    runs = losses.shape[1]
    losses_of_other_runs = losses  # a single run has no others
    if runs > 1:
        losses_of_other_runs = losses.sum(axis=1, keepdims=True) - losses
    chosen = losses_of_other_runs.argmin(axis=0).tolist()  # the setting of each run
    most_frequent = max(chosen, key=chosen.count)
    (setting,) = list(by_setting)[most_frequent]
    return setting, losses[chosen, np.arange(runs)].tolist()


def _words(row: Row) -> str:
    """Return how many reports tern needs in words, such as "5,200 reports (4,900 to 5,600)".

    row: from `_needed`. "low" and "high" are the ends of the interval of confidence; "high" is None,
    and "tern_reports" too, if more reports are needed than were tried. "at_most" is true if the
    smallest number that was tried suffices.
    """
    if row["tern_reports"] is None:
        return "more reports than were tried"
    number = f"{row['tern_reports']:,}"
    if row["at_most"]:
        number = f"at most {number}"
    high = "more than were tried"
    if row["high"]:
        high = f"{row['high']:,}"
    return f"{number} reports ({row['low']:,} to {high})"


def _needed(rows: Sequence[Row], papers: str) -> Row:
    """Return how many reports tern needs for the loss of the papers' learner with the most reports.

    The 95 % interval follows from the standard errors of both. rows: the mean losses of all
    learners by the number of reports. papers: the version of the papers' learner. The column
    "at_most" says that tern reaches the loss with the smallest number that was tried.
    """
    target = pick(rows, learner=papers)[-1]
    tern_rows = pick(rows, learner=_TERN)
    counts = [row["reports"] for row in tern_rows]
    excess_losses, half_widths = [], []  # at each number of reports
    for row in tern_rows:
        excess_losses.append(row["loss"] - target["loss"])
        error = np.hypot(row["standard_error"], target["standard_error"])
        half_widths.append(half_interval(error, target["runs"]))

    def reports_for(excess: Floats) -> int | None:
        """Return the number of reports from which the excess loss is 0; None if it never is."""
        reports = enough(counts, shortfalls=excess.tolist())
        if reports is None:
            return None
        return round(reports)

    excess = np.array(excess_losses)
    needed = reports_for(excess)
    row = {}
    for name in ("data", "epsilon", "learner", "loss", "setting", "runs"):
        row[name] = target[name]
    return {
        **row,
        "papers_reports": target["reports"],
        "tern_reports": needed,
        "low": reports_for(excess - half_widths),
        "high": reports_for(excess + half_widths),
        "at_most": needed == counts[0],
    }


def _panel(rows: Sequence[Row]) -> Panel:
    """Return a panel of the losses of all learners by reports, for one data set and epsilon.

    Two lines to compare with are drawn across it: the loss of the papers' learner with the most
    reports, and the loss without privacy.

    rows: the average losses, from fewer to more reports.
    """
    target = pick(rows, learner=_PAPERS)[-1]  # with the most reports
    dataset = load(target["data"])
    model, loss = trained_by(dataset)
    learners = (_TERN, _PAPERS, _TUNED)
    curves = [Curve.of(name, pick(rows, learner=name), "reports", "loss") for name in learners]
    lines = {
        f"LDP-FedSGD with {target['reports']:,} reports": target["loss"],
        "without privacy": optimal_figures(dataset, model)[loss],
    }
    title = f"{model} on {target['data']}, epsilon {target['epsilon']:g}"
    x_label, y_label = "reports, one from each device", f"{WORDS[loss]} on held-out records"
    return Panel(title, x_label, y_label, curves, log_x=True, log_y=True, lines=lines)
