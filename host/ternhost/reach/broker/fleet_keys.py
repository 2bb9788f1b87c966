"""Brings the fleet's key to boards on a broker that have an earlier one (wire.md)."""

import asyncio
import time
from collections.abc import Callable, Iterable

from ternhost.reach.broker.roster import BoardOnBroker
from ternhost.reach.broker.state import FleetState
from ternhost.text import counted

_HELLO_TIMEOUT = 2.0  # seconds for boards to say hello again; they answer after a slot
_TICK = 0.05


def send_fleet_key(fleet: FleetState, boards: Iterable[BoardOnBroker]) -> None:
    """Send the fleet's key to the boards that have an earlier one.

    Each gets it under the key of its first client.
    """
    for board in boards:
        if board.connected and board.key.lacks(fleet.key.epoch) and _send(fleet, board):
            board.key.sent = True


def _send(fleet: FleetState, board: BoardOnBroker) -> bool:
    """Send a board the fleet's key; return False if its first client has no key in the store."""
    first = board.clients.start
    client_key = fleet.aggregator.key(first)
    if not client_key:
        return False
    fleet.link.ask(board.name, fleet.key.frame(first, client_key))
    return True


def warn_of_later_keys(fleet: FleetState, boards: Iterable[BoardOnBroker]) -> None:
    """Warn of boards with a later key than the store's: the store may be a copy."""
    names = []
    for board in boards:
        if board.connected and board.key.is_ahead(fleet.key.epoch):
            names.append(board.name)
    if names:
        fleet.warn(
            f"a later fleet key than this store's is on {counted(len(names), 'board')}, {names[0]} "
            "among them: if the store is a copy, revoke again what was revoked since, or run "
            "'tern device rotate --fleet-key'"
        )


async def renew_hellos(fleet: FleetState, stopped: Callable[[], bool]) -> None:
    """Have the boards say hello again that connected before this host did, and wait for that.

    They may have paid for rounds since. A FLEET_KEY that a board has already changes nothing there,
    and is answered by a HELLO (wire.md). To other boards it would bring a key that they lack.
    """
    presence = fleet.link.presence
    awaited = set()  # names of boards
    for board in fleet.roster.boards.values():
        hello = presence.boards.get(board.name)
        is_old = hello is not None and hello.retained
        has_the_key = board.key.epoch == fleet.key.epoch
        if is_old and has_the_key and not board.wake_interval and _send(fleet, board):
            awaited.add(board.name)

    end = time.monotonic() + _HELLO_TIMEOUT
    while awaited and time.monotonic() < end and not stopped():
        await asyncio.sleep(_TICK)
        old_hellos = {name for name, hello in presence.boards.items() if hello.retained}
        awaited &= old_hellos
