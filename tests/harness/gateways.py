"""Gateways that are treated badly: they, the way to them and the host are killed at any time; and the books that must
balance in the end: what the host has counted is what one aggregator counts that has every report and every key.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from itertools import chain
from pathlib import Path

import warm

from harness import books, stores
from harness.local_sites import Sites
from tern import card as cards
from ternhost.count.aggregator import Aggregator
from ternhost.count.questions import decode_body
from ternhost.count.rounds import Round
from ternhost.provision.boards import board_directories
from ternhost.reach.gateway.site_fleet import SiteFleet
from ternhost.store.store import Store

_TERN = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from harness.local_sites import LocalSites
from ternhost.cli import main
from ternhost.reach.fleet import KINDS
KINDS.register("local", LocalSites)
sys.exit(main())
"""
TERN = [sys.executable, "-c", _TERN]
_LONGEST = 180.0  # seconds without the end of a round, after which something is wrong


def _started(command, log):
    with open(log, "ab") as file:
        return warm.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)


def _end(process):
    if process is not None:
        process.kill()
        process.wait()


def _below(pid):
    """The processes below one, and their command lines."""
    parents, found = {}, {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    below = {pid}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    for child in below - {pid}:
        try:
            found[child] = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


class Local:
    """The gateways alone, each behind its socket."""

    victims = ("gateway", "host")

    def __init__(self, directory, runs):
        self._sites = Sites(directory, runs)
        self.fleet = self._sites.fleet
        self.store = directory / "server" / "store.sqlite"

    def start(self):
        self._sites.__enter__()

    def stop(self):
        self._sites.__exit__(None, None, None)

    def kill(self, what, name):
        """End a process with SIGKILL, and start it again where nobody else does."""
        site = self._sites.sites[name]
        site.kill()
        site.start()


class Flower:
    """The gateways over Flower's SuperLink on this machine."""

    victims = ("gateway", "node", "superlink", "serverapp", "host")

    def __init__(self, directory, runs):
        from ternhost.reach.gateway.flower.files import write_gateways

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        write_gateways(directory, list(runs), port=port)
        for name, own in runs.items():
            SiteFleet.of(directory / name, own).save(directory / name)
        self.directory = directory
        self.fleet = f"flower:{directory}"
        self.store = directory / "server" / "store.sqlite"
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
            if process is not None:
                process.send_signal(signal.SIGTERM)
        for process in (*self._gateways.values(), self._superlink):
            try:
                if process is not None:
                    process.wait(10)
            except subprocess.TimeoutExpired:
                _end(process)

    def kill(self, what, name):
        """End a process with SIGKILL; what supervises it starts it again, and a gateway is started here."""
        if what == "gateway":
            _end(self._gateways[name])
            self._start(name)
            return
        root, word = {
            "node": (self._gateways[name].pid, "links.flower.node"),
            "superlink": (self._superlink.pid, "links.flower.superlink"),
            "serverapp": (self._superlink.pid, "flwr-serverapp"),
        }[what]
        for pid, command in _below(root).items():
            if word in command:
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

    def torment(self, kills, seconds=4.0):
        """Kill each of the victims so often, at random moments, `seconds` apart on average, while rounds go on."""
        todo = [what for what in self.way.victims for _ in range(kills)]
        self._random.shuffle(todo)
        for what in todo:
            self._let_go_on(self._random.uniform(0, 2 * seconds))
            if self.ended() >= self.rounds:
                break
            self.kill(what)

    def finish(self):
        """Until all rounds have ended."""
        while self.ended() < self.rounds or self._host.poll() is None:
            self._let_go_on(0.2)
            if self._host.poll() not in (None, 0):
                raise AssertionError(f"the host has ended: {self._tail()}")

    def ended(self):
        """How many rounds have ended."""
        if not self.way.store.exists():
            return 0
        with Store(self.way.store, beside=True) as store:
            return sum(ended != "abandoned" for _, ended, _ in stores.ended_rounds(store))

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
        with Store(self.way.store, beside=True) as store:
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
        # One store with all keys and all reports; its rounds are open, so that an aggregator takes them up.
        path = self.directory / "recount.sqlite"
        path.unlink(missing_ok=True)
        stores = [Store(self.way.store.parents[1] / name / "store.sqlite", beside=True) for name in self.runs]
        with Store(path) as union:
            for own in stores:
                union.add_devices(own.keys())
            for asked in rounds:
                union.open_round(Round(asked.number, asked.cohorts, len(self.devices)))
                for own in stores:
                    union.add_reports(own.report_batches(asked.number))
            aggregator = Aggregator(union)
            aggregator.resume(0.0)
            results = {result.number: result for result in aggregator.tick(0.0)}
        for own in stores:
            own.close()
        return {
            number: [(cohort.reports, cohort.counts.tolist()) for cohort in result.cohorts]
            for number, result in results.items()
        }

    def _spent(self):
        sites = [board_directories(self.way.store.parents[1] / name, self._boards) for name in self.runs]
        return books.spent(chain(*sites))


def run(directory, *, kills, seconds=4.0, **options):
    """A whole trial: its figures. Raises AssertionError where the books do not balance."""
    begun = time.monotonic()
    with Arena(directory, **options) as arena:
        arena.torment(kills, seconds)
        arena.finish()
    longest = {what: round(max(times), 1) for what, times in arena.recoveries.items()}
    took = round(time.monotonic() - begun, 1)
    return {
        **arena.books(),
        "killed": dict(arena.killed),
        "longest_recovery_s": longest,
        "seconds": took,
    }
