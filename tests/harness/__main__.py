"""python -m harness SECONDS: inject faults into one fleet after the other, at least into one.

Then cut the links of sites, send hostile frames to the aggregator, cut the power at every write of
a board, and fuzz every decoder: for a share of SECONDS more, or with as many inputs as --inputs
says. Prints one JSON line: injected, accepted, refused, differences, and the same of each fleet.
The exit code is 1 if there is a difference.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from harness.arena import Arena
from harness.fuzzing import fuzz
from harness.hostile import assault
from harness.power import cut_everywhere
from harness.proxy import Faults
from harness.sites import weather

_FUZZING = 0.5  # of SECONDS
_CUTS, _CUT_EVERY = 10, 20  # links of sites to cut, and SECONDS for each more
_GROWTH = 4_000_000  # bytes; a million kept frames would take ten times as many
_OFTEN, _RARELY = 0.05, 0.01  # probabilities that a fault befalls a message
_FAULTS = {
    **dict.fromkeys(("drop", "repeat", "delay", "replay"), _OFTEN),
    **dict.fromkeys(("truncate", "flip"), _RARELY),
}
_TWICE = (Arena.restart_broker, Arena.restart_host, Arena.flood, Arena.read_slowly)
_FOUR_TIMES = (Arena.cut_power, Arena.halt, Arena.jump_clock, Arena.lie)
_DEEDS = 2 * _TWICE + 4 * _FOUR_TIMES  # in a fleet's life


def main():
    parser = argparse.ArgumentParser(prog="python -m harness", description=__doc__.splitlines()[0])
    parser.add_argument("seconds", type=float)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--boards", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--hostile", type=int, default=1_000_000, help="frames against the host's aggregator"
    )
    parser.add_argument(
        "--inputs", type=int, default=0, help="of the fuzzing; a tenth also on MicroPython"
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    fleets, differences = [], []
    seed = args.seed
    while not fleets or time.monotonic() < end:
        with tempfile.TemporaryDirectory(prefix="tern-soak-") as directory:
            summary, wrong = bout(directory, args, seed, end if fleets else None)
        fleets.append(summary)
        differences += wrong
        seed += 1
    with tempfile.TemporaryDirectory(prefix="tern-soak-") as directory:
        sites = weather(directory, round(_CUTS + args.seconds / _CUT_EVERY), 2, 50, args.seed)
    differences += sites.pop("differences")
    with tempfile.TemporaryDirectory(prefix="tern-soak-") as directory:
        attack = assault(Path(directory) / "store.sqlite", args.hostile, args.seed)
    all_refused = attack["refused"] == attack["reports"] and not attack["accepted"]
    if not all_refused or attack["grown_bytes"] > _GROWTH:
        differences.append("hostile frames were accepted, or memory has grown")
    with tempfile.TemporaryDirectory(prefix="tern-soak-") as directory:
        federation, wrong = torment(Path(directory))
        differences += wrong
    cuts, errors = cut_everywhere()
    differences += [f"power cut at {kind}: {error}" for kind, error in errors.items()]
    fuzzed, findings = fuzz(_FUZZING * args.seconds, args.seed, args.inputs)
    differences += findings
    injected = Counter(
        {"hostile frames": attack["frames"], "power cuts at a write": sum(cuts.values())}
    )
    injected["links of sites cut"] = sites["cuts"]
    injected["fuzzed inputs"] = sum(fuzzed["inputs"].values())
    refused = Counter(attack["fates"])
    for fleet in fleets:
        injected.update(fleet["injected"])
        refused.update(fleet["refused"])
        refused.update(
            {f"by devices: {name}": n for name, n in fleet["refused_by_devices"].items()}
        )
    result = {
        "injected": dict(sorted(injected.items())),
        "accepted": sum(fleet["accepted"] for fleet in fleets)
        + attack["accepted"]
        + sites["reports"],
        "refused": {
            name: count for name, count in sorted(refused.items()) if count and name != "accepted"
        },
        "differences": differences,
        "fleets": fleets,
        "gateways": federation,
        "sites": sites,
        "hostile": attack,
        "power_cuts": cuts,
        "fuzzing": fuzzed,
    }
    print(json.dumps(result))
    return 1 if differences else 0


def torment(directory):
    """(summary, differences) of gateways whose processes are killed, over a cluster of NATS
    servers; of none, if the package terngateway is not there.
    """
    try:
        from harness import gateways
    except ModuleNotFoundError:
        return {}, []
    fleet = {"nodes": 3, "gateways": 3, "devices": 60, "rounds": 8, "pause": 1.0}
    try:
        return gateways.run(directory, kills=1, seconds=4.0, **fleet), []
    except AssertionError as error:
        return {}, [f"gateways: {error}"]


def bout(directory, args, seed, end):
    """(summary, differences) of one fleet, from its first round to its last, or until the time
    `end`.
    """
    source, faults = random.Random(seed), Faults(seed, **_FAULTS)
    with Arena(directory, args.clients, args.boards, args.rounds, faults, seed) as arena:
        deeds = [(source.random(), deed.__get__(arena)) for deed in _DEEDS]
        start, failed = time.monotonic(), []
        try:
            arena.run(deeds, timeout=600, until=end)
        except AssertionError as error:
            failed.append(str(error))
        differences = failed + arena.end()
        return {**arena.summary(), "seconds": round(time.monotonic() - start, 1)}, differences


if __name__ == "__main__":
    sys.exit(main())
