"""The host's durable memory, one SQLite file: keys, rounds, accepted reports, models, training state.

Accepted means committed: a report counts only after the transaction that holds it has reached the disk
(WAL with synchronous=FULL, so that neither a killed process nor a power cut takes one back), and no (round, device)
is let in twice: one process at a time adds reports, and it knows who has reported. A round is written before the first
device hears of it, with the bytes that its frames are made of, so that after a crash the same request can be repeated
byte for byte.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from ternhost.aggregate import schema
from ternhost.aggregate import store_file as files
from ternhost.aggregate.members import Integers, pack_ids, unpack_ids
from ternhost.aggregate.report_log import ReportLog, Reports
from ternhost.errors import StorageError

# Where a run is.
PREPARING = "preparing"  # its boards are being made: nobody has been asked anything
RUNNING = "running"
FINISHED = "finished"
ABANDONED = "abandoned"  # given up for another one; also how its open rounds end

_HINTS = {
    "SQLITE_FULL": "free some space, then go on with --resume: every accepted report is safe",
    "SQLITE_IOERR": "the disk is full or failing; put that right, then go on with --resume: "
    "every accepted report is safe",
    "SQLITE_READONLY": "make the file and its directory writable for you",
    "SQLITE_CANTOPEN": "check that the directory exists and is yours to write",
    "SQLITE_NOTADB": "this is not a store of tern; name another file",
    "SQLITE_CORRUPT": "the file is damaged; bring it back from a copy, or start a new store",
    "SQLITE_BUSY": "another program uses this store; end it, or name another store",
    "SQLITE_CONSTRAINT": "another program wrote to this store; end it, then go on with --resume",
}


@dataclass(frozen=True)
class Cohort:
    """Devices that are asked for the same thing in a round.

    `body` is all of the ROUND frame between the device and the tag: it is what the frames are built from.
    """

    body: bytes
    devices: Sequence[int] | Integers


@dataclass(frozen=True)
class Round:
    """A round as it was asked: `quorum` reports end it, and so does `deadline` (seconds; None: never)."""

    number: int
    cohorts: Sequence[Cohort]
    quorum: int
    deadline: float | None = None
    run: str | None = None  # that asks it


@dataclass(frozen=True)
class StoredRun:
    """A run as it was begun (`asked`) and where it is (`status`, `state`); `began` in seconds since 1970."""

    name: str
    began: float
    status: str
    asked: Mapping[str, Any]
    state: Mapping[str, Any]

    @property
    def unfinished(self) -> bool:
        return self.status in (PREPARING, RUNNING)


class Store:
    """One SQLite file, open for writing by one process at a time. A context manager.

    Every method raises StorageError where the disk does not do its part; what was committed before stays.
    """

    def __init__(self, path: str | Path, create: bool = True, beside: bool = False) -> None:
        """Open the store at `path`; make it (mode 0600, since it holds the devices' keys) if `create`.

        beside: another process may have it open for writing, as a host that serves a fleet; to be used for keys only.
        """
        self.path = Path(path)
        with self._errors():
            files.make(self.path, create)
            self._lock = None if beside else files.take_lock(self.path)
            self._db = sqlite3.connect(self.path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA foreign_keys = ON")
            self._log = ReportLog(self._db, self.round_devices)
            self._check_schema()

    def _check_schema(self) -> None:
        with self.transaction():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            application = self._db.execute("PRAGMA application_id").fetchone()[0]
            empty = self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
            if empty:
                schema.execute(self._db, schema.TABLES)
                self._db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
                self._db.execute(f"PRAGMA user_version = {schema.VERSION}")
            elif application != schema.APPLICATION_ID:
                raise StorageError(f"{self.path} is not a store of tern", hint="name another file")
            elif version in schema.MIGRATIONS:
                for lacking in range(version, schema.VERSION):
                    schema.MIGRATIONS[lacking](self._db)
                self._db.execute(f"PRAGMA user_version = {schema.VERSION}")
            elif version != schema.VERSION:
                older = "an older" if version < schema.VERSION else "a newer"
                raise StorageError(
                    f"{self.path} was made by {older} version of tern (schema {version}, here {schema.VERSION})",
                    hint="use that version, or start a new store",
                )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", None) or ""
            hint = next((hint for prefix, hint in _HINTS.items() if name.startswith(prefix)), None)
            raise StorageError(f"{self.path}: {error}", hint=hint) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of what is written inside is committed together, or none of it. One inside another is a part of that."""
        inside: bool = self._db.in_transaction
        if inside:
            yield
            return
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file; everything committed is already safe."""
        self._db.close()
        if self._lock:
            self._lock.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Keys

    def add_devices(self, keys: Mapping[int, bytes]) -> None:
        """Remember the 32-byte key of each device; one that is there has its old key revoked."""
        with self.transaction():
            self._retire(keys)
            self._db.executemany("INSERT OR REPLACE INTO device VALUES (?, ?)", keys.items())

    def keys(self) -> dict[int, bytes]:
        """The key of every device."""
        with self._errors():
            return dict(self._db.execute("SELECT id, key FROM device ORDER BY id"))

    def revoke_devices(self, devices: Iterable[int]) -> None:
        """Take the keys of these devices away."""
        devices = list(devices)
        with self.transaction():
            self._retire(devices)
            self._db.executemany("DELETE FROM device WHERE id = ?", ((device,) for device in devices))

    def _retire(self, devices: Iterable[int]) -> None:
        # By the last round that was opened, not by a clock, which may be set back. Of several keys of a device in one
        # round the first is kept: the round was opened with it.
        self._db.executemany(
            "INSERT INTO revoked SELECT id, (SELECT coalesce(max(number), 0) FROM round), key, ? FROM device"
            " WHERE id = ? ON CONFLICT DO UPDATE SET at = excluded.at",
            ((time.time(), device) for device in devices),
        )

    def keys_before(self, asked: Round) -> dict[int, bytes]:
        """The keys of devices that have had other ones, or none, since a round was opened: its reports have these."""
        with self._errors():
            return dict(
                self._db.execute(
                    "SELECT id, key FROM revoked WHERE round >= ? ORDER BY id, round DESC", (asked.number,)
                )
            )

    def revoked(self) -> dict[int, float]:
        """When a key of each device was revoked last (seconds since 1970)."""
        with self._errors():
            return dict(self._db.execute("SELECT id, at FROM revoked ORDER BY id, round"))

    def changes(self) -> int:
        """A number that changes whenever another process has written to this store."""
        with self._errors():
            version: int = self._db.execute("PRAGMA data_version").fetchone()[0]
            return version

    # Rounds

    def open_round(self, asked: Round) -> None:
        """Write down a round, before any device hears of it."""
        with self.transaction():
            self._db.execute(
                "INSERT INTO round (number, quorum, deadline, run) VALUES (?, ?, ?, ?)",
                (asked.number, asked.quorum, asked.deadline, asked.run),
            )
            self._db.executemany(
                "INSERT INTO cohort VALUES (?, ?, ?, ?)",
                (
                    (asked.number, position, cohort.body, pack_ids(cohort.devices))
                    for position, cohort in enumerate(asked.cohorts)
                ),
            )

    def open_rounds(self) -> list[Round]:
        """The rounds that were asked and have not ended, oldest first."""
        with self._errors():
            rows = self._db.execute(
                "SELECT number, quorum, deadline, run FROM round WHERE ended IS NULL ORDER BY number"
            ).fetchall()
            return [Round(number, self._cohorts(number), *rest) for number, *rest in rows]

    def _cohorts(self, number: int) -> list[Cohort]:
        rows = self._db.execute(
            "SELECT body, devices FROM cohort WHERE round = ? ORDER BY position", (number,)
        )
        return [Cohort(body, unpack_ids(devices)) for body, devices in rows]

    def last_round(self) -> int:
        """The largest round number ever asked; 0 before the first."""
        with self._errors():
            number: int = self._db.execute("SELECT coalesce(max(number), 0) FROM round").fetchone()[0]
            return number

    def round_devices(self, number: int) -> list[Sequence[int] | Integers]:
        """The devices of each cohort of a round."""
        with self._errors():
            return [cohort.devices for cohort in self._cohorts(number)]

    def rounds(self) -> list[Round]:
        """Every round that was ever asked, oldest first."""
        with self._errors():
            rows = self._db.execute(
                "SELECT number, quorum, deadline, run FROM round ORDER BY number"
            ).fetchall()
            return [Round(number, self._cohorts(number), *rest) for number, *rest in rows]

    def end_round(self, number: int, ended: str) -> None:
        """End a round of which nothing was learned."""
        with self.transaction():
            self._end(number, ended)

    def _end(self, number: int, ended: str) -> None:
        self._db.execute("UPDATE round SET ended = ? WHERE number = ?", (ended, number))
        self._log.end(number)

    def ended_rounds(self) -> list[tuple[int, str, int]]:
        """(number, how it ended, reports) of every round that has ended, oldest first."""
        with self._errors():
            return self._db.execute(
                "SELECT number, ended, (SELECT coalesce(sum(reports), 0) FROM batch WHERE round = number) "
                "FROM round WHERE ended IS NOT NULL ORDER BY number"
            ).fetchall()

    # Reports

    def add_reports(self, reports: Iterable[Reports]) -> None:
        """Commit accepted reports, all of them or none.

        Raises StorageError, and adds none, where a device has reported in that round already, or was not asked.
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
        """Every accepted report of a round, those with equally long symbols together."""
        with self._errors():
            return self._log.of_round(number)

    def reports(self, number: int) -> list[tuple[int, bytes]]:
        """(device, packed symbols) of every accepted report of a round, by device."""
        return sorted(
            (device, row.tobytes())
            for batch in self.report_batches(number)
            for device, row in zip(batch.devices.tolist(), batch.packed, strict=True)
        )

    def reporters(self, number: int) -> list[int]:
        """The devices whose report of a round was accepted."""
        return [device for batch in self.report_batches(number) for device in batch.devices.tolist()]

    def report_count(self, number: int | None = None) -> int:
        """How many reports have been accepted in a round, or in all rounds."""
        with self._errors():
            return self._log.count(number)

    # Runs and what they learn

    def begin_run(self, run: StoredRun) -> None:
        """Write down a run. Raises StorageError where there is one of that name."""
        with self.transaction():
            self._db.execute(
                "INSERT INTO run VALUES (?, ?, ?, ?, ?)",
                (run.name, run.began, run.status, json.dumps(run.asked), json.dumps(run.state)),
            )

    def forget_run(self, name: str) -> None:
        """Take back `begin_run`: a run that has asked nobody."""
        with self.transaction():
            self._db.execute("DELETE FROM run WHERE name = ?", (name,))

    def runs(self) -> list[StoredRun]:
        """Every run of this store, in the order in which they were begun."""
        return self._runs("ORDER BY rowid")

    def _runs(self, which: str, *values: str) -> list[StoredRun]:
        with self._errors():
            rows = self._db.execute(
                f"SELECT name, began, status, asked, state FROM run {which}", values
            ).fetchall()
        return [
            StoredRun(name, began, status, json.loads(asked), json.loads(state))
            for name, began, status, asked, state in rows
        ]

    def run(self, name: str) -> StoredRun | None:
        """The run of that name."""
        return next(iter(self._runs("WHERE name = ?", name)), None)

    def save_run(
        self,
        name: str,
        *,
        status: str | None = None,
        asked: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Write what has changed of a run."""
        with self.transaction():
            for column, value in (
                ("status", status),
                ("asked", asked and json.dumps(asked)),
                ("state", state and json.dumps(state)),
            ):
                if value is not None:
                    self._db.execute(f"UPDATE run SET {column} = ? WHERE name = ?", (value, name))

    def end_run_round(
        self,
        name: str,
        number: int,
        ended: str,
        state: Mapping[str, Any],
        entry: Mapping[str, Any],
        weights: bytes | None = None,
    ) -> None:
        """End a round together with what a run has learned from it: its state, a row of history and the model."""
        with self.transaction():
            self._end(number, ended)
            self._db.execute("UPDATE run SET state = ? WHERE name = ?", (json.dumps(state), name))
            self._db.execute("INSERT INTO history VALUES (?, ?, ?)", (name, number, json.dumps(entry)))
            if weights is not None:
                self._db.execute("INSERT OR REPLACE INTO model VALUES (?, ?)", (number, weights))

    def last_entry(self, name: str) -> dict[str, Any] | None:
        """What a run has kept of its last round."""
        with self._errors():
            row = self._db.execute(
                "SELECT entry FROM history WHERE run = ? ORDER BY number DESC LIMIT 1", (name,)
            ).fetchone()
            return json.loads(row[0]) if row else None

    def history(self, name: str) -> list[dict[str, Any]]:
        """What a run has kept of its rounds, oldest first."""
        with self._errors():
            rows = self._db.execute("SELECT entry FROM history WHERE run = ? ORDER BY number", (name,))
            return [json.loads(entry) for (entry,) in rows]

    def weights(self, number: int) -> bytes | None:
        """The model after a round (d float64, little-endian), as `end_run_round` was given it."""
        with self._errors():
            row = self._db.execute("SELECT weights FROM model WHERE round = ?", (number,)).fetchone()
            return row[0] if row else None

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Remember JSON values by name."""
        rows = [(name, json.dumps(value)) for name, value in state.items()]
        with self.transaction():
            self._db.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", rows)

    def state(self, name: str) -> Any:
        """The value last saved by that name; None if there is none."""
        with self._errors():
            row = self._db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
            return json.loads(row[0]) if row else None
