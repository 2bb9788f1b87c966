"""Notes in the store what boards say of themselves, and when they were heard, for who looks on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ternhost.aggregate.board_table import BoardRow
from ternhost.aggregate.store import Store

# Seconds from one note of when boards were heard to the next, and for each board of a large fleet.
_EVERY, _EACH = 5.0, 0.001
_NOTHING: dict[str, Any] = {}


class Sightings:
    """What was seen of boards since it was written last; in one transaction for all of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, BoardRow] = {}
        self._written = time.monotonic()

    def due(self, boards: int) -> bool:
        """Whether it is time to note again when each of so many boards was heard."""
        return time.monotonic() - self._written > max(_EVERY, _EACH * boards)

    def saw(
        self,
        name: str,
        clients: range,
        heard: float,
        *,
        online: bool = True,
        told: Mapping[str, Any] = _NOTHING,
        error: str | None = None,
    ) -> None:
        """A board was seen. heard: on the monotonic clock. told: as of BoardRow, or nothing new. error: it failed."""
        before = self._seen.get(name)
        errors = (before.errors if before else 0) + (error is not None)
        self._seen[name] = BoardRow(
            name,
            clients.start,
            len(clients),
            online,
            time.time() - (time.monotonic() - heard),
            told or (before.told if before else _NOTHING),
            errors,
            error or (before.error if before else None),
        )

    def write(self) -> None:
        """Write what was seen. Raises StorageError."""
        if self._seen:
            self._store.boards_seen(self._seen.values())
            self._seen = {}
        self._written = time.monotonic()

    def forget(self) -> None:
        """Nobody is connected to any board."""
        self.write()
        self._store.boards_offline()
