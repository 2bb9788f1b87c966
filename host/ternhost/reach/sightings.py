"""Records in the store, for observers, when boards were heard, and their figures about themselves."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ternhost.errors import StorageError
from ternhost.reach.driver import BoardBudget, Warn
from ternhost.store.boards import BoardRow
from ternhost.store.store import Store

# Least seconds between two writes of when boards were heard, and for each board of a large fleet.
_EVERY = 5.0
_EVERY_FOR_A_BOARD = 0.001

# (round, devices, measure) -> the cost of a report of each device, in millionths
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
        """warn: gets a sentence when writes begin to fail. last_round: the number of the last round."""
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
        self._take_hello(sighting)
        hello = sighting.hello
        error = sighting.error
        errors = 0 if error is None else 1
        before = self._unwritten.get(sighting.name)
        if before:
            hello = hello or before.hello
            error = error or before.error
            errors += before.errors
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

    def _take_hello(self, sighting: Sighting) -> None:
        first, hello = sighting.clients.start, sighting.hello
        account = self._accounts.get(first)
        is_known = account is not None and (not hello or account.hello == hello)
        if is_known:
            return
        is_old = sighting.retained or not hello
        paid = self._paid_before(first, hello) if is_old else 0
        self._accounts[first] = _Account(hello, self._last_round(), paid)
        self.version += 1

    def _paid_before(self, first: int, hello: Mapping[str, Any]) -> int:
        """What a device has paid since its HELLO, by what an earlier host has stored."""
        if self._rows_before is None:
            self._rows_before = {row.first: row for row in self._store.boards()}
        row = self._rows_before.get(first)
        if row is None:
            return 0
        is_same_hello = not hello or hello == row.hello
        return row.spent if is_same_hello else 0

    def answered(self, reports: Iterable[tuple[int, int]], costs: Costs) -> None:
        """Note accepted reports (round, device)."""
        # By round and measure, the first devices of boards.
        paying: dict[tuple[int, int], list[int]] = {}
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
        """What the board with these devices says of its budget; None where it says nothing."""
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
        """What `read` returns, which is called only if boards have said something since."""
        if self._budgets_version != self.version:
            self._budgets_version = self.version
            self._budgets = read()
        return self._budgets

    # The store

    def due(self, boards: int, ended: bool = False) -> bool:
        """Whether it is time to write when each of `boards` boards was heard.

        ended: a round has ended, so only a large fleet waits.
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
        try:
            write()
        except StorageError as error:
            if not self._write_failed:
                self._warn(f"the state of boards is stored later: {error.message}")
            self._write_failed = True
        else:
            self._write_failed = False
