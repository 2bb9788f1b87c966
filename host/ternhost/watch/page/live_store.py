"""A store for all open pages, with its boards as a table.

It is read once for all pages, and only while one is open.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from ternhost.errors import StorageError
from ternhost.files import real
from ternhost.privacy.units import protected
from ternhost.store.boards import BoardRow
from ternhost.store.reader import Reader
from ternhost.store.snapshot import RunView, Snapshot
from ternhost.text import brief
from ternhost.watch import stores
from ternhost.watch.curves import Point
from ternhost.watch.fleet_view import budget, failed, generator

EVERY = 0.5  # seconds from one look to the next
_MOST_ARRIVALS = 600

Stamp = tuple[tuple[int, int], ...]
Row = dict[str, Any]
MOST_ROWS = 500  # of an answer


def row(board: BoardRow) -> Row:
    """Return the row of a board in the table, by column.

    `budget` is an epsilon, `heap` in kB (1000 bytes); a value that the board did not report is
    None.
    """
    fields: Row = {}
    for name in _REPORTED:
        fields[name] = board.hello.get(name)
    for name in _SEEN:
        fields[name] = getattr(board, name)
    fields["online"] = "online" if board.online else "offline"
    fields["budget"] = budget(board)
    fields["protects"] = None
    if "unit" in board.hello:
        fields["protects"] = protected(board.hello["unit"] or 0)
    fields["entropy"] = generator(board)
    heap_bytes = board.hello.get("heap")
    fields["heap"] = heap_bytes / 1000 if heap_bytes else None
    for name, value in fields.items():
        if isinstance(value, str):
            fields[name] = brief(value)
    return fields


_SEEN = ("name", "heard", "errors", "error", "first", "clients")  # by the host
_REPORTED = ("release", "restarts", "exceptions", "records", "epoch", "text")  # by the board
_SEARCHED = ("name", "online", "release", "entropy", "error", "text")
COLUMNS = frozenset(row(BoardRow("", 0, 0, False, 0.0)))


class BoardTable:
    """The rows of the current boards; only changed boards get new rows."""

    def __init__(self) -> None:
        self._boards: tuple[BoardRow, ...] | None = None
        self._rows: dict[int, tuple[BoardRow, Row, str]] = {}
        self.changes = 0  # how often the boards have changed

    def take(self, boards: tuple[BoardRow, ...]) -> None:
        """Replace the boards of the table; only changed boards get new rows."""
        if boards is self._boards:
            return
        rows: dict[int, tuple[BoardRow, Row, str]] = {}
        has_changed = self._boards is None or len(boards) != len(self._boards)
        for board in boards:
            entry = self._rows.get(board.first)
            if entry is None or entry[0] is not board:
                new_row = row(board)
                searched = [str(new_row[name] or "") for name in _SEARCHED]
                entry = board, new_row, " ".join(searched).lower()
                has_changed = True
            rows[board.first] = entry
        if has_changed:
            self.changes += 1
        self._boards, self._rows = boards, rows

    def page(
        self,
        first: int,
        last: int,
        search: str = "",
        sort: str = "",
        descending: bool = False,
    ) -> tuple[int, list[Row]]:
        """Return how many boards match all words of `search`, and some of their rows.

        first, last: the rows to return, `last` excluded. sort: the column by which the rows
        are sorted; rows without a value come last.
        """
        words = search.lower().split()
        rows = []
        for _, row, searched_text in self._rows.values():
            if all(word in searched_text for word in words):
                rows.append(row)
        if sort in COLUMNS:
            with_value = [row for row in rows if row[sort] is not None]
            without_value = [row for row in rows if row[sort] is None]
            with_value.sort(key=itemgetter(sort), reverse=descending)
            rows = with_value + without_value
        return len(rows), rows[first : min(last, first + MOST_ROWS)]


def summary(boards: Sequence[BoardRow]) -> dict[str, int]:
    """The numbers of boards, and of those online, with errors, and with a failed entropy test."""
    return {
        f"board{'s' * (len(boards) != 1)}": len(boards),
        "online": sum(board.online for board in boards),
        "with errors": sum(bool(board.errors) for board in boards),
        "without entropy": sum(map(failed, boards)),
    }


class LiveStore:
    """The newest snapshot of a store (`now`), its boards as a table, and arriving reports."""

    def __init__(self, reader: Reader) -> None:
        """Raises StorageError unless it is a store of this version."""
        self._reader, self.path = reader, reader.path
        self._looking = asyncio.Lock()
        self._looked = 0.0
        self.table = BoardTable()
        self.arrivals: deque[Point] = deque(maxlen=_MOST_ARRIVALS)
        self._round: int | None = None
        self._first = 0.0
        self.now: Snapshot = reader.snapshot()
        self._note()

    async def look(self) -> Snapshot:
        """The store as it is now, or was less than `EVERY` seconds ago."""
        async with self._looking:
            if time.monotonic() - self._looked >= EVERY:
                try:
                    self.now = await asyncio.to_thread(self._reader.snapshot)
                except StorageError as error:  # another file is there, before anything was read
                    self.now = replace(self.now, note=error.message)
                self._looked = time.monotonic()
                self._note()
        return self.now

    def _note(self) -> None:
        """Take over the boards and the reports of the newest snapshot."""
        self.table.take(self.now.boards)
        open_round = self.now.open[-1] if self.now.open else None
        number = None if open_round is None else open_round.number
        if number != self._round:  # another round: its reports are counted from 0
            self.arrivals.clear()
            self._round = number
        if open_round is not None and open_round.reports:
            self._note_arrivals(float(open_round.reports))

    def _note_arrivals(self, reports: float) -> None:
        """Add a point to the curve of arriving reports. reports: of the open round so far."""
        now = time.monotonic()
        if not self.arrivals:
            self._first = now
        last_counts = [count for _, count in list(self.arrivals)[-2:]]
        if last_counts == [reports, reports]:
            self.arrivals.pop()  # a step needs only the first and the last of equal points
        self.arrivals.append((now - self._first, reports))


class Others:
    """The runs of a store and of the stores beside it, to compare."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._readers: dict[tuple[Path, str | None], tuple[Reader, Snapshot, Stamp]] = {}

    def runs(self) -> dict[str, tuple[Path, RunView]]:
        """Return the runs of all stores by name with the path of their store, the newest first.

        This may take a while.
        """
        all_runs: list[tuple[Path, RunView]] = []
        for path in stores.with_neighbours(self._store):
            all_runs += [(path, run) for run in self.history(path, None).runs]
        by_name: dict[str, tuple[Path, RunView]] = {}
        for path, run in sorted(all_runs, key=lambda entry: -entry[1].began):
            by_name.setdefault(run.name, (path, run))
        return by_name

    def history(self, path: Path, run: str | None) -> Snapshot:
        """Return a snapshot of a run in a store, from memory if the store has not changed.

        run: None for the current one. A store of another version gives an empty snapshot with a
        note.
        """
        stamp = _stamp(path)
        if (path, run) in self._readers:
            reader, last_snapshot, last_stamp = self._readers[path, run]
            if last_stamp == stamp:
                return last_snapshot
        else:
            reader = Reader(path, run)
        try:
            snapshot = reader.snapshot()
        except StorageError as error:  # of another version
            snapshot = Snapshot(str(path), note=error.message)
        finally:
            reader.close()  # it keeps what it has read
        self._readers[path, run] = reader, snapshot, stamp
        return snapshot


def _stamp(store: Path) -> Stamp:
    """Return modification times and sizes of a store's file and log, to notice every change."""
    stamps = []
    store = real(store)
    for path in (store, store.with_name(f"{store.name}-wal")):
        with suppress(OSError):
            status = path.stat()
            stamps.append((status.st_mtime_ns, status.st_size))
    return tuple(stamps)
