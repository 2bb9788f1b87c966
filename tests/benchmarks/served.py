"""Measures `tern serve` for a large fleet: the memory of the host, and its time with a full store.

    python -m benchmarks.served [--devices N] [--boards N] [--rounds N] [--stored REPORTS]

A broker on this machine connects the host with imaginary boards (`boards.py`), which answer every
round. With --stored, the host ends after its first round. Rounds in which all devices report are
then written into its store by the functions that `tern serve` uses, but without a broker and
without tags. After that, the host goes on with the same run.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks import brokers, cpu_seconds, machine, positive_count, resident
from benchmarks.boards import Boards, key_of
from ternhost.count.questions import round_body
from ternhost.count.rounds import COMPLETE, Reports, RoundResult, StoredCohort, StoredRound, Tally
from ternhost.reach.broker.access import FLEET
from ternhost.run.state import RunState
from ternhost.store import store_file
from ternhost.store.fleet_key import fleet_key
from ternhost.store.reader import Reader
from ternhost.store.runs import EndedRound
from ternhost.store.store import Store

RUN = "benchmark"
_WORDS = (
    "--data",
    "synthetic-logistic",
    "--mechanism",
    "three-outputs",
    "--epsilon",
    "2",
    "--k",
    "1",
)
_DEADLINE = 3600.0  # s


def run(devices, boards, rounds, stored, tell):
    """Serve some rounds; return the figures. Raises TernError.

    stored: so many reports are written into the store after the first round; 0: none.
    """
    with tempfile.TemporaryDirectory(prefix="tern-served-") as scratch:
        directory = Path(scratch) / "broker"
        store_path = directory / store_file.NAME
        with brokers.running(directory, {1: key_of(1)}, may_write_all=True) as (_, port):
            with Store(store_path) as store:
                store.add_devices({device: key_of(device) for device in range(1, devices + 1)})
                epoch = fleet_key(store).epoch
            figures = {"devices": devices, "boards": boards, "machine": machine()}
            with Boards(devices, boards, port, epoch):
                tell("the boards have said HELLO")
                first = _serve(scratch, directory, rounds, True, tell)
                figures["served"] = first
                if stored:
                    figures["stored"] = _fill(store_path, devices, stored, tell)
                    figures["opening"] = _opening(store_path)
                    # The learner has not seen the rounds of `_fill`, and so does not count them.
                    more = rounds + 1
                    figures["served_full"] = _serve(scratch, directory, more, False, tell)
    return figures


def _serve(scratch, directory, rounds, is_new, tell):
    """Run `tern serve` until its learner has had so many rounds; return its figures.

    is_new: a run begins; else the run of the store goes on.

    cpu_seconds_to_first_round: from the start of the process to the opening of the first round.
    rounds: the duration, the CPU time and the memory of each round.
    """
    words = [sys.executable, "-m", "ternhost", "--json", "serve", "fedsgd"]
    words += ["--fleet", f"{FLEET}{directory}", *_WORDS, "--deadline", str(_DEADLINE)]
    words += ["--rounds", str(rounds), "--no-report"]
    if is_new:
        words += ["--name", RUN]
    started = time.monotonic()
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=scratch, text=True) as process:
        figures = {"rounds": []}
        opened = None
        for line in process.stdout:
            event = json.loads(line)
            now, used = time.monotonic(), cpu_seconds(process.pid)
            tell(f"{line[:150].strip()} {now - started:.1f} s")
            if event.get("event") == "round":
                opened = now, used
                figures.setdefault("cpu_seconds_to_first_round", round(used, 2))
                figures.setdefault("seconds_to_first_round", round(now - started, 2))
                figures.setdefault("rss_bytes_at_first_round", resident(process.pid))
            elif event.get("event") == "end":
                entry = {
                    "reports": event["reports"],
                    "seconds": round(now - opened[0], 2),
                    "cpu_seconds": round(used - opened[1], 2),
                    "rss_bytes": resident(process.pid),
                }
                figures["rounds"].append(entry)
    if process.returncode:
        raise SystemExit(process.returncode)
    return figures


def _fill(path, devices, reports, tell):
    """Store rounds of the run with a report of each device, until there are so many reports.

    The reports are random. Returns figures about this.
    """
    started, used = time.monotonic(), time.process_time()
    added = 0
    with Store(path) as store:
        bytes_before = path.stat().st_size
        first = store.last_round()
        (tally,) = store.tallies(first)
        entry = store.history(RUN)[-1]
        (weights,) = store.rows("SELECT weights FROM model WHERE number = ?", first)[0]
        state = RunState.from_json(store.run(RUN).state)
        ids = np.arange(1, devices + 1)
        while store.report_count() < reports:
            added += 1
            number = first + added
            body = round_body(number, tally.question)
            symbols = tally.counts.shape[1]
            chance = np.random.Generator(np.random.SFC64([1, number]))
            packed = chance.integers(0, symbols, (devices, 1), np.uint8)
            store.open_round(
                StoredRound(number, [StoredCohort(body, ids)], devices, _DEADLINE, RUN)
            )
            store.add_reports([Reports(number, ids, packed)])
            counts = Tally(body, devices, devices, tally.counts)
            state.add_round(RoundResult(number, COMPLETE, devices, devices, {}, []), devices)
            ended = EndedRound(
                number,
                COMPLETE,
                {**entry, "round": number},
                weights=weights,
                tallies=[counts],
                began=time.time(),
            )
            store.end_run_round(RUN, state.as_json(), ended)
            if added % 50 == 0:
                tell(f"{store.report_count():,} reports stored, {path.stat().st_size:,} bytes")
        stored = store.report_count()
    return {
        "reports": stored,
        "rounds_added": added,
        "file_bytes": path.stat().st_size,
        "bytes_per_report": round((path.stat().st_size - bytes_before) / (added * devices), 3),
        "seconds": round(time.monotonic() - started, 1),
        "cpu_seconds": round(time.process_time() - used, 1),
    }


def _opening(path):
    """The CPU time in which a full store is opened, and in which observers read it first."""
    figures = {}
    with _timed(figures, "store_cpu_seconds"), Store(path, beside=True):
        pass
    with _timed(figures, "reader_cpu_seconds"), Reader(path) as reader:
        reader.snapshot()
    with _timed(figures, "count_cpu_seconds"), Store(path, beside=True) as store:
        store.report_count()
    return figures


@contextmanager
def _timed(figures, name):
    used = time.process_time()
    yield
    figures[name] = round(time.process_time() - used, 4)


def main():
    parser = argparse.ArgumentParser(
        description="Measure a host that serves many devices; prints one JSON object."
    )
    parser.add_argument("--devices", type=positive_count, default=290_000)
    parser.add_argument(
        "--boards", type=positive_count, default=290, help="with equally many devices each"
    )
    parser.add_argument(
        "--rounds", type=positive_count, default=3, help="all devices report in each"
    )
    parser.add_argument(
        "--stored",
        type=positive_count,
        default=0,
        metavar="REPORTS",
        help="then fill the store, and go on",
    )
    args = parser.parse_args()
    if args.devices % args.boards:
        parser.error("--devices must be a multiple of --boards")
    result = run(**vars(args), tell=lambda line: print(line, file=sys.stderr, flush=True))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
