"""Processes that run as long as a command: the SuperLink at the server, the node at a site."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from ternhost.errors import UsageError
from ternhost.reach.gateway.flower.children import Child
from ternhost.reach.gateway.flower.control import FAILURES, Control
from ternhost.reach.gateway.flower.files import LOG, NODE_LOG, GatewaySite, Server, environment
from ternhost.reach.gateway.post import SOCKET, Handler, serve_locally

_LOOK = 1.0  # seconds between two looks at the sites
_PORT_FREE = 10.0  # seconds until the SuperLink of a killed command has ended


class SuperLink:
    """A running SuperLink and its sites."""

    def __init__(self, server: Server, process: Child, control: Control) -> None:
        self.process = process
        self.sites: dict[str, bool] = {}  # whether each is connected; empty while that is not known
        self.condition = "the SuperLink is starting, which takes some 10 s"  # "" where all is well
        self._server = server
        self._control = control
        self._ending = threading.Event()

    def end(self) -> None:
        """Have `look` end."""
        self._ending.set()

    def look(self) -> None:
        """Register the sites of the directory, until `end`."""
        while not self._ending.wait(_LOOK):
            try:
                self.sites, wrong = self._control.register()
                self.condition = _not_let_in(wrong)
                continue
            except httpx.TransportError:
                self.condition = f"the SuperLink is starting; {self._server.directory / LOG} has its messages"
            except Exception as error:  # any error is reported, and the SuperLink goes on
                self.condition = self._control.trouble(error)
            self.sites = {}


def state(server: Server) -> tuple[str, dict[str, bool]]:
    """A fault of the SuperLink or a site ("": none), and for each registered site whether it is connected."""
    with Control(server) as control:
        try:
            keys, wrong = control.public_keys()
            there = control.sites(keys)
        except FAILURES as error:
            return control.trouble(error), {}
    new = f"not registered yet; 'tern gateway superlink {server.directory.parent}' registers it, or says why not"
    wrong |= dict.fromkeys(keys.keys() - there.keys(), new)
    return _not_let_in(wrong), {name: online for name, (_, online) in there.items()}


def _not_let_in(wrong: Mapping[str, str]) -> str:
    return "; ".join(f"{name} is not admitted: {why}" for name, why in sorted(wrong.items()))


@contextmanager
def superlink(server: Server) -> Iterator[SuperLink]:
    """Run the SuperLink of a server while the context is open. Raises UsageError if its port is taken, and OSError."""
    _await_port(server)
    where = server.directory
    command = [sys.executable, "-m", "ternhost.reach.gateway.flower.superlink", str(where)]
    with Control(server) as control, Child(command, where / LOG, environment(where)) as process:
        running = SuperLink(server, process, control)
        thread = threading.Thread(target=running.look, daemon=True)
        thread.start()
        try:
            yield running
        finally:
            running.end()
            thread.join()


def _await_port(server: Server) -> None:
    end = time.monotonic() + _PORT_FREE
    while True:
        try:
            family = socket.AF_INET6 if ":" in server.address else socket.AF_INET
            socket.create_server((server.address, server.port), family=family).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                text = f"cannot listen on {server.address} port {server.port}: {error.strerror}"
                raise UsageError(text, hint="does another 'tern gateway superlink' run?") from error
            time.sleep(0.2)


@contextmanager
def serve_site(directory: str | Path, handler: Handler) -> Iterator[Child]:
    """Answer the server's questions for a site while the context is open. Several threads call `handler` at once. The
    node is a separate process, which has no key of a device. Raises UsageError and StorageError.
    """
    site = GatewaySite.load(directory)
    command = [sys.executable, "-m", "ternhost.reach.gateway.flower.node", str(site.directory)]
    with (
        serve_locally(site.directory / SOCKET, handler),
        Child(command, site.directory / NODE_LOG, environment(site.directory)) as node,
    ):
        yield node
