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

from tern import frames, wire
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
_BOARD_SUMS = "SELECT count(*), sum(heard), sum(online), sum(errors), sum(spent) FROM board"
_EXTENSIONS = "SELECT name FROM extension"

_SHAPE_MASK = 0x0F  # of the first byte of a card (cards.md)

# Names of SQLite's errors for a file that is in use or being created.
_PASSING = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL", "SQLITE_SCHEMA")
# Its errors for a damaged file; the last one also for invalid JSON.
_TORN = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR")


@dataclass
class _BoardsRead:
    """The boards that have been read from a file so far."""

    sums: tuple[Any, ...] | None = None  # over their rows
    rows: tuple[BoardRow, ...] = ()
    by_first: dict[int, BoardRow] = field(default_factory=dict)
    hello_texts: dict[int, str] = field(default_factory=dict)  # JSON, by first device


@dataclass
class _RoundsRead:
    """What has been read of the rounds of a file so far."""

    ended_to: int = 0  # every round up to this one has ended
    asked: dict[int, int] = field(default_factory=dict)  # devices, by open round
    # By open round, its last batch of reports, and how many have come.
    arrived: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass
class _RunRead:
    """What has been read of the history of one run so far."""

    identity: tuple[str, float] | None = None  # its name, and when it began
    history: tuple[Mapping[str, Any], ...] = ()
    paid: Counter[int] = field(default_factory=Counter)  # its reports, by the cost of one
    demanded: Counter[int] = field(default_factory=Counter)  # its requests, by the cost of a report
    tallied: int | None = None  # the round of the tallies
    tallies: tuple[views.TallyView, ...] = ()

    @property
    def last_round(self) -> int | None:
        """The number of the last round that has been read; None before the first."""
        return self.history[-1]["round"] if self.history else None


class _Contents:
    """The contents that the reader has read from a file so far."""

    def __init__(self) -> None:
        self.runs: dict[str, views.RunView] = {}
        self.run = _RunRead()
        self.rounds = _RoundsRead()
        self.boards = _BoardsRead()


class Reader(Closing):
    """Takes snapshots of a store while another process writes to it. Not thread-safe."""

    def __init__(self, path: str | Path, run: str | None = None) -> None:
        """run: the name of the run to look at; None: the unfinished or else the newest one."""
        self.path = Path(path)
        self._wanted_run = run
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode
        # Of a store that no process writes to: its last change (nanoseconds since 1970).
        self._at_rest_since: int | None = None
        # SQLite's number for the contents, and whether a process has the store open.
        self._version: tuple[int, bool] | None = None
        self._contents = _Contents()
        self._last = views.Snapshot(str(path))

    def close(self) -> None:
        """Close the file; the next snapshot opens it again."""
        if self._db is not None:
            self._db.close()
        self._db = self._version = None

    def snapshot(self) -> views.Snapshot:
        """Return a snapshot of the store as it is now.

        Of an unchanged store it has the same serial and objects as the last one. If the store is
        locked, missing or damaged, the last snapshot is returned with a `note`. StorageError is
        raised only for damage or another version before the first snapshot.
        """
        try:
            self._open()
            assert self._db is not None
            # A process that ends, however it does, changes only the lock.
            data_version = self._db.execute("PRAGMA data_version").fetchone()[0]
            version = data_version, in_use(self.path)
            if version != self._version:
                self._last = self._read(self._db)
                self._version = version
            else:
                self._last = replace(self._last, note=None, read=time.time())
        except (OSError, sqlite3.Error, StorageError) as error:
            if isinstance(error, StorageError) and not self._last.read:
                raise
            self._last = replace(self._last, note=self._note(error))
        return self._last

    def _open(self) -> None:
        """Open the file again if it is another one, or if a store at rest has changed."""
        status = os.stat(self.path)
        file = (status.st_dev, status.st_ino)
        at_rest_since = None
        if read_only.at_rest(self.path):
            at_rest_since = status.st_mtime_ns
        is_same = (file, at_rest_since) == (self._file, self._at_rest_since)
        if self._db is not None and is_same:
            return

        self.close()
        if file != self._file:
            self._contents = _Contents()
        self._db = read_only.connect(self.path, still=at_rest_since is not None)
        self._file, self._at_rest_since = file, at_rest_since

    def _note(self, error: Exception) -> str:
        """Say for people why the store could not be read; unless it is locked, close the file."""
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
        """Read a snapshot in one transaction. Raises StorageError if the store is damaged."""
        database.execute("BEGIN")
        try:
            return self._read_tables(database)
        except sqlite3.Error as error:
            if str(getattr(error, "sqlite_errorname", "")).startswith(_TORN):
                raise StorageError(f"{self.path} is damaged", hint=read_only.TORN_HINT) from error
            raise
        except (zlib.error, ValueError, LookupError, TypeError) as error:
            raise StorageError(f"{self.path} is damaged", hint=read_only.TORN_HINT) from error
        finally:
            with suppress(sqlite3.Error):
                database.execute("ROLLBACK")

    def _read_tables(self, database: sqlite3.Connection) -> views.Snapshot:
        """Read what has changed in each table since the last snapshot."""
        runs = self._runs(database)
        run = self._select(runs)
        self._begin_run(run)
        open_rounds = self._open_rounds(database, run)
        views_by_extension = self._views(database, open_rounds)
        # An extension may have taken reports of an open round into tables of its own.
        rounds_with_reports = []
        for open_round in open_rounds:
            rounds_with_reports.append(_add_reports(open_round, views_by_extension))
        return views.Snapshot(
            store=str(self.path),
            serial=self._last.serial + 1,
            read=time.time(),
            written=self._last_written(),
            run=run,
            runs=runs,
            history=self._history(database, run),
            open=tuple(rounds_with_reports),
            boards=self._boards(database),
            views=views_by_extension,
            tallies=self._tallies(database),
            paid=dict(self._contents.run.paid),
            demanded=dict(self._contents.run.demanded),
            devices=database.execute("SELECT count(*) FROM device").fetchone()[0],
        )

    def _last_written(self) -> float:
        """Return when the store or its log was last written, in seconds since 1970."""
        times = [0.0]
        store = real(self.path)
        for path in (store, store.with_name(f"{store.name}-wal")):
            with suppress(OSError):
                status = path.stat()
                times.append(status.st_mtime if status.st_size else 0.0)
        return max(times)

    def _runs(self, database: sqlite3.Connection) -> tuple[views.RunView, ...]:
        """Return all runs, the oldest first. A finished run that has not changed is not read again."""
        runs = []
        for name, status, began, rounds in database.execute(_RUNS).fetchall():
            run = self._contents.runs.get(name)
            is_current = False
            if run is not None and not run.unfinished:
                # A served run goes on after it has finished, and may have finished again by now.
                is_current = (run.status, run.began, run.rounds) == (status, began, rounds)
            if run is None or not is_current:
                run = _run_view(name, database.execute(_RUN, (name,)).fetchone(), self.path)
            runs.append(run)
        self._contents.runs = {run.name: run for run in runs}
        return tuple(runs)

    def _select(self, runs: Sequence[views.RunView]) -> views.RunView | None:
        """Return the wanted run; if none was named, the last unfinished one, or else the newest."""
        if self._wanted_run:
            for run in runs:
                if run.name == self._wanted_run:
                    return run
            return None
        for run in reversed(runs):
            if run.unfinished:
                return run
        return runs[-1] if runs else None

    def _begin_run(self, run: views.RunView | None) -> None:
        """Forget what was read of the rounds and boards, unless it was for the same run.

        A run that began at another time or has fewer rounds than before is another one, perhaps in
        another file: a new file may have the inode of a removed one.
        """
        contents = self._contents
        identity = None if run is None else (run.name, run.began)
        is_same = identity == contents.run.identity
        if is_same and (run is None or run.rounds >= len(contents.run.history)):
            return
        self._contents = _Contents()
        self._contents.runs = contents.runs
        self._contents.run.identity = identity

    def _history(
        self, database: sqlite3.Connection, run: views.RunView | None
    ) -> tuple[Mapping[str, Any], ...]:
        """Return the history of the run. Only the rounds that have ended since are read."""
        known = self._contents.run
        if run is None:
            return known.history
        after = run.name, known.last_round or 0
        spent = Counter[int]()  # by round, micro-epsilon
        for number, body, asked, reports in database.execute(_PAID, after):
            cost = cost_of(decode_body(body))
            spent[number] += cost * reports
            known.paid[cost] += reports
            known.demanded[cost] += asked

        new_entries = []
        for number, entry, began, finished in database.execute(_HISTORY, after):
            times = {"round": number, "began": began, "finished": finished}
            new_entries.append({**json.loads(entry), **times, "spent": spent[number] / MICRO})
        known.history = (*known.history, *new_entries)
        return known.history

    def _open_rounds(
        self, database: sqlite3.Connection, run: views.RunView | None
    ) -> list[views.OpenRound]:
        """Return the open rounds of the run, and those of no run."""
        known = self._contents.rounds
        open_rounds: list[views.OpenRound] = []
        rows = database.execute(_ROUNDS, (known.ended_to,)).fetchall()
        for number, quorum, deadline, ended, run_name, began in rows:
            if ended is not None:
                if not open_rounds:  # no earlier round is open either: skip this one next time
                    known.ended_to = number
                continue
            open_rounds.append(
                views.OpenRound(
                    number=number,
                    run=run_name,
                    began=began,
                    deadline=deadline,
                    asked=self._asked(database, number),
                    wanted=quorum,
                    reports=self._arrived(database, number),
                )
            )

        # Forget the rounds that have ended.
        numbers = {round_.number for round_ in open_rounds}
        for by_round in (known.asked, known.arrived):
            for number in by_round.keys() - numbers:
                del by_round[number]
        if run is None:
            return open_rounds
        return [round_ for round_ in open_rounds if round_.run in (None, run.name)]

    def _asked(self, database: sqlite3.Connection, number: int) -> int:
        """Return how many devices a round asks; it is read once."""
        asked = self._contents.rounds.asked
        if number not in asked:
            rows = database.execute("SELECT devices FROM cohort WHERE round = ?", (number,))
            asked[number] = sum(len(unpack_ids(packed)) for (packed,) in rows)
        return asked[number]

    def _arrived(self, database: sqlite3.Connection, number: int) -> int:
        """Return how many reports of a round have arrived; only new batches are read."""
        arrived = self._contents.rounds.arrived
        last_batch, reports = arrived.get(number, (0, 0))
        newest_batch, new_reports = database.execute(_ARRIVED, (number, last_batch)).fetchone()
        if newest_batch is not None:
            reports += new_reports
            arrived[number] = newest_batch, reports
        return reports

    def _boards(self, database: sqlite3.Connection) -> tuple[BoardRow, ...]:
        """Return all boards. One that has not changed is the same object as before.

        Most boards have not changed since the last snapshot: their JSON is not parsed again.
        """
        known = self._contents.boards
        sums = database.execute(_BOARD_SUMS).fetchone()
        if sums == known.sums:
            return known.rows
        boards: dict[int, BoardRow] = {}
        texts: dict[int, str] = {}
        for name, first, clients, online, heard, text, *rest in database.execute(BOARDS):
            last_board = known.by_first.get(first)
            if last_board is not None and known.hello_texts[first] == text:
                hello = last_board.hello
            else:
                hello = json.loads(text)
            board = BoardRow(name, first, clients, bool(online), heard, hello, *rest)
            if last_board is not None and last_board == board:
                board = last_board
            boards[first] = board
            texts[first] = text
        rows = tuple(boards.values())
        self._contents.boards = _BoardsRead(sums, rows, boards, texts)
        return rows

    def _views(
        self, database: sqlite3.Connection, open_rounds: Sequence[views.OpenRound]
    ) -> dict[str, View]:
        """Return the view that each installed extension has of the store, by its name."""

        def query(statement: str, *values: Any) -> Sequence[Sequence[Any]]:
            return database.execute(statement, values).fetchall()

        have_tables = {name for (name,) in query(_EXTENSIONS)}
        views_by_extension = {}
        for extension in EXTENSIONS.available():
            own_query: Query | None = None
            if extension.name in have_tables:
                own_query = query
            views_by_extension[extension.name] = extension.view(own_query, open_rounds)
        return views_by_extension

    def _tallies(self, database: sqlite3.Connection) -> tuple[views.TallyView, ...]:
        """Return the counts of the cohorts of the run's last round."""
        known = self._contents.run
        number = known.last_round
        if number is not None and number != known.tallied:
            rows = database.execute(_TALLIES, (number,)).fetchall()
            known.tallies = tuple(_tally_view(body, packed) for body, packed in rows)
            known.tallied = number
        return known.tallies


def _add_reports(
    open_round: views.OpenRound, views_by_extension: Mapping[str, View]
) -> views.OpenRound:
    """Add the reports in the tables of extensions to those of an open round."""
    reports = open_round.reports
    for view in views_by_extension.values():
        reports += view.reports(open_round.number)
    return replace(open_round, reports=reports)


def _tally_view(body: bytes, packed: bytes) -> views.TallyView:
    """Sum the counts of a cohort over its coordinates.

    body: its question, as in a ROUND. packed: its counts in the format of the store.
    """
    request = decode_body(body)
    counts, _vectors = unpack_counts(packed, body)
    symbols = tuple(counts.sum(axis=0).tolist())  # counts: coordinates x symbols
    return views.TallyView(request.card.hex(), symbols, _meaning_of_symbols(request))


def _meaning_of_symbols(request: frames.Round) -> str:
    """Return what the symbols of the reports on this question stand for, by a word of `views`."""
    if request.card[0] & _SHAPE_MASK == PROJECTION:
        return views.DIRECTION
    # With more classes, a device counts its categories and reports noisy sums.
    if request.model == wire.CATEGORIES and request.classes == 1:
        return views.HASH if request.range else views.CATEGORY
    if request.model == wire.SOFTMAX and request.k == 1:
        return views.LABEL
    return views.VALUE


def _run_view(name: str, row: tuple[Any, ...], store: Path) -> views.RunView:
    """Return the view of a run. row: the columns of `_RUN`. store: its path."""
    began, status, options_text, *state_values = row
    options = json.loads(options_text)
    state = dict(zip(_STATE, state_values, strict=True))
    epsilon_before = (state.pop("spent_before") or 0) / MICRO
    guarantees = json.loads(state.pop("guarantees") or "[]")
    planned = state.pop("planned")
    numbers = {name: value or 0 for name, value in state.items()}  # of those that are left
    return views.RunView(
        name=name,
        began=began,
        status=status_now(status, store),
        algorithm=options["algorithm"],
        fleet=options["fleet"],
        options={**options["learning"], "budget": options.get("budget")},
        schedule=options["schedule"],
        references=options.get("references") or {},
        epsilon_before=epsilon_before,
        replanned=planned,
        guarantees=guarantees,
        **numbers,
    )
