"""Gateways that are treated badly: they, the way to them and the host are killed at any time; and the books that must
balance in the end: what the host has counted is what one aggregator counts that has every report and every key.

    python -m harness.gateways [--way flower] [--gateways 5] [--devices 10000] [--rounds 20] [--kills 10]
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from statistics import median

import warm

from harness import kept, local_gateways
from harness.raw_client import wait_for
from tern import card as cards
from ternhost.count.aggregator import Aggregator
from ternhost.count.questions import decode_body
from ternhost.count.rounds import Round
from ternhost.provision.boards import board_directories
from ternhost.reach.broker.mosquitto import free_port
from ternhost.reach.gateway.site_fleet import SiteFleet
from ternhost.store.store import Store

_TERN = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import harness.local_gateways
from ternhost.cli import main
sys.exit(main())
"""
TERN = [sys.executable, "-c", _TERN]
_LONGEST = 180.0  # seconds without the end of a round, after which something is wrong


def _started(command, log):
    with open(log, "ab") as file:
        return warm.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)


def _end(process):
    process.kill()
    process.wait()


def processes(*words):
    """The processes of this machine with all of these words in their command lines."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if all(word in command for word in words):
            found.append(int(process.name))
    return found


class Local:
    """The gateways alone, each behind its socket."""

    victims = ("gateway", "host")

    def __init__(self, directory, runs):
        self._directory, self._runs = directory, runs
        self._stack = ExitStack()
        self.fleet = f"local:{directory}"

    def start(self):
        started = local_gateways.processes(self._directory, self._runs, warm.Popen)
        self._sites = self._stack.enter_context(started)

    def stop(self):
        self._stack.close()

    def kill(self, what, name):
        """End a process with SIGKILL, and start it again where nobody else does."""
        self._sites[name].kill()
        self._sites[name].start()


class Flower:
    """The gateways over Flower's SuperLink on this machine."""

    victims = ("gateway", "node", "superlink", "serverapp", "host")

    def __init__(self, directory, runs):
        from ternhost.reach.gateway.flower.files import write_gateways

        self._port = write_gateways(directory, list(runs), port=free_port()).port
        for name, own in runs.items():
            SiteFleet.of(directory / name, own).save(directory / name)
        self.directory = directory
        self.fleet = f"flower:{directory}"
        self._gateways = dict.fromkeys(runs)
        self._superlink = None

    def start(self):
        self._superlink = _started(
            [*TERN, "gateway", "superlink", str(self.directory)], self.directory / "link.log"
        )
        for name in self._gateways:
            self._start(name)

    def _start(self, name):
        command = [*TERN, "gateway", "run", str(self.directory / name)]
        self._gateways[name] = _started(command, self.directory / name / "gateway.log")

    def stop(self):
        for process in (*self._gateways.values(), self._superlink):
            process.send_signal(signal.SIGTERM)
        for process in (*self._gateways.values(), self._superlink):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                _end(process)

    def kill(self, what, name):
        """End a process with SIGKILL; what supervises it starts it again, and a gateway is started here."""
        if what == "gateway":
            _end(self._gateways[name])
            self._start(name)
            return
        words = {
            "node": ("gateway.flower.node", str(self.directory / name)),
            "superlink": ("gateway.flower.superlink", str(self.directory)),
            "serverapp": ("flwr-serverapp", f":{self._port} "),
        }[what]
        for pid in wait_for(lambda: processes(*words)):
            os.kill(pid, signal.SIGKILL)


WAYS = {"local": Local, "flower": Flower}


class Arena:
    """Gateways with emulated boards, a host that serves them, and what is done to all of these."""

    def __init__(self, directory, way="local", gateways=3, devices=30, boards=1, rounds=5, pause=0.5, seed=1):
        """devices, boards: `devices` of all gateways, `boards` of each. pause: seconds between two rounds, at least."""
        self.directory = Path(directory)
        self.rounds = rounds
        self.pause = pause
        self._random = random.Random(seed)
        bounds = [devices * i // gateways for i in range(gateways + 1)]
        made = {"fleet": f"emulated:{boards}", "dataset": "iris", "budget": "1000", "largest": "10"}
        self.runs = {
            f"site-{i + 1}": {**made, "clients": bounds[i + 1] - bounds[i], "first_id": bounds[i] + 1}
            for i in range(gateways)
        }
        self.devices = range(1, devices + 1)
        self.way = WAYS[way](self.directory / "sites", self.runs)
        self.store = self.directory / "sites" / "server" / "store.sqlite"
        self.killed = defaultdict(int)
        self.recoveries = defaultdict(list)  # seconds from a kill to the end of the next round
        self._pending = []
        self._boards = boards
        self._host = None

    def __enter__(self):
        self.way.start()
        self._start_host()
        return self

    def __exit__(self, *_):
        _end(self._host)
        self.way.stop()

    def _start_host(self):
        options = [
            "--algorithm", "fedsgd", "--dataset", "iris", "--epsilon", "1", "--interval", str(self.pause),
        ]  # fmt: skip
        command = [*TERN, "serve", "--fleet", self.way.fleet, "--rounds", str(self.rounds), *options]
        self._host = warm.Popen(
            [*command, "--json", "--no-report"],
            stdin=subprocess.DEVNULL,
            stdout=open(self.directory / "host.log", "ab"),  # noqa: SIM115
            stderr=subprocess.STDOUT,
            cwd=self.directory,
        )

    # Deeds

    def kill(self, what):
        """End one, as a power cut does, and have it started again."""
        if what == "host":
            _end(self._host)
            self._start_host()
        else:
            self.way.kill(what, self._random.choice(list(self.runs)))
        self.killed[what] += 1
        self._pending.append((what, time.monotonic()))

    def torment(self, kills, seconds=4.0, apart=False):
        """Kill each of the victims so often, at random moments, `seconds` apart on average, while rounds go on.

        apart: the next one only after a round has ended.
        """
        todo = [what for what in self.way.victims for _ in range(kills)]
        self._random.shuffle(todo)
        for what in todo:
            self._let_go_on(self._random.uniform(0, 2 * seconds))
            if self.ended() >= self.rounds:
                break
            self.kill(what)
            while apart and self._pending and self.ended() < self.rounds:
                self._let_go_on(0.1)

    def finish(self):
        """Until all rounds have ended."""
        while self.ended() < self.rounds or self._host.poll() is None:
            self._let_go_on(0.2)
            if self._host.poll() not in (None, 0):
                raise AssertionError(f"the host has ended: {self._tail()}")

    def ended(self):
        """How many rounds have ended."""
        if not self.store.exists():
            return 0
        with Store(self.store, beside=True) as store:
            return sum(ended != "abandoned" for _, ended, _ in kept.ended_rounds(store))

    def _let_go_on(self, seconds):
        end = time.monotonic() + seconds
        before, moved = self.ended(), time.monotonic()
        while True:
            now, ended = time.monotonic(), self.ended()
            if ended > before:
                before, moved = ended, now
                for what, since in self._pending:
                    self.recoveries[what].append(now - since)
                self._pending.clear()
            if now >= end:
                return
            if now - moved > _LONGEST:
                raise AssertionError(f"no round has ended for {_LONGEST:g} s: {self._tail()}")
            time.sleep(0.05)

    def _tail(self):
        return (self.directory / "host.log").read_text()[-2000:]

    # The books

    def books(self):
        """What the host has counted, what one aggregator counts, and what every device has paid; all in one dict.

        Raises AssertionError where they do not balance.
        """
        with Store(self.store, beside=True) as store:
            rounds = store.rounds()
            tallies = {asked.number: store.tallies(asked.number) for asked in rounds}
        numbers = [number for number, own in tallies.items() if own]
        assert len(numbers) == self.rounds
        recounted = self._recount([asked for asked in rounds if asked.number in numbers])
        cost = reports = 0
        for number in numbers:
            told = [(own.reports, own.counts.tolist()) for own in tallies[number]]
            assert told == recounted[number], f"round {number} was counted otherwise"
            assert sum(own.reports for own in tallies[number]) == len(self.devices), (
                f"round {number} lacks reports"
            )
            reports += len(self.devices)
            asked = decode_body(tallies[number][0].body)
            cost += cards.decode(bytes(asked.card)).epsilon * asked.k
        spent = self._spent()
        assert spent == dict.fromkeys(self.devices, cost), "a device has paid twice, or for nothing"
        return {"rounds": len(numbers), "reports": reports, "micro_epsilon_each": cost}

    def _recount(self, rounds):
        stores = [Store(self.store.parents[1] / name / "store.sqlite", beside=True) for name in self.runs]
        results = recounted(self.directory / "recount.sqlite", stores, rounds)
        return {
            number: [(cohort.reports, cohort.counts.tolist()) for cohort in result.cohorts]
            for number, result in results.items()
        }

    def _spent(self):
        sites = [board_directories(self.store.parents[1] / name, self._boards) for name in self.runs]
        return kept.spent(chain(*sites))


def recounted(path, stores, rounds):
    """The results of rounds by number, as one aggregator counts them that has every key and report of these stores."""
    path.unlink(missing_ok=True)
    with Store(path) as union, ExitStack() as closing:
        for own in stores:
            closing.callback(own.close)
            union.add_devices(own.keys())
        for asked in rounds:
            quorum = sum(len(cohort.devices) for cohort in asked.cohorts)
            union.open_round(Round(asked.number, asked.cohorts, quorum))
            for own in stores:
                union.add_reports(own.report_batches(asked.number))
        aggregator = Aggregator(union)
        ended = {number: aggregator.ended(number, 0.0) for number in aggregator.resume(0.0)}
        return {number: result for number, result in ended.items() if result}


def run(directory, *, kills, seconds=4.0, apart=False, **options):
    """A whole trial: its figures. Raises AssertionError where the books do not balance."""
    begun = time.monotonic()
    with Arena(directory, **options) as arena:
        arena.torment(kills, seconds, apart)
        arena.finish()
    longest = {what: round(max(times), 1) for what, times in arena.recoveries.items()}
    middle = {what: round(median(times), 1) for what, times in arena.recoveries.items()}
    took = round(time.monotonic() - begun, 1)
    return {
        **arena.books(),
        "killed": dict(arena.killed),
        "longest_recovery_s": longest,
        "median_recovery_s": middle,
        "seconds": took,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=WAYS, default="flower")
    options = {"gateways": 5, "devices": 10_000, "boards": 2, "rounds": 20, "kills": 10, "seed": 1}
    for name, value in {**options, "seconds": 6.0, "pause": 1.0}.items():  # as of Arena and torment
        parser.add_argument(f"--{name}", type=type(value), default=value)
    parser.add_argument(
        "--apart", action="store_true", help="kill only after a round has ended since the last"
    )
    parser.add_argument("--keep", help="directory for the files")
    args = parser.parse_args()
    directory = args.keep or tempfile.mkdtemp(prefix="tern-gateways-")
    Path(directory).mkdir(parents=True, exist_ok=True)
    options = {name: value for name, value in vars(args).items() if name != "keep"}
    print(json.dumps(run(directory, **options)))
    if not args.keep:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
