"""How fast the simulated fleet is, beside the same estimates written otherwise; figures are only compared within a run.

    python -m bench.simulated [--reports N] [--users N]

- ternary: N clients, who hold the rows of a table of 28 values in turn, report one coordinate each, by a Three-Outputs
  card at epsilon 1; the counts become means. Beside it the same in plain vectorised NumPy floats, in equal chunks.
- grr: generalised randomised response of so many users over a few categories, to frequencies. Beside it pure-ldp and
  multi-freq-ldpy (PyPI; `pip install tern-ldp[bench]`) in the way that their documentation shows, and the latter
  also with its loop over users compiled. A package that is not installed is left out.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern.fixed import ONE
from tern.wire import VALUES
from ternhost import vectorised
from ternhost.count import estimate
from ternhost.count.questions import Question
from ternhost.datasets import Holdings
from ternhost.privacy import mechanisms
from ternhost.reach.simulated.driver import SimulatedDriver

_D = 28
_ROWS = 1 << 16
_EPSILON = 1
_RUNS = 3
_SEED = 1

Floats = npt.NDArray[np.float64]


def _table() -> npt.NDArray[np.int16]:
    rng = np.random.default_rng(_SEED)
    return (np.clip(rng.normal(0.1, 0.3, (_ROWS, _D)), -1, 1) * ONE).astype(np.int16)


def ternary(table: npt.NDArray[np.int16], reports: int) -> Floats:
    """Means of the columns, from one report a client, by the simulated fleet."""
    card = cards.decode(mechanisms.design("three-outputs", _EPSILON).card)
    records = np.concatenate([table, np.zeros((len(table), 1), np.int16)], axis=1)
    driver = SimulatedDriver(Holdings(records, np.arange(len(table))), reports, _SEED)
    driver.open(1, [(Question(VALUES, [1] * _D, -12, card.data, 1), driver.devices)])
    result = driver.collect(1)
    assert result is not None
    return estimate.combine([(card, result.cohorts[0].counts)]).mean


def ternary_floats(table: Floats, reports: int) -> Floats:
    """The same means in plain vectorised NumPy floats (Three-Outputs as its paper states it, epsilon 1)."""
    e = math.exp(_EPSILON)
    a = _zero_at_zero(e)
    c = e * (e + 1) / ((e - 1) * (e - a))
    half, high = (1 - a) / 2, (e - a) / (e + 1)
    low = high / e
    rng = np.random.Generator(np.random.SFC64(_SEED))
    sums, counts = np.zeros(_D), np.zeros(_D)
    for start in range(0, reports, _ROWS):
        n = min(_ROWS, reports - start)
        j = rng.integers(0, _D, n)
        x = table[np.arange(n), j]
        s = np.abs(x)
        towards, away = half + (high - half) * s, half - (half - low) * s
        u = rng.random(n)
        y = np.where(u < towards, c, np.where(u < towards + away, -c, 0)) * np.where(x < 0, -1, 1)
        sums += np.bincount(j, y, _D)
        counts += np.bincount(j, minlength=_D)
    return sums / counts


def _zero_at_zero(e: float) -> float:
    # The root of the paper's cubic in [0, E/(E+2)], for 2 < E < 5.53.
    low, high = 0.0, e / (e + 2)
    for _ in range(60):
        a = (low + high) / 2
        cubic = 2 * a**3 - (e * e + 4 * e + 5) * a * a - (e**3 + 4 * e * e - 7 * e) * a + 2 * e**3 - 4 * e * e
        low, high = (a, high) if cubic > 0 else (low, a)
    return low


def grr(data: npt.NDArray[np.int64], k: int) -> Floats:
    """Frequencies of k categories, by the simulated fleet."""
    card = cards.decode(mechanisms.design("grr", _EPSILON, k).card)
    bits = vectorised.random_bits(_SEED)
    counts = np.zeros(k, np.int64)
    for start in range(0, len(data), _ROWS):
        part = data[start : start + _ROWS]
        drawn = vectorised.sample_categories(card, vectorised.RandomLanes(bits, len(part)), part)
        counts += np.bincount(drawn, minlength=k)
    return estimate.combine_frequencies([(card, counts, None)]).mean


def _pure_ldp(data: list[int], k: int) -> Floats:
    oracle = importlib.import_module("pure_ldp.frequency_oracles.direct_encoding")
    client = oracle.DEClient(_EPSILON, k, index_mapper=int)
    server = oracle.DEServer(_EPSILON, k, index_mapper=int)
    for value in data:
        server.aggregate(client.privatise(value))
    return np.array([server.estimate(i, suppress_warnings=True) for i in range(k)]) / len(data)


def _multi_freq_ldpy(data: list[int], k: int) -> Floats:
    oracle = importlib.import_module("multi_freq_ldpy.pure_frequency_oracles.GRR")
    reports = [oracle.GRR_Client(value, k, _EPSILON) for value in data]
    frequencies: Floats = oracle.GRR_Aggregator_MI(reports, k, _EPSILON)
    return frequencies


def _compiled_loop() -> Callable[[npt.NDArray[np.int64], int], Floats]:
    oracle = importlib.import_module("multi_freq_ldpy.pure_frequency_oracles.GRR")
    client = oracle.GRR_Client

    def every(data: npt.NDArray[np.int64], k: int) -> npt.NDArray[np.int64]:
        out = np.empty_like(data)
        for i in range(len(data)):
            out[i] = client(data[i], k, 1)
        return out

    compiled = importlib.import_module("numba").njit(every)

    def run(data: npt.NDArray[np.int64], k: int) -> Floats:
        counts = np.bincount(compiled(data, k), minlength=k)
        p = math.e / (math.e + k - 1)
        q = (1 - p) / (k - 1)
        frequencies: Floats = (counts / len(data) - q) / (p - q)
        return frequencies

    return run


def _seconds(contenders: dict[str, Callable[[], Floats]]) -> tuple[dict[str, float], dict[str, Floats]]:
    # One after the other, several times over, so that a slow moment of the machine meets all of them.
    times: dict[str, list[float]] = {name: [] for name in contenders}
    answers = {}
    for _ in range(_RUNS):
        for name, run in contenders.items():
            start = time.perf_counter()
            answers[name] = run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) for name, taken in times.items()}, answers


def bench_ternary(reports: int) -> dict[str, Any]:
    """Seconds for so many ternary reports, drawn and aggregated, and how far the means are from the table's."""
    table = _table()
    floats = table / ONE
    seconds, answers = _seconds(
        {"tern": lambda: ternary(table, reports), "numpy_floats": lambda: ternary_floats(floats, reports)}
    )
    return {
        "reports": reports,
        "d": _D,
        "k": 1,
        "seconds": seconds,
        "ratio_numpy_floats": seconds["numpy_floats"] / seconds["tern"],
        "largest_error": {
            name: float(abs(mean - floats.mean(axis=0)).max()) for name, mean in answers.items()
        },
        "peak_mebibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def bench_grr(users: int, k: int) -> dict[str, Any]:
    """Seconds for the frequencies of k categories among so many users, and the error of each."""
    rng = np.random.default_rng(_SEED)
    data = np.minimum(rng.geometric(3 / k, users) - 1, k - 1)
    listed = data.tolist()
    contenders = {"tern": lambda: grr(data, k)}
    if importlib.util.find_spec("pure_ldp"):
        contenders["pure_ldp"] = lambda: _pure_ldp(listed, k)
    if importlib.util.find_spec("multi_freq_ldpy"):
        compiled = _compiled_loop()
        compiled(data[:10], k)  # compiling is not counted
        _multi_freq_ldpy(listed[:10], k)
        contenders["multi_freq_ldpy"] = lambda: _multi_freq_ldpy(listed, k)
        contenders["multi_freq_ldpy_compiled_loop"] = lambda: compiled(data, k)
    seconds, answers = _seconds(contenders)
    truth = np.bincount(data, minlength=k) / users
    return {
        "users": users,
        "categories": k,
        "seconds": seconds,
        "ratios": {name: taken / seconds["tern"] for name, taken in seconds.items() if name != "tern"},
        "largest_error": {name: float(abs(found - truth).max()) for name, found in answers.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmark the simulated fleet; prints one JSON object.")
    parser.add_argument("--reports", type=int, default=10_000_000, help="ternary reports")
    parser.add_argument("--users", type=int, default=1_000_000, help="users of randomised response")
    args = parser.parse_args()
    result = {
        "ternary": bench_ternary(args.reports),
        "grr": [bench_grr(args.users, k) for k in (8, 100)],
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
