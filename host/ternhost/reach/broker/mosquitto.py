"""Runs Mosquitto on a configuration of `ternhost.reach.broker.configuration`."""

import os
import re
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ternhost.errors import DeviceError, UsageError
from ternhost.files import Closing
from ternhost.reach.addresses import LOOPBACK
from ternhost.reach.broker import cluster
from ternhost.reach.broker.access import CONFIG, HOST, Access
from ternhost.reach.broker.configuration import configure
from ternhost.reach.broker.keeper import DEFAULT_TIMES, Keeper, KeeperTimes
from ternhost.reach.broker.mosquitto_files import LOG, PID, PORT, listening
from ternhost.reach.broker.sites import SITES, is_site

_START_TIMEOUT = 30.0  # seconds
_STOP_TIMEOUT = 5.0
# MQTT's CONNECT of a client without a name, user and password.
_CONNECT = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00"
_PORTS = range(10_000, 30_000)
_STAMP = re.compile(r"^\d+: ")  # of a line of its log
_given_ports: set[int] = set()  # by free_port


def free_port() -> int:
    """Return a free port of the loopback interface; it is given to nobody else in this process.

    It lies outside the range from which operating systems assign ports.
    """
    while True:
        port = secrets.choice(_PORTS)
        if port in _given_ports:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _given_ports.add(port)
            return port


def listens(address: str, port: int) -> bool:
    """Return whether something listens at that address."""
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def reload(directory: str | Path) -> bool:
    """Have the running broker of a directory read its passwords and rights again.

    So do the brokers of its sites on this machine, and the nodes of a cluster. Return whether the
    directory's own broker or a node could be told. Needs /proc and the user of the brokers.
    """
    directory = Path(directory).resolve()
    central = directory.parent.parent
    if is_site(directory) and (central / CONFIG).exists():
        # First, or it would lose messages that the site's bridge passes on too early.
        _hang_up(central)
    reloaded = _hang_up(directory)
    for site in sorted((directory / SITES).glob("*")):
        _hang_up(site)
    for node in sorted((directory / cluster.NODES).glob("*")):
        reloaded |= _hang_up(node, cluster.PID, "nats-server")
    return reloaded


def _hang_up(directory: Path, pid_file: str = PID, program: str = "mosquitto") -> bool:
    """Send SIGHUP to the broker of a directory; return whether it runs."""
    with suppress(OSError, ValueError):
        pid = int((directory / pid_file).read_text())
        process_name = Path(f"/proc/{pid}/comm").read_text()
        if process_name == f"{program}\n":  # else another process has its number by now
            os.kill(pid, signal.SIGHUP)
            return True
    return False


def listener(directory: Path) -> tuple[str, int]:
    """Return the host and port of a directory's broker, as seen from its own machine.

    Raises UsageError if its configuration names none.
    """
    found = listening(directory)
    if found is None:
        raise UsageError(
            f"{directory / CONFIG} names no listener", hint="make it: tern broker config"
        )
    address, port = found
    return LOOPBACK.get(address, address), port


class Mosquitto(Closing):
    """A Mosquitto process on a configuration of `write_configuration`.

    A context manager that ends it.
    """

    def __init__(self, directory: str | Path) -> None:
        """Start the broker of a directory, and wait until it listens. Raises DeviceError."""
        self.directory = Path(directory)
        self.access = Access.load(self.directory / HOST)
        self._listener = listener(self.directory)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0  # bytes of the log that are older than the process
        self._keeper: Keeper | None = None
        self.start()

    @property
    def pid(self) -> int | None:
        """The process id; None while there is no process."""
        return self._process.pid if self._process else None

    @property
    def runs(self) -> bool:
        """Whether there is a process that has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process, also again after `kill`. Raises DeviceError."""
        search_path = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
        binary = shutil.which("mosquitto", path=search_path)
        if binary is None:
            hint = "apt-get install --no-install-recommends mosquitto"
            raise DeviceError("mosquitto is not installed", hint)
        address, port = self._listener
        if listens(address, port):
            hint = "end it, or name another port: tern broker config DIR --port"
            raise DeviceError(f"another program listens on port {port} already", hint)
        with open(self.directory / LOG, "ab") as log:
            self._log_start = log.seek(0, os.SEEK_END)
            self._process = subprocess.Popen(
                [binary, "-c", CONFIG],
                cwd=self.directory,  # paths in a site's configuration are relative
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # its parent handles Ctrl-C, and ends it last
            )
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        """Wait until the process that was started answers. Raises DeviceError if it does not."""
        end = time.monotonic() + _START_TIMEOUT
        while not self.answers(1.0):
            if not self.runs or time.monotonic() > end:
                error = self.failure("mosquitto does not start")
                self.kill()
                raise error
            time.sleep(0.01)
        if not self.runs:  # another process listens
            raise self.failure("mosquitto has ended")

    def failure(self, message: str) -> DeviceError:
        """Return an error that says why the process has ended, by its log or its exit code."""
        log = self.directory / LOG
        errors = self._errors_in_log()
        code = self._process.poll() if self._process else None
        if errors:
            message += f": {errors[-1]}"
        elif code is not None and code < 0:
            message += f": {signal.Signals(-code).name}"
        elif code is not None:
            message += f" with exit code {code}"
        return DeviceError(message, hint=f"see {log}")

    def _errors_in_log(self) -> list[str]:
        """Return the errors that the process has logged.

        Other lines of its log do not say why it has ended.
        """
        try:
            with open(self.directory / LOG, "rb") as log:
                log.seek(self._log_start)
                text = log.read().decode(errors="replace")
        except OSError:
            return []
        errors = []
        for line in text.splitlines():
            message = _STAMP.sub("", line)
            if message.startswith("Error"):
                errors.append(message)
        return errors

    def limit_log(self, largest: int) -> None:
        """Empty the log if it has more than `largest` bytes."""
        log = self.directory / LOG
        with suppress(OSError):
            if log.stat().st_size > largest:
                os.truncate(log, 0)
                self._log_start = 0

    def answers(self, timeout: float) -> bool | None:
        """Return whether it answers a connection in time; None if its port is closed.

        timeout: seconds.
        """
        try:
            connection = socket.create_connection(self._listener, timeout)
        except TimeoutError:
            return False
        except OSError:
            return None
        with connection:
            try:
                self._greet(connection)
            except TimeoutError:
                return False
            except OSError:  # it refuses this as a client
                pass
        return True

    def _greet(self, connection: socket.socket) -> None:
        """Complete the handshake of a connection that only looks whether the broker answers.

        Mosquitto sometimes logs one that breaks off as an error. Raises OSError.
        """
        if self.access.authority:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE  # it gets no data
            with context.wrap_socket(connection) as secure:
                secure.unwrap()
        else:
            connection.sendall(_CONNECT)
            connection.recv(1)

    def keep(self, report: Callable[[str], None], times: KeeperTimes = DEFAULT_TIMES) -> None:
        """Restart it from now on when it ends or hangs, after growing pauses.

        report: gets a sentence each time.
        """
        keeper = Keeper(self, report, times)
        keeper.start()
        self._keeper = keeper  # only now that it can be joined: Ctrl-C may come at any time

    def reload(self) -> None:
        """Have it read its passwords and its access list again."""
        if self._process:
            self._process.send_signal(signal.SIGHUP)

    def close(self) -> None:
        """Stop it cleanly: it saves its retained messages and sessions."""
        if self._keeper:
            self._keeper.stop()
        if self._process:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_TIMEOUT)
        self.kill()

    def kill(self) -> None:
        """End the process at once."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None


def configure_if_missing(directory: str | Path) -> Access:
    """Load a broker's access, or configure a new broker for this machine.

    It listens on port 8883, or a free one. Raises StorageError and UsageError.
    """
    directory = Path(directory)
    if (directory / HOST).exists():
        return Access.load(directory / HOST)
    port = PORT
    if listens("127.0.0.1", PORT):
        port = free_port()
    return configure(directory, port=port)


@contextmanager
def ensure_running(
    directory: str | Path, report: Callable[[str], None] = lambda message: None
) -> Iterator[Access]:
    """Run a directory's broker while the context is open, unless something listens already.

    A missing configuration is made. report: gets a sentence when it is restarted. Raises
    DeviceError, StorageError and UsageError.
    """
    directory = Path(directory)
    access = configure_if_missing(directory)
    if not (directory / CONFIG).exists() or listens(*listener(directory)):
        yield access
        return
    with Mosquitto(directory) as running:
        running.keep(report)
        yield access
