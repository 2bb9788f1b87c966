"""Stores when boards were heard and what they report about themselves, such as their budgets.

Observers such as `tern dashboard` read it from the store; rounds do not depend on it.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ternhost.errors import StorageError
from ternhost.reach.driver import BoardBudget, Warn
from ternhost.store.boards import BoardRow, budget_left, measure_of, paid_in_life, unit_of
from ternhost.store.restored import last_restore
from ternhost.store.store import Store

# The least seconds between two writes of when boards were heard. For a large fleet a write takes
# long, so the pause is at least so many seconds for each of its boards.
_EVERY = 5.0
_EVERY_FOR_A_BOARD = 0.001

# A function that takes the number of a round, ids of devices, and a measure (EPSILON or RHO of
# tern.ledger), and returns the privacy loss of each device's report, in millionths of the measure.
Costs = Callable[[int, Sequence[int], int], Iterable[int]]


@dataclass(frozen=True)
class Sighting:
    """What a driver has noticed about a board at one moment."""

    name: str  # the board's port, or its name on a broker
    clients: range  # the ids of its devices
    heard: float  # when it was heard last, by the monotonic clock
    online: bool = True
    # The fields of its HELLO, the message in which a board describes itself, as in BoardRow. Empty
    # if it has sent none since the last sighting.
    hello: Mapping[str, Any] = field(default_factory=dict)
    retained: bool = False  # the HELLO was sent before this host connected
    error: str | None = None  # the message of the error with which the board has failed


class _Account:
    """What a board's HELLO says, and the budget that its first device has spent since then.

    A device that answers a round may have spent the budget before its HELLO or after it. So only
    rounds count that were opened after the HELLO. If the store was restored from a copy, every
    report counts that is accepted after the HELLO: only the HELLO tells what the rounds have cost
    that the copy lacks, and what comes on top must not be missed.
    """

    def __init__(self, hello: Mapping[str, Any], last_round: int, spent: int) -> None:
        """Begin with a HELLO, and the budget (in millionths) that was spent since it was sent.

        last_round: the last round whose reports do not count.
        """
        self.hello = hello
        self.last_round = last_round
        self.spent_since_hello = spent


class Sightings:
    """Collects what changes at boards, and writes it into the store from time to time.

    Rounds do not depend on it: if a write fails, its changes are written the next time.
    """

    def __init__(
        self,
        store: Store,
        warn: Warn = lambda message: None,
        last_round: Callable[[], int] = lambda: 0,
    ) -> None:
        """Collect changes for `store`.

        warn: is called with a sentence when writes begin to fail. last_round: a function that
        returns the number of the last round that was opened.
        """
        self._store = store
        self._warn = warn
        self._last_round = last_round
        self._is_restored = last_restore(store) is not None

        # What is written into the store.
        self._unwritten: dict[str, BoardRow] = {}  # changed rows, by the name of the board
        self._last_write = time.monotonic()
        self._write_failed = False

        # What the first device of each board has spent since the board sent its HELLO, the message
        # in which it describes itself. Both dicts are by the id of that device.
        self._accounts: dict[int, _Account] = {}
        # What an earlier host has stored about boards; None: it was not read yet.
        self._rows_before: dict[int, BoardRow] | None = None

        # The budgets that follow from the accounts are computed only after a change.
        self.version = 0  # it grows with each change of an account
        self._budgets: list[BoardBudget] = []  # a cache
        self._budgets_version = 0  # the version from which the cache was made

    # What boards report

    def note(self, sighting: Sighting) -> None:
        """Note that a board was heard, or has failed, for the next write into the store.

        sighting: when it was heard, what it has said in its HELLO (the message in which a board
        describes itself; empty if it has sent none), and the error with which it has failed.
        """
        self._open_account(sighting)
        hello = sighting.hello
        if self._may_be_outdated(sighting):
            hello = {}
        error = sighting.error
        errors = 0
        if error is not None:
            errors = 1

        # Merge it with an earlier sighting that has not been written yet.
        unwritten = self._unwritten.get(sighting.name)
        if unwritten is not None:
            errors += unwritten.errors
            if not hello:
                hello = unwritten.hello
            if not error:
                error = unwritten.error

        # The store has wall-clock times, since the monotonic clock means nothing to others.
        silence = time.monotonic() - sighting.heard
        self._unwritten[sighting.name] = BoardRow(
            name=sighting.name,
            first=sighting.clients.start,
            clients=len(sighting.clients),
            online=sighting.online,
            heard=time.time() - silence,
            hello=hello,
            errors=errors,
            error=error,
        )

    def _open_account(self, sighting: Sighting) -> None:
        """Begin to count what a board's first device spends, if the board's HELLO has changed.

        A HELLO says how much of its budget the device had left. So the count begins anew with each
        HELLO that says something else than the last one, and with the first one of a board.
        """
        first = sighting.clients.start
        hello = sighting.hello
        if self._may_be_outdated(sighting):
            hello = {}
        account = self._accounts.get(first)
        if account is not None:
            is_unchanged = not hello or account.hello == hello
            if is_unchanged:
                return

        spent = 0  # since the HELLO, in millionths
        hello_is_old = sighting.retained or not hello
        if hello_is_old:
            # The device may have reported to an earlier host since it sent that HELLO.
            spent = self._spent_before(first, hello)
        last_round = 0 if self._is_restored else self._last_round()
        self._accounts[first] = _Account(hello, last_round, spent)
        self.version += 1

    def _spent_before(self, first: int, hello: Mapping[str, Any]) -> int:
        """Return how much budget a device has spent since its HELLO, as an earlier host stored it.

        The result is in millionths; it is 0 if no earlier host has stored the same HELLO.
        first: the device, which is the first one of its board. hello: the fields of the HELLO; if
        they are empty, the HELLO in the store counts.
        """
        row = self._row_before(first)
        if row is None:
            return 0
        has_other_hello = bool(hello) and hello != row.hello
        if has_other_hello:
            return 0
        return row.spent

    def _row_before(self, first: int) -> BoardRow | None:
        """Return what an earlier host has stored about a board; None if it stored nothing.

        first: the id of the board's first device.
        """
        if self._rows_before is None:  # read once, before this host writes rows of its own
            self._rows_before = {row.first: row for row in self._store.boards()}
        return self._rows_before.get(first)

    def _may_be_outdated(self, sighting: Sighting) -> bool:
        """Return whether a HELLO may be older than rounds that a restored store does not know.

        The broker may have kept it from before the restore, so it does not tell what the board has
        spent. A board that has sent another one since then is in the store with it.
        """
        if not self._is_restored or not sighting.retained:
            return False
        row = self._row_before(sighting.clients.start)
        return row is None or not row.hello

    def count_costs(self, reports: Iterable[tuple[int, int]], costs: Costs) -> None:
        """Count what accepted reports have cost the first devices of boards.

        Costs are looked up for many devices at once, since a lookup takes long.

        reports: for each report the number of its round and the device. costs: a function that
        returns what a report has cost each of some devices, in millionths (see `Costs`).
        """
        # The devices whose accounts change, by what the lookup needs: the number of the round, and
        # the measure (whether the device's ledger counts epsilon or rho).
        paying: dict[tuple[int, int], list[int]] = {}
        for number, device in reports:
            account = self._accounts.get(device)
            if account is None:
                continue  # the device is not the first one of its board
            if number <= account.last_round:
                continue  # its HELLO may have this cost in it already
            measure = measure_of(account.hello)
            paying.setdefault((number, measure), []).append(device)
        for (number, measure), devices in paying.items():
            cost_of_each = costs(number, devices, measure)
            for device, cost in zip(devices, cost_of_each, strict=True):
                self._accounts[device].spent_since_hello += cost
        if paying:
            self.version += 1

    def budget(self, clients: range) -> BoardBudget | None:
        """Return the privacy budget of a board; None if the board does not report it.

        A board reports the budget of its first device in its HELLO, the message in which it
        describes itself when it connects. What the device has spent since then is subtracted here.

        clients: the ids of the devices on the board.
        """
        account = self._accounts.get(clients.start)
        if account is None:
            return None
        left = budget_left(account.hello, account.spent_since_hello)
        spent_in_life = paid_in_life(account.hello, account.spent_since_hello)
        if left is None or spent_in_life is None:
            return None
        return BoardBudget(
            devices=clients,
            count=len(clients),
            measure=measure_of(account.hello),
            left=left,
            spent=spent_in_life,
            first=clients.start,
            unit=unit_of(account.hello),
        )

    def budgets(self, read: Callable[[], list[BoardBudget]]) -> list[BoardBudget]:
        """Return the budgets of a fleet, from a cache as long as none has changed.

        read: a function that returns the current budgets; it is called only after a change.
        """
        if self._budgets_version != self.version:
            self._budgets_version = self.version
            self._budgets = read()
        return self._budgets

    # The store

    def write_is_due(self, boards: int, ended: bool = False) -> bool:
        """Return whether it is time to write again when boards were heard.

        boards: how many boards the fleet has. ended: whether a round has just ended; then a small
        fleet does not wait for the usual pause.
        """
        pause = _EVERY_FOR_A_BOARD * boards
        if not ended:
            pause = max(_EVERY, pause)
        return time.monotonic() - self._last_write > pause

    def write(self) -> None:
        """Write the changes into the store. If that fails, they are kept for the next time."""
        if self._unwritten:
            rows = []
            for row in self._unwritten.values():
                account = self._accounts[row.first]
                rows.append(replace(row, spent=account.spent_since_hello))
            self._write_or_warn(lambda: self._store.boards_seen(rows))
            if not self._write_failed:  # else they are written the next time
                self._unwritten = {}
        self._last_write = time.monotonic()

    def mark_all_offline(self) -> None:
        """Write that all boards are offline."""
        self.write()
        self._write_or_warn(self._store.boards_offline)

    def _write_or_warn(self, write: Callable[[], None]) -> None:
        """Write into the store. If that fails, go on, and warn unless the last write failed, too.

        write: a function that writes.
        """
        try:
            write()
        except StorageError as error:
            if not self._write_failed:
                self._warn(f"the state of boards is stored later: {error.message}")
            self._write_failed = True
        else:
            self._write_failed = False
