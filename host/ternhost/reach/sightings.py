"""Records in the store, for observers, when boards were heard, and their figures about themselves."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ternhost.errors import StorageError
from ternhost.reach.driver import BoardBudget, Warn
from ternhost.store.boards import BoardRow
from ternhost.store.store import Store

# Least seconds between two writes of when boards were heard, and for each board of a large fleet.
_EVERY, _EACH = 5.0, 0.001
_NOTHING: dict[str, Any] = {}


class _Account:
    """The HELLO of a board, and what its first device has paid since, in millionths of its measure.

    A device that answers a round may have paid before its HELLO or after it. So only rounds count
    that were opened after the HELLO.
    """

    def __init__(self, hello: Mapping[str, Any], last_round: int, paid: int) -> None:
        self.hello = hello
        self.last_round = last_round  # that was open, or had ended, when the HELLO came
        self.paid = paid


class Sightings:
    """Changes of boards since the last write.

    Rounds do not depend on it: after a failed write, the changes wait.
    """

    def __init__(
        self,
        store: Store,
        warn: Warn = lambda message: None,
        last_round: Callable[[], int] = lambda: 0,
    ) -> None:
        """warn: gets a sentence when writes begin to fail. last_round: the number of the last round
        that was opened.
        """
        self._store = store
        self._warn = warn
        self._last_round = last_round
        self._refused = False
        self._seen: dict[str, BoardRow] = {}
        self._accounts: dict[int, _Account] = {}  # by first device of a board
        self._stored: dict[int, BoardRow] | None = (
            None  # by first device, as they were before this host
        )
        self.version = 0  # of what boards say of their budgets: it grows with each change
        self._written = time.monotonic()

    def due(self, boards: int, ended: bool = False) -> bool:
        """Whether it is time to write when each of `boards` boards was heard. ended: a round has
        ended.
        """
        return time.monotonic() - self._written > max(0.0 if ended else _EVERY, _EACH * boards)

    def saw(
        self,
        name: str,
        clients: range,
        heard: float,
        *,
        online: bool = True,
        hello: Mapping[str, Any] = _NOTHING,
        kept: bool = False,
        error: str | None = None,
    ) -> None:
        """Note a board. heard: on the monotonic clock. hello: as in BoardRow; empty: unchanged.
        kept: that was said before this host came. error: of a failure.
        """
        self._take_hello(clients.start, hello, kept)
        before = self._seen.get(name)
        errors = (before.errors if before else 0) + (error is not None)
        at = time.time() - (time.monotonic() - heard)
        if before:
            hello, error = hello or before.hello, error or before.error
        self._seen[name] = BoardRow(
            name, clients.start, len(clients), online, at, hello, errors, error
        )

    def _take_hello(self, first: int, hello: Mapping[str, Any], kept: bool) -> None:
        known = self._accounts.get(first)
        if known is None or (hello and known.hello != hello):
            paid = self._paid_since(first, hello) if kept or not hello else 0
            self._accounts[first] = _Account(hello, self._last_round(), paid)
            self.version += 1

    def _paid_since(self, first: int, hello: Mapping[str, Any]) -> int:
        """What the device has paid since that HELLO, or since the last one, by what an earlier host
        has stored.
        """
        if self._stored is None:
            self._stored = {board.first: board for board in self._store.boards()}
        stored = self._stored.get(first)
        return stored.spent if stored is not None and hello in ({}, stored.hello) else 0

    def budget(self, clients: range) -> BoardBudget | None:
        """What the board with these devices says of its budget; None where it says nothing."""
        account = self._accounts.get(clients.start)
        if account is None:
            return None
        row = BoardRow(
            "", clients.start, len(clients), True, 0.0, account.hello, spent=account.paid
        )
        if row.budget_left is None or row.paid is None:
            return None
        return BoardBudget(
            clients, len(clients), row.measure, row.budget_left, row.paid, clients.start, row.unit
        )

    def answered(
        self,
        reports: Iterable[tuple[int, int]],
        costs: Callable[[int, Sequence[int], int], Iterable[int]],
    ) -> None:
        """Note accepted reports (round, device). costs(round, devices, measure): the cost of each."""
        paying: dict[
            tuple[int, int], list[int]
        ] = {}  # by round and measure, the first devices of boards
        for number, device in reports:
            account = self._accounts.get(device)
            if account is not None and number > account.last_round:
                measure = int(account.hello.get("measure") or 0)
                paying.setdefault((number, measure), []).append(device)
        self.version += bool(paying)
        for (number, measure), devices in paying.items():
            for device, cost in zip(devices, costs(number, devices, measure), strict=True):
                self._accounts[device].paid += cost

    def write(self) -> None:
        if self._seen:
            rows = [
                replace(row, spent=self._accounts[row.first].paid) for row in self._seen.values()
            ]
            self._try(lambda: self._store.boards_seen(rows))
            if not self._refused:
                self._seen = {}
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
