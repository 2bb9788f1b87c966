"""Watches whether emulated boards can log in to their broker: a board by itself keeps trying in silence."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tern import storage
from tern.links import mqtt
from tern.mqtt import MqttError, Session
from tern.tcp import Connection, Lost, client_context

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
_MOST = 16  # boards that log in to begin with, of however many there are


class AtBroker:
    """Tells `warn` when the broker of emulated boards refuses them, is gone, or is back.

    command: runs the broker; refresh: says how the broker gets the keys of the boards.
    """

    def __init__(
        self, boards: Sequence[Path], warn: Callable[[str], None], command: str, refresh: str
    ) -> None:
        self._boards = boards
        self._warn = warn
        self._command = command
        self._refresh = refresh
        config = json.loads((boards[0] / mqtt.CONFIG).read_text())
        self._address: tuple[str, int] = (config["host"], config["port"])
        self._board = boards[0]  # the one that logs in, to see whether it can
        self._problem: MqttError | Lost | None = None  # the last one reported
        self._due = 0.0

    def begin(self) -> None:
        """Log in as boards that are not running yet. A broker takes a moment to start, or to read new passwords."""
        end = time.monotonic() + _PATIENCE
        for board in self._boards[:: -(-len(self._boards) // _MOST)]:
            self._board = board
            while problem := self._log_in():
                if time.monotonic() > end:
                    self._tell(problem)
                    return
                time.sleep(_PATIENCE / 20)

    def look(self) -> None:
        """Check for changes; to be called again and again while the boards run."""
        if time.monotonic() < self._due:
            return
        # A login would take over the connection of a board that has one.
        problem = self._log_in() if self._problem else self._connect()
        self._tell(problem)
        self._due = time.monotonic() + _EVERY

    def _log_in(self) -> MqttError | Lost | None:
        try:
            log_in(self._board)
        except (MqttError, Lost) as error:
            return error
        return None

    def _connect(self) -> Lost | None:
        try:
            socket.create_connection(self._address, _PATIENCE).close()
        except OSError as error:
            return Lost(error.strerror or str(error))
        return None

    def _tell(self, problem: MqttError | Lost | None) -> None:
        where = "the broker at {} port {}".format(*self._address)
        if type(problem) is type(self._problem):
            return
        self._problem = problem
        if problem is None:
            self._warn(f"{where} is there again and lets the boards in")
        elif isinstance(problem, MqttError):
            reason = _REFUSALS.get(str(problem).rpartition(" ")[2], "")
            self._warn(f"{where} does not let the boards in: {problem}{reason}\n  {self._refresh}")
        else:
            self._warn(f"{where} does not answer: {problem}\n  start it: {self._command}")


def first_client(board: Path) -> tuple[int, bytes]:
    with contextlib.closing(storage.Clients(str(board / storage.CLIENTS))) as clients:
        return clients.first, bytes(clients.key)


def log_in(board: Path) -> None:
    """Connect to the broker as the board of a directory does, and disconnect. Raises Lost and MqttError."""
    config = json.loads((board / mqtt.CONFIG).read_text())
    first, key = first_client(board)
    name = mqtt.name(first)
    context = None
    if config.get("authority"):
        context = client_context((board / config["authority"]).read_bytes())
    patience_ms = int(1000 * _PATIENCE)
    session = Session(
        lambda: Connection(config["host"], config["port"], context, config["host"]),
        name.encode(),
        name.encode(),
        mqtt.password(key).encode(),
        patience_ms=patience_ms,
    )
    try:
        while not session.open():
            session.wait(patience_ms)
        session.disconnect()
    finally:
        session.close()
