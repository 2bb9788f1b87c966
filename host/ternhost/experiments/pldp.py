"""PLDP-FL: models by round for nine combinations of epsilon and tau, in each mode of choosing them, and against tau.

Shen et al. (2023) have clients choose an epsilon from one of three sets and a safe range tau from one of three, and
report all of their d weights, each at that epsilon: what a client spends is d times it in every round that it takes
part in, and is told as the user-level epsilon. The values in the sets are tern's choice. The modes are: all clients
alike, each with an epsilon of its own, each with a tau of its own, or both; there, and against tau, a client reports
one weight, which is what a device would do.
"""

from __future__ import annotations

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

SUMMARY = "PLDP-FL for nine combinations of epsilon and tau, in its modes, by round and by tau"

_MECHANISMS = ("pdpm", "duchi", "rr3")
_RECORDS = 8  # of a client
_ALL_WEIGHTS = ("pdpm", "duchi")  # compared where all weights are reported
# Values that clients choose, a third of them each: the epsilon of one weight, and tau.
_EPSILONS = {"eps1": (0.5, 0.75, 1.0), "eps2": (1.0, 2.0, 3.0), "eps3": (3.0, 4.0, 5.0)}
_TAUS = {"tau1": (1 / 32, 1 / 16, 1 / 8), "tau2": (1 / 16, 1 / 8, 1 / 4), "tau3": (1 / 8, 1 / 4, 1 / 2)}


def cells(options: Options) -> list[Cell]:
    dataset = two_classes(options.dataset or DATASET)
    records = min(_RECORDS, max(1, len(dataset.training) // 100))
    common = {
        "rounds": 10 if options.quick else 40,
        "records": records,
        "clients": len(dataset.training) // records // 10 * 10,  # so that each takes part equally often
        "share": 0.1,
        "batch": 4,
        "local_rate": 1,
        "k": 1,
    }
    taus = (0.0625, 0.25, 1.0) if options.quick else (0.015625, 0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0)
    compared = options.compared(*_MECHANISMS)
    settings: list[tuple[str, dict[str, Any]]] = [("modes", {"choices": mode}) for mode in MODES]
    pairs = [("eps1", "tau1"), ("eps3", "tau3")] if options.quick else product(_EPSILONS, _TAUS)
    settings += [("combinations", {"choices": _choices(*pair)}) for pair in pairs]
    settings += [("taus", {"tau": tau, "epsilon": "8"}) for tau in taus]
    return [
        Cell(
            table,
            _trained,
            {
                "table": table,
                "dataset": dataset.name, "label": label, "of": of, "chosen": {**common, **own}, "seed": seed,
            },
        )
        for table, own in settings
        for label, of in (options.compared(*_ALL_WEIGHTS) if table == "combinations" else compared).items()
        for seed in options.seeds(5, 1)
    ]  # fmt: skip


def _choices(epsilons: str, taus: str) -> str:
    """A combination as an option: a third of the clients each pair of values."""
    pairs = zip(_TAUS[taus], _EPSILONS[epsilons], strict=True)
    return ",".join(f"{tau:g}:{epsilon:g}:{1 / 3:.7f}" for tau, epsilon in pairs)


class _AllWeights(FedAvg):
    """Clients that report all weights, each at the epsilon chosen, as the paper has it: more than a device allows."""

    def __init__(self, options: Any, population: Population, data: datasets.Dataset | None = None) -> None:
        super().__init__(options, population, data)
        self.designs = [replace(own, k=self.d, epsilon=self.d * own.card.epsilon) for own in self.designs]


def _trained(
    table: str, dataset: str, label: str, of: Contender, chosen: dict[str, Any], seed: int
) -> list[Row]:
    options = {**chosen, "mechanism": of.name, "levels": of.levels, "mechanism_options": dict(of.options)}
    choice = {"tau": chosen["tau"]} if table == "taus" else {"mode": chosen["choices"]}
    learned = _train(load(dataset), seed, options, _AllWeights if table == "combinations" else FedAvg)
    return [{**choice, "mechanism": label, "run": seed, **learned}]


def outcome(options: Options, tables: Tables) -> Outcome:
    data = load(options.dataset or DATASET)
    names = {_choices(e, tau): f"{e}, {tau}" for e in _EPSILONS for tau in _TAUS}
    combined = [{**row, "mode": names[row["mode"]]} for row in tables["combinations"]]
    word = WORDS[measure(data)]
    best = optimal_figures(data, "logistic")[measure(data)]
    modes, nine, taus = (
        _ends(tables["modes"], "mode"), _ends(combined, "mode"), _ends(tables["taus"], "tau")
    )  # fmt: skip
    rounds_of = {"rounds": _by_round(tables["modes"]), "combination-rounds": _by_round(combined)}
    titles = {
        row["mode"]: f"{row['mode']}: user-level epsilon {row['epsilon_user_level']:.0f}" for row in nine
    }
    lines = [
        f"{row['mode']}, {row['mechanism']}: {word} {row['figure']:.4f} ({best:.4f} without privacy), "
        f"at most epsilon {row['epsilon_user_level']:g} a client (user level)"
        for row in (*nine, *modes)
    ]
    return Outcome(
        {"dataset": data.name, "epsilons": _EPSILONS, "taus": _TAUS, "weights": data.dimension},
        {"pldp": modes, "combinations": nine, **rounds_of, "tau": taus},
        {
            "pldp": draw(_round_panels(rounds_of["rounds"], _TITLES, word, best), 2),
            "pldp-combinations": draw(_round_panels(rounds_of["combination-rounds"], titles, word, best), 3),
            "pldp-tau": draw([_tau_panel(taus, word, best)]),
        },
        lines,
    )


def _ends(rows: Sequence[Row], by: str) -> list[Row]:
    """The figures after the last round."""
    ends = [{key: value for key, value in row.items() if key != "history"} for row in rows]
    return summaries(ends, (by,), "mechanism", "figure", larger=lambda row: True)


def _by_round(rows: Sequence[Row]) -> list[Row]:
    return [
        {"mode": mode, "mechanism": mechanism, "round": i + 1, "figure": float(value)}
        for (mode, mechanism), own in grouped(rows, "mode", "mechanism").items()
        for i, value in enumerate(np.mean([row["history"] for row in own], axis=0))
    ]


class _Watched(SimulatedDriver):
    """Simulated clients that count the moves beyond their safe range."""

    moves = clipped = 0

    def open(self, number: int, cohorts: Cohorts) -> None:
        super().open(number, cohorts)
        for question, devices in cohorts:
            epochs, rate, tau = question.local
            rows = self.holdings.rows(np.asarray(devices) - 1)
            model, parameters = question.model - LOCAL, np.asarray(question.parameters)
            moved = vectorised.train_locally(
                model, parameters, question.exponent, rows, epochs, question.batch, rate
            )
            self.moves += moved.size
            self.clipped += int((np.abs(moved) > tau).sum())


def _train(
    dataset: datasets.Dataset, seed: int, options: Mapping[str, Any], of: type[FedAvg] = FedAvg
) -> dict[str, Any]:
    """The result of a run: its figure, also after every round, and the share of moves that were clipped."""
    learner = of(FedAvg.Options(seed=seed, **options), Population(), dataset)
    assert learner.holdings is not None
    clients = _Watched(learner.holdings, learner.clients, seed)
    history = [figure_of(learner) for _ in rounds(learner, clients)]
    return {
        "figure": history[-1],
        "history": history,
        "clipped": clients.clipped / clients.moves,
        "clients": learner.clients,
        "epsilon_user_level": max(costs(learner)) / MICRO,
    }


_TITLES = {
    "same": "the same tau and epsilon",
    "epsilon": "each its own epsilon: 2, 8, 16",
    "tau": "each its own tau: 1/8, 1/4, 1/2",
    "both": "each its own tau and epsilon",
}


def _round_panels(rows: list[Row], titles: Mapping[str, str], word: str, best: float) -> list[Panel]:
    panels = []
    for mode in values_of(rows, "mode"):
        own = pick(rows, mode=mode)
        curves = Curve.each(own, "mechanism", "round", "figure")
        up = f"{word} on held-out records"
        panels.append(Panel(titles[mode], "round", up, curves, lines={"without privacy": best}))
    return panels


def _tau_panel(rows: list[Row], word: str, best: float) -> Panel:
    return Panel(
        "Safe range: too small clips the moves, too large adds noise (epsilon 8)",
        "tau, in units of a weight",
        f"{word} on held-out records",
        Curve.each(rows, "mechanism", "tau", "figure"),
        log_x=True,
        lines={"without privacy": best},
    )
