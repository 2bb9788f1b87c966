"""Which boards are connected to a fleet's broker while no host is running.

A running host writes into the store who is online. Without one, the page asks the broker.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ternhost.errors import TernError
from ternhost.reach.broker.access import FLEET, OBSERVER, Access
from ternhost.store.boards import BoardRow, hello_fields
from ternhost.store.snapshot import Snapshot


@dataclass(frozen=True)
class SeenBoard:
    """A board that is connected to the broker, and what it says of itself."""

    name: str
    first: int  # the id of its first device
    clients: int  # the number of its devices
    hello: Mapping[str, Any]  # as in BoardRow


@dataclass(frozen=True)
class Connected:
    """The boards that were connected to a broker at a moment."""

    broker: str  # its address, for people
    at: float  # seconds since 1970
    boards: Mapping[int, SeenBoard]  # by the first device


def access_of(snapshot: Snapshot) -> Access | None:
    """Return how an observer reaches the broker of a store; None if the store has no broker.

    The directory of the broker has the store, or it is that of the run's fleet.
    """
    store = Path(snapshot.store)
    directories = [store.parent]
    if snapshot.run is not None and snapshot.run.fleet.startswith(FLEET):
        directories.append(Path(snapshot.run.fleet.removeprefix(FLEET)))
    for directory in directories:
        with suppress(TernError, OSError):  # it is no broker's, or one of an earlier version
            access = Access.load(directory / OBSERVER)
            if access.store is not None and Path(access.store).samefile(store):
                return access
    return None


async def look(access: Access) -> Connected | None:
    """Ask a broker which boards are connected; None if it does not answer.

    Raises ImportError without the extra `mqtt`.
    """
    from ternhost.reach.broker.observer import connected_boards  # it needs an extra

    try:
        hellos = await connected_boards(access)
    except (TernError, TimeoutError, OSError):
        return None
    boards = {}
    for name, board in hellos.items():
        if board.hello is None:
            continue
        first = board.clients.start
        boards[first] = SeenBoard(
            name=name, first=first, clients=len(board.clients), hello=hello_fields(board.hello)
        )
    return Connected(broker=f"{access.host}:{access.port}", at=time.time(), boards=boards)


def with_connected(
    boards: tuple[BoardRow, ...], seen: Connected, seen_before: tuple[BoardRow, ...] = ()
) -> tuple[BoardRow, ...]:
    """Return the boards of a store as the broker sees them: those that are connected are online.

    Boards that no run has seen yet are added, and so are those that an earlier look has seen
    (`seen_before`). What a board has paid since its HELLO stays as it was, unless it has sent another
    HELLO.
    """
    known_boards = {board.first: board for board in (*seen_before, *boards)}
    last_seen = {board.first: board.heard for board in seen_before}
    rows = []
    for board in known_boards.values():
        connected = seen.boards.get(board.first)
        if connected is None:
            heard = max(board.heard, last_seen.get(board.first, 0.0))
            is_unchanged = not board.online and heard == board.heard
            rows.append(board if is_unchanged else replace(board, online=False, heard=heard))
            continue
        spent = board.spent if connected.hello == board.hello else 0
        rows.append(
            replace(
                board,
                name=connected.name,
                clients=connected.clients,
                online=True,
                heard=seen.at,
                hello=connected.hello,
                spent=spent,
            )
        )
    for first, connected in seen.boards.items():
        if first not in known_boards:
            new = BoardRow(connected.name, first, connected.clients, True, seen.at, connected.hello)
            rows.append(new)
    return tuple(sorted(rows, key=_by_first))


def _by_first(board: BoardRow) -> int:
    """Return the sort key of a board."""
    return board.first
