"""Accepted reports in a store: a row of the table holds many, and no (round, device) occurs twice."""

import sqlite3
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from ternhost.count.members import Devices, Integers, Members, integers, pack_ids, unpack_ids
from ternhost.count.rounds import Reports
from ternhost.errors import StorageError

Flags = npt.NDArray[np.bool_]


def insert(database: sqlite3.Connection, reports: Reports) -> None:
    """Insert reports of a round as one row, within a transaction."""
    row = reports.round, len(reports.devices), pack_ids(reports.devices), reports.packed.tobytes()
    database.execute("INSERT INTO batch (round, reports, devices, packed) VALUES (?, ?, ?, ?)", row)


class ReportLog:
    """The table of reports.

    Who has reported in a round is kept in memory: only one process at a time writes. When a round
    has ended, its rows become one for each length of its symbols.
    """

    def __init__(
        self, database: sqlite3.Connection, asked: Callable[[int], Iterable[Devices]]
    ) -> None:
        """database: of the store. asked: returns the devices of each cohort of a round."""
        self._db = database
        self._asked = asked
        self._reported: dict[int, tuple[Members, Flags]] = {}

    def add(self, reports: Iterable[Reports]) -> None:
        """Insert accepted reports, within a transaction; after a rollback, call `forget`.

        Raises StorageError for a device that was not asked or has reported already.
        """
        for batch in reports:
            members, reported = self._members(batch.round)
            indices = members.find(batch.devices)
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
        """Return the devices of a round, and for each of them whether it has reported."""
        if number not in self._reported:
            asked = [integers(devices) for devices in self._asked(number)]
            members = Members(np.concatenate([integers(()), *asked]))
            reported = np.zeros(len(members), bool)
            for batch in self.of_round(number):
                reported[members.find(batch.devices)] = True
            self._reported[number] = members, reported
        return self._reported[number]

    def forget(self) -> None:
        """Drop the cache of who has reported."""
        self._reported.clear()

    def of_round(self, number: int) -> list[Reports]:
        """Return the reports of a round, grouped by the length of their symbols."""
        statement = "SELECT reports, devices, packed FROM batch WHERE round = ? ORDER BY id"
        ids_by_size: dict[int, list[Integers]] = {}
        packed_by_size: dict[int, list[bytes]] = {}
        for count, devices, packed in self._db.execute(statement, (number,)):
            size = len(packed) // count  # bytes of a report
            ids_by_size.setdefault(size, []).append(integers(unpack_ids(devices)))
            packed_by_size.setdefault(size, []).append(packed)
        reports = []
        for size, batches in ids_by_size.items():
            ids = np.concatenate(batches)
            symbols = np.frombuffer(b"".join(packed_by_size[size]), np.uint8)
            reports.append(Reports(number, ids, symbols.reshape(len(ids), size)))
        return reports

    def end(self, number: int) -> None:
        """Join the rows of a round that ends into one for each length, within a transaction.

        Its reports are sorted by device: in which order they came is forgotten.
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
