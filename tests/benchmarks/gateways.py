"""Measures the time of rounds through gateways on this machine, and the memory of each gateway.

python -m benchmarks.gateways [--clients N] [--gateways N] [--rounds N] [--data NAME]
"""

import argparse
import json
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

from harness.gateways import Sites

from benchmarks import resident
from ternhost.learn.base import ALGORITHMS
from ternhost.learn.schedule import Schedule, Terms
from ternhost.run.begin import Place
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.run.status import END, Watcher

_MEASURED = (1, 5, 20)  # rounds after which the memory is measured


def run(clients, gateways, rounds, dataset, tell):
    """Run rounds of FedSGD on `clients` simulated clients, all of them in each round; return the
    figures.

    seconds: of each whole round. memory_bytes: of the gateways and of this process after some of
    the rounds. Raises TernError.
    """
    bounds = [clients * i // gateways for i in range(gateways + 1)]
    runs = {
        f"site-{i + 1}": {
            "fleet": f"simulated:{end - start}",
            "ids": f"{start + 1}-{end}",
            "data": dataset,
        }
        for i, (start, end) in enumerate(pairwise(bounds))
    }
    times = []
    memory = {}
    reports, started = 0, time.monotonic()

    def status(now):
        nonlocal started, reports
        if now.event != END:
            return
        times.append(time.monotonic() - started)
        reports += now.reports
        if now.round in _MEASURED or now.round == rounds:
            held = [resident(sites.gateway_pid(name)) for name in runs]
            memory[now.round] = {
                "gateway_most": max(held),
                "gateway_least": min(held),
                "host": resident(),
            }
        tell(f"round {now.round}: {now.reports:,} reports in {times[-1]:.1f} s")
        started = time.monotonic()

    with tempfile.TemporaryDirectory(prefix="tern-gateways-") as scratch:
        place = Path(scratch)
        sites = Sites(place / "sites", runs)
        sites.start()
        try:
            options = ALGORITHMS["fedsgd"].Options(data=dataset)
            schedule = Schedule(rounds=rounds)
            run_options = RunOptions(
                "fedsgd", options, sites.fleet, Terms(deadline=600.0), schedule
            )
            watcher = Watcher(status=status, warn=tell)
            with Run.begin(run_options, Place(parent=place / "runs"), watcher) as whole_run:
                started = time.monotonic()
                whole_run.run()
        finally:
            sites.stop()
    return {
        "clients": clients,
        "gateways": gateways,
        "rounds": rounds,
        "data": dataset,
        "reports": reports,
        "seconds": [round(seconds, 2) for seconds in times],
        "seconds_median": round(median(times), 2),
        "seconds_most": round(max(times), 2),
        "memory_bytes": memory,
    }


def main():
    parser = argparse.ArgumentParser(
        description="Time rounds behind gateways; prints one JSON object."
    )
    parser.add_argument("--clients", type=int, default=1_000_000, help="of all gateways")
    parser.add_argument("--gateways", type=int, default=10, help="a process each")
    parser.add_argument("--rounds", type=int, default=20, help="all clients take part in each")
    parser.add_argument("--data", default="flights-planned", help="the records of the clients")
    args = parser.parse_args()
    result = run(**vars(args), tell=lambda line: print(line, file=sys.stderr, flush=True))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
