"""Sends the key of a fleet to boards on a broker that have an earlier one (wire.md).

With this key the host seals what is for all boards. It is replaced when a device is revoked; each
key has a number, its epoch.
"""

import asyncio
import time
from collections.abc import Callable, Iterable

from ternhost.reach.broker.roster import BoardOnBroker
from ternhost.reach.broker.state import FleetState
from ternhost.text import counted

_HELLO_TIMEOUT = 2.0  # seconds in which boards send their HELLO again
_TICK = 0.05  # seconds between two looks whether they have


def send_fleet_key(fleet: FleetState, boards: Iterable[BoardOnBroker]) -> list[BoardOnBroker]:
    """Send the key of the fleet to those of the boards that have an earlier one.

    Return the boards that have to wait for it, since the broker has too many messages already.
    """
    waiting = []
    is_full = False  # the broker takes no more messages for now
    for board in boards:
        lacks_key = board.key.lacks(fleet.key.epoch)
        client_key = _first_key(fleet, board)
        if not board.connected or not lacks_key or not client_key:
            continue
        if not is_full:
            is_full = not _send(fleet, board, client_key)
        if is_full:
            waiting.append(board)
        else:
            board.key.sent = True
    return waiting


def _first_key(fleet: FleetState, board: BoardOnBroker) -> bytes | None:
    """Return the key of the board's first client; None if the host does not have it."""
    return fleet.aggregator.key(board.clients.start)


def _send(fleet: FleetState, board: BoardOnBroker, client_key: bytes) -> bool:
    """Send a board the key of the fleet, encrypted with the key of the board's first client.

    Return whether it was sent.
    """
    frame = fleet.key.frame(board.clients.start, client_key)
    return fleet.link.ask(board.name, frame)


def warn_of_later_keys(fleet: FleetState, boards: Iterable[BoardOnBroker]) -> None:
    """Warn once of each board whose fleet key is later than this host's.

    Then the host's store may be an old copy, with a key that revoked devices know.
    """
    names = []
    for board in boards:
        if board.connected and board.key.is_ahead(fleet.key.epoch):
            names.append(board.name)
    if names:
        fleet.warn(
            f"a later fleet key than this store's is on {counted(len(names), 'board')}, {names[0]} "
            "among them: if the store is a copy, revoke again what was revoked since, or run "
            "'tern keys rotate --fleet-key'"
        )


async def renew_hellos(fleet: FleetState, stopped: Callable[[], bool]) -> None:
    """Ask the boards whose HELLO is one that the broker has retained for a new one; wait for it.

    A board describes itself with its HELLO when it connects. That may be long ago, and it may have
    spent some of its budget since. To ask for another one, the host sends a FLEET_KEY that is no
    later than the board's: that changes nothing there, and is answered by a HELLO (wire.md). Boards with
    an earlier key have just been sent the new one, and answer that with a HELLO, too.

    stopped: returns whether the host is to end; then nothing is waited for.
    """
    presence = fleet.link.presence
    awaited = set()  # the names of boards
    for board in fleet.roster.boards.values():
        hello = presence.boards.get(board.name)
        is_old = hello is not None and hello.retained
        may_sleep = board.wake_interval > 0
        if not is_old or may_sleep:
            continue
        keeps_its_key = board.key.epoch >= fleet.key.epoch
        client_key = _first_key(fleet, board)
        is_asked = board.key.sent
        if not is_asked and keeps_its_key and client_key:
            is_asked = _send(fleet, board, client_key)
        if is_asked:
            awaited.add(board.name)

    end = time.monotonic() + _HELLO_TIMEOUT
    while awaited and time.monotonic() < end and not stopped():
        await asyncio.sleep(_TICK)
        # A board is awaited as long as its last HELLO is still the one that the broker retained.
        for name in list(awaited):
            hello = presence.boards.get(name)
            if hello is None or not hello.retained:
                awaited.remove(name)
