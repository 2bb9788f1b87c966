"""A store as all open pages see it, read once for all of them and only while one is open; its boards as a table."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ternhost.errors import StorageError
from ternhost.store.boards import BoardRow
from ternhost.store.reader import Reader
from ternhost.store.snapshot import RunView, Snapshot
from ternhost.watch import places
from ternhost.watch.curves import Point
from ternhost.watch.fleet_view import budget, failed, generator

EVERY = 0.5  # seconds from one look to the next
_MOST_ARRIVALS = 600

Stamp = tuple[tuple[int, int], ...]
Row = dict[str, Any]
MOST_ROWS = 500  # of an answer


def row(board: BoardRow) -> Row:
    """A board as it is shown: budget as epsilon, heap in kB (1000 bytes), what it did not say as None."""
    told = board.told
    heap = told.get("heap")
    return {
        "name": board.name,
        "online": "online" if board.online else "offline",
        "heard": board.heard,
        "release": told.get("release"),
        "budget": budget(board),
        "entropy": generator(board),
        "heap": heap / 1000 if heap else None,
        "restarts": told.get("restarts"),
        "exceptions": told.get("exceptions"),
        "errors": board.errors,
        "error": board.error,
        "first": board.first,
        "clients": board.clients,
        "records": told.get("records"),
        "epoch": told.get("epoch"),
        "text": told.get("text"),
    }


_SEARCHED = ("name", "online", "release", "entropy", "error", "text")
COLUMNS = frozenset(row(BoardRow("", 0, 0, False, 0.0)))


class Table:
    """The rows of the boards that were seen last; those that have not changed are not made again."""

    def __init__(self) -> None:
        self._boards: tuple[BoardRow, ...] | None = None
        self._rows: dict[int, tuple[BoardRow, Row, str]] = {}
        self.changes = 0  # how often the boards were others than before

    def take(self, boards: tuple[BoardRow, ...]) -> None:
        """These are the boards now."""
        if boards is self._boards:
            return
        rows: dict[int, tuple[BoardRow, Row, str]] = {}
        for board in boards:
            known = self._rows.get(board.first)
            if known is None or known[0] is not board:
                made = row(board)
                known = board, made, " ".join(str(made[name] or "") for name in _SEARCHED).lower()
            rows[board.first] = known
        if (
            self._boards is None
            or any(self._rows.get(first, (None,))[0] is not known[0] for first, known in rows.items())
            or rows.keys() != self._rows.keys()
        ):
            self.changes += 1
        self._boards, self._rows = boards, rows

    def page(
        self, first: int, last: int, search: str = "", sort: str = "", descending: bool = False
    ) -> tuple[int, list[Row]]:
        """How many boards have all the words that are searched for, and the rows `first` to `last` (not included) of
        them, sorted by a column. What a board did not say comes last."""
        words = search.lower().split()
        found = [made for _, made, text in self._rows.values() if all(word in text for word in words)]
        if sort in COLUMNS:
            key: Callable[[Row], Any] = lambda own: own[sort]  # noqa: E731
            known = [own for own in found if own[sort] is not None]
            known.sort(key=key, reverse=descending)
            found = known + [own for own in found if own[sort] is None]
        return len(found), found[first : min(last, first + MOST_ROWS)]


def summary(boards: Sequence[BoardRow]) -> dict[str, int]:
    """How many boards there are, are online, have errors, or fail their entropy test."""
    return {
        "boards": len(boards),
        "online": sum(board.online for board in boards),
        "with errors": sum(bool(board.errors) for board in boards),
        "without entropy": sum(map(failed, boards)),
    }


class LiveStore:
    """The newest snapshot of a store (`now`), its boards as a table, and how the reports of its round arrive."""

    def __init__(self, reader: Reader) -> None:
        """Raises StorageError for what is no store of this version."""
        self._reader = reader
        self._looking = asyncio.Lock()
        self._looked = 0.0
        self.table = Table()
        self.arrivals: deque[Point] = deque(maxlen=_MOST_ARRIVALS)
        self._round: int | None = None
        self._first = 0.0
        self.now: Snapshot = reader.snapshot()
        self._note()

    @property
    def path(self) -> Path:
        return self._reader.path

    async def look(self) -> Snapshot:
        """The store as it is, or was less than `EVERY` seconds ago."""
        async with self._looking:
            if time.monotonic() - self._looked >= EVERY:
                try:
                    self.now = await asyncio.to_thread(self._reader.snapshot)
                except StorageError as error:  # nothing was ever read, and now there is something else
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
                self.arrivals.pop()  # between two alike: the step says as much
            self.arrivals.append(point)


class Others:
    """The runs beside a store: what each has learned, for who compares them."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._readers: dict[tuple[Path, str | None], tuple[Reader, Snapshot, Stamp]] = {}

    def runs(self) -> dict[str, tuple[Path, RunView]]:
        """Every run of this store and of those beside it by its name, the newest first. May take a while."""
        found: list[tuple[Path, RunView]] = []
        for path in places.beside(self._store):
            found += [(path, run) for run in self._snapshot(path, None).runs]
        named: dict[str, tuple[Path, RunView]] = {}
        for path, run in sorted(found, key=lambda own: -own[1].began):
            named.setdefault(run.name, (path, run))
        return named

    def history(self, path: Path, run: str) -> Snapshot:
        """That run of that store."""
        return self._snapshot(path, run)

    def _snapshot(self, path: Path, run: str | None) -> Snapshot:
        stamp = _stamp(path)
        known = self._readers.get((path, run))
        if known is not None and known[2] == stamp:
            return known[1]
        reader = known[0] if known else Reader(path, run)
        try:
            found = reader.snapshot()
        except StorageError as error:  # of another version
            found = Snapshot(str(path), note=error.message)
        finally:
            reader.close()  # what it has read it keeps
        self._readers[path, run] = reader, found, stamp
        return found


def _stamp(store: Path) -> Stamp:
    """What changes with a store: when its file and its log were written last, and how long they are."""
    found = []
    for path in (store, store.with_name(f"{store.name}-wal")):
        with suppress(OSError):
            told = path.stat()
            found.append((told.st_mtime_ns, told.st_size))
    return tuple(found)
