"""Gateways on this machine, each a process of this file, without Flower between them and the host."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ternhost.errors import DeviceError, TernError, UsageError
from ternhost.reach.gateway.fleet import AtGateways
from ternhost.reach.gateway.post import SERVER, SOCKET, Inbox, Post, Reply, call, serve_locally, served
from ternhost.reach.gateway.site_fleet import SiteFleet, opened
from ternhost.store import store_file

TESTS = Path(__file__).parents[1]
LOG = "gateway.log"
_START = 60.0  # seconds
_TIMEOUT = 600.0  # seconds that a gateway may take to answer


class LocalPost:
    """A Post to the gateways whose directories are in `directory`, on this machine, each through its own socket."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._inbox = Inbox()
        self.receive = self._inbox.receive
        self.stop = self._inbox.stop

    def __enter__(self) -> Self:
        if not self._directory.is_dir():
            raise UsageError(f"{self._directory} is no directory of gateways")
        return self

    def __exit__(self, *_: object) -> None:
        pass  # its threads end with their answers, and hold nothing

    def sites(self) -> Mapping[str, bool]:
        """As Post's: the directories with a socket; one that nobody serves cannot be reached."""
        return {path.parent.name: served(path) for path in sorted(self._directory.glob(f"*/{SOCKET}"))}

    def send(self, site: str, payload: bytes) -> None:
        """As Post's."""
        threading.Thread(target=self._ask, args=(site, payload), daemon=True).start()

    def _ask(self, site: str, payload: bytes) -> None:
        try:
            answer = call(self._directory / site / SOCKET, payload, _TIMEOUT)
        except TernError as error:
            self._inbox.put(Reply(site, None, error.message))
        else:
            self._inbox.put(Reply(site, answer))

    def condition(self) -> str:
        """As Post's: there is nothing between that could be wrong."""
        return ""


class LocalSites(AtGateways):
    """Gateways whose directories are in one, each behind its own socket."""

    form = "local:DIR"
    about = "gateways on this machine"

    @property
    def default_store(self) -> Path:
        return self.directory / SERVER / store_file.NAME

    def post(self) -> Post:
        return LocalPost(self.directory)


class Site:
    """The process of one gateway, which can be killed and started again."""

    def __init__(self, directory: Path, runs: Mapping[str, Any]) -> None:
        """runs: the options of its fleet (SiteFleet)."""
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        SiteFleet.of(directory, runs).save(directory)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it may take a while until it answers."""
        with open(self.directory / LOG, "ab") as log:
            command = [sys.executable, "-m", "harness.local_sites", str(self.directory)]
            path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path},
            )

    @property
    def pid(self) -> int | None:
        """Of its process, while there is one."""
        return None if self._process is None else self._process.pid

    def check(self) -> None:
        """Raise DeviceError if it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            lines = (self.directory / LOG).read_text(errors="replace").strip().splitlines()
            raise DeviceError(f"the gateway in {self.directory} has ended: {lines[-1] if lines else ''}")

    def kill(self) -> None:
        """End it at once, as a power cut does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Sites:
    """Gateways in a directory, one a name, from entering the context until leaving it."""

    def __init__(self, directory: str | Path, runs: Mapping[str, Mapping[str, Any]]) -> None:
        """runs: by name, the options of each one's fleet."""
        self.directory = Path(directory)
        self.sites = {name: Site(self.directory / name, own) for name, own in runs.items()}

    @property
    def fleet(self) -> str:
        """The name of the fleet; to be registered: `KINDS.lent("local", LocalSites)`."""
        return f"local:{self.directory}"

    def __enter__(self) -> Self:
        try:
            for site in self.sites.values():
                site.start()
            self.wait()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for site in self.sites.values():
            site.kill()

    def wait(self) -> None:
        """Until each has its socket. Raises DeviceError."""
        end = time.monotonic() + _START
        for site in self.sites.values():
            while not (site.directory / SOCKET).exists():
                site.check()
                if time.monotonic() > end:
                    raise DeviceError(f"the gateway in {site.directory} does not start")
                time.sleep(0.02)


def main(directory: Path) -> None:
    """Run the gateway of a directory, as its gateway.json says, until it is killed."""
    os.umask(0o077)

    def warn(message: str) -> None:
        print(message, flush=True)

    with (
        opened(directory, SiteFleet.of(directory, {}), warn) as gateway,
        serve_locally(directory / SOCKET, gateway.handle),
    ):
        gateway.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
