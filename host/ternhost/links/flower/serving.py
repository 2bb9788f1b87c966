"""What runs for as long as a command does: the SuperLink at the server, the node at a site."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ternhost import extras
from ternhost.errors import UsageError
from ternhost.links.flower.children import Child
from ternhost.links.flower.files import (
    LOG,
    NODE_LOG,
    Server,
    Site,
    environment,
)
from ternhost.links.post import SOCKET, Handler, serve_locally

_REGISTER = 1.0  # seconds between two looks at which sites there are
_PORT_FREE = 10.0  # seconds for the SuperLink of a command that was killed to end


class SuperLink:
    """A SuperLink that runs, and knows its sites."""

    def __init__(self, server: Server, process: Child) -> None:
        self._server = server
        self.process = process
        self._ending = threading.Event()
        self.sites: dict[str, bool] = {}  # whether each is connected
        self.condition = "the SuperLink is starting"  # "" where all is well

    def end(self) -> None:
        """Look no more."""
        self._ending.set()

    def look(self) -> None:
        """Keep the SuperLink's list of sites that of the directory, until `end`."""
        import httpx

        from ternhost.links.flower.control import Control

        with Control(self._server) as control:
            while not self._ending.wait(_REGISTER):
                try:
                    self.sites = _registered(control, self._server)
                    self.condition = ""
                except httpx.HTTPStatusError as error:
                    self.condition = f"the SuperLink refuses: {error.response.status_code} {error.response.text[:200]}"
                except httpx.HTTPError as error:
                    self.condition = f"the SuperLink does not answer: {error}"
                except (OSError, ValueError) as error:
                    self.condition = str(error)


def _registered(control: object, server: Server) -> dict[str, bool]:
    """Let in whose public key is in the directory, and nobody else; whether each is connected."""
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    from ternhost.links.flower.control import Control, public_keys

    assert isinstance(control, Control)
    wanted = {public_key_to_bytes(key): name for name, key in public_keys(server.directory).items()}
    there = control.nodes()
    for key in wanted.keys() - there.keys():
        control.register(key, wanted[key])
    for key in there.keys() - wanted.keys():
        control.unregister(there[key][0])
    return {name: key in there and there[key][1] for key, name in sorted(wanted.items(), key=lambda pair: pair[1])}


@contextmanager
def superlink(server: Server) -> Iterator[SuperLink]:
    """Run the SuperLink of a server while the context lasts. Raises UsageError if its port is taken."""
    extras.require("flwr")
    _await_port(server)
    where = server.directory
    command = [sys.executable, "-m", "ternhost.links.flower.superlink", str(where)]
    with Child(command, where / LOG, environment(where)) as process:
        running = SuperLink(server, process)
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
            with socket.socket(socket.AF_INET6 if ":" in server.address else socket.AF_INET) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((server.address, server.port))
                return
        except OSError as error:
            if time.monotonic() > end:
                raise UsageError(
                    f"cannot listen on {server.address} port {server.port}: {error.strerror}",
                    hint="does another 'tern gateway superlink' run?",
                ) from error
            time.sleep(0.2)


@contextmanager
def serve_site(directory: str | Path, handler: Handler) -> Iterator[Child]:
    """Answer the server's questions for a site with `handler`, while the context lasts.

    `handler` is called by several threads at once, on this machine's socket also by whoever owns the directory. The
    node runs as a process of its own: it holds the site's key for the server, and none of its devices. Raises
    UsageError and StorageError.
    """
    extras.require("flwr")
    site = Site.load(directory)
    command = [sys.executable, "-m", "ternhost.links.flower.node", str(site.directory)]
    with (
        serve_locally(site.directory / SOCKET, handler),
        Child(command, site.directory / NODE_LOG, environment(site.directory)) as node,
    ):
        yield node
