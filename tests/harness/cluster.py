"""Kills the nodes of a cluster of NATS servers in turn during rounds, and checks the books in the end.

python -m harness.cluster KILLS [--boards N --clients M]: one JSON line, and exit code 1 if the books do not balance.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import brokers
import numpy as np

from harness.raw_client import RawClient, wait_for
from harness.sites import COST, D, Sites, weather
from tern import ledger
from ternhost.privacy.accounting import Policy
from ternhost.provision.boards import board_directories, provision_fleet
from ternhost.reach.broker import cluster, configuration
from ternhost.reach.broker.mosquitto import free_port, listens
from ternhost.store.store import Store
from terntools.boards.attach import attach
from terntools.emulators.micropython import find_micropython
from terntools.emulators.unix_fleet import EmulatedFleet

_CALM = 10.0  # s between a node's start and the next kill
_DOWN = 3.0  # s that a node is down


class Nodes:
    """The running nodes of a cluster whose files `configure` has written; a context manager."""

    def __init__(self, directory, access):
        self.access = access
        self._directory = directory / cluster.NODES
        self._program = brokers.fetch("nats-server") / "nats-server"
        self.running = {}

    def start(self, host):
        """Start a node, and wait until it listens."""
        with open(self._directory / host / "log", "ab") as log:
            self.running[host] = subprocess.Popen(
                [self._program, "-c", cluster.CONFIG], cwd=self._directory / host, stdout=log, stderr=log
            )
        end = time.monotonic() + 30
        while not listens(host, self.access.port):
            assert time.monotonic() < end, f"node {host} does not start"
            time.sleep(0.05)

    def kill(self, host):
        """As a power cut would."""
        process = self.running.pop(host)
        process.kill()
        process.wait()

    def __enter__(self):
        for host in self.access.hosts:
            self.start(host)
        wait_for(self._admits)  # it has elected its leaders
        return self

    def _admits(self):
        access = replace(self.access, host=self.access.hosts[0])
        with suppress(ConnectionError):
            RawClient(access, access.user, access.password).close()
            return True

    def __exit__(self, *_):
        for host in list(self.running):
            self.kill(host)


class Cluster(Sites):
    """A cluster with boards that know all of its nodes. A context manager."""

    def __init__(self, directory, boards, clients, seed=1):
        self.directory = Path(directory)
        self.path = self.directory / "store.sqlite"
        self.happened = Counter()
        self.warnings = []
        place = self.directory / "broker"
        self.boards = board_directories(self.directory, boards)
        rows = np.random.default_rng(seed).integers(-16384, 16385, (clients, D + 1), dtype=np.int16)
        with Store(self.path) as store:
            provision_fleet(store, self.boards, rows, Policy(COST, ledger.MAX_BUDGET))
        self.access = configuration.configure(place, self.path, nats=True, port=free_port())
        attach(self.boards, place, self.path, longest_pause_ms=1000)
        self.nodes = Nodes(place, self.access)

    def __enter__(self):
        self.nodes.__enter__()
        self.fleet = EmulatedFleet(find_micropython(), self.boards).__enter__()
        return self

    def __exit__(self, *problem):
        self.fleet.__exit__(*problem)
        self.nodes.__exit__()

    def storm(self, kills):
        """Kill the nodes one after the other, and start each again."""
        for turn in range(kills):
            time.sleep(_CALM)
            host = self.access.hosts[turn % len(self.access.hosts)]
            self.nodes.kill(host)
            self.happened["killed"] += 1
            time.sleep(_DOWN)
            self.nodes.start(host)


def main():
    parser = argparse.ArgumentParser(prog="python -m harness.cluster", description=__doc__.splitlines()[0])
    parser.add_argument("kills", type=int, metavar="KILLS")
    parser.add_argument("--boards", type=int, default=4)
    parser.add_argument("--clients", type=int, default=100)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tern-cluster-") as directory:
        summary = weather(directory, args.kills, args.boards, args.clients, kind=Cluster)
    print(json.dumps(summary))
    return 1 if summary["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())
