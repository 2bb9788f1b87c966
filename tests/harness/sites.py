"""Cuts the links of sites at random moments, kills brokers, and checks the books in the end.

Each site has a broker with emulated boards, which is bridged to the central broker through a Cable.

python -m harness.sites CUTS [--boards N --clients M]: one JSON line, and exit code 1 if the books
do not balance.
"""

import argparse
import json
import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np

from harness import kept
from tern import card as cards
from tern import ledger, wire
from ternhost.count.questions import Question
from ternhost.count.rounds import COMPLETE
from ternhost.learn.schedule import Terms
from ternhost.privacy.accounting import Policy
from ternhost.privacy.mechanisms import design
from ternhost.provision.boards import board_directories, provision_fleet
from ternhost.reach.broker import configuration
from ternhost.reach.broker.access import CONFIG
from ternhost.reach.broker.driver import BrokerDriver
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.store.store import Store
from terntools.boards.attach import attach
from terntools.emulators.micropython import find_micropython
from terntools.emulators.unix_fleet import EmulatedFleet

SITES = ("north", "south")
D = 6
CARD = design("three-outputs", epsilon_micro=10_000).card
COST = cards.decode(CARD).epsilon  # micro-epsilon of a report
_DEADLINE = 240.0  # s: a board may need _LINK_TIMEOUT to notice that its link died
_LONGEST_CUT = 1.5  # s
_LONGEST_CALM = 1.0  # s with a link, before the next cut
_LINK_TIMEOUT = 90.0  # s
_LOOK_EVERY = 10.0  # s without a link between two checks that the site's broker answers
_BROKERS = 0.2  # the share of cuts that come with the kill of one of the two brokers


class Cable:
    """A TCP proxy at `port` between a bridge and the central broker, which can be cut.

    A context manager.
    """

    def __init__(self, to):
        self._to, self._whole, self._ends = to, True, set()
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()

    @property
    def carries(self):
        """Whether there is a connection now."""
        return bool(self._ends)

    def cut(self):
        """Reset the connection: bytes on their way are lost, and nothing passes until `mend`."""
        with self._lock:
            self._whole = False
            for end in self._ends:
                _reset(end)
            self._ends.clear()

    def mend(self):
        self._whole = True

    def _accept(self):
        with suppress(OSError):  # the server was closed
            while True:
                near = self._server.accept()[0]
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near):
        try:
            far = socket.create_connection(("127.0.0.1", self._to))
        except OSError:
            near.close()
            return
        with self._lock:
            if not self._whole:
                near.close()
                far.close()
                return
            self._ends |= {near, far}
        threading.Thread(target=self._pass, args=(near, far), daemon=True).start()
        self._pass(far, near)

    def _pass(self, source, sink):
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with self._lock:
            for end in (source, sink):
                _reset(end)
                self._ends.discard(end)


def _reset(end):
    with suppress(OSError):  # the other thread has closed it
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        end.shutdown(socket.SHUT_RDWR)
    end.close()


class Sites:
    """A central broker and, for each of SITES, a broker with boards behind a Cable.

    A context manager.
    """

    def __init__(self, directory, boards, clients, seed=1):
        """boards, clients: of each site."""
        self._random = random.Random(seed)
        self._provision(directory, boards * len(SITES), clients * len(SITES), seed)
        self.access = configuration.configure(self._place, self.path, port=free_port())
        self.cables = [Cable(self.access.port) for _ in SITES]
        for i, (name, cable) in enumerate(zip(SITES, self.cables, strict=True)):
            span = (1 + i * clients, (1 + i) * clients)
            configuration.add_site(self._place, name, bridge=True, port=free_port(), ids=span)
            conf = self.site(name) / CONFIG
            conf.write_text(conf.read_text().replace(f":{self.access.port}\n", f":{cable.port}\n"))
            site_boards = self.boards[i * boards : (i + 1) * boards]
            attach(site_boards, self.site(name), self.path, longest_pause_ms=1000)

    def _provision(self, directory, boards, clients, seed):
        self.directory = Path(directory)
        self.path = self.directory / "store.sqlite"
        self.happened, self.warnings, self.clients = Counter(), [], clients
        self._place = self.directory / "broker"
        self.boards = board_directories(self.directory, boards)
        rows = np.random.default_rng(seed).integers(-16384, 16385, (clients, D + 1), dtype=np.int16)
        with Store(self.path) as store:
            provision_fleet(store, self.boards, rows, Policy(COST, ledger.MAX_BUDGET))

    def site(self, name):
        return self._place / "sites" / name

    def __enter__(self):
        self.central = Mosquitto(self._place)
        for cable in self.cables:
            cable.__enter__()
        self.brokers = [Mosquitto(self.site(name)) for name in SITES]
        self.fleet = EmulatedFleet(find_micropython(), self.boards).__enter__()
        return self

    def __exit__(self, *problem):
        self.fleet.__exit__(*problem)
        for mosquitto in (*self.brokers, self.central):
            mosquitto.close()
        for cable in self.cables:
            cable.__exit__()

    # The storm

    def storm(self, cuts):
        """Cut links one after the other, each a random time after it is up."""
        for _ in range(cuts):
            at = self._random.randrange(len(SITES))
            self._wait_for_link(at)
            time.sleep(self._random.random() * _LONGEST_CALM)
            self._cut(at)
        for at in range(len(SITES)):
            self._wait_for_link(at)

    def _wait_for_link(self, at):
        end = time.monotonic() + _LINK_TIMEOUT
        looked = time.monotonic()
        while not self.cables[at].carries:
            assert time.monotonic() < end, f"the bridge of {SITES[at]} does not come back"
            time.sleep(0.01)
            if time.monotonic() - looked > _LOOK_EVERY:
                # Mosquitto 2.0.11 sometimes hangs or ends when its bridge is cut; `tern broker run`
                # restarts it, too.
                looked = time.monotonic()
                if self.brokers[at].answers(_LOOK_EVERY) is not False:
                    continue
                self.brokers[at].kill()
                self.brokers[at].start()
                self.happened["site's broker hung"] += 1

    def _cut(self, at):
        killed = None
        self.cables[at].cut()
        self.happened["cuts"] += 1
        if self._random.random() < _BROKERS:
            killed = self._random.choice((self.brokers[at], self.central))
            killed.kill()
            name = "central broker" if killed is self.central else "site's broker"
            self.happened[f"{name} killed"] += 1
        time.sleep(self._random.random() * _LONGEST_CUT)
        if killed:
            killed.start()
        self.cables[at].mend()

    # The rounds

    def rounds(self, until, least=0):
        """Run rounds until `until()`, and at least `least`; return their results.

        A round with one question, which is announced, alternates with a round with two, sent to
        each device.
        """
        results = []
        with Store(self.path) as store, self._driver(store) as driver:
            while len(results) < least or not until():
                number, devices = driver.next_round(1), list(driver.devices)
                driver.open(number, self._cohorts(number, devices))
                results.append(driver.collect(number))
                store.end_round(number, results[-1].ended)
            driver.wait(1.0)  # for repeated reports
            self.frames = dict(driver.status.frames)
        return results

    def _driver(self, store):
        terms = Terms(deadline=_DEADLINE)
        link = MqttLink(self.access)
        return BrokerDriver(store, link, terms, standing=True, warn=self.warnings.append)

    @staticmethod
    def _cohorts(number, devices):
        first = Question(wire.LOGISTIC, [number % 1000] * D, -14, CARD, 1)
        if number % 2:
            return [(first, devices)]
        second = Question(wire.LOGISTIC, [-(number % 1000)] * D, -14, CARD, 1)
        half = len(devices) // 2
        return [(first, devices[:half]), (second, devices[half:])]

    # The books

    def differences(self, results):
        """Yield a line for everything that does not balance."""
        last = {}
        with Store(self.path, create=False, beside=True) as store:
            devices = sorted(store.keys())
            for result in results:
                rows = store.reports(result.number)
                reporting = sorted(device for device, _ in rows)
                if result.ended != COMPLETE or result.refusals or reporting != devices:
                    yield f"round {result.number}: {result.ended}, {len(rows)} reports, {result.refusals}"
                counted = sum(int(cohort.counts.sum()) for cohort in result.cohorts)
                if counted != len(devices):
                    yield f"round {result.number}: {counted} counted of {len(devices)}"
                last = dict(rows)
        for device, account in kept.accounts(self.boards):
            if account.spent != COST * len(results):
                yield f"device {device} has paid {account.spent} for {len(results)} rounds of {COST}"
            if bytes(account.report)[9 : -wire.TAG_BYTES] != last.get(device):
                yield f"device {device}: the report counted is not the one recorded"


def weather(directory, cuts, boards, clients, seed=1, kind=Sites):
    """Run rounds during the cuts; return counts of what happened, and the differences, as a
    dictionary.
    """
    with kind(directory, boards, clients, seed) as sites:
        started = time.monotonic()
        with ThreadPoolExecutor() as pool:
            storm = pool.submit(sites.storm, cuts)
            results = sites.rounds(storm.done, least=4)
        seconds = time.monotonic() - started
        storm.result()  # raises its problem
    accepted = sites.frames["accepted"]
    return {
        "boards": len(sites.boards),
        "devices": sites.clients,
        "seconds": round(seconds, 1),
        **sites.happened,
        "rounds": len(results),
        "reports": sum(result.reports for result in results),
        "reports_per_s": round(accepted / seconds, 1),
        "frames": sites.frames,
        "warnings": len(sites.warnings),
        "differences": list(sites.differences(results)),
    }


def main():
    parser = argparse.ArgumentParser(
        prog="python -m harness.sites", description=__doc__.splitlines()[0]
    )
    parser.add_argument("cuts", type=int, metavar="CUTS")
    parser.add_argument("--boards", type=int, default=2, help="of each site (default 2)")
    parser.add_argument("--clients", type=int, default=150, help="of each site (default 150)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--cluster", action="store_true", help="kill the nodes of a cluster instead"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tern-sites-") as directory:
        kind = Sites
        if args.cluster:
            from harness.cluster import Cluster as kind
        summary = weather(directory, args.cuts, args.boards, args.clients, args.seed, kind)
    print(json.dumps(summary))
    return 1 if summary["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())
