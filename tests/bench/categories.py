"""How near collected frequencies come to the truth, beside two packages, on a table of 14 categories and 5 numbers.

    python -m bench.categories [--users N] [--runs N]

Each user tells of one record of flights-table, once. Beside `tern collect` at its defaults, in the way that their
documentation shows: of multi-freq-ldpy the sampling of one attribute (SMP) with optimised unary encoding and with
whichever of that and randomised response is better (ADP), and random sampling plus fake data (RS+FD) with each; of
pure-ldp its optimised unary encoding after the same sampling (its local hashing fails with xxhash from 3.0 on). What
they ask of a number is its sign. A package that is not installed is left out (`pip install tern-ldp[bench]`).

RS+FD is stated at epsilon, but that holds between records which differ in one attribute only: where all d differ, a
report that speaks for one record in every attribute is `d (e**epsilon - 1) + 1` times as likely as from the other. Its
loss is given as that (`epsilon`), as everything here is of whole records.

The error is the mean over the 14 attributes of the mean squared error of a frequency. Estimates are compared as they
are, without bias (`error`), and cut at 0 and divided by their sum, as multi-freq-ldpy does (`clipped`).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ternhost.datasets import Table, flights_table
from ternhost.learn.base import Population
from ternhost.learn.collect import Collect
from ternhost.reach.simulated.driver import SimulatedDriver

_EPSILONS = (1.0, 4.0)

Floats = npt.NDArray[np.float64]
Answer = list[Floats]  # the frequencies of each attribute


def tern(table: Table, epsilon: float, seed: int) -> Answer:
    """What `tern collect` finds."""
    users = len(table.numeric)
    algorithm = Collect(Collect.Options(epsilon=str(epsilon), seed=seed), Population(clients=users), table)
    assert algorithm.holdings is not None
    driver = SimulatedDriver(algorithm.holdings, users, seed, individual=algorithm.individual)
    driver.open(1, algorithm.cohorts(driver.devices))
    result = driver.collect(1)
    assert result is not None
    algorithm.learn(result, driver.devices)
    told = algorithm.result([])["attributes"]
    return [np.array(entry["frequencies"], np.float64) for entry in told if "frequencies" in entry]


def _columns(table: Table) -> tuple[npt.NDArray[np.int64], list[int]]:
    """What the packages ask for: the signs of numbers, then the codes of categories; and how many each has."""
    assert table.codes is not None
    columns = np.concatenate([table.numeric > 0, table.codes], axis=1).astype(np.int64)
    return columns, [2] * table.numeric.shape[1] + [len(values) for values in table.categories]


def _unary(reports: Sequence[Floats], epsilon: float) -> Floats:
    # optimised unary encoding: p = 1/2, q = 1 / (e**epsilon + 1)
    q = 1 / (math.exp(epsilon) + 1)
    shares: Floats = (np.mean(reports, axis=0) - q) / (0.5 - q)
    return shares


def _response(reports: npt.ArrayLike, epsilon: float, size: int) -> Floats:
    e = math.exp(epsilon)
    shares = np.bincount(np.asarray(reports, np.int64), minlength=size) / np.size(reports)
    found: Floats = (shares * (e + size - 1) - 1) / (e - 1)
    return found


def _sampled(table: Table, epsilon: float, oracle: str) -> Answer:
    """multi-freq-ldpy's SMP[OUE] or SMP[ADP]."""
    package = importlib.import_module("multi_freq_ldpy.mdim_freq_est.SMP_solution")
    columns, sizes = _columns(table)
    ask = getattr(package, f"SMP_{oracle}_Client")
    told: list[list[Any]] = [[] for _ in sizes]
    for row in columns:
        attribute, report = ask(row, sizes, len(sizes), epsilon)
        told[attribute].append(report)
    return [
        _unary(own, epsilon) if np.ndim(own[0]) else _response(own, epsilon, size)
        for own, size in zip(told, sizes, strict=True)
    ]


def _fake_data(table: Table, epsilon: float, oracle: str) -> Answer:
    """multi-freq-ldpy's RS+FD[OUE-z] or RS+FD[GRR]: all attributes, of which one is true, at a larger epsilon."""
    package = importlib.import_module("multi_freq_ldpy.mdim_freq_est.RSpFD_solution")
    columns, sizes = _columns(table)
    ask, d = getattr(package, f"RSpFD_{oracle}_Client"), len(sizes)
    amplified = math.log(d * (math.exp(epsilon) - 1) + 1)
    reports = [ask(row, sizes, d, epsilon) for row in columns]
    answer = []
    for j, size in enumerate(sizes):
        own = [report[j] for report in reports]
        if oracle == "GRR":  # a fake one is uniform: estimators of Arcolezi et al., CIKM 2021
            answer.append(d * (_response(own, amplified, size) - (d - 1) / d / size))
        else:  # a fake one is of nothing at all
            answer.append(d * _unary(own, amplified))
    return answer


def _pure_ldp(table: Table, epsilon: float, seed: int) -> Answer:
    """pure-ldp's optimised unary encoding of one attribute of each user."""
    package = importlib.import_module("pure_ldp.frequency_oracles.unary_encoding")
    columns, sizes = _columns(table)
    which = np.random.default_rng(seed).integers(len(sizes), size=len(columns))
    answer = []
    for j, size in enumerate(sizes):
        client = package.UEClient(epsilon, size, use_oue=True, index_mapper=int)
        server = package.UEServer(epsilon, size, use_oue=True, index_mapper=int)
        own = columns[which == j, j].tolist()
        for value in own:
            server.aggregate(client.privatise(value))
        found = [server.estimate(i, suppress_warnings=True) for i in range(size)]
        answer.append(np.array(found) / len(own))
    return answer


def contenders(table: Table, epsilon: float, seed: int) -> Iterator[tuple[str, Callable[[], Answer]]]:
    """Those that are there, by name."""
    yield "tern", lambda: tern(table, epsilon, seed)
    if importlib.util.find_spec("multi_freq_ldpy"):
        yield "multi-freq-ldpy SMP[OUE]", lambda: _sampled(table, epsilon, "UE")
        yield "multi-freq-ldpy SMP[ADP]", lambda: _sampled(table, epsilon, "ADP")
        yield "multi-freq-ldpy RS+FD[OUE-z]", lambda: _fake_data(table, epsilon, "UE_zero")
        yield "multi-freq-ldpy RS+FD[GRR]", lambda: _fake_data(table, epsilon, "GRR")
    if importlib.util.find_spec("pure_ldp"):
        yield "pure-ldp OUE of one attribute", lambda: _pure_ldp(table, epsilon, seed)


def compare(users: int, runs: int, epsilon: float) -> dict[str, dict[str, float]]:
    """The errors of each contender, over so many runs, each with records of its own."""
    whole = flights_table()
    assert whole.codes is not None
    sums: dict[str, list[tuple[float, float]]] = {}
    for seed in range(1, runs + 1):
        chosen = np.random.default_rng(seed).permutation(len(whole.numeric))[:users]
        names = (whole.categorical_names, whole.codes[chosen], whole.categories)
        table = Table(whole.name, whole.numeric_names, whole.numeric[chosen], *names)
        assert table.codes is not None
        truth = [
            np.bincount(table.codes[:, j], minlength=len(values)) / users
            for j, values in enumerate(table.categories)
        ]
        np.random.seed(seed)  # of multi-freq-ldpy
        for name, ask in contenders(table, epsilon, seed):
            found = ask()[-len(truth) :]
            sums.setdefault(name, []).append((_error(found, truth), _error([*map(_clipped, found)], truth)))
    d = len(whole.numeric_names) + len(whole.categories)
    amplified = math.log(d * (math.exp(epsilon) - 1) + 1)
    return {
        name: {
            **dict(zip(("error", "clipped"), np.mean(errors, axis=0).tolist(), strict=True)),
            "epsilon": amplified if "RS+FD" in name else epsilon,
        }
        for name, errors in sums.items()
    }


def _error(found: Answer, truth: Answer) -> float:
    return float(np.mean([np.mean((a - b) ** 2) for a, b in zip(found, truth, strict=True)]))


def _clipped(found: Floats) -> Floats:
    cut = np.maximum(found, 0)
    whole: Floats = cut / cut.sum()
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Compare the errors of collected frequencies; prints one JSON object."
    )
    parser.add_argument("--users", type=int, default=50_000, help="users, of one record each")
    parser.add_argument("--runs", type=int, default=3, help="runs to average over")
    args = parser.parse_args()
    result: dict[str, Any] = {"users": args.users, "runs": args.runs}
    for epsilon in _EPSILONS:
        result[f"epsilon {epsilon:g}"] = compare(args.users, args.runs, epsilon)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
