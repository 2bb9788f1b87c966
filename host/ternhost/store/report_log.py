"""Accepted reports in a store. A row of the table holds many, and no device reports twice a round."""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from ternhost.count.members import Devices, Integers, Members, integers, pack_ids, unpack_ids
from ternhost.count.rounds import Reports
from ternhost.errors import StorageError

Flags = npt.NDArray[np.bool_]


def insert(database: sqlite3.Connection, reports: Reports) -> None:
    """Insert reports of one round as one row, within a transaction of the caller.

    reports: their devices and their symbols; all of them have equally many symbols.
    """
    report_count = len(reports.devices)
    packed_ids = pack_ids(reports.devices)
    symbols = reports.packed.tobytes()
    statement = "INSERT INTO batch (round, reports, devices, packed) VALUES (?, ?, ?, ?)"
    database.execute(statement, (reports.round, report_count, packed_ids, symbols))


class ReportLog:
    """The table of reports, which refuses a second report of a device in a round.

    Which devices have reported is remembered in memory, which suffices since only one process at a
    time writes. While a round is open, each batch of reports that arrives is a row. When the round
    has ended, they are joined into one row for each length of report.
    """

    def __init__(
        self, database: sqlite3.Connection, asked: Callable[[int], Iterable[Devices]]
    ) -> None:
        """Read nothing yet.

        database: the connection to the store. asked: a function that takes the number of a round,
        and returns the devices of each of its cohorts.
        """
        self._db = database
        self._asked = asked
        # By round: the devices that it asks, and for each of them whether it has reported.
        self._reported: dict[int, tuple[Members, Flags]] = {}

    def add(self, reports: Iterable[Reports]) -> None:
        """Insert accepted reports, within a transaction of the caller.

        Raises StorageError for a device that was not asked or has reported already. The caller has
        to call `forget` if the transaction is rolled back.
        """
        for batch in reports:
            members, reported = self._members(batch.round)
            indices = members.find(batch.devices)  # -1 for a device that was not asked
            if np.any(indices < 0):
                text = f"a report is of a device that was not asked in round {batch.round}"
                raise StorageError(text)
            if np.any(reported[indices]):
                raise StorageError(f"a device has reported in round {batch.round} already")
            if len(np.unique(indices)) < len(indices):
                raise StorageError(f"a device reports twice in round {batch.round}")
            reported[indices] = True
            insert(self._db, batch)

    def _members(self, number: int) -> tuple[Members, Flags]:
        """Return the devices that a round asks, and for each of them whether it has reported."""
        if number not in self._reported:
            ids_by_cohort = [integers(())]  # so that there is an array even without a cohort
            for devices in self._asked(number):
                ids_by_cohort.append(integers(devices))
            members = Members(np.concatenate(ids_by_cohort))
            reported = np.zeros(len(members), bool)
            for batch in self.of_round(number):
                reported[members.find(batch.devices)] = True
            self._reported[number] = members, reported
        return self._reported[number]

    def forget(self) -> None:
        """Forget which devices have reported: they are read again from the table when needed."""
        self._reported.clear()

    def of_round(self, number: int) -> list[Reports]:
        """Return the accepted reports of a round, grouped by their length in bytes.

        Devices with different questions may send reports of different lengths. A group has a row of
        bytes for each report.
        """
        statement = "SELECT reports, devices, packed FROM batch WHERE round = ? ORDER BY id"
        ids_by_size: defaultdict[int, list[Integers]] = defaultdict(list)
        symbols_by_size: defaultdict[int, list[bytes]] = defaultdict(list)
        for count, packed_ids, symbols in self._db.execute(statement, (number,)):
            report_size = len(symbols) // count
            ids_by_size[report_size].append(integers(unpack_ids(packed_ids)))
            symbols_by_size[report_size].append(symbols)

        reports = []
        for report_size, ids_of_batches in ids_by_size.items():
            ids = np.concatenate(ids_of_batches)
            all_symbols = b"".join(symbols_by_size[report_size])
            symbols_by_report = np.frombuffer(all_symbols, np.uint8).reshape(len(ids), report_size)
            reports.append(Reports(number, ids, symbols_by_report))
        return reports

    def end(self, number: int) -> None:
        """Join the rows of a round that ends into one row for each length of report.

        The reports are sorted by device, so that the store no longer shows in which order they
        came. This happens within a transaction of the caller.
        """
        self._reported.pop(number, None)
        statement = "SELECT count(*) FROM batch WHERE round = ?"
        (row_count,) = self._db.execute(statement, (number,)).fetchone()
        if row_count <= 1:
            return
        reports = self.of_round(number)
        self._db.execute("DELETE FROM batch WHERE round = ?", (number,))
        for batch in reports:
            order = np.argsort(batch.devices)
            insert(self._db, Reports(number, batch.devices[order], batch.packed[order]))
