"""Watches the brokers and boards of a fleet: warns of failures, and stores when boards were heard."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ternhost.log import Message
from ternhost.reach import absence
from ternhost.reach.broker.absent import AbsentBoards
from ternhost.reach.broker.presence import BoardHello
from ternhost.reach.broker.roster import BoardOnBroker, Boards, RosterChanges
from ternhost.reach.broker.state import FleetState
from ternhost.reach.sightings import Sighting, Sightings
from ternhost.store.boards import hello_fields
from ternhost.store.store import Store


class FleetHealth:
    """Warns of brokers and boards that fail, and stores when boards were heard."""

    def __init__(
        self,
        fleet: FleetState,
        store: Store,
        sightings: Sightings,
        *,
        standing: bool = False,
        directory: Path | None = None,
    ) -> None:
        """Watch a fleet.

        store: the database with the devices. sightings: gets when boards were heard.
        standing: whether the fleet is served, so that it is normal that boards come and go.
        directory: that of the broker's files; None if it is not on this machine.
        """
        self._fleet = fleet
        self._sightings = sightings
        self._standing = standing
        self._absent = AbsentBoards(store, directory, key=fleet.aggregator.key, warn=fleet.warn)
        self._was_connected = True  # to the broker, at the last check
        self._connected_sites: dict[str, bool] = {}  # the same for the broker of each site

    # Brokers

    def check_broker(self) -> None:
        """Warn if the connection to the broker was lost or restored since the last check."""
        link = self._fleet.link
        if link.connected != self._was_connected:
            self._was_connected = link.connected
            broker = f"the broker at {link.access.host} port {link.access.port}"
            self._warn_of_broker(broker, link.connected)

    def check_sites(self) -> None:
        """Warn if the connection to the broker of a site was lost or restored since the last check."""
        for site, connected in self._fleet.link.presence.sites.items():
            was_connected = self._connected_sites.get(site, True)
            if connected != was_connected:
                self._warn_of_broker(f"the broker of site {site}", connected)
            self._connected_sites[site] = connected

    def _warn_of_broker(self, broker: str, connected: bool) -> None:
        if connected:
            self._fleet.warn(f"{broker} is there again")
        else:
            self._fleet.warn(f"{broker} is gone; waiting for it")

    # Boards

    def check_absent(self, now: float) -> None:
        """Warn of boards that are not connected to the broker, and say why. Call it regularly."""
        self._absent.check(self._fleet.link, self._fleet.roster, now)

    def describe_absent(self, now: float) -> list[str]:
        """Return lines about the boards that are not connected to the broker, and why."""
        return self._absent.describe(self._fleet.link, self._fleet.roster, now).lines

    def note_changes(self, changes: RosterChanges, now: float) -> None:
        """Store which boards have connected and disconnected, and warn of it.

        In a fleet that is served, boards come and go all the time, so there is no warning.
        """
        changed = changes.arrived + changes.gone
        for board in changed:
            self._note_hello(board, now)
        if changed:
            self._sightings.write()
        if not self._standing:
            self._warn_of_boards(changes.returned, "back")
            self._warn_of_boards(changes.gone, "gone from the broker")

    def _warn_of_boards(self, boards: Boards, change: str) -> None:
        for board in boards:
            if not board.wake_interval:
                message = Message(f"board {board.name} is {change}", board=board.name)
                self._fleet.warn(message)

    def _note_hello(self, board: BoardOnBroker, now: float) -> None:
        """Note that a board has connected or disconnected.

        When it connects, it sends a HELLO, the message in which it describes itself. That is noted,
        too, and a warning is given if it says why the board was away.
        """
        hello = self._fleet.link.presence.boards.get(board.name)
        if hello is None or hello.hello is None:  # it has disconnected
            self._note_sighting(board, {})
            return
        fields = hello_fields(hello.hello)
        self._note_sighting(board, fields, hello.retained)
        if board.last_hello == now:
            self._warn_of_absence(board, hello, fields, now)

    def _warn_of_absence(
        self, board: BoardOnBroker, hello: BoardHello, fields: Mapping[str, Any], now: float
    ) -> None:
        """Warn of a board that has just connected, and whose HELLO says why it was away.

        There is no warning of an absence that began before this host was connected, nor for a HELLO
        that only answers a new fleet key. fields: the fields of the HELLO. now: the time by
        the monotonic clock.
        """
        host_seconds = now - self._fleet.roster.connected_at
        host_was_there = fields.get("absent_seconds", 0) < host_seconds
        answers_key = bool(hello.answered_epoch)
        if fields.get("absent") and host_was_there and not answers_key:
            message = Message(f"board {board.name} {absence.describe(fields)}", board=board.name)
            self._fleet.warn(message)

    def _note_sighting(
        self, board: BoardOnBroker, hello: Mapping[str, Any], retained: bool = False
    ) -> None:
        """Note when a board was heard, to be stored with the next write.

        Boards without a key are left out, since anybody at the broker of a site can claim to be
        further boards, and would fill the store.

        hello: the fields of its HELLO; empty if they have not changed. retained: the HELLO is one
        that the broker has kept, which may be old.
        """
        key = self._fleet.aggregator.key(board.clients.start)
        if not key:
            return
        sighting = Sighting(
            name=board.name,
            clients=board.clients,
            heard=board.last_heard,
            online=board.connected,
            hello=hello,
            retained=retained,
        )
        self._sightings.note(sighting)

    def store_when_due(self, *, round_ended: bool = False) -> None:
        """Store when boards were heard if the last time was some seconds ago, or after a round."""
        if self._sightings.write_is_due(len(self._fleet.roster.boards), ended=round_ended):
            self.store_sightings()

    def store_sightings(self) -> None:
        """Store when each board was heard."""
        for board in self._fleet.roster.boards.values():
            self._note_sighting(board, {})
        self._sightings.write()
