"""Reads a store repeatedly while another process writes to it; each time only the changes."""

import json
import os
import sqlite3
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tern import wire
from tern.card import PROJECTION
from ternhost.count.members import unpack_ids
from ternhost.count.questions import cost_of, decode_body
from ternhost.errors import StorageError
from ternhost.extensions import EXTENSIONS, Query, View
from ternhost.files import Closing, real
from ternhost.privacy.base import MICRO
from ternhost.store import read_only
from ternhost.store import snapshot as views
from ternhost.store.boards import BOARDS, BoardRow
from ternhost.store.runs import status_now
from ternhost.store.store_file import in_use
from ternhost.store.tallies import unpack_counts

_STATE = (
    "rounds",
    "reports",
    "asked",
    "refusals",
    "seconds",
    "spent_before",
    "planned",
    "guarantees",
)
_VALUES = ", ".join(f"json_extract(state, '$.{name}')" for name in _STATE)
_RUN = f"SELECT began, status, asked, {_VALUES} FROM run WHERE name = ?"
_RUNS = "SELECT name, status, began, coalesce(json_extract(state, '$.rounds'), 0) FROM run ORDER BY rowid"
_HISTORY = "SELECT number, entry, began, finished FROM history WHERE run = ? AND number > ? ORDER BY number"
_PAID = (
    "SELECT number, body, asked, reports FROM history JOIN tally ON round = number"
    " WHERE run = ? AND number > ? ORDER BY number"
)
_ROUNDS = (
    "SELECT number, quorum, deadline, ended, run, began FROM round WHERE number > ? ORDER BY number"
)
_ARRIVED = "SELECT max(id), sum(reports) FROM batch WHERE round = ? AND id > ?"
_TALLIES = "SELECT body, counts FROM tally WHERE round = ? ORDER BY position"
# Changes with every change of a board, since each message of a board updates `heard`.
_OF_BOARDS = "SELECT count(*), sum(heard), sum(online), sum(errors), sum(spent) FROM board"
_EXTENSIONS = "SELECT name FROM extension"

# Errors of SQLite for a file that is in use or being created.
_PASSING = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL", "SQLITE_SCHEMA")
# Errors for a damaged file; the last one also for invalid JSON.
_TORN = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR")


@dataclass
class _Known:
    """The contents that the reader has read from a file so far."""

    runs: dict[str, views.RunView] = field(default_factory=dict)
    run: tuple[str, float] | None = None  # name and start of the run with this history
    history: tuple[Mapping[str, Any], ...] = ()
    paid: Counter[int] = field(default_factory=Counter)  # its reports, by the cost of one
    demanded: Counter[int] = field(default_factory=Counter)  # its requests, by the cost of a report
    ended_to: int = 0  # every round up to this one has ended
    asked: dict[int, int] = field(default_factory=dict)  # devices, by open round
    arrived: dict[int, tuple[int, int]] = field(
        default_factory=dict
    )  # last batch and reports, by open round
    hellos: dict[int, tuple[str, Mapping[str, Any]]] = field(
        default_factory=dict
    )  # by board: JSON, parsed
    sums: tuple[Any, ...] | None = None  # of boards
    rows: tuple[BoardRow, ...] = ()
    boards: dict[int, BoardRow] = field(default_factory=dict)
    tallied: int | None = None  # the round of the tallies
    tallies: tuple[views.TallyView, ...] = ()


class Reader(Closing):
    """Snapshots of a store with the run of that name, else the unfinished or the newest one.

    Not thread-safe.
    """

    def __init__(self, path: str | Path, run: str | None = None) -> None:
        self.path = Path(path)
        self._wanted = run
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._rested: int | None = None  # since when, of a store at rest (nanoseconds since 1970)
        self._version: tuple[int, bool] | None = None  # and whether a process has the store open
        self._known = _Known()
        self._last = views.Snapshot(str(path))

    def close(self) -> None:
        """Close the file; the next snapshot opens it again."""
        if self._db is not None:
            self._db.close()
        self._db = self._version = None

    def snapshot(self) -> views.Snapshot:
        """The store now; an unchanged one has the same serial and objects as before.

        A locked, missing or damaged store gives the last snapshot with a `note`; damage or another
        version raises StorageError before the first.
        """
        try:
            self._open()
            assert self._db is not None
            # A process that ends, however it does, changes only the lock.
            version = self._db.execute("PRAGMA data_version").fetchone()[0], in_use(self.path)
            if version != self._version:
                self._last = self._read(self._db)
                self._version = version
            else:
                self._last = replace(self._last, note=None, read=time.time())
        except (OSError, sqlite3.Error, StorageError) as error:
            if isinstance(error, StorageError) and not self._last.read:
                raise
            self._last = replace(self._last, note=self._why(error))
        return self._last

    def _open(self) -> None:
        status = os.stat(self.path)
        file = (status.st_dev, status.st_ino)
        rested = status.st_mtime_ns if read_only.at_rest(self.path) else None
        if self._db is not None and (file, rested) == (self._file, self._rested):
            return
        self.close()
        if file != self._file:
            self._known = _Known()
        self._db = read_only.connect(self.path, still=rested is not None)
        self._file, self._rested = file, rested

    def _why(self, error: Exception) -> str:
        name = getattr(error, "sqlite_errorname", None) or ""
        if name.startswith(_PASSING):
            return "the store is locked by another program"
        self.close()
        if isinstance(error, FileNotFoundError):
            self._file = None  # the next file there is another one, whatever its inode
            return "the store is not there any more"
        if isinstance(error, StorageError):
            return error.message
        return f"the store cannot be read: {error}"

    def _read(self, database: sqlite3.Connection) -> views.Snapshot:
        database.execute("BEGIN")  # one moment for all of it
        try:
            runs = self._runs(database)
            newest = next(
                (run for run in reversed(runs) if run.unfinished), runs[-1] if runs else None
            )
            run = (
                next((run for run in runs if run.name == self._wanted), None)
                if self._wanted
                else newest
            )
            # A run that began at another time or has fewer rounds than before is another one,
            # perhaps in another file: a new file may have the inode of a removed one.
            now, known = None if run is None else (run.name, run.began), self._known
            if now != known.run or (run is not None and run.rounds < len(known.history)):
                known = self._known = _Known(known.runs, now)
            opened = self._rounds(database, run)
            shown = self._views(database, opened)
            return views.Snapshot(
                store=str(self.path),
                serial=self._last.serial + 1,
                read=time.time(),
                written=self._written(),
                run=run,
                runs=runs,
                history=self._history(database, run),
                open=tuple(_with_reports_of(shown, each) for each in opened),
                boards=self._boards(database),
                views=shown,
                tallies=self._tallies(database),
                paid=dict(known.paid),
                demanded=dict(known.demanded),
                devices=database.execute("SELECT count(*) FROM device").fetchone()[0],
            )
        except sqlite3.Error as error:
            if str(getattr(error, "sqlite_errorname", "")).startswith(_TORN):
                raise StorageError(f"{self.path} is damaged", hint=read_only.TORN_HINT) from error
            raise
        except (zlib.error, ValueError, LookupError, TypeError) as error:
            raise StorageError(f"{self.path} is damaged", hint=read_only.TORN_HINT) from error
        finally:
            with suppress(sqlite3.Error):
                database.execute("ROLLBACK")

    def _written(self) -> float:
        times = [0.0]
        store = real(self.path)
        for path in (store, store.with_name(f"{store.name}-wal")):
            with suppress(OSError):
                status = path.stat()
                times.append(status.st_mtime if status.st_size else 0.0)
        return max(times)

    def _runs(self, database: sqlite3.Connection) -> tuple[views.RunView, ...]:
        runs = []
        for name, *now in database.execute(_RUNS).fetchall():
            known = self._known.runs.get(name)
            # A served run goes on after it has finished, and may have finished again by now.
            if (
                known is None
                or known.unfinished
                or [known.status, known.began, known.rounds] != now
            ):
                known = _run(name, database.execute(_RUN, (name,)).fetchone(), self.path)
            runs.append(known)
        self._known.runs = {run.name: run for run in runs}
        return tuple(runs)

    def _history(
        self, database: sqlite3.Connection, run: views.RunView | None
    ) -> tuple[Mapping[str, Any], ...]:
        if run is not None:
            known, spent = self._known, Counter[int]()  # by round, micro-epsilon
            last = known.history[-1]["round"] if known.history else 0
            for number, body, asked, reports in database.execute(_PAID, (run.name, last)):
                cost = cost_of(decode_body(body))
                spent[number] += cost * reports
                known.paid[cost] += reports
                known.demanded[cost] += asked
            known.history += tuple(
                json.loads(entry)
                | {
                    "round": number,
                    "began": began,
                    "finished": finished,
                    "spent": spent[number] / MICRO,
                }
                for number, entry, began, finished in database.execute(_HISTORY, (run.name, last))
            )
        return self._known.history

    def _rounds(
        self, database: sqlite3.Connection, run: views.RunView | None
    ) -> tuple[views.OpenRound, ...]:
        known = self._known
        open_rounds: list[views.OpenRound] = []
        rows = database.execute(_ROUNDS, (known.ended_to,)).fetchall()
        for number, wanted, deadline, ended, of_run, began in rows:
            if ended is not None:
                if not open_rounds:
                    known.ended_to = number
                continue
            asked, arrived = self._asked(database, number), self._arrived(database, number)
            open_rounds.append(
                views.OpenRound(number, of_run, began, deadline, asked, wanted, arrived)
            )
        numbers = {round_.number for round_ in open_rounds}
        for of in (known.asked, known.arrived):
            for number in of.keys() - numbers:
                del of[number]
        return tuple(
            round_ for round_ in open_rounds if run is None or round_.run in (None, run.name)
        )

    def _asked(self, database: sqlite3.Connection, number: int) -> int:
        if number not in self._known.asked:
            rows = database.execute("SELECT devices FROM cohort WHERE round = ?", (number,))
            self._known.asked[number] = sum(len(unpack_ids(packed)) for (packed,) in rows)
        return self._known.asked[number]

    def _arrived(self, database: sqlite3.Connection, number: int) -> int:
        last, reports = self._known.arrived.get(number, (0, 0))
        newest, more = database.execute(_ARRIVED, (number, last)).fetchone()
        if newest is not None:
            last, reports = newest, reports + more
            self._known.arrived[number] = last, reports
        return reports

    def _boards(self, database: sqlite3.Connection) -> tuple[BoardRow, ...]:
        # Most have not changed: their JSON is not read again, and they are the same objects.
        known = self._known
        sums = database.execute(_OF_BOARDS).fetchone()
        if sums == known.sums:
            return known.rows
        boards, hellos = {}, known.hellos
        for name, first, clients, online, heard, text, errors, error, spent in database.execute(
            BOARDS
        ):
            if hellos.get(first, ("",))[0] != text:
                hellos[first] = text, json.loads(text)
            now = BoardRow(
                name, first, clients, bool(online), heard, hellos[first][1], errors, error, spent
            )
            before = known.boards.get(first)
            boards[first] = before if before is not None and before == now else now
        for first in hellos.keys() - boards.keys():
            del hellos[first]
        known.boards, known.rows, known.sums = boards, tuple(boards.values()), sums
        return known.rows

    def _views(
        self, database: sqlite3.Connection, opened: Sequence[views.OpenRound]
    ) -> dict[str, View]:
        """What each installed extension shows of the store, by its name."""

        def query(statement: str, *values: Any) -> Sequence[Sequence[Any]]:
            return database.execute(statement, values).fetchall()

        with_tables = {name for (name,) in query(_EXTENSIONS)}
        shown = {}
        for extension in EXTENSIONS.available():
            readable: Query | None = query if extension.name in with_tables else None
            shown[extension.name] = extension.view(readable, opened)
        return shown

    def _tallies(self, database: sqlite3.Connection) -> tuple[views.TallyView, ...]:
        known = self._known
        number = known.history[-1]["round"] if known.history else None
        if number is not None and number != known.tallied:
            known.tallies = tuple(
                _tally(*row) for row in database.execute(_TALLIES, (number,)).fetchall()
            )
            known.tallied = number
        return known.tallies


def _with_reports_of(shown: Mapping[str, View], opened: views.OpenRound) -> views.OpenRound:
    """An open round with the reports that are in the tables of extensions."""
    elsewhere = sum(view.reports(opened.number) for view in shown.values())
    return replace(opened, reports=opened.reports + elsewhere)


def _tally(body: bytes, packed: bytes) -> views.TallyView:
    request = decode_body(body)
    what = views.LABEL if request.model == wire.SOFTMAX and request.k == 1 else views.VALUE
    if request.model == wire.CATEGORIES and request.classes == 1:  # else they are counted: a sum
        what = views.HASH if request.range else views.CATEGORY
    if request.card[0] & 15 == PROJECTION:
        what = views.DIRECTION
    return views.TallyView(
        request.card.hex(), tuple(unpack_counts(packed, body)[0].sum(axis=0).tolist()), what
    )


def _run(name: str, row: tuple[Any, ...], store: Path) -> views.RunView:
    began, status, text, *state = row
    options = json.loads(text)
    now = dict(zip(_STATE, state, strict=True))
    return views.RunView(
        name=name,
        began=began,
        status=status_now(status, store),
        algorithm=options["algorithm"],
        fleet=options["fleet"],
        options={**options["learning"], "budget": options.get("budget")},
        schedule=options["schedule"],
        references=options.get("references") or {},
        epsilon_before=(now.pop("spent_before") or 0) / MICRO,
        replanned=now.pop("planned"),
        guarantees=json.loads(now.pop("guarantees") or "[]"),
        **{name: value or 0 for name, value in now.items()},
    )
