"""Puts emulated boards on a broker, and watches whether they can log in: a board itself keeps
trying in silence.
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
from ternhost.reach.broker.mosquitto import reload
from ternhost.store.store import Store
from terntools.boards.attach import attach

_EVERY = 1.0  # seconds
_PATIENCE = 3.0
# Meaning of the codes of a CONNACK: MQTT 3.1.1, 3.2.2.3.
_REFUSALS = {
    "1": " (protocol version)",
    "2": " (client id)",
    "3": " (server unavailable)",
    "4": " (user name or password)",
    "5": " (not authorised)",
}
_LONGEST_PAUSE_MS = 2000  # between two attempts of a board: its broker is on this machine
_MOST = 16  # boards that log in to begin with, of however many there are


def keys_of(place: str) -> Path | None:
    """The store of a broker's directory, where it is known."""
    store = Access.load(host_file(place)).store
    return Path(store) if store else None


def connect(
    broker: str, keys_store: Path | None, boards_store: Path, boards: list[Path]
) -> "AtBroker":
    """Connect the boards to a broker, and see whether it lets them in.

    broker: its directory. keys_store: of `keys_of`, None if the broker's store is not known.
    boards_store: the store with the boards' keys. Raises UsageError and StorageError.
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
    watch = AtBroker(boards, directory, hint)
    watch.begin()
    return watch


def _require_keys(boards_store: Path, boards: list[Path], directory: Path) -> None:
    """Raise UsageError if a board has another key than the store knows for its first device."""
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
    """Warns when the broker of emulated boards refuses them, is gone, or is back."""

    def __init__(self, boards: Sequence[Path], directory: Path, refresh: str) -> None:
        """Prepare to watch the boards' broker.

        directory: of the broker. refresh: says how the broker gets the keys of the boards.
        """
        self._boards = boards
        self._directory = directory
        self._refresh = refresh
        config = json.loads((boards[0] / mqtt.CONFIG).read_text())
        self._address: tuple[str, int] = (config["host"], config["port"])
        self._board = boards[0]  # the one that logs in, to see whether it can
        self._problem: Lost | None = None  # the last one reported
        self._due = 0.0

    def begin(self) -> None:
        """Log in as some of the boards, none of which runs yet, and warn if the broker refuses.

        A broker takes a moment to start, or to read new passwords.
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
        """Check for changes; to be called again and again while the boards run."""
        if time.monotonic() < self._due:
            return
        # A login would take over the connection of a board that has one.
        problem = log_in(self._board) if self._problem else self._connect()
        self._tell(problem)
        self._due = time.monotonic() + _EVERY

    def _connect(self) -> Lost | None:
        """Connect to any host of the broker, without logging in; return why none answers, or None."""
        hosts, port = self._address
        for host in hosts.split(","):
            try:
                socket.create_connection((host, port), _PATIENCE).close()
                return None
            except OSError as error:
                problem = Lost(error.strerror or str(error))
        return problem

    def _tell(self, problem: Lost | None) -> None:
        """Warn about a problem of another kind than the last one, or that there is none any more."""
        broker_words = "the broker at {} port {}".format(*self._address)
        if refuses(problem) == refuses(self._problem) and bool(problem) == bool(self._problem):
            return
        self._problem = problem
        if problem is None:
            warn(f"{broker_words} is there again and lets the boards in")
        elif refuses(problem):
            reason = _REFUSALS.get(str(problem).rpartition(" ")[2], "")
            warn(f"{broker_words} does not let the boards in: {problem}{reason}\n  {self._refresh}")
        else:
            warn(
                f"{broker_words} does not answer: {problem}\n  start it: tern broker run {self._directory}"
            )


def first_client(board: Path) -> tuple[int, bytes]:
    with contextlib.closing(storage.Clients(str(board / storage.CLIENTS))) as clients:
        return clients.first, bytes(clients.key)


def log_in(board: Path) -> Lost | None:
    """Connect to the broker as the board of a directory does, and disconnect.

    Returns what went wrong, or None.
    """
    config = json.loads((board / mqtt.CONFIG).read_text())
    first, key = first_client(board)
    user, password = mqtt.name(first).encode(), mqtt.password(key).encode()
    authority = config.get("authority")
    context = client_context((board / authority).read_bytes()) if authority else None
    patience_ms = int(1000 * _PATIENCE)
    host = random.choice(config["host"].split(","))
    session = Session(
        lambda: Connection(host, config["port"], context, host),
        user,
        user,
        password,
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
