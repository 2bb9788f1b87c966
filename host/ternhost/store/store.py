"""The store of a host, one SQLite file: keys, rounds, accepted reports, models, training state.

Accepted means committed: a report counts only after its transaction has reached the disk (WAL with
synchronous=FULL). No device's second report of a round is accepted: one process at a time adds
reports. A round is stored before its first request is sent, with the bytes of its frames, so that a
request can be repeated byte for byte after a crash.

The devices of a round that get the same question are a cohort. The question is stored as `body`,
the part of the ROUND frame that is the same for all of them.
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
        """Open the file of a store, as `Database` does, with the same parameters."""
        super().__init__(path, create, beside)
        self._log = ReportLog(self._db, self.round_devices)
        # The devices of the last stored round: for each position of a cohort in the round their
        # ids, and the same ids packed.
        self._last_packed: dict[int, tuple[Integers, bytes]] = {}

    # Keys

    def add_devices(self, keys: Mapping[int, bytes]) -> None:
        """Store the 32-byte key of each device. If a device already has a key, that is revoked."""
        with self.transaction():
            self._retire(keys)
            self._db.executemany("INSERT OR REPLACE INTO device VALUES (?, ?)", keys.items())

    def keys(self) -> dict[int, bytes]:
        """Return the key of every device, by its id."""
        return dict(self.rows("SELECT id, key FROM device ORDER BY id"))

    def device_count(self) -> int:
        """Return the number of devices with a key."""
        return int(self.value("SELECT count(*) FROM device"))

    def revoke_devices(self, devices: Iterable[int]) -> None:
        """Revoke the keys of these devices."""
        devices = list(devices)
        with self.transaction():
            self._retire(devices)
            rows = [(device,) for device in devices]
            self._db.executemany("DELETE FROM device WHERE id = ?", rows)

    def _retire(self, devices: Iterable[int]) -> None:
        """Copy the keys of these devices into the table of revoked keys, within a transaction.

        With a key stands the number of the round that was opened last, not only the time, since a
        clock may be set back. If a device changes its key more than once in a round, the first key
        stays: the round was opened with it.
        """
        statement = (
            "INSERT INTO revoked"
            " SELECT id, (SELECT coalesce(max(number), 0) FROM round), key, ? FROM device"
            " WHERE id = ? ON CONFLICT DO UPDATE SET at = excluded.at"
        )
        now = time.time()
        self._db.executemany(statement, [(now, device) for device in devices])

    def keys_before(self, round_: StoredRound) -> dict[int, bytes]:
        """Return the old keys of the devices whose key was changed or revoked since a round opened.

        These are the keys that the devices had when the round was opened.
        """
        statement = "SELECT id, key FROM revoked WHERE round >= ? ORDER BY id, round DESC"
        keys = {}
        for device, key in self.rows(statement, round_.number):
            keys[device] = key  # the earliest change since the round comes last, and remains
        return keys

    def revoked(self) -> dict[int, float]:
        """Return when a key of each device was last revoked, in seconds since 1970."""
        times = {}
        for device, when in self.rows("SELECT id, at FROM revoked ORDER BY id, round"):
            times[device] = when  # the last one remains
        return times

    # Rounds

    def open_round(self, round_: StoredRound) -> None:
        """Store a round before the first request for it is sent."""
        with self.transaction():
            self._add_round(round_, time.time())

    def _add_round(self, round_: StoredRound, began: float | None) -> None:
        """Insert a round and its cohorts, within a transaction of the caller.

        began: when the round was opened, in seconds since 1970; None if it is not known.
        """
        number = round_.number
        statement = (
            "INSERT INTO round (number, quorum, deadline, run, began) VALUES (?, ?, ?, ?, ?)"
        )
        round_row = (number, round_.quorum, round_.deadline, round_.run, began)
        self._db.execute(statement, round_row)
        for position, cohort in enumerate(round_.cohorts):
            packed_ids = self._pack(position, cohort.devices)
            cohort_row = (number, position, cohort.body, packed_ids)
            self._db.execute("INSERT INTO cohort VALUES (?, ?, ?, ?)", cohort_row)

    def _pack(self, position: int, devices: Sequence[int] | Integers) -> bytes:
        """Return the ids of the devices of a cohort in packed form.

        Most rounds ask the same devices as the round before; then the ids are not packed again.
        position: the index of the cohort in its round.
        """
        ids = integers(devices)
        if position in self._last_packed:
            last_ids, last_packed = self._last_packed[position]
            if np.array_equal(last_ids, ids):
                return last_packed
        packed = pack_ids(ids)
        self._last_packed[position] = ids.copy(), packed
        return packed

    def open_rounds(self) -> list[StoredRound]:
        """Return the rounds that have not ended, the oldest first."""
        return self._rounds("WHERE ended IS NULL")

    def rounds(self, simulated: bool = False) -> list[StoredRound]:
        """Return the rounds that asked devices, the oldest first.

        simulated: return the rounds that asked simulated clients instead. Devices and simulated
        clients both have ids from 1 on, so their rounds must not be mixed.
        """
        simulated_runs = "SELECT name FROM run WHERE json_extract(asked, '$.simulated')"
        if simulated:
            return self._rounds(f"WHERE run IN ({simulated_runs})")
        return self._rounds(f"WHERE run IS NULL OR run NOT IN ({simulated_runs})")

    def _rounds(self, where: str) -> list[StoredRound]:
        """Return some rounds, the oldest first. where: the clause of SQL that selects them."""
        rows = self.rows(f"SELECT number, quorum, deadline, run FROM round {where} ORDER BY number")
        unpacked: dict[bytes, Sequence[int]] = {}  # many rounds ask the same devices
        rounds = []
        for number, quorum, deadline, run in rows:
            cohorts = self._cohorts(number, unpacked)
            rounds.append(
                StoredRound(
                    number=number, cohorts=cohorts, quorum=quorum, deadline=deadline, run=run
                )
            )
        return rounds

    def _cohorts(self, number: int, unpacked: dict[bytes, Sequence[int]]) -> list[StoredCohort]:
        """Return the cohorts of the round with this number.

        unpacked: a cache of device ids by their packed form, to which new ones are added.
        """
        cohorts = []
        for body, packed_ids in self.rows(_COHORTS, number):
            if packed_ids not in unpacked:
                unpacked[packed_ids] = unpack_ids(packed_ids)
            cohorts.append(StoredCohort(body, unpacked[packed_ids]))
        return cohorts

    def last_round(self) -> int:
        """Return the largest round number; 0 before the first round."""
        return int(self.value("SELECT coalesce(max(number), 0) FROM round"))

    def round_devices(self, number: int) -> list[Sequence[int] | Integers]:
        """Return the devices of each cohort of a round."""
        return [cohort.devices for cohort in self._cohorts(number, {})]

    def end_round(self, number: int, ended: str) -> None:
        """End a round without a result. ended: the reason, such as ABANDONED."""
        with self.transaction():
            self._end(number, ended)

    def _end(self, number: int, ended: str) -> None:
        """Store that a round has ended now, for this reason, within a transaction of the caller."""
        statement = "UPDATE round SET ended = ?, finished = ? WHERE number = ?"
        self._db.execute(statement, (ended, time.time(), number))
        self._log.end(number)

    # Reports

    def add_reports(self, reports: Iterable[Reports]) -> None:
        """Commit these reports to the disk, all of them or none.

        Raises StorageError if a device was not asked in its round or has reported already, and if
        another process may add reports, too.
        """
        has_no_lock = self._lock is None
        if has_no_lock:
            raise StorageError(f"{self.path} was opened beside the process that takes reports")
        try:
            with self.transaction():
                self._log.add(reports)
        except BaseException:
            # Nothing was committed, but the log may have noted some devices as having reported.
            self._log.forget()
            raise

    def report_batches(self, number: int) -> list[Reports]:
        """Return all accepted reports of a round, grouped by their length in bytes."""
        with self._errors():
            return self._log.of_round(number)

    def reports(self, number: int) -> list[tuple[int, bytes]]:
        """Return every accepted report of a round as (device, packed symbols), sorted by device."""
        reports = []
        for batch in self.report_batches(number):
            for device, symbols in zip(batch.devices.tolist(), batch.packed, strict=True):
                reports.append((device, symbols.tobytes()))
        return sorted(reports)

    def reporters(self, number: int) -> list[int]:
        """Return the devices with an accepted report in a round."""
        devices: list[int] = []
        for batch in self.report_batches(number):
            devices += batch.devices.tolist()
        return devices

    def report_count(self, number: int | None = None) -> int:
        """Return the number of accepted reports in a round; None: in all rounds."""
        statement = "SELECT coalesce(sum(reports), 0) FROM batch"
        if number is None:
            return int(self.value(statement))
        return int(self.value(f"{statement} WHERE round = ?", number))

    # Runs and what they learn

    def end_run_round(self, run: str, state: Mapping[str, Any], ended: EndedRound) -> None:
        """End a round of a run, and store in one transaction what the run keeps of it.

        run: the name of the run. state: what is stored of the run after this round, as JSON.
        """
        number = ended.number
        with self.transaction():
            if ended.unstored:
                self._add_ended_round(run, ended)
            self._end(number, ended.ended)

            # The run: its state, its history, its counts and its model.
            self._db.execute("UPDATE run SET state = ? WHERE name = ?", (json.dumps(state), run))
            history_row = (run, number, json.dumps(ended.entry), ended.began, time.time())
            self._db.execute("INSERT INTO history VALUES (?, ?, ?, ?, ?)", history_row)
            self._add_tallies(number, ended.tallies)
            if ended.weights is not None:
                model_row = (run, number, ended.weights)
                self._db.execute("INSERT INTO model VALUES (?, ?, ?)", model_row)

    def _add_ended_round(self, run: str, ended: EndedRound) -> None:
        """Store a round of a run that was not stored when it was opened.

        Simulated clients answer at once, so their rounds need no store while they are open.
        """
        cohorts = []
        asked = 0
        for tally, devices in zip(ended.tallies, ended.unstored, strict=True):
            cohorts.append(StoredCohort(tally.body, devices))
            asked += len(devices)
        round_ = StoredRound(number=ended.number, cohorts=cohorts, quorum=asked, run=run)
        self._add_round(round_, ended.began)
