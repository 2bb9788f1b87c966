"""Connects emulated boards to an MQTT broker, and watches whether they can log in.

A board that cannot log in keeps trying in silence, so that nobody would know.
"""

import contextlib
import json
import math
import random
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from tern import storage
from tern.links import mqtt
from tern.mqtt import Session
from tern.tcp import Connection, Lost, client_context
from ternhost.command import warn
from ternhost.errors import UsageError
from ternhost.reach.absence import refuses
from ternhost.reach.broker.access import Access, host_file
from ternhost.reach.broker.configuration import configure
from ternhost.reach.broker.kinds import kind_of
from ternhost.reach.broker.mosquitto import reload
from ternhost.store.store import Store
from terntools.boards.attach import attach

_EVERY = 1.0  # seconds between two checks of the broker
_PATIENCE = 3.0  # seconds that a broker gets to answer, or to accept new passwords
# Meaning of the codes of a CONNACK: MQTT 3.1.1, 3.2.2.3.
_REFUSALS = {
    "1": " (protocol version)",
    "2": " (client id)",
    "3": " (server unavailable)",
    "4": " (user name or password)",
    "5": " (not authorised)",
}
_LONGEST_PAUSE_MS = 2000  # between two attempts of a board: short, its broker is on this machine
_MOST = 16  # boards whose login is tried at first, of however many there are


def keys_of(place: str) -> Path | None:
    """Return the store with the device keys of a broker; None if it is not known.

    place: the broker's directory.
    """
    store = Access.load(host_file(place)).store
    return Path(store) if store else None


def connect(
    broker: str, keys_store: Path | None, boards_store: Path, boards: list[Path]
) -> "AtBroker":
    """Connect the boards to a broker, warn if it does not let them in, and return a watch on it.

    broker: its directory. keys_store: the store from which the broker gets its passwords, of
    `keys_of`; None if it is not known, and then the user has to give the broker the boards' keys.
    boards_store: the store with the boards' keys. boards: their directories. Raises UsageError and
    StorageError.
    """
    directory = host_file(broker).parent
    _require_keys(boards_store, boards, directory)
    if keys_store:
        configure(directory)
        reload(directory)
    attach(boards, broker, boards_store, longest_pause_ms=_LONGEST_PAUSE_MS)
    command = f"tern broker config {directory}"
    if not keys_store:
        command += f" --store {boards_store}"
    hint = (
        f"give it their keys: {command}; then send SIGHUP to a Mosquitto of another user or machine"
    )
    access = Access.load(host_file(directory))
    watch = AtBroker(
        boards, start=kind_of(directory, access).start_command(str(directory)), refresh=hint
    )
    watch.begin()
    return watch


def _require_keys(boards_store: Path, boards: list[Path], directory: Path) -> None:
    """Raise UsageError unless the store has the key of each board's first device.

    boards: their directories. directory: of the broker, for the advice in the error.
    """
    with Store(boards_store, create=False, beside=True) as store:
        keys_by_device = store.keys()
    for board in boards:
        first, key = first_client(board)
        if keys_by_device.get(first) != key:
            hint = f"name the store of these boards: tern broker config {directory} --store FILE; or remove "
            hint += f"{board.parent}, and they are made anew"
            raise UsageError(
                f"{boards_store} does not hold the key of device {first}, which {board} has", hint
            )


class AtBroker:
    """A watch on the broker of emulated boards.

    It warns when the broker refuses the boards, when it is gone, and when it is back.
    """

    def __init__(self, boards: Sequence[Path], start: str, refresh: str) -> None:
        """Prepare to watch the broker whose address the boards have.

        boards: their directories. start: tells the user how to start the broker. refresh: tells the
        user how the broker gets the keys of the boards.
        """
        self._boards = boards
        self._start = start
        self._refresh = refresh
        config = json.loads((boards[0] / mqtt.CONFIG).read_text())
        self._address: tuple[str, int] = (config["host"], config["port"])
        self._board = boards[0]  # whose login is tried, to see whether it works
        self._problem: Lost | None = None  # what the user was last warned of
        self._due = 0.0  # when look() is to check again, in time.monotonic()

    def begin(self) -> None:
        """Log in as some of the boards, none of which runs yet, and warn if the broker refuses.

        Logins are repeated for a while, since a broker takes a moment to start or to read new
        passwords.
        """
        give_up_at = time.monotonic() + _PATIENCE
        every = math.ceil(len(self._boards) / _MOST)
        for board in self._boards[::every]:
            self._board = board
            problem = log_in(board)
            while problem is not None:
                if time.monotonic() > give_up_at:
                    self._tell(problem)
                    return
                time.sleep(_PATIENCE / 20)
                problem = log_in(board)

    def look(self) -> None:
        """Check whether the broker still accepts the boards, and warn of a change.

        It is called again and again while the boards run, and checks every _EVERY seconds.
        """
        if time.monotonic() < self._due:
            return
        if self._problem is None:
            # The boards are logged in. A login as one of them would take over its connection.
            problem = self._connect()
        else:
            problem = log_in(self._board)
        self._tell(problem)
        self._due = time.monotonic() + _EVERY

    def _connect(self) -> Lost | None:
        """Connect to the broker without logging in; return why none of its hosts answers, or None."""
        hosts, port = self._address
        for host in hosts.split(","):
            try:
                socket.create_connection((host, port), _PATIENCE).close()
                return None
            except OSError as error:
                problem = Lost(error.strerror or str(error))
        return problem

    def _tell(self, problem: Lost | None) -> None:
        """Warn the user of a problem, unless the last warning was of a problem of the same kind.

        problem: why the boards cannot log in; None if they can, which is told after a problem.
        """
        refusal_unchanged = refuses(problem) == refuses(self._problem)
        problem_unchanged = bool(problem) == bool(self._problem)
        if refusal_unchanged and problem_unchanged:
            return
        self._problem = problem
        host, port = self._address
        broker_words = f"the broker at {host} port {port}"
        if problem is None:
            warn(f"{broker_words} is there again and lets the boards in")
        elif refuses(problem):
            code = str(problem).rpartition(" ")[2]  # the message ends with the code of the CONNACK
            reason = _REFUSALS.get(code, "")
            warn(f"{broker_words} does not let the boards in: {problem}{reason}\n  {self._refresh}")
        else:
            warn(f"{broker_words} does not answer: {problem}\n  start it: {self._start}")


def first_client(board: Path) -> tuple[int, bytes]:
    """Return the id and the key of the first device on a board. board: its directory."""
    with contextlib.closing(storage.Clients(str(board / storage.CLIENTS))) as clients:
        return clients.first, bytes(clients.key)


def log_in(board: Path) -> Lost | None:
    """Log in to the broker as the board of a directory does, and disconnect.

    Returns what went wrong, or None.
    """
    config = json.loads((board / mqtt.CONFIG).read_text())
    first_device, key = first_client(board)
    user = mqtt.name(first_device).encode()
    password = mqtt.password(key).encode()
    context = None
    if config.get("authority"):  # the certificate with which the board checks the broker's
        context = client_context((board / config["authority"]).read_bytes())
    patience_ms = int(1000 * _PATIENCE)
    host = random.choice(config["host"].split(","))
    session = Session(
        connect=lambda: Connection(host, config["port"], context, host),
        client_id=user,
        user=user,
        password=password,
        patience_ms=patience_ms,
    )
    try:
        while not session.open():
            session.wait(patience_ms)
        session.disconnect()
    except Lost as error:
        return error
    finally:
        session.close()
    return None
