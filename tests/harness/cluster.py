"""Kills the nodes of a cluster of NATS servers in turn during rounds: python -m harness.sites KILLS
--cluster.
"""

import subprocess
import time
from contextlib import suppress
from dataclasses import replace

import brokers

from harness.raw_client import RawClient
from harness.sites import Sites
from harness.waiting import wait_for
from terngateway import nats_broker
from ternhost.reach.broker import configuration
from ternhost.reach.broker.mosquitto import free_port, listens
from terntools.boards.attach import attach
from terntools.emulators.micropython import find_micropython
from terntools.emulators.unix_fleet import EmulatedFleet

_CALM = 10.0  # s between a node's start and the next kill
_DOWN = 3.0  # s that a node is down


def client_at(access, node):
    """A client of this node, with the password of `access`."""
    return RawClient(replace(access, host=access.hosts[node]), access.user, access.password)


class Nodes:
    """The running nodes of a cluster whose files `configure` has written; a context manager."""

    def __init__(self, directory, access, release="bookworm"):
        """release: the one of Debian that the servers are from."""
        self.access = access
        self._directory = directory / nats_broker.NODES
        self._program = brokers.fetch("nats-server", release) / "nats-server"
        self.running = {}

    def start(self, host):
        """Start a node, and wait until it listens."""
        with open(self._directory / host / "log", "ab") as log:
            self.running[host] = subprocess.Popen(
                [self._program, "-c", nats_broker.CONFIG],
                cwd=self._directory / host,
                stdout=log,
                stderr=log,
            )
        wait_for(lambda: listens(host, self.access.port), 30)

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
        with suppress(ConnectionError):
            client_at(self.access, 0).close()
            return True

    def __exit__(self, *_):
        for host in list(self.running):
            self.kill(host)


class Cluster(Sites):
    """A cluster with boards that know all of its nodes. A context manager."""

    def __init__(self, directory, boards, clients, seed=1):
        self._provision(directory, boards, clients, seed)
        self.access = configuration.configure(self._place, self.path, kind="nats", port=free_port())
        attach(self.boards, self._place, self.path, longest_pause_ms=1000)
        self.nodes = Nodes(self._place, self.access)

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
