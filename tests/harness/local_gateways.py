"""Gateways on this machine without Flower between them and the host: in threads of this process, or as processes that
can be killed.
"""

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ternhost.errors import DeviceError, TernError, UsageError
from ternhost.reach.fleet import KINDS
from ternhost.reach.gateway.fleet import OverFlower
from ternhost.reach.gateway.post import SERVER, SOCKET, Post, call, serve_locally, served
from ternhost.reach.gateway.site_fleet import SiteFleet, opened
from ternhost.store import store_file

LOG = "gateway.log"
_START = 120.0  # seconds to start or to end
_TIMEOUT = 600.0  # seconds that a gateway may take to answer
_PROGRAM = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
    "from harness.local_gateways import main; main(sys.argv[1])"
)


class LocalPost(Post):
    """Post to the gateways whose directories are in `directory`, each through its own socket."""

    def __init__(self, directory):
        super().__init__()
        self._directory = Path(directory)

    def __enter__(self):
        if not self._directory.is_dir():
            raise UsageError(f"{self._directory} is not a directory of gateways")
        return self

    def __exit__(self, *_):
        pass  # its threads end with their answers, and hold nothing

    def sites(self):
        """Whether each gateway with a socket can be reached, by name; one whose socket nobody serves cannot."""
        return {path.parent.name: served(path) for path in sorted(self._directory.glob(f"*/{SOCKET}"))}

    def send(self, site, payload):
        threading.Thread(target=self._ask, args=(site, payload), daemon=True).start()

    def _ask(self, site, payload):
        try:
            answer = call(self._directory / site / SOCKET, payload, _TIMEOUT)
        except TernError as error:
            self.received(site, None, error.message)
        else:
            self.received(site, answer)

    def condition(self):
        return ""


class LocalSites(OverFlower):
    """A fleet of gateways whose directories are in one directory, each behind its own socket."""

    form = "local:DIR"
    about = "gateways on this machine"

    @property
    def default_store(self):
        return self.directory / SERVER / store_file.NAME

    def registered(self):
        return {}

    def post(self):
        return LocalPost(self.directory)


KINDS.register("local", LocalSites)


# In threads of this process


class Running:
    """A gateway in a thread of its own, which serves its socket."""

    def __init__(self, directory, runs, through=None, serve=None):
        """runs: the options of its fleet. through: (handle, payload) -> reply, replaces the gateway's own handle.

        serve: serve(directory, handler), a context in which messages reach handler; serves its socket by default.
        """
        self.directory = directory
        self.warnings = []
        self.asked = []  # received messages
        self._runs = runs
        self._through = through or (lambda handle, payload: handle(payload))
        self._serve = serve or (lambda place, handler: serve_locally(place / SOCKET, handler))
        self._ready = threading.Event()
        self._problem = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        try:
            runs = SiteFleet.of(self.directory, self._runs)
            with (
                opened(self.directory, runs, self.warnings.append) as self.gateway,
                self._serve(self.directory, self._handle),
            ):
                self._ready.set()
                self.gateway.run()
        except BaseException as error:
            self._problem = error
            self._ready.set()

    def _handle(self, payload):
        self.asked.append(payload)
        return self._through(self.gateway.handle, payload)

    def ask(self, message):
        """The reply (bytes) to a message that is sent through the socket."""
        return call(self.directory / SOCKET, message.encode(), 60)

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


@contextmanager
def gateways(directory, runs, through=None, serve=None):
    """Running gateways by name. runs, through: those of each gateway by name; serve: of all (see Running)."""
    running = {}
    try:
        for name, fleet in runs.items():
            (directory / name).mkdir(parents=True, exist_ok=True)
            running[name] = Running(directory / name, fleet, (through or {}).get(name), serve).start()
        yield running
    finally:
        for gateway in running.values():
            gateway.stop()


# As processes


class Site:
    """The process of one gateway, which can be killed and started again."""

    def __init__(self, directory, runs, popen):
        """runs: the options of its fleet (SiteFleet). popen: subprocess.Popen, or a replacement of it."""
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        SiteFleet.of(directory, runs).save(directory)
        self._popen = popen
        self._process = None

    def start(self):
        """Start the process. It may take a while until it answers: see `wait`."""
        with open(self.directory / LOG, "ab") as log:
            command = [sys.executable, "-c", _PROGRAM, str(self.directory)]
            self._process = self._popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @property
    def pid(self):
        return self._process.pid

    def wait(self, end):
        """Wait until there is its socket. Raises DeviceError if it ends first, or has no socket at the time `end`."""
        while not (self.directory / SOCKET).exists():
            if self._process.poll() is not None or time.monotonic() > end:
                log = (self.directory / LOG).read_text(errors="replace")
                raise DeviceError(f"the gateway in {self.directory} does not start: {log[-500:]}")
            time.sleep(0.02)

    def kill(self):
        """End it at once, as a power cut does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def processes(directory, runs, popen=subprocess.Popen):
    """Gateways by name, each a process (Site). runs: the options of each gateway's fleet, by name."""
    sites = {name: Site(Path(directory) / name, fleet, popen) for name, fleet in runs.items()}
    try:
        for site in sites.values():
            site.start()
        end = time.monotonic() + _START
        for site in sites.values():
            site.wait(end)
        yield sites
    finally:
        for site in sites.values():
            site.kill()


def main(directory):
    """Run the gateway of a directory with the options in its gateway.json, until it is killed."""
    os.umask(0o077)
    directory = Path(directory)
    with (
        opened(directory, SiteFleet.of(directory, {}), partial(print, flush=True)) as gateway,
        serve_locally(directory / SOCKET, gateway.handle),
    ):
        gateway.run()
