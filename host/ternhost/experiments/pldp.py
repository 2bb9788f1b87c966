"""PLDP-FL: accuracy by round in each mode of choosing tau and epsilon, by mechanism, and against tau.

The modes are those of Shen et al. (2023): all clients alike, each with an epsilon of its own, each with a safe range
tau of its own, or both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tern.wire import LOCAL
from ternhost import datasets, vectorised
from ternhost.algorithms.base import Audience
from ternhost.algorithms.fedavg import MODES, FedAvg
from ternhost.algorithms.judging import WORDS, measure
from ternhost.drivers.base import Cohorts
from ternhost.drivers.simulated import SimulatedDriver
from ternhost.experiments.base import DATASET, Contender, Options, Outcome, load, two_classes
from ternhost.experiments.cells import Cell, Row, Tables
from ternhost.experiments.pictures import Curve, Panel, draw
from ternhost.experiments.rounds import figure_of, optimal_figures, rounds
from ternhost.experiments.statistics import grouped, pick, summaries, values_of
from ternhost.mechanisms.base import MICRO

SUMMARY = "PLDP-FL in its modes of tau and epsilon, by round and by tau"

_MECHANISMS = ("pdpm", "duchi", "rr3")
_RECORDS = 8  # of a client


def cells(options: Options) -> list[Cell]:
    dataset = two_classes(options.dataset or DATASET)
    asked = {
        "rounds": 10 if options.quick else 40,
        "records": min(_RECORDS, max(1, len(dataset.training) // 100)),
        "share": 0.1,
        "batch": 4,
        "local_rate": 1,
        "k": 1,
    }
    taus = (0.0625, 0.25, 1.0) if options.quick else (0.015625, 0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0)
    compared = options.compared(*_MECHANISMS)
    settings: list[tuple[str, dict[str, Any]]] = [("modes", {"choices": mode}) for mode in MODES]
    settings += [("taus", {"tau": tau, "epsilon": "8"}) for tau in taus]
    return [
        Cell(
            table,
            _trained,
            {
                "dataset": dataset.name, "label": label, "of": of, "asked": {**asked, **own},
                "seed": options.seed + i,
            },
        )
        for table, own in settings
        for label, of in compared.items()
        for i in range(options.runs_or(5, 1))
    ]  # fmt: skip


def _trained(dataset: str, label: str, of: Contender, asked: dict[str, Any], seed: int) -> list[Row]:
    data = load(dataset)
    own = {**asked, "mechanism": of.name, "levels": of.levels, "mechanism_options": dict(of.options)}
    choice = {"mode": asked["choices"]} if "choices" in asked else {"tau": asked["tau"]}
    return [{**choice, "mechanism": label, "run": seed, **_train(data, seed, own)}]


def outcome(options: Options, tables: Tables) -> Outcome:
    by_round = [
        {"mode": mode, "mechanism": mechanism, "round": i + 1, "figure": float(value)}
        for (mode, mechanism), own in grouped(tables["modes"], "mode", "mechanism").items()
        for i, value in enumerate(np.mean([row["history"] for row in own], axis=0))
    ]
    data = load(options.dataset or DATASET)
    ends = {
        name: summaries(
            [{key: value for key, value in row.items() if key != "history"} for row in tables[name]],
            by,
            "mechanism",
            "figure",
            larger=lambda row: True,
        )
        for name, by in (("modes", ("mode",)), ("taus", ("tau",)))
    }
    word = WORDS[measure(data)]
    best = optimal_figures(data, "logistic")[measure(data)]
    return Outcome(
        "pldp",
        {"dataset": data.name, "weights_a_report": 1},
        {"pldp": ends["modes"], "rounds": by_round, "tau": ends["taus"]},
        {
            "pldp": draw(_round_panels(by_round, word, best), 2),
            "pldp-tau": draw([_tau_panel(ends["taus"], word, best)]),
        },
        [
            f"{row['mode']}, {row['mechanism']}: {word} {row['figure']:.4f} ({best:.4f} without privacy), "
            f"at most epsilon {row['epsilon_user_level']:g} a client (user level)"
            for row in ends["modes"]
        ],
    )


class _Watched(SimulatedDriver):
    """Simulated clients of which it is known how many moves were beyond their safe range."""

    moves = clipped = 0

    def open(self, number: int, cohorts: Cohorts) -> None:
        super().open(number, cohorts)
        for question, devices in cohorts:
            epochs, rate, tau = question.local
            rows = self.holdings.rows(np.asarray(devices) - 1)
            moved = vectorised.train_locally(
                question.model - LOCAL,
                np.asarray(question.parameters),
                question.exponent,
                rows,
                epochs,
                question.batch,
                rate,
            )
            self.moves += moved.size
            self.clipped += int((np.abs(moved) > tau).sum())


def _train(dataset: datasets.Dataset, seed: int, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What a run has learned: its figure, also of every round, and the share of moves that were clipped."""
    learner = FedAvg(FedAvg.Options(seed=seed, **asked), Audience(), dataset)
    assert learner.holdings is not None
    clients = _Watched(learner.holdings, learner.clients, seed)
    history = [figure_of(learner) for _ in rounds(learner, clients)]
    return {
        "figure": history[-1],
        "history": history,
        "clipped": clients.clipped / clients.moves,
        "clients": learner.clients,
        "epsilon_user_level": max(learner.costs()) / MICRO,
    }


def _round_panels(rows: list[Row], word: str, best: float) -> list[Panel]:
    titles = {
        "same": "the same tau and epsilon",
        "epsilon": "an epsilon of one's own: 2, 8, 16",
        "tau": "a tau of one's own: 1/8, 1/4, 1/2",
        "both": "both of one's own",
    }
    panels = []
    for mode in values_of(rows, "mode"):
        curves = []
        for mechanism in values_of(rows, "mechanism"):
            own = pick(rows, mode=mode, mechanism=mechanism)
            curves.append(Curve(mechanism, [row["round"] for row in own], [row["figure"] for row in own]))
        up = f"{word} on held-out records"
        panels.append(Panel(titles[mode], "round", up, curves, lines={"without privacy": best}))
    return panels


def _tau_panel(rows: list[Row], word: str, best: float) -> Panel:
    return Panel(
        "Safe range: too small clips the moves, too large adds noise (epsilon 8)",
        "tau, in units of a weight",
        f"{word} on held-out records",
        [
            Curve(
                mechanism,
                [row["tau"] for row in own],
                [row["figure"] for row in own],
                [row["standard_error"] for row in own],
            )
            for mechanism in values_of(rows, "mechanism")
            for own in [pick(rows, mechanism=mechanism)]
        ],
        log_x=True,
        lines={"without privacy": best},
    )
