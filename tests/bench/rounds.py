"""How long it takes to open a round of a large fleet, and to take up rounds after a crash; figures are only compared
within a run.

    python -m bench.rounds [--devices N] [--reports N] [--beside DIR]

- opening: milliseconds to begin a round that asks N devices, in the store and in memory. --beside: the same by the code
  in another checkout, turn by turn.
- resuming: seconds until the counts of so many reports are there again, in rounds under way that all devices were
  asked in, beside merely reading the reports.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from ternhost.count.aggregator import Aggregator
from ternhost.count.questions import Question
from ternhost.count.rounds import Reports
from ternhost.privacy import mechanisms
from ternhost.store.store import Store

_D = 28
_TURNS = 3
_COMMITTED = 1000  # reports at a time
_LOGISTIC = 2
_EXPONENT = -12

# For any version of the host: opens six rounds and tells the median of the last five, in milliseconds.
_OPENING = """
import statistics, sys, time
from ternhost.privacy import mechanisms
from ternhost.count.aggregator import Aggregator
from ternhost.count.questions import Question
from ternhost.store.store import Store

devices = range(1, int(sys.argv[2]) + 1)
asked = {"range": devices, "list": list(devices)}[sys.argv[3]]
card = bytes(mechanisms.design("three-outputs", 1).card)
times = []
with Store(sys.argv[1]) as store:
    store.add_devices({device: device.to_bytes(32, "little") for device in devices})
    aggregator = Aggregator(store)
    for number in range(1, 7):
        start = time.perf_counter()
        aggregator.open(number, [(Question(2, [0] * 28, -12, card, 1), asked)], 0.0)
        times.append(time.perf_counter() - start)
print(1000 * statistics.median(times[1:]))
"""


def _opening(checkout: Path | None, devices: int, given: str) -> float:
    environment = dict(os.environ)
    if checkout:
        environment["PYTHONPATH"] = os.pathsep.join(str(checkout / part) for part in ("host", "firmware"))
    with tempfile.TemporaryDirectory(prefix="tern-rounds-") as directory:
        told = subprocess.run(
            [sys.executable, "-c", _OPENING, f"{directory}/store.sqlite", str(devices), given],
            env=environment,
            stdout=subprocess.PIPE,
            check=True,
        )
    return float(told.stdout)


def opening(devices: int, beside: Path | None) -> dict[str, Any]:
    """Milliseconds to open a round, whose devices are given as a range or as a list of numbers."""
    found: dict[str, Any] = {"devices": devices}
    for given in ("range", "list"):
        times: dict[str, list[float]] = {}
        for _ in range(_TURNS):
            times.setdefault("milliseconds", []).append(_opening(None, devices, given))
            if beside:
                times.setdefault("beside_milliseconds", []).append(_opening(beside, devices, given))
        found[given] = {name: round(statistics.median(taken), 2) for name, taken in times.items()}
    return found


def resuming(devices: int, reports: int) -> dict[str, Any]:
    """Seconds to take up the rounds of a store with so many reports, and to read these alone."""
    card = mechanisms.design("three-outputs", 1).card
    every = range(1, devices + 1)
    source = np.random.default_rng(1)
    with tempfile.TemporaryDirectory(prefix="tern-rounds-") as directory:
        with Store(Path(directory) / "store.sqlite") as store:
            store.add_devices({device: source.bytes(32) for device in every})
            aggregator = Aggregator(store)
            numbers = range(1, -(-reports // devices) + 1)
            for number in numbers:
                question = Question(_LOGISTIC, [0] * _D, _EXPONENT, bytes(card), 1)
                aggregator.open(number, [(question, every)], 0.0)
                order = source.permutation(devices) + 1
                symbols = source.integers(0, 3, (devices, 1), np.uint8)
                store.add_reports(
                    Reports(number, order[at : at + _COMMITTED], symbols[at : at + _COMMITTED])
                    for at in range(0, devices, _COMMITTED)
                )
        with Store(Path(directory) / "store.sqlite") as store:
            start = time.perf_counter()
            read = sum(len(batch.devices) for number in numbers for batch in store.report_batches(number))
            reading = time.perf_counter() - start
            aggregator = Aggregator(store)
            start = time.perf_counter()
            aggregator.resume(0.0)
            taken = time.perf_counter() - start
        results = aggregator.tick(0.0)
        assert sum(int(result.cohorts[0].counts.sum()) for result in results) == read
    return {
        "reports": read,
        "reading_seconds": round(reading, 3),
        "resuming_seconds": round(taken, 3),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Time how rounds are opened and resumed; prints one JSON object."
    )
    parser.add_argument("--devices", type=int, default=100_000, help="of the fleet, all asked in every round")
    parser.add_argument("--reports", type=int, default=1_000_000, help="to be taken up again")
    parser.add_argument("--beside", type=Path, metavar="DIR", help="a checkout to open rounds with, too")
    args = parser.parse_args()
    result = {
        "opening": opening(args.devices, args.beside),
        "resuming": resuming(args.devices, args.reports),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
