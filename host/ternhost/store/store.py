"""The store of a host, one SQLite file: keys, rounds, accepted reports, models, training state.

Accepted means committed: a report counts only after its transaction has reached the disk (WAL with
synchronous=FULL). No (round, device) is accepted twice: one process at a time adds reports. A round
is stored before its first request is sent, with the bytes of its frames, so that a request can be
repeated byte for byte after a crash.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ternhost.count.members import Integers, integers, pack_ids, unpack_ids
from ternhost.count.rounds import Reports, StoredCohort, StoredRound
from ternhost.errors import StorageError
from ternhost.store.boards import BoardTable
from ternhost.store.report_log import ReportLog
from ternhost.store.runs import EndedRound, RunTable
from ternhost.store.tallies import TallyTable

_COHORTS = "SELECT body, devices FROM cohort WHERE round = ? ORDER BY position"


class Store(RunTable, TallyTable, BoardTable):
    """One SQLite file, open for writing by one process at a time.

    A context manager, with the errors of `Database`.
    """

    def __init__(self, path: str | Path, create: bool = True, beside: bool = False) -> None:
        super().__init__(path, create, beside)
        self._log = ReportLog(self._db, self.round_devices)
        # By position, the ids of the last round's cohorts, and packed.
        self._last_packed: dict[int, tuple[Integers, bytes]] = {}

    # Keys

    def add_devices(self, keys: Mapping[int, bytes]) -> None:
        """Store the 32-byte key of each device; a device that already has a key has it revoked."""
        with self.transaction():
            self._retire(keys)
            self._db.executemany("INSERT OR REPLACE INTO device VALUES (?, ?)", keys.items())

    def keys(self) -> dict[int, bytes]:
        """The key of every device."""
        return dict(self.rows("SELECT id, key FROM device ORDER BY id"))

    def device_count(self) -> int:
        """The number of devices with a key."""
        return int(self.value("SELECT count(*) FROM device"))

    def revoke_devices(self, devices: Iterable[int]) -> None:
        """Revoke the keys of these devices."""
        devices = list(devices)
        with self.transaction():
            self._retire(devices)
            rows = [(device,) for device in devices]
            self._db.executemany("DELETE FROM device WHERE id = ?", rows)

    def _retire(self, devices: Iterable[int]) -> None:
        """Move the keys of these devices to the revoked ones, within a transaction."""
        # Dated by the last opened round, since a clock may be set back. Of several keys of a device
        # in one round the first is kept: the round was opened with it.
        statement = (
            "INSERT INTO revoked"
            " SELECT id, (SELECT coalesce(max(number), 0) FROM round), key, ? FROM device"
            " WHERE id = ? ON CONFLICT DO UPDATE SET at = excluded.at"
        )
        self._db.executemany(statement, ((time.time(), device) for device in devices))

    def keys_before(self, round_: StoredRound) -> dict[int, bytes]:
        """Return the keys with which a round was opened, of devices whose key has changed since.

        A key that was revoked has changed, too.
        """
        later = "SELECT id, key FROM revoked WHERE round >= ? ORDER BY id, round DESC"
        return dict(self.rows(later, round_.number))

    def revoked(self) -> dict[int, float]:
        """Return when a key of each device was last revoked, in seconds since 1970."""
        return dict(self.rows("SELECT id, at FROM revoked ORDER BY id, round"))

    # Rounds

    def open_round(self, round_: StoredRound) -> None:
        """Store a round before the first request for it is sent."""
        with self.transaction():
            self._add_round(round_, time.time())

    def _add_round(self, round_: StoredRound, began: float | None) -> None:
        """Insert a round and its cohorts, within a transaction. began: seconds since 1970."""
        number = round_.number
        statement = (
            "INSERT INTO round (number, quorum, deadline, run, began) VALUES (?, ?, ?, ?, ?)"
        )
        row = number, round_.quorum, round_.deadline, round_.run, began
        self._db.execute(statement, row)
        for position, cohort in enumerate(round_.cohorts):
            packed = self._pack(position, cohort.devices)
            cohort_row = number, position, cohort.body, packed
            self._db.execute("INSERT INTO cohort VALUES (?, ?, ?, ?)", cohort_row)

    def _pack(self, position: int, devices: Sequence[int] | Integers) -> bytes:
        """Return the device ids of a cohort in packed form. position: of the cohort in its round.

        Most rounds ask the same devices as the one before: these are packed once.
        """
        ids = integers(devices)
        if position in self._last_packed:
            last_ids, packed = self._last_packed[position]
            if np.array_equal(last_ids, ids):
                return packed
        packed = pack_ids(ids)
        self._last_packed[position] = ids.copy(), packed
        return packed

    def open_rounds(self) -> list[StoredRound]:
        """The rounds that have not ended, oldest first."""
        return self._rounds("WHERE ended IS NULL")

    def rounds(self, simulated: bool = False) -> list[StoredRound]:
        """Return the rounds that asked devices, oldest first.

        simulated: return those that asked simulated clients instead. Both have ids from 1 on, so
        they must not be mixed.
        """
        of_simulated = "SELECT name FROM run WHERE json_extract(asked, '$.simulated')"
        if simulated:
            return self._rounds(f"WHERE run IN ({of_simulated})")
        return self._rounds(f"WHERE run IS NULL OR run NOT IN ({of_simulated})")

    def _rounds(self, where: str) -> list[StoredRound]:
        """Return the rounds for which a condition of SQL holds, oldest first."""
        rows = self.rows(f"SELECT number, quorum, deadline, run FROM round {where} ORDER BY number")
        unpacked: dict[bytes, Sequence[int]] = {}  # many rounds ask the same devices
        rounds = []
        for number, quorum, deadline, run in rows:
            cohorts = self._cohorts(number, unpacked)
            rounds.append(StoredRound(number, cohorts, quorum, deadline, run))
        return rounds

    def _cohorts(self, number: int, unpacked: dict[bytes, Sequence[int]]) -> list[StoredCohort]:
        """Return the cohorts of a round.

        unpacked: a cache of device ids by their packed form, to which new ones are added.
        """
        cohorts = []
        for body, packed in self.rows(_COHORTS, number):
            if packed not in unpacked:
                unpacked[packed] = unpack_ids(packed)
            cohorts.append(StoredCohort(body, unpacked[packed]))
        return cohorts

    def last_round(self) -> int:
        """The largest round number; 0 before the first round."""
        return int(self.value("SELECT coalesce(max(number), 0) FROM round"))

    def round_devices(self, number: int) -> list[Sequence[int] | Integers]:
        """The devices of each cohort of a round."""
        return [cohort.devices for cohort in self._cohorts(number, {})]

    def end_round(self, number: int, ended: str) -> None:
        """End a round without a result."""
        with self.transaction():
            self._end(number, ended)

    def _end(self, number: int, ended: str) -> None:
        statement = "UPDATE round SET ended = ?, finished = ? WHERE number = ?"
        self._db.execute(statement, (ended, time.time(), number))
        self._log.end(number)

    # Reports

    def add_reports(self, reports: Iterable[Reports]) -> None:
        """Commit these reports to the disk, all or none.

        Raises StorageError if a device is not part of its round or has reported already.
        """
        if self._lock is None:
            raise StorageError(f"{self.path} was opened beside the process that takes reports")
        try:
            with self.transaction():
                self._log.add(reports)
        except BaseException:
            self._log.forget()
            raise

    def report_batches(self, number: int) -> list[Reports]:
        """All accepted reports of a round, grouped by the length of their symbols."""
        with self._errors():
            return self._log.of_round(number)

    def reports(self, number: int) -> list[tuple[int, bytes]]:
        """Return every accepted report of a round as (device, packed symbols), by device."""
        reports: list[tuple[int, bytes]] = []
        for batch in self.report_batches(number):
            rows = [row.tobytes() for row in batch.packed]
            reports += zip(batch.devices.tolist(), rows, strict=True)
        return sorted(reports)

    def reporters(self, number: int) -> list[int]:
        """The devices with an accepted report in a round."""
        devices: list[int] = []
        for batch in self.report_batches(number):
            devices += batch.devices.tolist()
        return devices

    def report_count(self, number: int | None = None) -> int:
        """The number of accepted reports in a round, or in all rounds."""
        count = "SELECT coalesce(sum(reports), 0) FROM batch"
        if number is None:
            return int(self.value(count))
        return int(self.value(f"{count} WHERE round = ?", number))

    # Runs and what they learn

    def end_run_round(self, run: str, state: Mapping[str, Any], ended: EndedRound) -> None:
        """End a round of a run, and store in one transaction what the run keeps of it.

        state: of the run after the round, as JSON.
        """
        with self.transaction():
            if ended.unstored:
                self._add_ended_round(run, ended)
            self._end(ended.number, ended.ended)
            self._db.execute("UPDATE run SET state = ? WHERE name = ?", (json.dumps(state), run))
            row = run, ended.number, json.dumps(ended.entry), ended.began, time.time()
            self._db.execute("INSERT INTO history VALUES (?, ?, ?, ?, ?)", row)
            self._add_tallies(ended.number, ended.tallies)
            if ended.weights is not None:
                model = run, ended.number, ended.weights
                self._db.execute("INSERT INTO model VALUES (?, ?, ?)", model)

    def _add_ended_round(self, run: str, ended: EndedRound) -> None:
        """Store a round that was not stored when it was opened."""
        cohorts = []
        for tally, devices in zip(ended.tallies, ended.unstored, strict=True):
            cohorts.append(StoredCohort(tally.body, devices))
        asked = sum(len(devices) for devices in ended.unstored)
        self._add_round(StoredRound(ended.number, cohorts, asked, run=run), ended.began)
