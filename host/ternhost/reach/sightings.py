"""Records in the store, for observers, when boards were heard, and their figures about themselves."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ternhost.errors import StorageError
from ternhost.reach.driver import BoardBudget, Warn
from ternhost.store.boards import BoardRow
from ternhost.store.store import Store

# Least seconds between two writes of when boards were heard; a large fleet takes more, for each
# of its boards.
_EVERY = 5.0
_EVERY_FOR_A_BOARD = 0.001

# Takes a round, devices and a measure; returns what a report of each device costs, in millionths.
Costs = Callable[[int, Sequence[int], int], Iterable[int]]


@dataclass(frozen=True)
class Sighting:
    """What a driver has noticed about a board."""

    name: str
    clients: range
    heard: float  # on the monotonic clock
    online: bool = True
    hello: Mapping[str, Any] = field(default_factory=dict)  # as in BoardRow; empty: unchanged
    retained: bool = False  # the HELLO was sent before this host came
    error: str | None = None  # of a failure


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
        """store: gets the changes. warn: gets a sentence when writes begin to fail.

        last_round: returns the number of the last round.
        """
        self.version = 0  # of what boards say of their budgets: it grows with each change
        self._store = store
        self._warn = warn
        self._last_round = last_round
        self._write_failed = False
        self._unwritten: dict[str, BoardRow] = {}
        self._accounts: dict[int, _Account] = {}  # by first device of a board
        self._rows_before: dict[int, BoardRow] | None = None  # by first device, before this host
        self._last_write = time.monotonic()
        self._budgets: list[BoardBudget] = []
        self._budgets_version = 0  # that they are from

    # What boards say

    def note(self, sighting: Sighting) -> None:
        """Note that a board was heard, or has failed."""
        self._open_account(sighting)
        hello, error = sighting.hello, sighting.error
        errors = 0 if error is None else 1
        unwritten = self._unwritten.get(sighting.name)
        if unwritten is not None:  # add to what is to be written already
            hello = hello or unwritten.hello
            error = error or unwritten.error
            errors += unwritten.errors
        silence = time.monotonic() - sighting.heard
        self._unwritten[sighting.name] = BoardRow(
            sighting.name,
            sighting.clients.start,
            len(sighting.clients),
            sighting.online,
            heard=time.time() - silence,
            hello=hello,
            errors=errors,
            error=error,
        )

    def _open_account(self, sighting: Sighting) -> None:
        """Open the account of a board that is new or has sent another HELLO."""
        first, hello = sighting.clients.start, sighting.hello
        account = self._accounts.get(first)
        if account is not None:
            is_unchanged = not hello or account.hello == hello
            if is_unchanged:
                return
        paid = 0
        hello_is_old = sighting.retained or not hello
        if hello_is_old:  # reports since then came to an earlier host
            paid = self._paid_before(first, hello)
        self._accounts[first] = _Account(hello, self._last_round(), paid)
        self.version += 1

    def _paid_before(self, first: int, hello: Mapping[str, Any]) -> int:
        """Return what a device has paid since its HELLO, as an earlier host has stored it.

        first: the device, which is the first one of its board.
        """
        if self._rows_before is None:
            self._rows_before = {row.first: row for row in self._store.boards()}
        row = self._rows_before.get(first)
        if row is None:
            return 0
        has_other_hello = bool(hello) and hello != row.hello
        if has_other_hello:
            return 0
        return row.spent

    def answered(self, reports: Iterable[tuple[int, int]], costs: Costs) -> None:
        """Add what accepted reports cost to the accounts of boards.

        reports: (round, device) of each. costs: see `Costs`.
        """
        paying: dict[tuple[int, int], list[int]] = {}  # first devices, by round and measure
        for number, device in reports:
            account = self._accounts.get(device)
            if account is not None and number > account.last_round:
                measure = int(account.hello.get("measure") or 0)
                paying.setdefault((number, measure), []).append(device)
        for (number, measure), devices in paying.items():
            for device, cost in zip(devices, costs(number, devices, measure), strict=True):
                self._accounts[device].paid += cost
        if paying:
            self.version += 1

    def budget(self, clients: range) -> BoardBudget | None:
        """Return the budget of the board with these devices; None if the board does not report it.

        What its first device has paid since the board's HELLO is taken into account.
        """
        account = self._accounts.get(clients.start)
        if account is None:
            return None
        row = BoardRow(
            name="",
            first=clients.start,
            clients=len(clients),
            online=True,
            heard=0.0,
            hello=account.hello,
            spent=account.paid,
        )
        if row.budget_left is None or row.paid is None:
            return None
        return BoardBudget(
            devices=clients,
            count=len(clients),
            measure=row.measure,
            left=row.budget_left,
            spent=row.paid,
            first=clients.start,
            unit=row.unit,
        )

    def budgets(self, read: Callable[[], list[BoardBudget]]) -> list[BoardBudget]:
        """Return the budgets of a fleet from a cache.

        read: reads them; it is called only if a budget has changed since the last time.
        """
        if self._budgets_version != self.version:
            self._budgets_version = self.version
            self._budgets = read()
        return self._budgets

    # The store

    def due(self, boards: int, ended: bool = False) -> bool:
        """Return whether it is time to write when boards were heard.

        boards: how many there are. ended: a round has just ended, so only a large fleet waits.
        """
        pause = _EVERY_FOR_A_BOARD * boards
        if not ended:
            pause = max(_EVERY, pause)
        return time.monotonic() - self._last_write > pause

    def write(self) -> None:
        """Write the changes into the store; if that fails, they wait."""
        if self._unwritten:
            rows = []
            for row in self._unwritten.values():
                rows.append(replace(row, spent=self._accounts[row.first].paid))
            self._try(lambda: self._store.boards_seen(rows))
            if not self._write_failed:
                self._unwritten = {}
        self._last_write = time.monotonic()

    def forget(self) -> None:
        """Write that all boards are offline."""
        self.write()
        self._try(self._store.boards_offline)

    def _try(self, write: Callable[[], None]) -> None:
        """Write into the store. If that fails, go on, and warn if it is the first failure."""
        try:
            write()
        except StorageError as error:
            if not self._write_failed:
                self._warn(f"the state of boards is stored later: {error.message}")
            self._write_failed = True
        else:
            self._write_failed = False
