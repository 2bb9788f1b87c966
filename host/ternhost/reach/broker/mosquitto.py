"""A Mosquitto process on a configuration that ternhost.reach.broker.configuration wrote."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from ternhost.errors import DeviceError, StorageError, UsageError
from ternhost.reach.broker.access import CONFIG, HOST, Access
from ternhost.reach.broker.configuration import PID, PORT, configure
from ternhost.reach.broker.sites import SITES, is_site

_LOG = "mosquitto.log"
_LISTENER = re.compile(r"^listener (\d+) (\S+)$", re.MULTILINE)
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # a server on all addresses is reached here
_START_TIMEOUT = 30.0
_STOP_TIMEOUT = 5.0
_LOOK_EVERY = 0.5  # whether it still runs
_ASK_EVERY = 30.0  # whether it still answers: Mosquitto 2.0.11 hangs now and then once a bridge was cut
_HUNG = 15.0  # that it may take
_CONNECT = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00"  # anonymous
_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # before it is started again
_PORTS = range(10_000, 30_000)
_HEALTHY = 300.0  # seconds after which the pause is the first again
_STAMP = re.compile(r"^\d+: ")  # of a line of its log
_given: set[int] = set()  # by free_port


def free_port() -> int:
    """A free port of the loopback interface, outside the range from which systems assign ports."""
    while True:
        port = secrets.choice(_PORTS)
        if port in _given:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _given.add(port)
            return port


def listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def reload(directory: str | Path) -> bool:
    """Have the Mosquitto that runs on the configuration of a directory read its passwords and its access list again.

    So do those of its sites that run here, and the central one of a site that is still beside it: that first, since
    what a site's bridge passes on too early is lost. Return whether there is one that this user may tell for the
    directory itself: it runs on this machine, and its system has /proc.
    """
    directory = Path(directory).resolve()
    if is_site(directory) and (directory.parent.parent / CONFIG).exists():
        _hang_up(directory.parent.parent)
    taken = _hang_up(directory)
    for site in sorted((directory / SITES).glob("*")):
        _hang_up(site)
    return taken


def _hang_up(directory: Path) -> bool:
    try:
        pid = int((directory / PID).read_text())
        if Path(f"/proc/{pid}/comm").read_text() == "mosquitto\n":  # not another process with the same number
            os.kill(pid, signal.SIGHUP)
            return True
    except (OSError, ValueError):
        pass
    return False


def listener(directory: Path) -> tuple[str, int]:
    """Host and port of a directory's broker, as seen from its own machine. Raises StorageError and UsageError."""
    try:
        match = _LISTENER.search((directory / CONFIG).read_text())
    except OSError as error:
        raise StorageError(
            f"{directory / CONFIG}: {error.strerror}", hint="make it: tern broker config"
        ) from error
    if match is None:
        raise UsageError(f"{directory / CONFIG} names no listener", hint="make it anew: tern broker config")
    return _ANY.get(match[2], match[2]), int(match[1])


class Mosquitto:
    """A Mosquitto process on a configuration of `write_configuration`. A context manager that ends it."""

    def __init__(self, directory: str | Path) -> None:
        """Start it, and wait until it listens. Raises DeviceError."""
        self.directory = Path(directory)
        self.access = Access.load(self.directory / HOST)
        self._listener = listener(self.directory)
        self._process: subprocess.Popen[bytes] | None = None
        self._logged = 0  # bytes of the log that are older than the process
        self._keeper: threading.Thread | None = None
        self._stopping = threading.Event()
        self.start()

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process again after `stop` or `kill`."""
        binary = shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
        if binary is None:
            raise DeviceError(
                "there is no mosquitto on this machine",
                hint="apt-get install --no-install-recommends mosquitto",
            )
        address, port = self._listener
        if listens(address, port):
            raise DeviceError(
                f"another program listens on port {port} already",
                hint="end it, or name another port: tern broker config DIR --port",
            )
        with open(self.directory / _LOG, "ab") as out:
            self._logged = out.seek(0, os.SEEK_END)
            self._process = subprocess.Popen(
                [binary, "-c", CONFIG],
                cwd=self.directory,  # what a site's names is named from there
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,  # Ctrl-C is for its parent, which ends it last
            )
        end = time.monotonic() + _START_TIMEOUT
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > end:
                error = self._ended("mosquitto does not start")
                self.kill()
                raise error
            time.sleep(0.01)
        if self._process.poll() is not None:  # it is another that listens
            raise self._ended("mosquitto has ended")

    def _ended(self, message: str) -> DeviceError:
        # Its own last words alone: what else it logs is no reason.
        log = self.directory / _LOG
        with open(log, "rb") as file:
            file.seek(self._logged)
            lines = file.read().decode(errors="replace").splitlines()
        errors = [said for line in lines if (said := _STAMP.sub("", line)).startswith("Error")]
        code = self._process.poll() if self._process else None
        if errors:
            message += f": {errors[-1]}"
        elif code is not None:
            message += f": {signal.Signals(-code).name}" if code < 0 else f" with exit code {code}"
        return DeviceError(message, hint=f"see {log}")

    def answers(self, timeout: float) -> bool:
        """Whether it responds: it answers a connection within so many seconds, or has ended."""
        try:
            with socket.create_connection(self._listener, timeout) as line:
                self._greet(line)
        except TimeoutError:
            return False
        except OSError:  # it does not take this for a client
            pass
        return True

    def _listens(self) -> bool:
        try:
            line = socket.create_connection(self._listener, 1.0)
        except OSError:
            return False
        with line, suppress(OSError):
            self._greet(line)
        return True

    def _greet(self, line: socket.socket) -> None:
        # To its end: it logs a handshake that breaks off as an error, now and then. Raises OSError.
        if self.access.authority:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE  # nothing is said to it
            with context.wrap_socket(line) as secure:
                secure.unwrap()
        else:
            line.sendall(_CONNECT)
            line.recv(1)

    def keep(self, tell: Callable[[str], None]) -> None:
        """From now on start it again where it ends by itself or hangs, after a pause that grows.

        `tell` gets a sentence.
        """
        keeper = threading.Thread(target=self._keep, args=(tell,), daemon=True)
        keeper.start()
        self._keeper = keeper  # once it can be joined: Ctrl-C may come at any time

    def _keep(self, tell: Callable[[str], None]) -> None:
        pause = _PAUSE
        asked = started = time.monotonic()
        while not self._stopping.wait(_LOOK_EVERY):
            if self._process and self._process.poll() is None:
                if time.monotonic() - asked < _ASK_EVERY:
                    continue
                answers = self.answers(_HUNG)
                asked = time.monotonic()
                if answers or self._stopping.is_set():
                    continue
                self.kill()
                what = "mosquitto hangs"
            else:
                what = self._ended("mosquitto has ended").message
            if time.monotonic() - started > _HEALTHY:
                pause = _PAUSE
            tell(f"{what}; it is started again in {pause:g} s")
            if self._stopping.wait(pause):
                return
            pause = min(2 * pause, _LONGEST_PAUSE)
            with suppress(DeviceError):
                self.start()
            started = time.monotonic()

    def reload(self) -> None:
        """Have it read its passwords and its access list again."""
        if self._process:
            self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """Stop it cleanly: it saves its retained messages and sessions."""
        self._stopping.set()
        if self._keeper:
            self._keeper.join()
        if self._process:
            self._process.terminate()
            try:
                self._process.wait(_STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def kill(self) -> None:
        """End it at once."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def configure_if_missing(directory: str | Path) -> Access:
    """How to reach the broker of a directory. One that has none is configured for this machine.

    Its port is 8883, or a free one where another program listens there. Raises StorageError and UsageError.
    """
    directory = Path(directory)
    if (directory / HOST).exists():
        return Access.load(directory / HOST)
    return configure(directory, port=free_port() if listens("127.0.0.1", PORT) else PORT)


@contextmanager
def ensure_running(
    directory: str | Path, tell: Callable[[str], None] = lambda message: None
) -> Iterator[Access]:
    """The broker of a directory, while the context is open: for a first try of a fleet, without any other command.

    A directory without a configuration gets one. Where nobody listens at its port, and its mosquitto.conf is there to
    be run, it is run, and ends with the context; where it ends by itself it is started again, and `tell` hears of it.
    Raises DeviceError, StorageError and UsageError.
    """
    directory = Path(directory)
    access = configure_if_missing(directory)
    if not (directory / CONFIG).exists() or listens(*listener(directory)):
        yield access
        return
    with Mosquitto(directory) as running:
        running.keep(tell)
        yield access
