"""PLDP-FL: models by round for nine combinations of epsilon and tau and for each mode of choosing them, and by tau.

In Shen et al. (2023), clients choose an epsilon from one of three sets and a safe range tau from one of three. They
report all d weights, each at that epsilon, so a client spends d times its epsilon in each of its rounds; the sum is the
user-level epsilon. The values in the sets are tern's choice. In the four modes, clients choose nothing, epsilon, tau or
both. For the modes, and for the figures by tau, a client reports one weight, as a device does."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from tern.wire import LOCAL
from ternhost import datasets, vectorised
from ternhost.experiments.base import DATASET, Contender, Options, Outcome, load, two_classes
from ternhost.experiments.cells import Cell, Row, Tables
from ternhost.experiments.pictures import Curve, Panel, draw
from ternhost.experiments.rounds import figure_of, optimal_figures, rounds
from ternhost.experiments.statistics import grouped, pick, summaries, values_of
from ternhost.learn.base import Population
from ternhost.learn.fedavg import MODES, FedAvg
from ternhost.learn.judging import WORDS, measure
from ternhost.privacy.base import MICRO
from ternhost.reach.driver import Cohorts
from ternhost.reach.simulated.driver import SimulatedDriver
from ternhost.run.costs import costs

_MECHANISMS = ("pdpm", "duchi", "rr3")
_RECORDS = 8  # of a client
_ALL_WEIGHTS = ("pdpm", "duchi")  # compared if clients report all weights
# A third of the clients chooses each value of a set: the epsilon of one weight, and tau.
_EPSILONS = {"eps1": (0.5, 0.75, 1.0), "eps2": (1.0, 2.0, 3.0), "eps3": (3.0, 4.0, 5.0)}
_TAUS = {"tau1": (1 / 32, 1 / 16, 1 / 8), "tau2": (1 / 16, 1 / 8, 1 / 4), "tau3": (1 / 8, 1 / 4, 1 / 2)}


def cells(options: Options) -> list[Cell]:
    dataset = two_classes(options.dataset or DATASET)
    records = min(_RECORDS, max(1, len(dataset.training) // 100))
    clients = len(dataset.training) // records // 10 * 10  # so that all take part equally often
    common = {"rounds": 10 if options.quick else 40, "records": records, "clients": clients, "share": 0.1}
    common |= {"batch": 4, "local_rate": 1, "k": 1}
    taus = (0.0625, 0.25, 1.0) if options.quick else (0.015625, 0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0)
    pairs = [("eps1", "tau1"), ("eps3", "tau3")] if options.quick else product(_EPSILONS, _TAUS)
    settings: dict[str, list[dict[str, Any]]] = {
        "modes": [{"choices": mode} for mode in MODES],
        "combinations": [{"choices": _choices(*pair)} for pair in pairs],
        "taus": [{"tau": tau, "epsilon": "8"} for tau in taus],
    }
    made: list[Cell] = []
    for table, of_table in settings.items():
        compared = options.compared(*(_ALL_WEIGHTS if table == "combinations" else _MECHANISMS)).values()
        training = [{**common, **setting} for setting in of_table]
        fixed, seeds = {"table": table, "dataset": dataset.name}, options.seeds(5, 1)
        made += Cell.each(table, _trained, fixed, training=training, contender=compared, seed=seeds)
    return made


def _choices(epsilons: str, taus: str) -> str:
    """A combination as the option --choices: a third of the clients has each pair of values."""
    pairs = zip(_TAUS[taus], _EPSILONS[epsilons], strict=True)
    return ",".join(f"{tau:g}:{epsilon:g}:{1 / 3:.7f}" for tau, epsilon in pairs)


class _AllWeights(FedAvg):
    """Clients that report all weights, each at the chosen epsilon, as in the paper. A device reports fewer."""

    def __init__(self, options: Any, population: Population, data: datasets.Dataset | None = None) -> None:
        super().__init__(options, population, data)
        d = self.d
        self.designs = [replace(design, k=d, epsilon=d * design.card.epsilon) for design in self.designs]


def _trained(table: str, dataset: str, training: Row, contender: Contender, seed: int) -> list[Row]:
    mechanism = {"mechanism": contender.name, "levels": contender.levels}
    options = {**training, **mechanism, "mechanism_options": dict(contender.options)}
    setting = {"tau": training["tau"]} if table == "taus" else {"mode": training["choices"]}
    result = _train(load(dataset), seed, options, _AllWeights if table == "combinations" else FedAvg)
    return [{**setting, "mechanism": contender.label, "run": seed, **result}]


def outcome(options: Options, tables: Tables) -> Outcome:
    data = load(options.dataset or DATASET)
    names = {_choices(e, tau): f"{e}, {tau}" for e in _EPSILONS for tau in _TAUS}
    combined = [{**row, "mode": names[row["mode"]]} for row in tables["combinations"]]
    word = WORDS[measure(data)]
    optimum = optimal_figures(data, "logistic")[measure(data)]
    modes, combinations = _final(tables["modes"], "mode"), _final(combined, "mode")
    taus = _final(tables["taus"], "tau")
    mode_rounds, combination_rounds = _by_round(tables["modes"]), _by_round(combined)
    titles = {
        row["mode"]: f"{row['mode']}: user-level epsilon {row['epsilon_user_level']:.0f}"
        for row in combinations
    }
    lines = [
        f"{row['mode']}, {row['mechanism']}: {word} {row['figure']:.4f} ({optimum:.4f} without privacy), user-level "
        f"epsilon of a client at most {row['epsilon_user_level']:g}"
        for row in (*combinations, *modes)
    ]
    settings = {"dataset": data.name, "epsilons": _EPSILONS, "taus": _TAUS, "weights": data.dimension}
    kept = {"pldp": modes, "combinations": combinations, "rounds": mode_rounds}
    kept |= {"combination-rounds": combination_rounds, "tau": taus}
    figures = {
        "pldp": draw(_round_panels(mode_rounds, _TITLES, word, optimum), 2),
        "pldp-combinations": draw(_round_panels(combination_rounds, titles, word, optimum), 3),
        "pldp-tau": draw([_tau_panel(taus, word, optimum)]),
    }
    return Outcome(settings, kept, figures, lines)


def _final(rows: Sequence[Row], by: str) -> list[Row]:
    """Summaries of the figures after the last round."""
    final = [{key: value for key, value in row.items() if key != "history"} for row in rows]
    return summaries(final, (by,), "mechanism", "figure", larger=lambda row: True)


def _by_round(rows: Sequence[Row]) -> list[Row]:
    return [
        {"mode": mode, "mechanism": mechanism, "round": number, "figure": float(figure)}
        for (mode, mechanism), runs in grouped(rows, "mode", "mechanism").items()
        for number, figure in enumerate(np.mean([run["history"] for run in runs], axis=0), start=1)
    ]


class _CountingDriver(SimulatedDriver):
    """Simulated clients that count how many moves of their weights exceed the safe range."""

    moves = clipped = 0

    def open(self, number: int, cohorts: Cohorts) -> None:
        super().open(number, cohorts)
        for question, devices in cohorts:
            epochs, rate, tau = question.local
            rows = self.holdings.rows(np.asarray(devices) - 1)
            model, parameters = question.model - LOCAL, np.asarray(question.parameters)
            exponent, batch = question.exponent, question.batch
            moved = vectorised.train_locally(model, parameters, exponent, rows, epochs, batch, rate)
            self.moves += moved.size
            self.clipped += int((np.abs(moved) > tau).sum())


def _train(
    dataset: datasets.Dataset, seed: int, options: Mapping[str, Any], algorithm: type[FedAvg] = FedAvg
) -> dict[str, Any]:
    """The result of a run: its final figure, the figure after every round, and the share of moves that were clipped."""
    learner = algorithm(FedAvg.Options(seed=seed, **options), Population(), dataset)
    assert learner.holdings is not None
    clients = _CountingDriver(learner.holdings, learner.clients, seed)
    history = [figure_of(learner) for _ in rounds(learner, clients)]
    figures = {"figure": history[-1], "history": history, "clipped": clients.clipped / clients.moves}
    return {**figures, "clients": learner.clients, "epsilon_user_level": max(costs(learner)) / MICRO}


_TITLES = {
    "same": "the same tau and epsilon for all",
    "epsilon": "clients choose epsilon: 2, 8, 16",
    "tau": "clients choose tau: 1/8, 1/4, 1/2",
    "both": "clients choose tau and epsilon",
}


def _round_panels(rows: list[Row], titles: Mapping[str, str], word: str, optimum: float) -> list[Panel]:
    panels, lines = [], {"without privacy": optimum}
    for mode in values_of(rows, "mode"):
        curves = Curve.each(pick(rows, mode=mode), "mechanism", "round", "figure")
        panels.append(Panel(titles[mode], "round", f"{word} on held-out records", curves, lines=lines))
    return panels


def _tau_panel(rows: list[Row], word: str, optimum: float) -> Panel:
    title = "Safe range: a small one clips moves, a large one adds noise (epsilon 8)"
    x_label, y_label = "tau, in units of a weight", f"{word} on held-out records"
    curves = Curve.each(rows, "mechanism", "tau", "figure")
    return Panel(title, x_label, y_label, curves, log_x=True, lines={"without privacy": optimum})
