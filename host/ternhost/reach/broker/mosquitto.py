"""Runs the broker Mosquitto with the files that `ternhost.reach.broker.configuration` writes."""

import os
import re
import secrets
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ternhost import child_processes, programs
from ternhost.command import warn
from ternhost.errors import DeviceError, UsageError
from ternhost.files import Closing, storage_errors
from ternhost.reach.addresses import LOOPBACK
from ternhost.reach.broker import processes
from ternhost.reach.broker.access import CONFIG, HOST, Access
from ternhost.reach.broker.configuration import configure
from ternhost.reach.broker.copies import RunningBroker, check_original
from ternhost.reach.broker.keeper import DEFAULT_TIMES, Keeper, KeeperTimes
from ternhost.reach.broker.kinds import KINDS
from ternhost.reach.broker.mosquitto_files import (
    DAMAGED,
    DATABASE,
    LOG,
    PID,
    PORT,
    PROGRAM,
    database_before,
    listening,
    modernise,
    set_database_aside,
)
from ternhost.reach.broker.mosquitto_kind import MOSQUITTO
from ternhost.reach.broker.sites import SITES, is_site

_START_TIMEOUT = 30.0  # seconds
_STOP_TIMEOUT = 5.0  # seconds
# An MQTT packet CONNECT of a client without a name, user and password: its type and length, the
# name and version (4) of the protocol, the flag for a clean session, and keep-alive and name, empty.
_CONNECT = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00"
_PORTS = range(10_000, 30_000)  # below those that operating systems assign by themselves
_STAMP = re.compile(r"^\d+: ")  # the time at the beginning of a line of its log
_given_ports: set[int] = set()  # those that free_port has returned


def free_port() -> int:
    """Return a free port of the loopback interface, another one with each call in this process.

    It lies outside the range from which operating systems assign ports.
    """
    while True:
        port = secrets.choice(_PORTS)
        if port in _given_ports:
            continue
        with socket.socket() as probe, suppress(OSError):  # OSError: it is in use
            probe.bind(("127.0.0.1", port))
            _given_ports.add(port)
            return port


def listens(address: str, port: int) -> bool:
    """Return whether a program listens at that address and port."""
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def reload(directory: str | Path) -> bool:
    """Make the running broker of a directory read its passwords and its access list again.

    The same is done for the brokers of its sites that run on this machine. This needs /proc, and
    the user who runs the brokers. Return whether the broker of the directory itself is running.
    """
    directory = Path(directory).resolve()
    central = directory.parent.parent
    if is_site(directory) and (central / CONFIG).exists():
        # The central broker comes first. Otherwise the site's bridge could pass messages of new
        # boards on to it before it accepts them, and they would be lost.
        MOSQUITTO.reload(central)
    reloaded = [kind.reload(directory) for kind in KINDS.available()]
    for site in sorted((directory / SITES).glob("*")):
        MOSQUITTO.reload(site)
    return any(reloaded)


def listener(directory: Path) -> tuple[str, int]:
    """Return the address and port at which a directory's broker is reached from its own machine.

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
    """A Mosquitto process, which is also a context manager that ends it."""

    def __init__(self, directory: str | Path) -> None:
        """Start the broker of a directory, and wait until it listens.

        Raises DeviceError if it does not start, UsageError if it or a copy of it runs already, and
        StorageError if its configuration cannot be written.
        """
        self.directory = Path(directory)
        self.access = Access.load(self.directory / HOST)
        self._listener = listener(self.directory)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0  # how many bytes of the log are older than the process
        self._keeper: Keeper | None = None
        self._names: RunningBroker | None = None
        if not is_site(self.directory):  # a site has no store, and no host
            self._names = RunningBroker(self.directory, self.access)
        try:
            with storage_errors():
                modernise(self.directory)
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int | None:
        """The process id; None while there is no process."""
        return self._process.pid if self._process else None

    @property
    def runs(self) -> bool:
        """Whether there is a process that has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process, for the first time or again, and wait until it listens.

        If it cannot read its database, for instance because the disk was full or the power failed
        while it was written, the file is set aside, and the broker starts without it.
        Raises DeviceError if Mosquitto is not installed, its port is taken, or it ends at once.
        """
        with database_before(self.directory):
            try:
                self._start()
                return
            except DeviceError:
                if not self._has_damaged_database():
                    raise
                set_database_aside(self.directory)
        warn(
            f"Mosquitto cannot read {self.directory / DATABASE}, which is damaged: it starts "
            f"without, and the file is now {DAMAGED}. What the broker kept is forgotten: a "
            "running 'tern serve' announces its round and model again, and asks again for "
            "reports that were on their way"
        )
        self._start()

    def _has_damaged_database(self) -> bool:
        """Return whether the process has ended since it cannot read the content of its database."""
        errors = self._errors_in_log()
        is_about_database = any("database" in error for error in errors)
        is_forbidden = any("Permission denied" in error for error in errors)
        return is_about_database and not is_forbidden and (self.directory / DATABASE).exists()

    def _start(self) -> None:
        """Start the process once, and wait until it listens. Raises DeviceError."""
        program = programs.find(PROGRAM)
        address, port = self._listener
        if listens(address, port):
            pid = processes.running(self.directory, PID, PROGRAM)
            if pid is not None:
                raise DeviceError(
                    f"the Mosquitto of {self.directory} runs already, as process {pid}",
                    hint=f"end it: kill {pid}",
                )
            hint = f"end it, or name another port: tern broker config {self.directory} --port PORT"
            raise DeviceError(f"another program listens on port {port} already", hint)
        with open(self.directory / LOG, "ab") as log:
            self._log_start = log.seek(0, os.SEEK_END)
            self._process = child_processes.start(
                [program, "-c", CONFIG],
                cwd=self.directory,  # paths in a site's configuration are relative
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C does not reach it: this process ends it last
            )
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        """Wait until the process accepts connections. Raises DeviceError if it does not."""
        end = time.monotonic() + _START_TIMEOUT
        while not self.answers(timeout=1.0):
            if not self.runs or time.monotonic() > end:
                error = self.failure("mosquitto does not start")
                self.kill()
                raise error
            time.sleep(0.01)
        if not self.runs:  # then it was another process that has answered
            raise self.failure("mosquitto has ended")

    def failure(self, message: str) -> DeviceError:
        """Return the error for a process that has ended, with the reason if that is known.

        The reason is the last error in its log, or else the signal or the exit code with which it
        has ended. message: what has happened, as the beginning of the error's message.
        """
        log = self.directory / LOG
        errors = self._errors_in_log()
        code = None
        if self._process:
            code = self._process.poll()
        if errors:
            message += f": {errors[-1]}"
        elif code is not None and code < 0:  # the number of a signal, with a minus sign
            message += f": {signal.Signals(-code).name}"
        elif code is not None:
            message += f" with exit code {code}"
        return DeviceError(message, hint=f"see {log}")

    def _errors_in_log(self) -> list[str]:
        """Return the messages of errors that the process has logged, without their times.

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
        with suppress(OSError):  # there may be no log
            if log.stat().st_size > largest:
                os.truncate(log, 0)
                self._log_start = 0

    def answers(self, timeout: float) -> bool | None:
        """Return whether the broker answers within `timeout` seconds; None if its port is closed.

        False says that it accepts connections and does nothing with them: it hangs.
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
            except OSError:  # it refuses this client, and so it answers
                pass
        return True

    def _greet(self, connection: socket.socket) -> None:
        """Complete a handshake on a connection that only finds out whether the broker answers.

        If a connection ended without one, Mosquitto would sometimes log an error. Raises OSError.
        """
        if self.access.authority:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # The broker gets no data, so it need not be the right one.
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            with context.wrap_socket(connection) as secure:
                secure.unwrap()
        else:
            connection.sendall(_CONNECT)
            connection.recv(1)

    def keep(self, report: Callable[[str], None], times: KeeperTimes = DEFAULT_TIMES) -> None:
        """From now on restart the broker when it ends or hangs, after pauses that grow.

        report: is called with a sentence before each restart. times: how often it is checked.
        """
        keeper = Keeper(self, report, times)
        keeper.start()
        # Ctrl-C may come at any time, so it is noted only now, when its thread can be joined.
        self._keeper = keeper

    def reload(self) -> None:
        """Make the broker read its passwords and its access list again."""
        if self._process:
            self._process.send_signal(signal.SIGHUP)

    def close(self) -> None:
        """Stop the broker cleanly, so that it saves its retained messages and sessions."""
        if self._keeper:
            self._keeper.stop()
        if self._process:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_TIMEOUT)
        self.kill()
        if self._names:
            self._names.close()

    def kill(self) -> None:
        """End the process at once."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None


def configure_if_missing(directory: str | Path) -> Access:
    """Return how the broker of a directory is reached, after configuring a new one if necessary.

    A new broker is for this machine only, and listens at its usual port or at a free one. Raises
    StorageError and UsageError.
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
    """Run the broker of a directory while the context is open, unless it runs here or elsewhere.

    A missing configuration is made. The context manager returns how the broker is reached. report:
    is called with a sentence before each restart. Raises DeviceError, StorageError and UsageError.
    """
    directory = Path(directory)
    access = configure_if_missing(directory)
    if not (directory / CONFIG).exists():  # it is a cluster, or runs elsewhere
        yield access
        return
    runs_here = listens(*listener(directory))
    if runs_here or listens(access.host, access.port):
        check_original(directory, access)
        yield access
        return
    with Mosquitto(directory) as running:
        running.keep(report)
        yield access
