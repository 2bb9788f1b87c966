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
from ternhost.drivers.base import Cohorts
from ternhost.drivers.simulated import SimulatedDriver
from ternhost.experiments.base import (
    Contender,
    Curve,
    Options,
    Outcome,
    Panel,
    Row,
    draw,
    mean_and_error,
    two_classes,
)
from ternhost.experiments.rounds import rounds
from ternhost.mechanisms.base import MICRO

SUMMARY = "PLDP-FL in its modes of tau and epsilon, by round and by tau"

_MECHANISMS = ("pdpm", "duchi", "rr3")
_RECORDS = 8  # of a client


def run(options: Options) -> Outcome:
    dataset = two_classes(options.dataset or "synthetic-logistic")
    runs = options.runs_or(5, 1)
    count = 10 if options.quick else 40
    if len(dataset.training) < 100 * _RECORDS:
        records = max(1, len(dataset.training) // 100)
    else:
        records = _RECORDS
    asked = {"rounds": count, "records": records, "share": 0.1, "batch": 4, "local_rate": 1, "k": 1}
    by_round: list[Row] = []
    summary: list[Row] = []
    for mode in MODES:
        for mechanism, contender in options.compared(*_MECHANISMS).items():
            options.progress(f"{mode}, {mechanism}")
            own = {**asked, **_design(contender), "choices": mode}
            found = [_train(dataset, options.seed + i, own) for i in range(runs)]
            mean = np.mean([result["history"] for result in found], axis=0)
            by_round += [
                {"mode": mode, "mechanism": mechanism, "round": i + 1, "accuracy": float(value)}
                for i, value in enumerate(mean)
            ]
            summary.append(_row(mode, mechanism, found))
    by_tau = _by_tau(options, asked, dataset, runs)
    return Outcome(
        "pldp",
        {"rounds": count, "runs": runs, "records": records, "dataset": dataset.name, "weights_a_report": 1},
        {"pldp": summary, "rounds": by_round, "tau": by_tau},
        {"pldp": draw(_round_panels(by_round), 2), "pldp-tau": draw([_tau_panel(by_tau)])},
        [
            f"{row['mode']}, {row['mechanism']}: accuracy {row['accuracy']:.4f} ({row['nonprivate']:.4f} exact), "
            f"at most epsilon {row['epsilon_user_level']:g} a client (user level)"
            for row in summary
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


def _design(of: Contender) -> dict[str, Any]:
    """The options that mean this mechanism."""
    return {"mechanism": of.name, "levels": of.levels, "mechanism_options": dict(of.options)}


def _train(dataset: datasets.Dataset, seed: int, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a run, with the accuracy of every round and the share of moves that were clipped."""
    learner = FedAvg(FedAvg.Options(seed=seed, **asked), Audience(), dataset)
    assert learner.holdings is not None
    clients = _Watched(learner.holdings, learner.clients, seed)
    history = [learner.figures()["accuracy"] for _ in rounds(learner, clients)]
    return {
        **learner.result([]),
        "history": history,
        "clipped": clients.clipped / clients.moves,
        "clients": learner.clients,
        "epsilon_user_level": max(learner.costs()) / MICRO,
    }


def _row(mode: str, mechanism: str, found: list[dict[str, Any]]) -> Row:
    mean, error = mean_and_error([float(result["accuracy"]) for result in found])
    return {
        "mode": mode,
        "mechanism": mechanism,
        "accuracy": mean,
        "standard_error": error,
        "nonprivate": float(np.mean([result["accuracy_optimum"] for result in found])),
        "clipped": float(np.mean([result["clipped"] for result in found])),
        "clients": found[0]["clients"],
        "epsilon_user_level": found[0]["epsilon_user_level"],
        "runs": len(found),
    }


def _by_tau(options: Options, asked: Mapping[str, Any], dataset: datasets.Dataset, runs: int) -> list[Row]:
    rows = []
    for tau in (0.0625, 0.25, 1.0) if options.quick else (0.015625, 0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0):
        for mechanism, contender in options.compared(*_MECHANISMS).items():
            options.progress(f"tau {tau:g}, {mechanism}")
            own = {**asked, **_design(contender), "tau": tau, "epsilon": "8"}
            found = [_train(dataset, options.seed + i, own) for i in range(runs)]
            rows.append({"tau": tau, **_row("same", mechanism, found)})
    return rows


def _round_panels(rows: list[Row]) -> list[Panel]:
    titles = {
        "same": "the same tau and epsilon",
        "epsilon": "an epsilon of one's own: 2, 8, 16",
        "tau": "a tau of one's own: 1/8, 1/4, 1/2",
        "both": "both of one's own",
    }
    panels = []
    for mode in dict.fromkeys(row["mode"] for row in rows):
        curves = []
        for mechanism in dict.fromkeys(row["mechanism"] for row in rows):
            own = [row for row in rows if row["mode"] == mode and row["mechanism"] == mechanism]
            curves.append(Curve(mechanism, [row["round"] for row in own], [row["accuracy"] for row in own]))
        panels.append(Panel(titles[mode], "round", "accuracy on held-out records", curves))
    return panels


def _tau_panel(rows: list[Row]) -> Panel:
    return Panel(
        "Safe range: too small clips the moves, too large adds noise (epsilon 8)",
        "tau, in units of a weight",
        "accuracy on held-out records",
        [
            Curve(
                mechanism,
                [row["tau"] for row in rows if row["mechanism"] == mechanism],
                [row["accuracy"] for row in rows if row["mechanism"] == mechanism],
                [row["standard_error"] for row in rows if row["mechanism"] == mechanism],
            )
            for mechanism in dict.fromkeys(row["mechanism"] for row in rows)
        ],
        log_x=True,
        lines={"without noise": rows[0]["nonprivate"]},
    )
