"""Reads a store repeatedly while another process writes to it; each time only the changes.

The views (terminal, page, metrics) call `Reader.snapshot` once a second or so. A store may hold
thousands of rounds and boards, so the reader remembers what it has read and asks SQLite only for
rows that are new.
"""

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
from ternhost.store.boards import BOARDS, FIRST_COLUMN, HELLO_COLUMN, BoardRow
from ternhost.store.runs import status_now
from ternhost.store.store_file import in_use
from ternhost.store.tallies import unpack_counts

# The members of a run's state (a JSON object) that observers see.
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
_STATE_COLUMNS = ", ".join(f"json_extract(state, '$.{name}')" for name in _STATE)
_RUN = f"SELECT began, status, asked, {_STATE_COLUMNS} FROM run WHERE name = ?"
_RUNS = "SELECT name, status, began, coalesce(json_extract(state, '$.rounds'), 0) FROM run ORDER BY rowid"
_HISTORY = "SELECT number, entry, began, finished FROM history WHERE run = ? AND number > ? ORDER BY number"
# For each cohort of a round (devices with the same question): the question, and how many devices
# were asked and have answered.
_PAID = (
    "SELECT number, body, asked, reports FROM history JOIN tally ON round = number"
    " WHERE run = ? AND number > ? ORDER BY number"
)
_ROUNDS = (
    "SELECT number, quorum, deadline, ended, run, began FROM round WHERE number > ? ORDER BY number"
)
# Of the rows with reports ("batches") that are newer than a given one: the last, and their reports.
_ARRIVED = "SELECT max(id), sum(reports) FROM batch WHERE round = ? AND id > ?"
_ESTIMATES = "SELECT json_extract(state, '$.estimates') FROM run WHERE name = ?"
_TALLIES = "SELECT body, counts FROM tally WHERE round = ? ORDER BY position"
# This row changes with every change of a board, since each message of a board updates `heard`.
_BOARD_SUMS = "SELECT count(*), sum(heard), sum(online), sum(errors), sum(spent) FROM board"
_EXTENSIONS = "SELECT name FROM extension"

# A card is the certified table from which a device samples its report. The low four bits of its
# first byte say of which shape the card is (cards.md).
_SHAPE_MASK = 0x0F

# Names of SQLite's errors for a file that is in use or being created: they pass by themselves.
_TEMPORARY_ERRORS = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL", "SQLITE_SCHEMA")
# SQLite's errors for a damaged file. The last one is also raised for invalid JSON.
_DAMAGE_ERRORS = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR")


@dataclass
class _BoardsRead:
    """The boards that have been read from a file so far."""

    sums: tuple[Any, ...] | None = None  # the row of `_BOARD_SUMS` when they were read
    rows: tuple[BoardRow, ...] = ()
    by_first: dict[int, BoardRow] = field(default_factory=dict)  # by the id of its first device
    hello_texts: dict[int, str] = field(default_factory=dict)  # `hello` as JSON, by first device


@dataclass
class _RoundsRead:
    """What has been read of the rounds of a file so far."""

    ended_to: int = 0  # every round up to this one has ended
    # By the number of an open round: how many devices it asks.
    asked: dict[int, int] = field(default_factory=dict)
    # By the number of an open round: the id of its last batch of reports, and how many reports have
    # arrived up to it.
    arrived: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass
class _RunRead:
    """What has been read of the history of one run so far."""

    identity: tuple[str, float] | None = None  # its name, and when it began
    history: tuple[Mapping[str, Any], ...] = ()
    # The reports of its ended rounds, and its requests for a report, by the cost of a report
    # (micro-epsilon or micro-rho).
    paid: Counter[int] = field(default_factory=Counter)
    demanded: Counter[int] = field(default_factory=Counter)
    # How often each symbol was reported in the round `tallied`, the last one that was read.
    tallied: int | None = None
    tallies: tuple[views.TallyView, ...] = ()
    # What it has collected by the end of the round `estimated`.
    estimated: int | None = None
    estimates: tuple[Mapping[str, Any], ...] = ()

    @property
    def last_round(self) -> int | None:
        """The number of the last round that has been read; None before the first."""
        return self.history[-1]["round"] if self.history else None


class _Contents:
    """The contents that the reader has read from a file so far."""

    def __init__(self) -> None:
        """Begin without anything read."""
        self.runs: dict[str, views.RunView] = {}  # by name
        self.run = _RunRead()
        self.rounds = _RoundsRead()
        self.boards = _BoardsRead()


class Reader(Closing):
    """Takes snapshots of a store while another process writes to it. Not thread-safe."""

    def __init__(self, path: str | Path, run: str | None = None) -> None:
        """Prepare to read a store; the first call of `snapshot` opens its file.

        path: the file. run: the name of the run to look at. If it is None, that is the last
        unfinished run, or else the newest one.
        """
        self.path = Path(path)
        self._wanted_run = run

        # The file that is open.
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # the numbers of its disk and of its inode
        # If no process writes to the store: when it last changed, in nanoseconds since 1970.
        self._at_rest_since: int | None = None

        # What was read from it.
        # `_version` is SQLite's number for the contents, and whether a process has the store open.
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

        A snapshot of an unchanged store has the same serial number and the same objects as the one
        before. If the store is locked, missing or damaged, the last snapshot is returned again with
        a `note` that says so. StorageError is raised only if the store is damaged or of another
        version before the first snapshot.
        """
        try:
            self._open()
            assert self._db is not None
            # The lock is looked at, too: a process that ends without a last word changes nothing
            # else, and its run has to be shown as stopped.
            data_version = self._db.execute("PRAGMA data_version").fetchone()[0]
            version = data_version, in_use(self.path)
            if version != self._version:
                self._last = self._read(self._db)
                self._version = version
            else:
                self._last = replace(self._last, note=None, read=time.time())
        except (OSError, sqlite3.Error, StorageError) as error:
            nothing_read_yet = self._last.read == 0
            if isinstance(error, StorageError) and nothing_read_yet:
                raise
            self._last = replace(self._last, note=self._note(error))
        return self._last

    def _open(self) -> None:
        """Make sure that the file at `path` is open as it is now.

        It is opened again if another file has taken its place. A store that no process writes to is
        opened without a look at its log, so it is also opened again after a change.
        """
        status = os.stat(self.path)
        file = (status.st_dev, status.st_ino)
        at_rest_since = None
        if read_only.at_rest(self.path):
            at_rest_since = status.st_mtime_ns
        is_same_file = file == self._file
        is_unchanged = is_same_file and at_rest_since == self._at_rest_since
        if self._db is not None and is_unchanged:
            return

        self.close()
        if not is_same_file:
            self._contents = _Contents()
        self._db = read_only.connect(self.path, still=at_rest_since is not None)
        self._file = file
        self._at_rest_since = at_rest_since

    def _note(self, error: Exception) -> str:
        """Return in words why the store could not be read, and close it unless it is only locked."""
        if _error_name(error).startswith(_TEMPORARY_ERRORS):
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
            if _error_name(error).startswith(_DAMAGE_ERRORS):
                raise StorageError(f"{self.path} is damaged", hint=read_only.TORN_HINT) from error
            raise
        except (zlib.error, ValueError, LookupError, TypeError) as error:
            # A value in the store cannot be decoded.
            raise StorageError(f"{self.path} is damaged", hint=read_only.TORN_HINT) from error
        finally:
            # Nothing was written: the transaction only made all tables be read at one moment.
            with suppress(sqlite3.Error):
                database.execute("ROLLBACK")

    def _read_tables(self, database: sqlite3.Connection) -> views.Snapshot:
        """Return a snapshot, and read for it only what has changed since the last one."""
        runs = self._runs(database)
        run = self._select(runs)
        self._forget_other_runs(run)
        history = self._history(database, run)

        # An extension may have taken reports of an open round into tables of its
        # own: they are added to those of the round.
        open_rounds = self._open_rounds(database, run)
        views_by_extension = self._views(database, open_rounds)
        rounds_with_all_reports = []
        for open_round in open_rounds:
            rounds_with_all_reports.append(_add_reports(open_round, views_by_extension))

        return views.Snapshot(
            # The snapshot itself.
            store=str(self.path),
            serial=self._last.serial + 1,
            read=time.time(),
            written=self._last_written(),
            # The run and its rounds. `_history` has just counted `paid` and `demanded`.
            run=run,
            runs=runs,
            history=history,
            open=tuple(rounds_with_all_reports),
            tallies=self._tallies(database),
            estimates=self._estimates(database, run),
            paid=dict(self._contents.run.paid),
            demanded=dict(self._contents.run.demanded),
            # The fleet.
            boards=self._boards(database),
            views=views_by_extension,
            devices=database.execute("SELECT count(*) FROM device").fetchone()[0],
        )

    def _last_written(self) -> float:
        """Return when the store or its log was last written, in seconds since 1970.

        The result is 0 if there is neither.
        """
        times = [0.0]
        store = real(self.path)
        log = store.with_name(f"{store.name}-wal")
        for path in (store, log):
            with suppress(OSError):  # the file is not there
                status = path.stat()
                # An observer creates an empty log, which says nothing about the writer.
                if status.st_size > 0:
                    times.append(status.st_mtime)
        return max(times)

    def _runs(self, database: sqlite3.Connection) -> tuple[views.RunView, ...]:
        """Return all runs, the oldest first. A finished run that has not changed is not read again."""
        runs = {}
        for name, status, began, rounds in database.execute(_RUNS).fetchall():
            run = self._contents.runs.get(name)
            is_current = False
            if run is not None and not run.unfinished:
                # A served run can go on after it has finished, and may have finished again by now.
                is_current = (run.status, run.began, run.rounds) == (status, began, rounds)
            if run is None or not is_current:
                columns = database.execute(_RUN, (name,)).fetchone()
                run = _run_view(name, columns, self.path)
            runs[name] = run
        self._contents.runs = runs
        return tuple(runs.values())

    def _select(self, runs: Sequence[views.RunView]) -> views.RunView | None:
        """Return the run to show: the one that the user named, or None if it is not there.

        If the user named none, it is the last run that has not finished, or else the newest one.
        runs: all runs, the oldest first.
        """
        if self._wanted_run:
            for run in runs:
                if run.name == self._wanted_run:
                    return run
            return None
        for run in reversed(runs):
            if run.unfinished:
                return run
        return runs[-1] if runs else None

    def _forget_other_runs(self, run: views.RunView | None) -> None:
        """Forget what was read of rounds and boards, unless it belongs to the run to show.

        A run that began at another time or has fewer rounds than before is not the same one, even
        if it has the same name. It may be in another file: a new file may get the inode of one that
        was removed.
        """
        contents = self._contents
        identity = None if run is None else (run.name, run.began)
        is_same_run = identity == contents.run.identity
        if run is not None and run.rounds < len(contents.run.history):
            is_same_run = False
        if is_same_run:
            return
        self._contents = _Contents()
        self._contents.runs = contents.runs
        self._contents.run.identity = identity

    def _history(
        self, database: sqlite3.Connection, run: views.RunView | None
    ) -> tuple[Mapping[str, Any], ...]:
        """Return an entry for each ended round of the run, and count what its reports have cost.

        Only the rounds that have ended since the last snapshot are read. `spent` in an entry is what
        all reports of the round cost together, in epsilon or rho.
        """
        known = self._contents.run
        if run is None:
            return known.history

        # The costs, by the question of each cohort. They are exact numbers of micro-units.
        run_and_last_round = (run.name, known.last_round or 0)
        spent_in_round = Counter[int]()
        for number, question, asked, reports in database.execute(_PAID, run_and_last_round):
            report_cost = cost_of(decode_body(question))
            spent_in_round[number] += report_cost * reports
            known.paid[report_cost] += reports
            known.demanded[report_cost] += asked

        new_entries = []
        for number, text, began, finished in database.execute(_HISTORY, run_and_last_round):
            entry = json.loads(text)
            entry["round"] = number
            entry["began"] = began
            entry["finished"] = finished
            entry["spent"] = spent_in_round[number] / MICRO
            new_entries.append(entry)
        known.history = (*known.history, *new_entries)
        return known.history

    def _open_rounds(
        self, database: sqlite3.Connection, run: views.RunView | None
    ) -> list[views.OpenRound]:
        """Return the open rounds of the run, and those that belong to no run."""
        known = self._contents.rounds
        open_rounds: list[views.OpenRound] = []
        rows = database.execute(_ROUNDS, (known.ended_to,)).fetchall()
        for number, quorum, deadline, ended, run_name, began in rows:
            if ended is not None:
                all_earlier_ended = not open_rounds
                if all_earlier_ended:
                    known.ended_to = number  # the next snapshot reads only later rounds
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
        open_numbers = {open_round.number for open_round in open_rounds}
        for counts_by_round in (known.asked, known.arrived):
            for number in counts_by_round.keys() - open_numbers:
                del counts_by_round[number]

        if run is None:
            return open_rounds
        return [each for each in open_rounds if each.run in (None, run.name)]

    def _asked(self, database: sqlite3.Connection, number: int) -> int:
        """Return how many devices the round with this number asks; it is read only once."""
        asked_by_round = self._contents.rounds.asked
        if number not in asked_by_round:
            asked = 0
            rows = database.execute("SELECT devices FROM cohort WHERE round = ?", (number,))
            for (packed_ids,) in rows:
                asked += len(unpack_ids(packed_ids))
            asked_by_round[number] = asked
        return asked_by_round[number]

    def _arrived(self, database: sqlite3.Connection, number: int) -> int:
        """Return how many reports of the round with this number have arrived.

        A batch is a row of the store with many reports. Only the batches that were added since the
        last snapshot are read.
        """
        arrived = self._contents.rounds.arrived
        last_batch, reports = arrived.get(number, (0, 0))
        newest_batch, new_reports = database.execute(_ARRIVED, (number, last_batch)).fetchone()
        has_new_batches = newest_batch is not None
        if has_new_batches:
            reports += new_reports
            arrived[number] = newest_batch, reports
        return reports

    def _boards(self, database: sqlite3.Connection) -> tuple[BoardRow, ...]:
        """Return all boards. A board that has not changed is the same object as before.

        Most boards have not changed since the last snapshot: their JSON is not parsed again.
        """
        known = self._contents.boards
        sums = database.execute(_BOARD_SUMS).fetchone()
        nothing_has_changed = sums == known.sums
        if nothing_has_changed:
            return known.rows

        boards: dict[int, BoardRow] = {}
        hello_texts: dict[int, str] = {}
        for row in database.execute(BOARDS):
            first, hello_text = row[FIRST_COLUMN], row[HELLO_COLUMN]
            last_board = known.by_first.get(first)
            if last_board is not None and known.hello_texts[first] == hello_text:
                hello = last_board.hello
            else:
                hello = json.loads(hello_text)
            board = BoardRow.of(row, hello)
            if last_board is not None and last_board == board:
                board = last_board
            boards[first] = board
            hello_texts[first] = hello_text
        rows = tuple(boards.values())
        self._contents.boards = _BoardsRead(
            sums=sums, rows=rows, by_first=boards, hello_texts=hello_texts
        )
        return rows

    def _views(
        self, database: sqlite3.Connection, open_rounds: Sequence[views.OpenRound]
    ) -> dict[str, View]:
        """Return what each installed extension shows of the store, by the name of the extension.

        An extension reads its own tables. One without tables in this store gets no query.
        """

        def query(statement: str, *values: Any) -> Sequence[Sequence[Any]]:
            """Return all rows of a statement of SQL with these parameters."""
            return database.execute(statement, values).fetchall()

        names_with_tables = {name for (name,) in query(_EXTENSIONS)}
        views_by_extension = {}
        for extension in EXTENSIONS.available():
            own_query: Query | None = None
            if extension.name in names_with_tables:
                own_query = query
            views_by_extension[extension.name] = extension.view(own_query, open_rounds)
        return views_by_extension

    def _tallies(self, database: sqlite3.Connection) -> tuple[views.TallyView, ...]:
        """Return how often each symbol was reported in the run's last ended round.

        There is one result for each cohort of the round, that is, for the devices that got the same
        question. It is read once for each round.
        """
        known = self._contents.run
        last_round = known.last_round
        if last_round is not None and last_round != known.tallied:
            tallies = []
            for question, packed_counts in database.execute(_TALLIES, (last_round,)):
                tallies.append(_tally_view(question, packed_counts))
            known.tallies = tuple(tallies)
            known.tallied = last_round
        return known.tallies

    def _estimates(
        self, database: sqlite3.Connection, run: views.RunView | None
    ) -> tuple[Mapping[str, Any], ...]:
        """Return what the run has collected so far; it is read once for each round."""
        known = self._contents.run
        if run is not None and known.last_round != known.estimated:
            text = database.execute(_ESTIMATES, (run.name,)).fetchone()[0]
            known.estimates = tuple(json.loads(text or "[]"))
            known.estimated = known.last_round
        return known.estimates


def _error_name(error: Exception) -> str:
    """Return SQLite's name for an error, such as "SQLITE_BUSY"; "" if it is not one of SQLite."""
    return getattr(error, "sqlite_errorname", None) or ""


def _add_reports(
    open_round: views.OpenRound, views_by_extension: Mapping[str, View]
) -> views.OpenRound:
    """Return the open round with the reports in the tables of extensions added to its own."""
    reports = open_round.reports
    for view in views_by_extension.values():
        reports += view.reports(open_round.number)
    return replace(open_round, reports=reports)


def _tally_view(question: bytes, packed_counts: bytes) -> views.TallyView:
    """Return how often the devices with this question have reported each symbol.

    A report may have a symbol for each of many coordinates; the counts are summed over them.
    question: the body of the ROUND frame that was sent. packed_counts: the counts as the store
    holds them.
    """
    request = decode_body(question)
    counts, _sums_of_vectors = unpack_counts(packed_counts, question)
    counts_of_symbols = counts.sum(axis=0)  # `counts` has a row for each coordinate
    return views.TallyView(
        card=request.card.hex(),
        symbols=tuple(counts_of_symbols.tolist()),
        what=_meaning_of_symbols(request),
    )


def _meaning_of_symbols(request: frames.Round) -> str:
    """Return what a symbol in a report on this question stands for, such as `views.LABEL`."""
    shape = request.card[0] & _SHAPE_MASK
    if shape == PROJECTION:
        return views.DIRECTION
    # With more than one class, a device counts its categories and reports noisy sums.
    reports_a_category = request.model == wire.CATEGORIES and request.classes == 1
    if reports_a_category:
        if request.range:  # the device hashes its category, or its bin
            return views.HASH
        return views.BIN if request.exponent else views.CATEGORY
    reports_a_label = request.model == wire.SOFTMAX and request.k == 1
    if reports_a_label:
        return views.LABEL
    return views.VALUE


def _run_view(name: str, columns: tuple[Any, ...], store: Path) -> views.RunView:
    """Return what observers see of a run.

    columns: its row in the result of `_RUN`. store: the path of the store.
    """
    began, status, options_text, *state_values = columns
    options = json.loads(options_text)
    state = dict(zip(_STATE, state_values, strict=True))
    guarantees_text = state["guarantees"] or "[]"
    return views.RunView(
        name=name,
        began=began,
        status=status_now(status, store),
        # How it was started.
        algorithm=options["algorithm"],
        fleet=options["fleet"],
        options={**options["learning"], "budget": options.get("budget")},
        schedule=options["schedule"],
        references=options.get("references") or {},
        # How far it is. A number that the state lacks is 0.
        rounds=state["rounds"] or 0,
        reports=state["reports"] or 0,
        asked=state["asked"] or 0,
        refusals=state["refusals"] or 0,
        seconds=state["seconds"] or 0,
        epsilon_before=(state["spent_before"] or 0) / MICRO,
        class_names=tuple(options.get("class_names") or ()),
        replanned=state["planned"],
        guarantees=json.loads(guarantees_text),
    )
