"""Gateways in threads of this process, with a NATS server between them and their host."""

import os
import threading
from contextlib import ExitStack, contextmanager

import brokers

from terngateway.nats import serve_site
from terngateway.nats.directories import (
    SETTINGS,
    running,
    server_directory,
    write_gateways,
)
from terngateway.nats.server import NatsServer
from terngateway.site_fleet import SiteFleet, opened
from ternhost.reach.broker.mosquitto import free_port

_START = 120.0  # seconds to start or to end


class Running:
    """A gateway in a thread of its own."""

    def __init__(self, directory, runs, through=None, connected=False):
        """runs: the options of its fleet. through: (handle, payload) -> reply, replaces the
        gateway's own handle.

        connected: it answers the host's questions, too, and not only `ask`.
        """
        self.directory, self.warnings = directory, []
        self.asked = []  # received messages
        self._runs = runs
        self._through = through or (lambda handle, payload: handle(payload))
        self._connected, self._ready = connected, threading.Event()
        self._problem = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        try:
            runs = SiteFleet.of(self.directory, self._runs)
            with ExitStack() as stack:
                self.gateway = stack.enter_context(
                    opened(self.directory, runs, self.warnings.append)
                )
                if self._connected:
                    stack.enter_context(serve_site(self.directory, self._handle, self._tell))
                else:
                    self._ready.set()
                self.gateway.run()
        except BaseException as error:
            self._problem = error
            self._ready.set()

    def _tell(self, state):
        if state.endswith(": connected"):
            self._ready.set()

    def _handle(self, payload):
        self.asked.append(payload)
        return self._through(self.gateway.handle, payload)

    def ask(self, message):
        """The reply (bytes) to a message."""
        return self._handle(message.encode())

    def start(self):
        self._thread.start()
        assert self._ready.wait(_START), f"the gateway in {self.directory} does not start"
        if self._problem:
            raise self._problem
        return self

    def stop(self):
        if hasattr(self, "gateway"):
            self.gateway.stop()
        self._thread.join(_START)
        assert not self._thread.is_alive(), f"the gateway in {self.directory} does not end"


def with_nats(release="bookworm"):
    """Put nats-server first on the PATH; skip the test where it cannot be had."""
    folder = str(brokers.fetched("nats-server", release))
    others = [other for other in os.environ["PATH"].split(os.pathsep) if other != folder]
    os.environ["PATH"] = os.pathsep.join([folder, *others])


@contextmanager
def serving(directory, sites):
    """The directory of a host with these sites, and others; its NATS server runs while the context
    is open.
    """
    with_nats()
    known = (server_directory(directory) / SETTINGS).exists()
    (node,) = write_gateways(directory, sites, port=None if known else free_port()).nodes().values()
    if running(node) is not None:
        yield
        return
    with NatsServer(node):
        yield


@contextmanager
def gateways(directory, runs, through=None):
    """Running gateways by name. runs, through: those of each gateway by name (see Running)."""
    started = {}
    with serving(directory, list(runs)):
        try:
            for name, fleet in runs.items():
                started[name] = Running(
                    directory / name, fleet, (through or {}).get(name), True
                ).start()
            yield started
        finally:
            for gateway in started.values():
                gateway.stop()
