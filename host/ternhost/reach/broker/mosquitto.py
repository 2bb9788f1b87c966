"""Runs Mosquitto on a configuration of `ternhost.reach.broker.configuration`."""

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

from ternhost.errors import DeviceError, UsageError
from ternhost.files import Closing
from ternhost.reach.addresses import LOOPBACK
from ternhost.reach.broker import cluster
from ternhost.reach.broker.access import CONFIG, HOST, Access
from ternhost.reach.broker.configuration import configure
from ternhost.reach.broker.mosquitto_files import LOG, PID, PORT, listening
from ternhost.reach.broker.sites import SITES, is_site

_START_TIMEOUT = 30.0
_STOP_TIMEOUT = 5.0
_LOOK_EVERY = 0.5  # seconds between two looks whether it still runs
_ASK_EVERY = (
    30.0  # and whether it still answers: Mosquitto 2.0.11 sometimes hangs after a bridge was cut
)
_LARGEST_LOG = 16 << 20  # bytes of its log, which is emptied then
_HUNG = 15.0  # seconds that an answer may take
_CONNECT = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00"  # anonymous
_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds before a restart
_PORTS = range(10_000, 30_000)
_HEALTHY = 300.0  # seconds without a restart after which the pause is short again
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
    """Have a directory's running Mosquitto read passwords and access list again; return whether it
    could. So do the brokers of its sites here, and first a site's central broker, which would
    otherwise lose messages that the bridge passes on too early. Needs /proc and the user of the
    brokers.
    """
    directory = Path(directory).resolve()
    if is_site(directory) and (directory.parent.parent / CONFIG).exists():
        _hang_up(directory.parent.parent)
    reloaded = _hang_up(directory)
    for site in sorted((directory / SITES).glob("*")):
        _hang_up(site)
    for node in sorted((directory / cluster.NODES).glob("*")):
        reloaded |= _hang_up(node, cluster.PID, "nats-server")
    return reloaded


def _hang_up(directory: Path, pid_file: str = PID, program: str = "mosquitto") -> bool:
    with suppress(OSError, ValueError):
        pid = int((directory / pid_file).read_text())
        if (
            Path(f"/proc/{pid}/comm").read_text() == f"{program}\n"
        ):  # no later process has its number
            os.kill(pid, signal.SIGHUP)
            return True
    return False


def listener(directory: Path) -> tuple[str, int]:
    """Host and port of a directory's broker, as seen from its own machine. Raises UsageError."""
    where = listening(directory)
    if where is None:
        raise UsageError(
            f"{directory / CONFIG} names no listener", hint="make it: tern broker config"
        )
    return LOOPBACK.get(where[0], where[0]), where[1]


class Mosquitto(Closing):
    """A Mosquitto process on a configuration of `write_configuration`.

    A context manager that ends it.
    """

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
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process again after `stop` or `kill`."""
        binary = shutil.which(
            "mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
        )
        if binary is None:
            hint = "apt-get install --no-install-recommends mosquitto"
            raise DeviceError("mosquitto is not installed", hint)
        address, port = self._listener
        if listens(address, port):
            hint = "end it, or name another port: tern broker config DIR --port"
            raise DeviceError(f"another program listens on port {port} already", hint)
        with open(self.directory / LOG, "ab") as out:
            self._logged = out.seek(0, os.SEEK_END)
            self._process = subprocess.Popen(
                [binary, "-c", CONFIG],
                cwd=self.directory,  # paths in a site's configuration are relative
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,  # its parent handles Ctrl-C, and ends it last
            )
        end = time.monotonic() + _START_TIMEOUT
        while not self.answers(1.0, closed=False):
            if self._process.poll() is not None or time.monotonic() > end:
                error = self._ended("mosquitto does not start")
                self.kill()
                raise error
            time.sleep(0.01)
        if self._process.poll() is not None:  # another process listens
            raise self._ended("mosquitto has ended")

    def _ended(self, message: str) -> DeviceError:
        # Only the errors in its log: other lines do not say why.
        log = self.directory / LOG
        lines: list[str] = []
        with suppress(OSError), open(log, "rb") as file:
            file.seek(self._logged)
            lines = file.read().decode(errors="replace").splitlines()
        errors = [error for line in lines if (error := _STAMP.sub("", line)).startswith("Error")]
        code = self._process.poll() if self._process else None
        if errors:
            message += f": {errors[-1]}"
        elif code is not None:
            message += f": {signal.Signals(-code).name}" if code < 0 else f" with exit code {code}"
        return DeviceError(message, hint=f"see {log}")

    def answers(self, timeout: float, closed: bool = True) -> bool:
        """Whether it answers a connection within `timeout` seconds. closed: the result where its
        port is closed.
        """
        try:
            line = socket.create_connection(self._listener, timeout)
        except OSError as error:
            return closed and not isinstance(error, TimeoutError)
        with line:
            try:
                self._greet(line)
            except TimeoutError:
                return False
            except OSError:  # it refuses this as a client
                pass
        return True

    def _greet(self, line: socket.socket) -> None:
        # Completes the handshake, since it sometimes logs one that breaks off as an error. Raises
        # OSError.
        if self.access.authority:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE  # it gets no data
            with context.wrap_socket(line) as secure:
                secure.unwrap()
        else:
            line.sendall(_CONNECT)
            line.recv(1)

    def keep(self, tell: Callable[[str], None]) -> None:
        """Restart it from now on when it ends or hangs, after growing pauses. tell: gets a sentence
        each time.
        """
        keeper = threading.Thread(target=self._keep, args=(tell,), daemon=True)
        keeper.start()
        self._keeper = keeper  # only now that it can be joined: Ctrl-C may come at any time

    def _keep(self, tell: Callable[[str], None]) -> None:
        pause, problem = _PAUSE, ""
        checked = started = time.monotonic()
        while not self._stopping.wait(_LOOK_EVERY):
            if self._process and self._process.poll() is None:
                problem = ""
                if time.monotonic() - checked < _ASK_EVERY:
                    continue
                with suppress(OSError):
                    if (self.directory / LOG).stat().st_size > _LARGEST_LOG:
                        os.truncate(self.directory / LOG, 0)
                        self._logged = 0
                answers = self.answers(_HUNG)
                checked = time.monotonic()
                if answers or self._stopping.is_set():
                    continue
                self.kill()
                failure = "mosquitto hangs"
            else:
                failure = problem or self._ended("mosquitto has ended").message
            if time.monotonic() - started > _HEALTHY:
                pause = _PAUSE
            with suppress(OSError):  # where a disk is full, the keeper goes on
                tell(f"{failure}; it is restarted in {pause:g} s")
            if self._stopping.wait(pause):
                return
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                self.start()
            except (DeviceError, OSError) as error:
                problem = str(error)
            started = time.monotonic()

    def reload(self) -> None:
        if self._process:
            self._process.send_signal(signal.SIGHUP)

    def close(self) -> None:
        """Stop it cleanly: it saves its retained messages and sessions."""
        self._stopping.set()
        if self._keeper:
            self._keeper.join()
        if self._process:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_TIMEOUT)
        self.kill()

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None


def configure_if_missing(directory: str | Path) -> Access:
    """Load a broker's access, or configure a new broker for this machine, on port 8883 or a free
    one. Raises StorageError and UsageError.
    """
    directory = Path(directory)
    if (directory / HOST).exists():
        return Access.load(directory / HOST)
    return configure(directory, port=free_port() if listens("127.0.0.1", PORT) else PORT)


@contextmanager
def ensure_running(
    directory: str | Path, tell: Callable[[str], None] = lambda message: None
) -> Iterator[Access]:
    """Configure a directory's broker, if it has none, and run it, unless something listens already,
    while the context is open. `tell` hears of restarts. Raises DeviceError, StorageError and
    UsageError.
    """
    directory = Path(directory)
    access = configure_if_missing(directory)
    if not (directory / CONFIG).exists() or listens(*listener(directory)):
        yield access
        return
    with Mosquitto(directory) as running:
        running.keep(tell)
        yield access
