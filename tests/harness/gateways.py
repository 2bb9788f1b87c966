"""Kills gateways, NATS servers and the host at any time, and checks the books in the end: the host
must have counted exactly the reports that one aggregator with every report and every key counts.
"""

import os
import random
import signal
import subprocess
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from itertools import chain, pairwise
from pathlib import Path

import warm
from warm import TERN

from harness import kept
from harness.running_gateways import with_nats
from harness.waiting import wait_for
from tern import card as cards
from terngateway.nats.directories import running, write_gateways
from terngateway.site_fleet import SiteFleet
from terngateway.tables import GatewayTables
from ternhost.count.aggregator import Aggregator
from ternhost.count.questions import decode_body
from ternhost.count.rounds import StoredRound
from ternhost.privacy.composing import ReportKind
from ternhost.provision.boards import board_directories
from ternhost.provision.keys import parse_range
from ternhost.reach.broker.mosquitto import free_port
from ternhost.store.store import Store

_LONGEST = 180.0  # seconds; a run whose rounds do not end for longer has failed


def _started(command, log, **options):
    options |= {"stdin": subprocess.DEVNULL, "start_new_session": True}
    with open(log, "ab") as file:
        return warm.Popen(command, stdout=file, stderr=file, **options)


def _end(process):
    process.kill()
    process.wait()


def processes(*words):
    """The ids of this machine's processes with all of these words in their command lines."""
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if all(word in command for word in words):
            pids.append(int(process.name))
    return pids


class Sites:
    """Gateways and NATS servers, each a command on this machine."""

    def __init__(self, directory, runs, nodes=1):
        """runs: the options of each gateway's fleet, by name. nodes: of the cluster, on loopback
        addresses.
        """
        with_nats()
        names = [f"127.0.0.{number}" for number in range(1, nodes + 1)] if nodes > 1 else []
        server = write_gateways(directory, list(runs), names, port=free_port())
        for name, fleet in runs.items():
            SiteFleet.of(directory / name, fleet).save(directory / name)
        self.directory = directory
        self.fleet = f"gateways:{directory}"
        self._nodes = dict.fromkeys(server.nodes().values())
        self._gateways = dict.fromkeys(runs)

    def start(self):
        for node in self._nodes:
            self._nodes[node] = _started(
                [*TERN, "gateway", "server", str(node)], node / "command.log"
            )
        for name in self._gateways:
            self._start(name)

    def _start(self, name):
        command = [*TERN, "gateway", "run", str(self.directory / name)]
        self._gateways[name] = _started(command, self.directory / name / "gateway.log")

    def stop(self):
        processes = list(filter(None, (*self._gateways.values(), *self._nodes.values())))
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                _end(process)

    def gateway_pid(self, name):
        return self._gateways[name].pid

    def kill(self, kind, draw):
        """End a process of this kind with SIGKILL. draw: chooses one.

        It is started again: here, or by its command.
        """
        if kind == "gateway":
            name = draw(list(self._gateways))
            _end(self._gateways[name])
            self._start(name)
        else:
            os.kill(wait_for(lambda: running(draw(list(self._nodes)))), signal.SIGKILL)


class Arena:
    """Gateways with emulated boards and a host that serves them; each can be killed.

    A context manager.
    """

    victims = ("gateway", "server", "host")

    def __init__(self, directory, nodes=1, gateways=3, devices=30, rounds=5, pause=0.5, bound=1000):
        """devices: of all gateways. pause: the least number of seconds between two rounds.

        bound: of what counts may tell the owner of the server.
        """
        self.directory, self.rounds, self.pause, self.bound = Path(directory), rounds, pause, bound
        self._random = random.Random(1)
        bounds = [devices * i // gateways for i in range(gateways + 1)]
        made = {"fleet": "emulated:1", "data": "iris", "budget": "1000"}
        self.runs = {
            f"site-{i + 1}": {**made, "ids": f"{start + 1}-{end}"}
            for i, (start, end) in enumerate(pairwise(bounds))
        }
        self.devices = range(1, devices + 1)
        self.sites = Sites(self.directory / "sites", self.runs, nodes)
        self.store = self.directory / "sites" / "server" / "store.sqlite"
        self.killed = defaultdict(int)
        self._host = None

    def __enter__(self):
        self.sites.start()
        self._start_host()
        return self

    def __exit__(self, *_):
        _end(self._host)
        self.sites.stop()

    def _start_host(self):
        options = f"fedsgd --data iris --epsilon 1 --rounds {self.rounds} --every {self.pause}"
        options += f" --toward-server {self.bound} --json --no-report"
        command = [*TERN, "serve", "--fleet", self.sites.fleet, *options.split()]
        self._host = _started(command, self.directory / "host.log", cwd=self.directory)

    # Kills

    def kill(self, kind):
        """End a process of this kind, as a power cut does, and start it again."""
        if kind == "host":
            _end(self._host)
            self._start_host()
        else:
            self.sites.kill(kind, self._random.choice)
        self.killed[kind] += 1

    def torment(self, kills, seconds=4.0):
        """Kill each kind of victim `kills` times, at random moments, `seconds` apart on average,
        while rounds go on.
        """
        victims = [kind for kind in self.victims for _ in range(kills)]
        self._random.shuffle(victims)
        for kind in victims:
            self._let_go_on(self._random.uniform(0, 2 * seconds))
            if self.ended() >= self.rounds:
                break
            self.kill(kind)

    def finish(self):
        """Wait until all rounds and the host have ended."""
        while self.ended() < self.rounds or self._host.poll() is None:
            self._let_go_on(0.2)
            if self._host.poll() not in (None, 0):
                raise AssertionError(f"the host has ended: {self._tail()}")

    def ended(self):
        """The number of rounds that have ended."""
        if not self.store.exists():
            return 0
        with Store(self.store, beside=True) as store:
            return sum(ended != "abandoned" for _, ended, _ in kept.ended_rounds(store))

    def _let_go_on(self, seconds):
        end = time.monotonic() + seconds
        before, last_end = self.ended(), time.monotonic()
        while True:
            now, ended = time.monotonic(), self.ended()
            if ended > before:
                before, last_end = ended, now
            if now >= end:
                return
            if now - last_end > _LONGEST:
                raise AssertionError(f"no round has ended for {_LONGEST:g} s: {self._tail()}")
            time.sleep(0.05)

    def _tail(self):
        return (self.directory / "host.log").read_text()[-2000:]

    # The books

    def books(self):
        """The number of rounds and of reports, and the micro-epsilon that each device has paid, as
        a dictionary.

        Raises AssertionError if the host, one aggregator with all reports, and the ledgers
        disagree.
        """
        with Store(self.store, beside=True) as store:
            rounds = {round_.number: round_ for round_ in store.rounds()}
            tallies = {number: cohorts for number in rounds if (cohorts := store.tallies(number))}
        assert len(tallies) == self.rounds
        sites = [self.store.parents[1] / name for name in self.runs]
        stores = [Store(site / "store.sqlite", beside=True) for site in sites]
        results = recounted(
            self.directory / "recount.sqlite", stores, [rounds[number] for number in tallies]
        )
        cost = 0
        for number, cohorts in tallies.items():
            assert _counts(cohorts) == _counts(results[number].cohorts), (
                f"round {number} has other counts"
            )
            reports = sum(cohort.reports for cohort in cohorts)
            assert reports == len(self.devices), f"round {number} has {reports} reports"
            question = decode_body(cohorts[0].body)
            cost += cards.decode(bytes(question.card)).epsilon * question.k
        spent = kept.spent(chain(*[board_directories(site, 1) for site in sites]))
        assert spent == dict.fromkeys(self.devices, cost), "a device has paid twice, or for nothing"
        self._check_told(sites)
        return {
            "rounds": len(tallies),
            "reports": len(tallies) * len(self.devices),
            "micro_epsilon_each": cost,
        }

    def _check_told(self, sites):
        for site in sites:
            clients = len(parse_range(self.runs[site.name]["ids"]))
            with (
                Store(self.store, beside=True) as host,
                Store(site / "store.sqlite", beside=True) as own,
            ):
                asked = Counter(
                    ReportKind.of_question(decode_body(cohort.body)).among(clients)
                    for number, ended, _ in kept.ended_rounds(own)
                    if ended != "abandoned"
                    for cohort in next(
                        each for each in own.rounds() if each.number == number
                    ).cohorts
                )
                for told in (
                    GatewayTables(host).disclosures_of(site.name),
                    GatewayTables(own).disclosures_of(""),
                ):
                    assert told.report_counts() == [asked], f"{site.name} has another account"
                assert (
                    GatewayTables(own).disclosures_of("").largest_loss(1e-6).epsilon <= self.bound
                )


def _counts(cohorts):
    return [(cohort.reports, cohort.counts.tolist()) for cohort in cohorts]


def recounted(path, stores, rounds):
    """The results of rounds by number, counted by one aggregator from all keys and reports of these
    stores.

    It closes the stores.
    """
    path.unlink(missing_ok=True)
    with Store(path) as union, ExitStack() as closing:
        for site in stores:
            closing.callback(site.close)
            union.add_devices(site.keys())
        for round_ in rounds:
            quorum = sum(len(cohort.devices) for cohort in round_.cohorts)
            union.open_round(StoredRound(round_.number, round_.cohorts, quorum))
            for site in stores:
                union.add_reports(site.report_batches(round_.number))
        aggregator = Aggregator(union)
        ended = {number: aggregator.ended(number, 0.0) for number in aggregator.resume(0.0)}
        return {number: result for number, result in ended.items() if result}


def run(directory, *, kills, seconds=4.0, **options):
    """Serve all rounds during the kills; return the figures. options: those of Arena.

    Raises AssertionError if the books do not balance.
    """
    started = time.monotonic()
    with Arena(directory, **options) as arena:
        arena.torment(kills, seconds)
        arena.finish()
    took = time.monotonic() - started
    return {**arena.books(), "killed": dict(arena.killed), "seconds": round(took, 1)}
