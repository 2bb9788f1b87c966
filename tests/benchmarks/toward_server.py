"""Measures how long the search takes for the largest epsilon that keeps a bound toward the server.

    python -m benchmarks.toward_server [--json]

The bound is epsilon 1 at delta 1e-6, toward somebody who sees only the counts of a site. `tern train
--toward-server` makes this search for each site.
"""

import argparse
import json
import time

import numpy as np
from scipy import fft, optimize, special  # noqa: F401  # loaded here, so that no search loads them

from benchmarks import machine
from terngateway.bound import Bound
from terngateway.planning import PlannedReports, Site, largest_epsilon
from ternhost.count.disclosures import Disclosures
from ternhost.privacy.base import MICRO
from ternhost.privacy.composing import ReportKind

DEVICES = (30, 300, 3_000, 30_000, 300_000, 1_000_000)
ROUNDS = (1, 5, 20, 365)  # in each of which every device reports


def measure(devices, rounds):
    """Return the largest epsilon of a report, and the CPU seconds of the search."""
    ids = np.arange(1, devices + 1)
    site = Site("benchmark", ids, Disclosures(), [Bound(MICRO)])
    planned = PlannedReports(ReportKind(MICRO).among(devices), ids, times=rounds)
    began = time.process_time()
    micro_epsilon = largest_epsilon(site, [planned])
    return micro_epsilon / MICRO, time.process_time() - began


def run():
    rows = []
    for rounds in ROUNDS:
        for devices in DEVICES:
            epsilon, seconds = measure(devices, rounds)
            rows.append(
                {
                    "rounds": rounds,
                    "devices": devices,
                    "epsilon": epsilon,
                    "cpu_seconds": round(seconds, 2),
                }
            )
    return {"machine": machine(), "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    result = run()
    if args.json:
        print(json.dumps(result, indent=1))
        return
    print(f"on {result['machine']}")
    for row in result["rows"]:
        print(
            f"{row['rounds']:4} rounds, {row['devices']:9,} devices: epsilon {row['epsilon']:.3g}, "
            f"{row['cpu_seconds']:.2f} s"
        )


if __name__ == "__main__":
    main()
