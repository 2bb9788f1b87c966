"""Gateways in threads of this process, for tests; harness.gateways has them as processes that are killed."""

import threading
from contextlib import contextmanager

from harness.local_sites import LocalSites
from ternhost.reach.fleet import KINDS
from ternhost.reach.gateway.post import SOCKET, call, serve_locally
from ternhost.reach.gateway.site_fleet import SiteFleet, opened

KINDS.register("local", LocalSites)


class Running:
    """A gateway that serves its socket from a thread that has its store."""

    def __init__(self, directory, runs, through=None, serve=None):
        """runs: the options of its fleet. through: (handle, payload) -> reply, in the place of its own handle. serve:
        what brings questions to it, serve(directory, handler); by default its socket alone.
        """
        self.directory = directory
        self.warnings = []
        self.asked = []  # the messages that it was sent
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
        """The reply to a message, as bytes, through the socket."""
        return call(self.directory / SOCKET, message.encode(), 60)

    def start(self):
        self._thread.start()
        self._ready.wait()
        if self._problem:
            raise self._problem
        return self

    def stop(self):
        if hasattr(self, "gateway"):
            self.gateway.stop()
        self._thread.join()


@contextmanager
def gateways(directory, runs, through=None, serve=None):
    """Gateways by name, each with the options of its fleet; through: by name, as of Running; serve: of all."""
    found = {}
    try:
        for name, own in runs.items():
            (directory / name).mkdir(parents=True, exist_ok=True)
            found[name] = Running(directory / name, own, (through or {}).get(name), serve).start()
        yield found
    finally:
        for running in found.values():
            running.stop()
