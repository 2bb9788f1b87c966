"""Records in the store, for observers, when boards were heard, and their figures about themselves."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ternhost.errors import StorageError
from ternhost.reach.driver import Warn
from ternhost.store.boards import BoardRow
from ternhost.store.store import Store

# Least seconds between two writes of when boards were heard, and for each board of a large fleet.
_EVERY, _EACH = 5.0, 0.001
_NOTHING: dict[str, Any] = {}


class Sightings:
    """Changes of boards since the last write. Rounds do not depend on it: after a failed write, the changes wait."""

    def __init__(self, store: Store, warn: Warn = lambda message: None) -> None:
        """warn: gets a sentence when writes begin to fail."""
        self._store = store
        self._warn = warn
        self._refused = False
        self._seen: dict[str, BoardRow] = {}
        self._spent: dict[int, int] = {}  # by first device of a board, micro-epsilon since the last write
        self._written = time.monotonic()

    def due(self, boards: int, ended: bool = False) -> bool:
        """Whether it is time to write when each of `boards` boards was heard. ended: a round has ended."""
        return time.monotonic() - self._written > max(0.0 if ended else _EVERY, _EACH * boards)

    def saw(
        self,
        name: str,
        clients: range,
        heard: float,
        *,
        online: bool = True,
        hello: Mapping[str, Any] = _NOTHING,
        error: str | None = None,
    ) -> None:
        """Note a board. heard: on the monotonic clock. hello: as in BoardRow; empty: unchanged. error: of a failure."""
        self._spent.setdefault(clients.start, 0)
        before = self._seen.get(name)
        errors = (before.errors if before else 0) + (error is not None)
        at = time.time() - (time.monotonic() - heard)
        if before:
            hello, error = hello or before.hello, error or before.error
        self._seen[name] = BoardRow(name, clients.start, len(clients), online, at, hello, errors, error)

    def answered(
        self, reports: Iterable[tuple[int, int]], costs: Callable[[int, Sequence[int]], Iterable[int]]
    ) -> None:
        """Note accepted reports (round, device). costs(round, devices): the cost of each."""
        first: dict[int, list[int]] = {}
        for number, device in reports:
            if device in self._spent:
                first.setdefault(number, []).append(device)
        for number, devices in first.items():
            for device, cost in zip(devices, costs(number, devices), strict=True):
                self._spent[device] += cost

    def write(self) -> None:
        if self._seen:
            rows = [replace(row, spent=self._spent[row.first]) for row in self._seen.values()]
            self._try(lambda: self._store.boards_seen(rows))
            if not self._refused:
                self._seen = {}
                self._spent |= {row.first: 0 for row in rows}
        self._written = time.monotonic()

    def forget(self) -> None:
        """Write that all boards are offline."""
        self.write()
        self._try(self._store.boards_offline)

    def _try(self, note: Callable[[], None]) -> None:
        try:
            note()
        except StorageError as error:
            if not self._refused:
                self._warn(f"the state of boards is stored later: {error.message}")
            self._refused = True
        else:
            self._refused = False
