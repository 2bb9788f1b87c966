"""A store as all open pages see it: read by one of them for all, and not at all while none is open."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ternhost.errors import StorageError
from ternhost.store.reader import Reader
from ternhost.store.snapshot import RunView, Snapshot
from ternhost.watch import places
from ternhost.watch.curves import Point
from ternhost.watch.page.table import Table

EVERY = 0.5  # seconds from one look to the next
_MOST_ARRIVALS = 600

Stamp = tuple[tuple[int, int], ...]


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
