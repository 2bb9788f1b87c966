"""A store for all open pages, read once for all of them and only while one is open; its boards as a
table.
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
    """The row of a board: budget as epsilon, heap in kB (1000 bytes), None for values that it did
    not report.
    """
    fields: Row = {name: board.hello.get(name) for name in _TOLD}
    fields |= {name: getattr(board, name) for name in _SEEN}
    fields |= {"online": "online" if board.online else "offline", "budget": budget(board)}
    fields["protects"] = protected(board.hello.get("unit") or 0) if "unit" in board.hello else None
    fields |= {"entropy": generator(board), "heap": (board.hello.get("heap") or 0) / 1000 or None}
    return {
        name: brief(value) if isinstance(value, str) else value for name, value in fields.items()
    }


_SEEN = ("name", "heard", "errors", "error", "first", "clients")  # by the host
_TOLD = ("release", "restarts", "exceptions", "records", "epoch", "text")  # as the board tells them
_SEARCHED = ("name", "online", "release", "entropy", "error", "text")
COLUMNS = frozenset(row(BoardRow("", 0, 0, False, 0.0)))


class BoardTable:
    """The rows of the current boards; only changed boards get new rows."""

    def __init__(self) -> None:
        self._boards: tuple[BoardRow, ...] | None = None
        self._rows: dict[int, tuple[BoardRow, Row, str]] = {}
        self.changes = 0  # how often the boards have changed

    def take(self, boards: tuple[BoardRow, ...]) -> None:
        """Update the rows to these boards."""
        if boards is self._boards:
            return
        rows: dict[int, tuple[BoardRow, Row, str]] = {}
        changed = self._boards is None or len(boards) != len(self._boards)
        for board in boards:
            known = self._rows.get(board.first)
            if known is None or known[0] is not board:
                made = row(board)
                known = board, made, " ".join(str(made[name] or "") for name in _SEARCHED).lower()
                changed = True
            rows[board.first] = known
        self.changes += changed
        self._boards, self._rows = boards, rows

    def page(
        self, first: int, last: int, search: str = "", sort: str = "", descending: bool = False
    ) -> tuple[int, list[Row]]:
        """Return how many boards match all words of `search`, and their rows `first` to `last`
        (excluded), missing values last.
        """
        words = search.lower().split()
        rows = [row for _, row, text in self._rows.values() if all(word in text for word in words)]
        if sort in COLUMNS:
            known = [row for row in rows if row[sort] is not None]
            known.sort(key=itemgetter(sort), reverse=descending)
            rows = known + [row for row in rows if row[sort] is None]
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
    """The newest snapshot of a store (`now`), its boards as a table, and the arrival of reports in
    its open round.
    """

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
        self.table.take(self.now.boards)
        opened = self.now.open[-1] if self.now.open else None
        number = None if opened is None else opened.number
        if number != self._round:
            self.arrivals.clear()
            self._round = number
        if opened is not None and opened.reports:
            now = time.monotonic()
            if not self.arrivals:
                self._first = now
            point = (now - self._first, float(opened.reports))
            if len(self.arrivals) > 1 and self.arrivals[-1][1] == self.arrivals[-2][1] == point[1]:
                self.arrivals.pop()  # between two equal points: the step shows as much
            self.arrivals.append(point)


class Others:
    """The runs of a store and of the stores beside it, to compare."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._readers: dict[tuple[Path, str | None], tuple[Reader, Snapshot, Stamp]] = {}

    def runs(self) -> dict[str, tuple[Path, RunView]]:
        """All runs by name, the newest first. May take a while."""
        runs: list[tuple[Path, RunView]] = []
        for path in stores.beside(self._store):
            runs += [(path, run) for run in self.history(path, None).runs]
        by_name: dict[str, tuple[Path, RunView]] = {}
        for path, run in sorted(runs, key=lambda entry: -entry[1].began):
            by_name.setdefault(run.name, (path, run))
        return by_name

    def history(self, path: Path, run: str | None) -> Snapshot:
        """That run of that store; None: its current one."""
        stamp = _stamp(path)
        known = self._readers.get((path, run))
        if known is not None and known[2] == stamp:
            return known[1]
        reader = known[0] if known else Reader(path, run)
        try:
            snapshot = reader.snapshot()
        except StorageError as error:  # of another version
            snapshot = Snapshot(str(path), note=error.message)
        finally:
            reader.close()  # it keeps what it has read
        self._readers[path, run] = reader, snapshot, stamp
        return snapshot


def _stamp(store: Path) -> Stamp:
    """Modification times and sizes of a store's file and log, which change with every write."""
    stamps, store = [], real(store)
    for path in (store, store.with_name(f"{store.name}-wal")):
        with suppress(OSError):
            status = path.stat()
            stamps.append((status.st_mtime_ns, status.st_size))
    return tuple(stamps)
