"""What a host notices, warns of and stores about the health of a fleet on a broker."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
        """store: with the devices. sightings: gets when boards were heard.

        standing: the fleet is served, so boards come and go. directory: of the broker; None: it is
        not on this machine.
        """
        self._fleet = fleet
        self._sightings = sightings
        self._standing = standing
        self._absent = AbsentBoards(store, directory, fleet.aggregator.key, fleet.warn)
        self._was_connected = True
        self._connected_sites: dict[str, bool] = {}

    # Brokers

    def check_broker(self) -> None:
        """Warn when the connection to the broker is lost, and when it is there again."""
        link = self._fleet.link
        if link.connected != self._was_connected:
            self._was_connected = link.connected
            broker = f"the broker at {link.access.host} port {link.access.port}"
            self._warn_of_broker(broker, link.connected)

    def check_sites(self) -> None:
        """Warn when the broker of a site is gone, and when it is there again."""
        for site, connected in self._fleet.link.presence.sites.items():
            if connected != self._connected_sites.get(site, True):
                self._warn_of_broker(f"the broker of site {site}", connected)
            self._connected_sites[site] = connected

    def _warn_of_broker(self, broker: str, connected: bool) -> None:
        if connected:
            self._fleet.warn(f"{broker} is there again")
        else:
            self._fleet.warn(f"{broker} is gone; waiting for it")

    # Boards

    def check_absent(self, now: float) -> None:
        """Warn of boards that the broker does not hear, with the reasons."""
        self._absent.check(self._fleet.link, self._fleet.roster, now)

    def describe_absent(self, now: float) -> list[str]:
        """Return lines about the boards that the broker does not hear, with the reasons."""
        return self._absent.describe(self._fleet.link, self._fleet.roster, now).lines

    def note_changes(self, changes: RosterChanges, now: float) -> None:
        """Store which boards have come and gone, and warn of it."""
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
                self._fleet.warn(f"board {board.name} is {change}")

    def _note_hello(self, board: BoardOnBroker, now: float) -> None:
        """Note that a board has come or gone, with its HELLO if it has come."""
        hello = self._fleet.link.presence.boards.get(board.name)
        if hello is None or hello.hello is None:
            self._note_sighting(board, {})
            return
        fields = hello_fields(hello.hello)
        self._note_sighting(board, fields, hello.retained)
        if board.last_hello == now:
            self._warn_of_absence(board, hello, fields, now)

    def _warn_of_absence(
        self, board: BoardOnBroker, hello: BoardHello, fields: Mapping[str, Any], now: float
    ) -> None:
        """Warn of a board that has just connected and says why it was away.

        Only if this host was there meanwhile, and not for the answer to a FLEET_KEY.
        """
        host_seconds = now - self._fleet.roster.connected_at
        host_was_there = fields.get("absent_seconds", 0) < host_seconds
        if fields.get("absent") and host_was_there and not hello.answered_epoch:
            self._fleet.warn(f"board {board.name} {absence.describe(fields)}")

    def _note_sighting(
        self, board: BoardOnBroker, hello: Mapping[str, Any], retained: bool = False
    ) -> None:
        """Note when a board was heard. hello: the fields of its HELLO; empty: unchanged.

        Boards without a key are left out: anybody on a site's broker may claim more boards, and
        rows stay in the store.
        """
        if self._fleet.aggregator.key(board.clients.start):
            self._sightings.note(
                Sighting(
                    board.name,
                    board.clients,
                    board.last_heard,
                    online=board.connected,
                    hello=hello,
                    retained=retained,
                )
            )

    def store_when_due(self, *, round_ended: bool = False) -> None:
        """Store when boards were heard, every few seconds and after a round."""
        if self._sightings.due(len(self._fleet.roster.boards), ended=round_ended):
            self.store_sightings()

    def store_sightings(self) -> None:
        """Store when each board was heard."""
        for board in self._fleet.roster.boards.values():
            self._note_sighting(board, {})
        self._sightings.write()
